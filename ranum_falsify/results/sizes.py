"""For which sizes of symbolic dimensions a verdict stands, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ranum_falsify.verify.search.result import SizeOutcome

_MOST_NAMED = 6


def ranged(outcomes: Sequence[SizeOutcome]) -> str:
    """Return all the sizes that were asked about, such as `batch = 1..2, seq = 1..64`."""
    names = list(outcomes[0].dims)
    varying = {name: sorted({one.dims[name] for one in outcomes}) for name in names}
    return ", ".join(f"{name} = {_spans(values)}" for name, values in varying.items())


def as_text(outcomes: Sequence[SizeOutcome]) -> str:
    """Return which sizes have which verdict, as one line."""
    groups: dict[str, list[Mapping[str, int]]] = {}
    for one in outcomes:
        groups.setdefault(one.verdict or "not looked at", []).append(one.dims)
    return "sizes: " + "; ".join(f"{verdict} with {_name(sizes)}" for verdict, sizes in groups.items())


def _name(sizes: Sequence[Mapping[str, int]]) -> str:
    names = list(sizes[0])
    if len(names) == 1:
        return f"{names[0]} = {_spans(sorted(one[names[0]] for one in sizes))}"
    listed = ["(" + ", ".join(f"{name} = {size}" for name, size in one.items()) + ")" for one in sizes[:_MOST_NAMED]]
    more = len(sizes) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def _spans(values: Sequence[int]) -> str:
    """Return ascending numbers with those in a row joined: `1..17, 19`."""
    return ", ".join(f"{low}" if low == high else f"{low}..{high}" for low, high in _runs(values))


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = values[0]
    for value in values[1:]:
        if value != last + 1:
            yield first, last
            first = value
        last = value
    yield first, last
