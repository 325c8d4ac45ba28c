"""`check`: whether an operator of a model can receive invalid input, without a property file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ranum_falsify.api.boxes import DEFAULT_WEIGHTS, BoxLike, FreeLike, WeightsLike
from ranum_falsify.api.check_request import ValidityQuestion
from ranum_falsify.api.entry_points import ask_all_sizes, show_keywords, take
from ranum_falsify.api.loading import sample_box
from ranum_falsify.api.models import ModelLike, model_of
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.result import Mended, Result
from ranum_falsify.config import Options, defaults_of_check
from ranum_falsify.errors import UsageError


@PlainTorch()
@show_keywords
def check(
    model: ModelLike | torch.nn.Module,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    box: BoxLike | None = None,
    only: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    gradient: bool = False,
    wrt: str | Sequence[str] | None = None,
    autocast: torch.dtype | None = None,
    free: FreeLike | None = None,
    weights: WeightsLike = DEFAULT_WEIGHTS,
    passes: Sequence[str | type] = (),
    imports: Sequence[str | Path] = (),
    mend: float = 10.0,
    **options: Any,
) -> Result:
    """Ask whether an operator of a model can receive input on which it makes NaN or infinity.

    A PyTorch module is exported as it is, in training mode unless `eval()` was called. What is found comes with its
    line of Python, and is shown on the module itself.

    Args:
        model: A PyTorch module; or a loaded model, a path, an `onnx.ModelProto`, or bytes.
        args: Of a module: the positional arguments of an example call, as a tuple. Inputs have the names of `forward`'s
            parameters, and the shapes that they have here.
        kwargs: Of a module: the keyword arguments of the example call.
        box: What the inputs range over: `(lower, upper)` for all, or a mapping from names of inputs, in which `...`
            stands for all others. Bounds are numbers, or arrays that broadcast to the input's shape; a single value in
            place of a pair does not vary. What is left out has a default, which the answer names: images [0, 1], other
            floating numbers [-1, 1], indices those of the table that they choose from, labels of a loss its
            classes, booleans both. Of a module, `(lower, upper)` is about floating numbers; other integers stay as in
            the example call.
        only: ONNX operator types to look at; all by default.
        nodes: Names of ONNX nodes to look at; all by default.
        gradient: Whether derivatives must be finite too. Of a module: whether its backward pass is looked at as well,
            from the sum of its floating outputs to what `wrt` names.
        wrt: Of a module: names of the inputs and parameters that its backward pass goes to, "parameters" standing for
            all of these. By default all parameters, and the inputs that require gradients or, if none does, all
            floating ones whose names do not say that they are labels, targets or masks.
        autocast: Of a module: `torch.float16` or `torch.bfloat16` to check it under autocast, with the casts that
            PyTorch makes on CUDA.
        free: Initializers that range too, as weights do in training: their names, or "all": the parameters of
            a module, and all but scalars of a model.
        weights: What they range over: a share of each value, or `(lower, upper)` for all. With a share of 0.1 a value
            ranges over itself +- 10 %, a value of 0 over +- 10 % of the largest magnitude of its tensor, and +- 0.1 in
            a tensor of zeros. `box` says otherwise of those that it names.
        passes: Passes of `transform` to run first, by name or class, each verified in the box. The answer, its
            counterexamples and what `save` writes are about the model that they make.
        imports: Python files that register passes, with all rights of the user.
        mend: Of a module: for how many seconds to look for other texts of the lines that fail, which this proves; see
            `fix`. The module's functions run these for a while: no other thread may run them.
        **options: See `Options`. `runtime` is `onnxruntime` by default, `torch` for modules.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the box or an option is invalid; one line says what to do.
    """
    question = ValidityQuestion(box=box, only=only, nodes=nodes, gradient=gradient, free=free, weights=weights)
    question = replace(question, passes=passes, imports=imports)
    if wrt is not None and not (gradient and isinstance(model, torch.nn.Module)):
        raise UsageError(
            "wrt: says what the backward pass of a PyTorch module goes to; give gradient=True, and a module"
        )
    if autocast is not None and not isinstance(model, torch.nn.Module):
        raise UsageError("autocast: is about PyTorch modules; of an ONNX model, dtype says what to convert it to")
    if isinstance(model, torch.nn.Module):
        if passes:
            raise UsageError("passes: rewrite ONNX models; export the module by torch.onnx.export, and check the file")
        from ranum_falsify.api.modules import check_module  # imports the exporter

        taken = take(options, **defaults_of_check("torch", gradient=gradient))
        return check_module(model, args, kwargs, question, taken, wrt, autocast, mend)
    if callable(model):
        raise UsageError(
            f"model: {getattr(model, '__name__', model)!r} is a function; give a torch.nn.Module whose forward calls it"
        )
    if args is not None or kwargs:
        raise UsageError("args: an ONNX model has no example call; box says what its inputs range over")

    def ask(one: Options) -> Result:
        find_samples = partial(sample_box, box=box)
        return question.ask(lambda: model_of(model, one.sizes, strict=one.strict, find_samples=find_samples), one)

    return ask_all_sizes(take(options, **defaults_of_check(gradient=gradient)), ask)


def mend(
    module: torch.nn.Module, /, args: Any = None, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Mended:
    """Change the lines of a module that can fail, one after the other, until `check` proves that none does.

    Stable forms come first, such as `torch.log_softmax(x, -1)` for `torch.log(torch.softmax(x, -1))`, then guards; of
    several, the one that changes fewest valid results on random inputs. The module is not changed.

    Args and errors are those of `check`.

    Returns:
        The changes; those found so far where not all could be mended.

    Raises:
        UsageError: Nothing fails, so that there is nothing to mend.
    """
    result = check(module, args, kwargs, **{"mend": math.inf, **options})
    if result.mended is None:
        raise UsageError(f"{type(module).__name__}: {result.verdict}; there is no violation to mend")
    return result.mended
