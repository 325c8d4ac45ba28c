"""Replay: ONNX Runtime runs the original model, in a child process, and decides what is true."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
