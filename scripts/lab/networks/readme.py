"""The table of networks, read back from the models themselves."""

from collections.abc import Iterable

import onnx

from lab.networks.builder import BOX, HAZARD

__all__ = ["readme"]

_INTRODUCTION = """# Small networks

Written by `python scripts/make_networks.py`, the same in every byte on every machine; do not edit.
The natural box of each input and the operators that can fail are also in the metadata of the files
(`box:<input>`, `hazard:<node>`). A network without a hazard stays finite in its box; `<name>_safe` is
`<name>` with the defect repaired. `digit_three.npy` is an input of `mlp_classifier`, read as a 3.

| network | inputs and natural box | operators | node that can fail | trigger |
|---|---|---|---|---|
"""


def readme(models: Iterable[onnx.ModelProto]) -> str:
    """Return the text of ``networks/README.md`` for the given models, in their order."""
    return _INTRODUCTION + "".join(_row(model) for model in models)


def _row(model: onnx.ModelProto) -> str:
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    inputs = []
    for tensor in model.graph.input:
        shape = ", ".join(str(dim.dim_value) for dim in tensor.type.tensor_type.shape.dim)
        low, high = metadata[BOX + tensor.name].split()
        inputs.append(f"`{tensor.name}` [{shape}] in [{low}, {high}]")
    nodes = [key.removeprefix(HAZARD) for key in metadata if key.startswith(HAZARD)]
    # With several nodes, table cells wrap and rows no longer line up: each trigger repeats its node.
    label = "`{}`: " if len(nodes) > 1 else ""
    cells = [
        f"`{model.graph.name}`: {model.doc_string}",
        "<br>".join(inputs),
        " ".join(sorted({node.op_type for node in model.graph.node})),
        "<br>".join(f"`{node}`" for node in nodes) or "-",
        "<br>".join(label.format(node) + metadata[HAZARD + node] for node in nodes) or "-",
    ]
    return f"| {' | '.join(cells)} |\n"
