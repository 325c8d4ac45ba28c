"""The engine: proofs, search, replay, and the decision by all three."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
