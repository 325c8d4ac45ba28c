"""What a pass promises of the model that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_ATTRIBUTE = "verified_guarantee"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """How the outputs of the new model compare with those of the old one.

    Attributes:
        kind: `equality`: bit for bit, NaN equal to NaN; `tolerance`: within a relative and an absolute tolerance;
            `metric`: within limits of metrics that the user chooses.
        signed_zero: Whether equality tells zeros of different signs apart.
        everywhere: Whether it holds on all inputs, or on those where no operator of the old model receives invalid
            input.
    """

    kind: Literal["equality", "tolerance", "metric"]
    signed_zero: bool = True
    everywhere: bool = True

    def __str__(self) -> str:
        sign = "" if self.signed_zero else ", zeros of either sign equal"
        where = "" if self.everywhere else ", on valid inputs"
        return f"{self.kind}{sign}{where}"


def set_guarantee(cls: type[Any], guarantee: Guarantee) -> None:
    """Store the guarantee of a pass in its class."""
    setattr(cls, _ATTRIBUTE, guarantee)


def guarantee_of(made: Any) -> Guarantee | None:
    """Return the guarantee of a pass, or of its class; None where it has none of its own."""
    cls = made if isinstance(made, type) else type(made)
    found = vars(cls).get(_ATTRIBUTE)
    return found if isinstance(found, Guarantee) else None
