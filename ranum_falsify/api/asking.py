"""`falsify` and `prove`: properties of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from ranum_falsify.api.loading import Loaded, load
from ranum_falsify.api.models import Model, ModelLike, model_of
from ranum_falsify.api.properties import Property, PropertyLike, network_of, property_of
from ranum_falsify.api.result import Result
from ranum_falsify.api.running import answer, keep_list, kernel_notices
from ranum_falsify.api.settings import Options, Settings, settings_of
from ranum_falsify.errors import UsageError

__all__ = ["answer_loaded", "falsify", "map_models", "prove"]


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
    settings = settings_of(options)
    prop = property_of(property)
    return answer_loaded(
        load(prop, map_models(model, prop, settings.dims, strict=settings.strict), dtype=settings.dtype), settings
    )


def prove(model: ModelLike | Mapping[str, ModelLike], property: PropertyLike, **options: Unpack[Options]) -> Result:
    """Prove a property of models without searching for a counterexample; the verdict is `holds` or `unknown`.

    Args and errors are those of `falsify`.
    """
    settings = settings_of(options)
    if settings.config.prove is None:
        raise UsageError("prove=False: nothing would be done; call falsify for a search alone")
    settings = replace(settings, config=replace(settings.config, n_starts=0))
    prop = property_of(property)
    return answer_loaded(
        load(prop, map_models(model, prop, settings.dims, strict=settings.strict), dtype=settings.dtype), settings
    )


def answer_loaded(loaded: Loaded, settings: Settings) -> Result:
    """Return the answer to what was loaded."""
    found = answer(
        loaded,
        settings.config,
        notices=kernel_notices(settings.config, settings.self_check),
        progress=settings.progress,
    )
    return Result(answer=found, loaded=loaded, config=settings.config, kept=keep_list(loaded, settings.config))


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
    return {name: model_of(one, dims, strict=strict) for name, one in given.items()}
