"""`falsify` and `prove`: properties of models."""

from __future__ import annotations

import difflib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import torch

from ranum_falsify.api.loading import BoundProblem, load
from ranum_falsify.api.models import Model, ModelLike
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.properties import Property, PropertyLike, network_of, property_of
from ranum_falsify.api.result import Result
from ranum_falsify.api.run import Refute, answer, keep_list, kernel_notices, take_time
from ranum_falsify.api.samples import load_networks
from ranum_falsify.api.sizes import UNREAD, ask_each, join_answers, list_sizes
from ranum_falsify.api.timekeeper import Exit, TimeUp, time_limit
from ranum_falsify.config import Options
from ranum_falsify.errors import UsageError
from ranum_falsify.results.progress import follow

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S", covariant=True)
T = TypeVar("T")


def take(options: Mapping[str, Any], **defaults: Any) -> Options:
    """Return options that were given by keyword.

    Args:
        options: The options.
        **defaults: Values in place of None.

    Raises:
        TypeError: There is no such option.
        UsageError: An option does not take its value.
    """
    known = [each.name for each in fields(Options)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(known)}"
            raise TypeError(f"there is no option {name!r}; {hint}")
    given = Options(**options)
    return given.with_defaults(**defaults)


def show_keywords(function: F) -> F:
    """Show the options of a function that takes them as `**options` in its signature, for `help` and notebooks."""
    own = list(inspect.signature(function).parameters.values())[:-1]
    new = (inspect.Parameter(f.name, f.kind, default=f.default) for f in inspect.signature(Options).parameters.values())
    function.__signature__ = inspect.Signature([*own, *new], return_annotation="Result")  # type: ignore[attr-defined]
    return function


class _OrOfModule(Protocol[P, R, Q, S]):
    """A function of models that is another one of modules."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, module: torch.nn.Module, *args: Q.args, **kwargs: Q.kwargs) -> S: ...


def or_of_module(
    of_module: Callable[Concatenate[torch.nn.Module, Q], S],
) -> Callable[[Callable[P, R]], _OrOfModule[P, R, Q, S]]:
    """Make another function answer where the first argument is a PyTorch module."""

    def decorate(of_model: Callable[P, R]) -> _OrOfModule[P, R, Q, S]:
        @wraps(of_model)
        def function(*args: Any, **kwargs: Any) -> Any:
            is_module = isinstance(args[0] if args else kwargs.get("module"), torch.nn.Module)
            return (of_module if is_module else of_model)(*args, **kwargs)

        return function

    return decorate


@PlainTorch()
@show_keywords
def falsify(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Any) -> Result:
    """Prove a property of models, or search for a counterexample, as the command line does.

    Args:
        model: The model of the property's only network, or models by the names that it gives its networks. Each is
            loaded, a path, an `onnx.ModelProto`, or bytes.
        property: A loaded property, a path, or a text; see `load_property`.
        **options: See `Options`.

    Raises:
        TypeError: There is no such option.
        RanumFalsifyError: The model, the property or an option is invalid; one line says what to do.
    """
    return ask_all_sizes(take(options), lambda one: _ask(model, property, one))


@PlainTorch()
@show_keywords
def prove(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Any) -> Result:
    """Prove a property of models without searching for a counterexample; the verdict is `holds` or `unknown`.

    Args and errors are those of `falsify`.
    """
    given = take(options)
    if not given.prove:
        raise UsageError("prove=False: nothing would be done; call falsify for a search alone")
    return ask_all_sizes(replace(given, n_starts=0), lambda one: _ask(model, property, one))


def _ask(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, options: Options) -> Result:
    def read() -> BoundProblem:
        prop = property_of(property)
        return load(prop, map_models(model, prop, options.sizes, strict=options.strict), dtype=options.dtype)

    return ask_in_time(read, answer_loaded, options)


def ask_all_sizes(options: Options, ask: Callable[[Options], Result]) -> Result:
    """Ask about every size of the symbolic dimensions that have a range, in the time of one run.

    Args:
        options: The options.
        ask: Asks about one size of each.

    Returns:
        The answer about all of them; what it shows beside the verdict is about one.
    """
    sizes = list_sizes(options.dims)

    def ask_one(one: Mapping[str, int], share: float | None) -> Result:
        return ask(replace(options, dims=one, timeout=share))

    results = ask_each(sizes, options.timeout, ask_one, lambda result: result.answer)
    if len(sizes) == 1:
        return results[0]
    position, joined = join_answers(options.dims, sizes, [result.answer for result in results])
    shown = next((result for result in (results[position], *results) if result.read is not None), results[position])
    return replace(shown, answer=joined)


def ask_in_time(
    read: Callable[[], T], ask: Callable[[T, Options], Result], options: Options, exit: Exit | None = None
) -> Result:
    """Read something and ask about it, within the timeout together; unknown where there is no time to read it.

    Args:
        read: Reads it.
        ask: Asks about it, with the options and the time that is left.
        options: The options.
        exit: See `time_limit`.
    """
    found, left = read_in_time(read, options, exit)
    if found is None:
        return Result(answer=replace(UNREAD, seed=options.seed), read=None, config=options)
    return ask(found, left)


def read_in_time(read: Callable[[], T], options: Options, exit: Exit | None = None) -> tuple[T | None, Options]:
    """Return what is read, None if there is no time, and the options with the time that is left; see `ask_in_time`."""
    began = time.monotonic()
    try:
        with time_limit(options.timeout, exit):
            found = read()
    except TimeUp:
        return None, options
    return found, take_time(options, time.monotonic() - began)


def answer_loaded(loaded: BoundProblem, options: Options, refute: Refute = lambda _: None) -> Result:
    """Return the answer to what was loaded."""
    notices = kernel_notices(options, options.self_check)
    began = time.monotonic()
    with follow(options.progress) as progress:
        found = answer(loaded, options, notices=notices, progress=progress, refute=refute)
    kept = keep_list(loaded, take_time(options, time.monotonic() - began))
    return Result(answer=found, read=loaded, config=options, kept=kept)


def map_models(
    model: ModelLike | Mapping[str, ModelLike],
    prop: Property,
    dims: Mapping[str, int] | None,
    *,
    strict: bool = False,
) -> Mapping[str, Model]:
    """Return models by the names that a property gives its networks, read unless they were.

    Raises:
        ModelError: A model cannot be read.
        UsageError: One model is given for a property of several networks, or sizes for a model that was read before.
    """
    given = model if isinstance(model, Mapping) else {network_of(prop): model}
    return load_networks(prop, given, {name: dims or {} for name in given}, strict=strict)
