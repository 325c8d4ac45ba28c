"""Questions about an application of a network, in the words of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ranum_falsify.errors import PropertyError
from ranum_falsify.network.tensors import to_torch
from ranum_falsify.properties.formula.formula import Comparison, Formula, conjunction
from ranum_falsify.properties.formula.terms import Const, NetworkCall, Output, ValidityGoal
from ranum_falsify.properties.language.vocabulary import FiniteOutputs, NoInvalidInput, check_operators, names_option
from ranum_falsify.properties.language.walk import shorten


def validity_goal(call: NetworkCall, options: Mapping[str, Any], source: Any) -> ValidityGoal:
    """Return what `no_invalid_input` asks of an application.

    Raises:
        PropertyError: The options are wrong.
    """
    if options.keys() - {"only", "nodes", "gradient"}:
        raise PropertyError(f"property: {shorten(source)}: write {NoInvalidInput.usage}")
    only, nodes = (names_option(name, options.get(name), source) for name in ("only", "nodes"))
    check_operators(only)
    return ValidityGoal(call=call, only=only, nodes=nodes, gradient=bool(options.get("gradient", False)))


def finite_outputs(outputs: Sequence[Output], options: Mapping[str, Any], source: Any) -> Formula:
    """Return the formula that all elements of the floating ones of some outputs are finite.

    Raises:
        PropertyError: There are options, which this has none of.
    """
    if options:
        raise PropertyError(f"property: {shorten(source)}: write {FiniteOutputs.usage}")
    floating = [output for output in outputs if output.size and _dtype(output).is_floating_point]
    largest = {id(output): torch.finfo(_dtype(output)).max for output in floating}
    return conjunction(
        Comparison("<=", low, high, source=source)
        for output in floating
        for low, high in ((Const(-largest[id(output)]), output), (output, Const(largest[id(output)])))
    )


def _dtype(output: Output) -> torch.dtype:
    return to_torch(np.empty(0, output.call.graph.output_details[output.index].dtype)).dtype
