"""Search for inputs on which an operator produces NaN or infinity, or on which a property fails."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
