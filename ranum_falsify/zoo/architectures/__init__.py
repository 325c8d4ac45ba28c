"""The architectures, one module per family.

A function adds one architecture to a :class:`~ranum_falsify.zoo.builder.ArchitectureBuilder`: the network with its
loss, as in the program, or, if `safe`, with a repair after which no operator can fail.  Nodes that the catalogue names
have the same names in both.
"""

__all__: list[str] = []
