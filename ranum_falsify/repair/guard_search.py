"""The gentlest guards with which a model is proved: first any that are enough, then each as weak as can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce

import onnx
from dnnv.nn import Operation

from ranum_falsify.domain import Interval
from ranum_falsify.operators.support.conditions import list_stated_conditions
from ranum_falsify.process.deadline import OutOfTime
from ranum_falsify.repair.editing import insert_guards
from ranum_falsify.repair.guards import OperandGuard, guards_of, limiting_guards, scaling_guards
from ranum_falsify.repair.subject import Assessment, GuardSite, RepairSubject
from ranum_falsify.validity import AtMost, Constraint

_RUNGS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
_BISECTIONS = 10
_MORE_BISECTIONS = 6
"""For a guard that stands alone: its limit is then within 1/1000 of what the proof needs."""
_MORE = 0.01
"""Strength of a number that is added where the least one is lost in rounding."""
_MOST_TRIALS = 400
_NEAR = 8
"""How many operators before an open one may be guarded in its place."""


_Make = Callable[[GuardSite, Operation, Mapping[str, Interval]], Iterable[OperandGuard]]
"""Makes the guards of a node from an operation that it stands for, and bounds of the operands of all of these."""


@dataclass(frozen=True)
class Guarded:
    """A model with guards."""

    model: onnx.ModelProto
    guards: Sequence[OperandGuard]
    tensors: Sequence[str]
    assessment: Assessment


class GuardSearch:
    """Guards for one model.

    Args:
        subject: The model that is guarded, and its property.
        is_clip: Whether the guards are written as clips.
        scales: Whether sums that overflow are scaled rather than their terms limited.
        ignored: Open nodes that may stay open.
    """

    def __init__(
        self, subject: RepairSubject, *, is_clip: bool = False, scales: bool = False, ignored: Collection[str] = ()
    ) -> None:
        self._subject = subject
        self._is_clip, self._scales = is_clip, scales
        self._ignored = frozenset(ignored)
        self._sites = subject.sites
        self._trials = 0
        self._limited = set[str]()
        self._looked = set[str]()
        self._made = set[tuple[GuardSite, int]]()
        self._scaled = set[str]()
        self._given_up = set[str]()

    def run(self) -> Guarded | None:
        """Return the gentlest guards that were found, None where none are enough.

        Raises:
            OutOfTime: There was no time to find any.
        """
        found = self._close()
        if found is None:
            return None
        with suppress(OutOfTime):
            for number in range(len(found.guards)):
                found = self._without(found, number) or found
        with suppress(OutOfTime):
            found = self._weaken_all(found)
            for number in range(len(found.guards)):
                found = self._weaken(found, number)
        return found

    def add_instead(self, found: Guarded) -> Guarded | None:
        """Return guards that add numbers wherever others keep small ones out; None where that is not enough.

        Raises:
            OutOfTime: There was no time to find out.
        """
        if not any(guard.can_add for guard in found.guards):
            return None
        for strength in (0.0, _MORE):
            added = [
                replace(guard, adds=True, strength=max(guard.strength, strength)) if guard.can_add else guard
                for guard in found.guards
            ]
            if (closed := self._closed(added)) is not None:
                return closed
        return None

    # any guards that are enough ---------------------------------------------------------------------------------------

    def _close(self) -> Guarded | None:
        """Return guards after which as many nodes as possible are proved, None where there are none."""
        found = Guarded(self._subject.model, (), (), self._subject.original)
        while open_nodes := self._list_open(found.assessment):
            changed = self._guard_open(found) or self._strengthen(found.guards, open_nodes)
            if changed is None:
                self._given_up.update(open_nodes)
                continue
            tried = self._try(changed)
            if tried is None:
                self._given_up.update(open_nodes)
            else:
                found = tried
        closed = set(self._subject.original.open) - set(found.assessment.open)
        return found if closed and found.guards else None

    def _list_open(self, assessment: Assessment) -> list[str]:
        return [node for node in assessment.open if node not in self._ignored and node not in self._given_up]

    def _guard_open(self, found: Guarded) -> list[OperandGuard] | None:
        """Return the guards with those that open nodes have and lack; None where there are no more."""
        open_nodes = self._list_open(found.assessment)
        wanted: dict[GuardSite, tuple[Constraint, ...]] = {}
        for node, conditions in found.assessment.guardable.items():
            if node in open_nodes and node in self._sites.operations:
                site = self._sites.site_of(node)
                wanted[site] = tuple(dict.fromkeys((*wanted.get(site, ()), *conditions)))
        added = self._make(
            wanted, lambda site, op, bounds: guards_of(site, op, wanted[site], bounds, is_clip=self._is_clip)
        )
        return self._sorted([*found.guards, *added]) if added else None

    def _make(self, sites: Collection[GuardSite], make: _Make) -> list[OperandGuard]:
        """Return guards of nodes that were not tried before."""
        known = {site: [name for name in site.operations if name in self._sites.operations] for site in sites}
        bounds = self._subject.bounds_of([name for names in known.values() for name in names])
        made = [
            guard
            for site, names in known.items()
            if (several := [bounds[name] for name in names if name in bounds])
            for guard in make(site, self._sites.operations[names[0]], _unite(several))
        ]
        new = [guard for guard in made if (guard.site, guard.index) not in self._made]
        self._made.update((guard.site, guard.index) for guard in new)
        return new

    def _strengthen(self, guards: Sequence[OperandGuard], open_nodes: Sequence[str]) -> list[OperandGuard] | None:
        """Return stronger guards before an open node, or new ones that limit what it reads; None if all is tried."""
        for node in open_nodes:
            if self._scales and node in self._sites.operations and node not in self._scaled:
                self._scaled.add(node)
                scaled = self._make([self._sites.site_of(node)], scaling_guards)
                if scaled:
                    return self._sorted([*guards, *scaled])
            before = self._sites.before(node)
            weak = {
                n for n, guard in enumerate(guards) if before.intersection(guard.site.operations) and guard.strength < 1
            }
            if weak and node not in self._limited:
                return [_next(guard) if n in weak else guard for n, guard in enumerate(guards)]
            own = {n for n, guard in enumerate(guards) if node in guard.site.operations and guard.strength < 1}
            if own:
                return [_next(guard) if n in own else guard for n, guard in enumerate(guards)]
            above = self._limit_above(node, guards)
            if above is not None:
                return above
            if node in self._limited or node not in self._sites.operations:
                continue
            self._limited.add(node)
            added = self._make([self._sites.site_of(node)], partial(limiting_guards, is_clip=self._is_clip))
            if added:
                weaker = [guard.at(0.0) if before.intersection(guard.site.operations) else guard for guard in guards]
                return self._sorted([*weaker, *added])
        return None

    def _limit_above(self, node: str, guards: Sequence[OperandGuard]) -> list[OperandGuard] | None:
        """Return the guards with those of the nearest operators before a node that have limits; None without such.

        What grows fast, such as an exponential, is narrowed at less cost before it has grown.
        """
        if node in self._limited or node in self._looked:
            return None
        self._looked.add(node)
        for inner in self._sites.nearest_before(node, _NEAR):
            limits = [c for c in list_stated_conditions(self._sites.operations[inner]) if isinstance(c, AtMost)]
            added = self._make([self._sites.site_of(inner)], partial(self._limit, limits)) if limits else []
            if added:
                return self._sorted([*guards, *added])
        return None

    def _limit(
        self, limits: Sequence[Constraint], site: GuardSite, op: Operation, bounds: Mapping[str, Interval]
    ) -> Iterator[OperandGuard]:
        return guards_of(site, op, limits, bounds, is_clip=self._is_clip)

    def _sorted(self, guards: Sequence[OperandGuard]) -> list[OperandGuard]:
        return sorted(guards, key=lambda guard: (self._sites.place(guard.site), guard.index))

    # as weak as possible ----------------------------------------------------------------------------------------------

    def _without(self, found: Guarded, number: int) -> Guarded | None:
        """Return what is left without a guard, if that is enough; the guard stays in the list, without an effect."""
        if number >= len(found.guards) or len(found.guards) == 1:
            return None
        return self._closed([guard for n, guard in enumerate(found.guards) if n != number])

    def _weaken_all(self, found: Guarded) -> Guarded:
        """Return the same with no guard stronger than is needed for all, so that none carries the others' part."""
        low, high = 0.0, max(guard.strength for guard in found.guards)
        for _ in range(_BISECTIONS if high and len(found.guards) > 1 else 0):
            middle = (low + high) / 2
            tried = self._closed([guard.at(min(guard.strength, middle)) for guard in found.guards])
            if tried is None:
                low = middle
            else:
                found, high = tried, middle
        return found

    def _weaken(self, found: Guarded, number: int) -> Guarded:
        """Return the same with one guard as weak as the others allow, by bisection."""
        guard = found.guards[number]
        low, high = 0.0, guard.strength
        if not high:
            return found
        weakest = self._closed(_replaced(found.guards, number, guard.at(low)))
        if weakest is not None:
            return weakest
        for _ in range(_BISECTIONS + (_MORE_BISECTIONS if len(found.guards) == 1 else 0)):
            middle = (low + high) / 2
            tried = self._closed(_replaced(found.guards, number, guard.at(middle)))
            if tried is None:
                low = middle
            else:
                found, high = tried, middle
        return found

    def _closed(self, guards: Sequence[OperandGuard]) -> Guarded | None:
        tried = self._try(guards)
        return None if tried is None or self._list_open(tried.assessment) else tried

    def _try(self, guards: Sequence[OperandGuard]) -> Guarded | None:
        """Return what is proved with some guards; None where they cannot be written."""
        self._trials += 1
        if self._trials > _MOST_TRIALS:
            raise OutOfTime
        edited = insert_guards(self._subject.model, guards)
        placed = [n for n, tensor in enumerate(edited.tensors) if tensor is not None]
        if not placed:
            return None
        assessment = self._subject.assess(edited.model)
        if assessment is None:
            return None
        tensors = [tensor for tensor in edited.tensors if tensor is not None]
        return Guarded(edited.model, [guards[n] for n in placed], tensors, assessment)


def _unite(several: Sequence[Mapping[str, Interval]]) -> Mapping[str, Interval]:
    """Return bounds of the operands of several operations, as one; those that all have."""
    first, *rest = several
    names = [name for name in first if all(name in others for others in rest)]
    return {name: reduce(_hull, (others[name] for others in rest), first[name]) for name in names}


def _hull(x: Interval, y: Interval) -> Interval:
    if x.shape == y.shape:
        return x.hull(y)
    (low, high), (least, greatest) = x.extremes, y.extremes
    return Interval.fill(min(low, least), max(high, greatest), x.shape, x.dtype)


def _next(guard: OperandGuard) -> OperandGuard:
    return guard.at(next(rung for rung in _RUNGS if rung > guard.strength))


def _replaced(guards: Sequence[OperandGuard], number: int, guard: OperandGuard) -> list[OperandGuard]:
    return [guard if n == number else other for n, other in enumerate(guards)]
