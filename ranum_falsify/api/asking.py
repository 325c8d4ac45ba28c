"""`falsify` and `prove`: properties of models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar, Unpack

from ranum_falsify.api.loading import Loaded, load
from ranum_falsify.api.models import Model, ModelLike
from ranum_falsify.api.properties import Property, PropertyLike, network_of, property_of
from ranum_falsify.api.result import Result
from ranum_falsify.api.running import answer, keep_list, kernel_notices, take_time
from ranum_falsify.api.samples import load_networks
from ranum_falsify.api.settings import Options, Settings, settings_of
from ranum_falsify.api.sizes import UNREAD, ask_each, join_answers, list_sizes
from ranum_falsify.api.timekeeper import TimeUp, time_limit
from ranum_falsify.errors import UsageError

__all__ = ["answer_loaded", "ask_all_sizes", "ask_in_time", "falsify", "map_models", "prove"]

T = TypeVar("T")


def falsify(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Unpack[Options]) -> Result:
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
    return ask_all_sizes(settings_of(options), lambda one: _ask(model, property, one))


def prove(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Unpack[Options]) -> Result:
    """Prove a property of models without searching for a counterexample; the verdict is `holds` or `unknown`.

    Args and errors are those of `falsify`.
    """
    settings = settings_of(options)
    if settings.config.prove is None:
        raise UsageError("prove=False: nothing would be done; call falsify for a search alone")
    settings = replace(settings, config=replace(settings.config, n_starts=0))
    return ask_all_sizes(settings, lambda one: _ask(model, property, one))


def _ask(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, settings: Settings) -> Result:
    def read() -> Loaded:
        prop = property_of(property)
        return load(prop, map_models(model, prop, settings.sizes, strict=settings.strict), dtype=settings.dtype)

    return ask_in_time(read, answer_loaded, settings)


def ask_all_sizes(settings: Settings, ask: Callable[[Settings], Result]) -> Result:
    """Ask about every size of the symbolic dimensions that have a range, in the time of one run.

    Args:
        settings: The settings.
        ask: Asks about one size of each.

    Returns:
        The answer about all of them; what it shows beside the verdict is about one.
    """
    sizes = list_sizes(settings.dims)

    def ask_one(one: Mapping[str, int], share: float | None) -> Result:
        return ask(replace(settings, dims=one, config=replace(settings.config, timeout=share)))

    results = ask_each(sizes, settings.config.timeout, ask_one, lambda result: result.answer)
    if len(sizes) == 1:
        return results[0]
    position, joined = join_answers(settings.dims, sizes, [result.answer for result in results])
    shown = next((result for result in (results[position], *results) if result.read is not None), results[position])
    return replace(shown, answer=joined)


def ask_in_time(read: Callable[[], T], ask: Callable[[T, Settings], Result], settings: Settings) -> Result:
    """Read something and ask about it, within the timeout together; unknown where there is no time to read it.

    Args:
        read: Reads it.
        ask: Asks about it, with the settings and the time that is left.
        settings: The settings.
    """
    began = time.monotonic()
    try:
        with time_limit(settings.config.timeout):
            found = read()
    except TimeUp:
        return Result(answer=replace(UNREAD, seed=settings.config.seed), read=None, config=settings.config)
    return ask(found, replace(settings, config=take_time(settings.config, time.monotonic() - began)))


def answer_loaded(loaded: Loaded, settings: Settings) -> Result:
    """Return the answer to what was loaded."""
    config = settings.config
    notices = kernel_notices(config, settings.self_check)
    began = time.monotonic()
    found = answer(loaded, config, notices=notices, progress=settings.progress)
    kept = keep_list(loaded, take_time(config, time.monotonic() - began))
    return Result(answer=found, read=loaded, config=config, kept=kept)


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
