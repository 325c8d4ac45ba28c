"""The Python API: thin functions over what the layers below do, with values in and values out.

`ranum_falsify` itself offers them; see docs/python.md.
"""

__all__: list[str] = []
