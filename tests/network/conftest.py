"""Loads the package before the tests import DNNV, which only then works beside current libraries."""

import ranum_falsify.operators  # noqa: F401 - fills the registry too
