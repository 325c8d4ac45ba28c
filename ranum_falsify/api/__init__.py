"""The Python API: thin functions over what the layers below do, with values in and values out.

`ranum_falsify` itself offers them; see docs/python.md.
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
