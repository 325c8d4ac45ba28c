"""All models of the zoo."""

from __future__ import annotations

import difflib
from dataclasses import replace

from ranum_falsify.errors import ZooError
from ranum_falsify.zoo.architectures import (
    classifiers,
    fuzzed,
    generative,
    graph_losses,
    large_networks,
    regressions,
    stochastic_computing,
)
from ranum_falsify.zoo.facts import DEVELOPER_FIXES, TRAININGS
from ranum_falsify.zoo.model import ZooModel

_FAMILIES = (regressions, classifiers, generative, large_networks, graph_losses, stochastic_computing)


def _complete(model: ZooModel) -> ZooModel:
    """Return a model with what is known of its program besides."""
    defects = tuple(replace(defect, developer_fix=DEVELOPER_FIXES[defect.id]) for defect in model.defects)
    return replace(model, defects=defects, training=TRAININGS.get(model.id))


MODELS: tuple[ZooModel, ...] = tuple(
    sorted(
        (_complete(model) for family in _FAMILIES for model in family.MODELS),
        key=lambda model: (model.number, model.id),
    )
)
"""Every model of the 79 defects, by the number of its program."""

FUZZED: tuple[ZooModel, ...] = tuple(sorted(fuzzed.MODELS, key=lambda model: model.number))
"""The models of 14 more programs, those of the Soft Assertion Fuzzer's study that ONNX can express."""


def model_of(name: str) -> ZooModel:
    """Return the model with an id, or with a defect of that id.

    Raises:
        ZooError: There is none.
    """
    for model in (*MODELS, *FUZZED):
        if name == model.id or any(name == defect.id for defect in model.defects):
            return model
    known = [i for model in (*MODELS, *FUZZED) for i in {model.id, *(d.id for d in model.defects)}]
    near = ", ".join(difflib.get_close_matches(name, known)) or "1 to 63, some with a letter, and saf1 to saf14"
    raise ZooError(f"zoo: there is no defect {name!r} ({near}); `ranum-falsify zoo list` shows all")
