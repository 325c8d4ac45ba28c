"""Passes that are broken by hand, each in its own way; verification must refuse them all."""

from tests.transform.broken.arithmetic import ARITHMETIC
from tests.transform.broken.elsewhere import ELSEWHERE
from tests.transform.broken.kinds import Broken
from tests.transform.broken.outside import OUTSIDE
from tests.transform.broken.rounding import ROUNDING
from tests.transform.broken.validity import VALIDITY

__all__ = ["BROKEN", "Broken"]

BROKEN: tuple[Broken, ...] = (*OUTSIDE, *ARITHMETIC, *ROUNDING, *ELSEWHERE, *VALIDITY)
