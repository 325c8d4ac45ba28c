"""What related operands say beyond their bounds: patterns of nodes, guards, what runtimes fuse."""

__all__: list[str] = []
