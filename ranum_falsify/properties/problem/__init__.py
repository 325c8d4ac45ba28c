"""What a property becomes: boxes of inputs, applications of networks, targets."""

__all__: list[str] = []
