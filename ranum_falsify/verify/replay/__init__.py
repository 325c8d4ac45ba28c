"""Replay: ONNX Runtime runs the original model, in a child process, and decides what is true."""
