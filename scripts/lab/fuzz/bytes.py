"""Mutations that ignore what the bytes mean."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["mutate_bytes"]


def mutate_bytes(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return the data after one to eight mutations.

    Args:
        data: What to mutate.
        rng: Source of randomness.
        others: Data from which foreign pieces are taken.
    """
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        _mutate(result, rng, others)
    return bytes(result)


def _mutate(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    begin = rng.randrange(len(data) + 1)
    end = min(len(data), begin + rng.choice((1, 2, 4, 16, 200)))
    what = rng.randrange(7)
    if what == 0:
        del data[begin:]
    elif what == 1:
        del data[begin:end]
    elif what == 2:
        data[begin:begin] = data[begin:end] * rng.choice((1, 2, 50))
    elif what == 3:
        data[begin:end] = rng.randbytes(end - begin)
    elif what == 4 and begin < len(data):
        data[begin] ^= 1 << rng.randrange(8)
    elif what == 5 and others:
        other = rng.choice(others)
        start = rng.randrange(len(other))
        data[begin:end] = other[start : start + rng.choice((4, 50, 1000))]
    else:
        data[begin:begin] = rng.choice((b"\x00", b"\xff" * 9, b"\x7f\xff", b"\xef\xbb\xbf", b"\n", b"\r"))
