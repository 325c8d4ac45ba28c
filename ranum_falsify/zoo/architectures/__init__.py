"""The architectures, one module per family.

A function adds one architecture to a :class:`~ranum_falsify.zoo.builder.ArchitectureBuilder`: the network with its
loss, as the program has it, or `safe` with a repair that leaves no operator able to fail.  Nodes that the catalogue
names have the same names in both.
"""

__all__: list[str] = []
