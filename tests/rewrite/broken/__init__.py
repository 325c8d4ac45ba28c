"""Passes that are broken by hand, each in its own way; verification must refuse them all."""

from tests.rewrite.broken.arithmetic import ARITHMETIC
from tests.rewrite.broken.elsewhere import ELSEWHERE
from tests.rewrite.broken.kinds import Broken
from tests.rewrite.broken.outside import OUTSIDE
from tests.rewrite.broken.rounding import ROUNDING
from tests.rewrite.broken.validity import VALIDITY

__all__ = ["BROKEN", "Broken"]

BROKEN: tuple[Broken, ...] = (*OUTSIDE, *ARITHMETIC, *ROUNDING, *ELSEWHERE, *VALIDITY)
