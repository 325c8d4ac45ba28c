"""A small checker of proof files, apart from all that made them: it uses NumPy and onnx alone."""

__all__: list[str] = []
