"""Problems made from properties: boxes of inputs, applications of networks, targets."""

__all__: list[str] = []
