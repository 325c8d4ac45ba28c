"""DNNF's attack back ends on our models: its own pgd and newton, Foolbox, CleverHans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ranum_falsify import upstream
from ranum_falsify.errors import BackendError
from ranum_falsify.verify.search.attacks import attack_of
from ranum_falsify.verify.search.clauses import ClauseSearch
from ranum_falsify.verify.search.objective import Objective
from ranum_falsify.verify.search.operator_search import OperatorSearch
from ranum_falsify.verify.search.search import Region, SearchContext
from ranum_falsify.verify.search.starts import Box

_ENDLESS_ROUND = 10
"""Starts on each objective before it is the next one's turn, if the user asks for as many as time allows."""

Confirm = Callable[[Sequence[Tensor]], bool]
"""Replays a batch of one candidate."""


class BackendSearch:
    """Attacks each objective of a search with a back end, one start at a time, as DNNF does.

    DNNF expects a network of one input that is violated where output 0 is not above output 1; all floating inputs of
    the problem become one vector, and the outputs are the margin and 0.
    """

    def __init__(self, context: SearchContext, name: str, search: OperatorSearch | ClauseSearch) -> None:
        self.context = context
        self.search = search
        self.attack = attack_of(name)
        self._parameters = dict(context.config.backend_parameters.get(name, {}))
        config = context.config
        self._starts: int = self._parameters.pop("n_starts", -1 if config.is_endless else config.batch)

    def run(self) -> None:
        """Attack until everything is found or the starts are used up."""
        endless = self._starts < 0
        count = _ENDLESS_ROUND if endless else self._starts
        while self._round(count) and endless:
            pass

    def _round(self, count: int) -> bool:
        """Attack everything not found yet, each with a number of starts; return whether to go on."""
        left = False
        for objective, region, confirm in self.search.objectives():
            found = self._falsifies(objective, region, confirm, count)
            left = left or not found
        return left and not self.context.budget.expired

    def _falsifies(self, objective: Objective, region: Region, confirm: Confirm, count: int) -> bool:
        model = _adapter(_Margins(objective, region), region, confirm)
        for _ in range(count):
            if self.context.budget.expired:
                return False
            self.context.budget.starts += 1
            if self._succeeds(model):
                return True
        return False

    def _succeeds(self, model: Any) -> bool:
        name, settings = self.attack.name, {"variant": self.attack.variant} if self.attack.variant else {}
        try:
            found = self.attack.method(model, parameters=dict(self._parameters), **settings)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise BackendError(f"--backend {name}: {text}; check its settings, --set {name} ...") from error
        return found is not None


class _Margins(torch.nn.Module):
    """The margin and 0, from one vector of all floating inputs.

    The vector lives on the CPU always, because DNNF turns it into arrays without moving it.
    """

    device = torch.device("cpu")

    def __init__(self, objective: Objective, region: Region) -> None:
        super().__init__()
        self._objective = objective
        self._boxes = region.device_boxes

    def split(self, flat: Tensor) -> list[Tensor]:
        """Return the problem's inputs; those that are not floats stay at their lower bounds."""
        parts, begin = [], 0
        for box in self._boxes:
            if not box.dtype.is_floating_point:
                parts.append(box.lower.expand(len(flat), *box.lower.shape))
                continue
            size = box.lower.numel()
            part = flat[:, begin : begin + size].to(box.lower.device, box.dtype)
            parts.append(part.reshape(len(flat), *box.lower.shape))
            begin += size
        return parts

    def forward(self, flat: Tensor) -> Tensor:
        """Return `(batch, 2)`: the least loss, and 0."""
        losses = self._objective.losses(self.split(flat)).amin(1).to(self.device)
        return torch.stack([losses, torch.zeros_like(losses)], dim=1)


def _join(boxes: Sequence[Box], bound: str) -> Tensor:
    parts = [getattr(box, bound).reshape(1, -1) for box in boxes if box.dtype.is_floating_point]
    if not parts:
        raise BackendError("this back end needs an input of floating type; use --backend pgd")
    return torch.cat([part.float() for part in parts], dim=1)


def _adapter(module: _Margins, region: Region, confirm: Confirm) -> Any:
    """Return DNNF's falsification model, with our module inside and with our replay to validate."""
    base = upstream.load("dnnf.model").FalsificationModel

    class Adapter(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.pytorch_model = module
            self._lower, self._upper = (_join(region.boxes, bound) for bound in ("lower", "upper"))
            self.input_shape = tuple(self._lower.shape)
            self.input_torch_dtype = torch.float32

        @property
        def input_lower_bound(self) -> Tensor:
            return self._lower

        @property
        def input_upper_bound(self) -> Tensor:
            return self._upper

        def validate(self, x: np.ndarray) -> bool:
            flat = torch.as_tensor(x, dtype=torch.float32).reshape(self.input_shape)
            inputs = [box.project(part) for box, part in zip(region.device_boxes, module.split(flat), strict=True)]
            return confirm(inputs)

    return Adapter()
