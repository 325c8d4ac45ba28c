"""Small files that ask for huge amounts of time or memory."""

from __future__ import annotations

import random

from lab.fuzz.bomb import Bomb
from lab.fuzz.file_bombs import FILE_BOMBS
from lab.fuzz.model_bombs import MODEL_BOMBS

__all__ = ["make_bomb"]


def make_bomb(rng: random.Random) -> Bomb:
    """Return one of them."""
    return rng.choice((*MODEL_BOMBS, *FILE_BOMBS))(rng)
