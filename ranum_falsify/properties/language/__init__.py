"""The language of properties: DNNP with our vocabulary, and VNN-LIB."""

__all__: list[str] = []
