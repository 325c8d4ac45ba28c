"""Clauses of a property by branch and bound: their margins are bounded on smaller and smaller boxes of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.enclosure import Enclosure
from ranum_falsify.domain.error_bounds import unit
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.branch_and_bound import BranchAndBound, SplitResult
from ranum_falsify.domain.linear.functionals import LinearBounds
from ranum_falsify.lazy import cached_property
from ranum_falsify.process.deadline import Deadline
from ranum_falsify.properties.formula.circuit import Choice, Circuit
from ranum_falsify.properties.formula.leaves import ComparisonLeaf
from ranum_falsify.properties.formula.terms import (
    Const,
    Elementwise,
    Gather,
    NetworkCall,
    Output,
    Reduce,
    Term,
    ValidityGoal,
    Variable,
)
from ranum_falsify.properties.problem.problem import Problem
from ranum_falsify.verify.prove.analyses import Analyses
from ranum_falsify.verify.prove.applications import Box
from ranum_falsify.verify.prove.term_bounds import BoundsFrame, margin_bounds

_SIDES = 256
"""Bounds of rows that are tried at once."""

_LARGE = 1e30
"""In place of a bound that is infinite."""

_MOST_ROWS = 4096
"""Number of rows of all functionals together above which branch and bound would not get far."""


class MarginProof:
    """Decides a problem whose clauses are about the outputs of one application to its variables.

    The analysis was run over the box; `valid` tells of validity goals, by `id`, whether they are proved there.
    """

    def __init__(self, problem: Problem, analysis: LinearAnalysis, valid: Mapping[int, bool]) -> None:
        self._problem = problem
        self._analysis = analysis
        self._valid = valid
        circuits = [problem.clause_circuit, problem.penalty_circuit]
        forms = list(_list_forms(circuits))
        alone = {id(term): term for term in _bases(circuits)}
        self._bases = list((alone | {id(base): base for _, _, form in forms for base in form.bases}).values())
        self._alone = list(alone.values())
        self._plain: dict[int, slice] = {}
        self._known: dict[tuple[int, int], slice] = {}
        self._rows, self._offset, self._error = self._stack(forms)

    @classmethod
    def of(cls, problem: Problem, analysis: LinearAnalysis, valid: Mapping[int, bool]) -> MarginProof | None:
        """Return the proof of a problem of the right form; None for any other."""
        (call, *more) = problem.calls
        names = {v.name for v in problem.inputs}
        own = set(call.variables)
        if more or None in own or own != names or len(call.variables) != len(own):
            return None
        if set(analysis.graph.input_names) != set(call.graph.input_names):
            return None
        proof = cls(problem, analysis, valid)
        known = [analysis.bounds_of(proof._operation(base)) for base in proof._bases]
        is_floating = all(x is not None and x.is_floating for x in known)
        return proof if is_floating and 0 < len(proof._rows) <= _MOST_ROWS else None

    @classmethod
    def of_each(cls, problem: Problem, analyses: Analyses, valid: Mapping[int, bool]) -> list[MarginProof]:
        """Return a proof for the network as written and one for what runs instead; none if the form does not fit."""
        found = [cls.of(problem, analysis, valid) for analysis in analyses.linear]
        proofs = [proof for proof in found if proof is not None]
        is_known = analyses.execution is None or analyses.executed is not None
        return proofs if is_known and len(proofs) == len(analyses.all) else []

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs whose boxes are cut."""
        return self._analysis.graph.input_names

    def run(self, deadline: Deadline, *, cuts: bool = True) -> SplitResult:
        """Choose slopes, then cut the box, until every part of it is decided or time is up; the next run goes on."""
        return self._search.run(deadline, cuts=cuts)

    @cached_property
    def _search(self) -> BranchAndBound:
        ops = [self._operation(base) for base in self._bases]
        return BranchAndBound(self._analysis, ops, self._rows, self._decide, self._find_open)

    def centres(self, result: SplitResult, whole: Box) -> list[Tensor]:
        """Return the centres of some boxes that a run left open, one tensor `(boxes, *shape)` per input variable."""
        (call,) = self._problem.calls
        boxes = dict(zip(self.input_names, result.open_boxes, strict=True))
        count = max((len(box[0]) for box in boxes.values() if box is not None), default=0)
        found = []
        for variable in self._problem.inputs:
            box = boxes[call.graph.input_names[call.variables.index(variable.name)]]
            low, high = (bound.double()[None] for bound in whole[variable.name].expand()) if box is None else box
            found.append(((low + high) / 2).expand(count, *variable.shape))
        return found if count else []

    # rows ---------------------------------------------------------------------------------------------------------

    def _stack(self, forms: Sequence[tuple[Term, Term, LinearForm]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the functionals (single elements first, then differences), their offsets and their errors."""
        starts = np.cumsum([0, *(base.size for base in self._bases)]).tolist()
        columns = {id(base): slice(start, start + base.size) for base, start in zip(self._bases, starts, strict=False)}
        width, count = starts[-1], sum(base.size for base in self._alone)
        # Bases on their own come first.
        self._plain = {id(base): columns[id(base)] for base in self._alone}
        rows, offsets, errors = [np.eye(count, width)], [np.zeros(count)], [np.zeros(count)]
        size = np.concatenate([np.zeros(0), *(self._magnitude(base) for base in self._bases)])
        for first, second, form in forms:
            matrix = np.zeros((len(form.offset), width))
            for base, part in zip(form.bases, form.matrices, strict=True):
                matrix[:, columns[id(base)]] = part
            self._known[id(first), id(second)] = slice(count, count + len(matrix))
            count += len(matrix)
            rows.append(matrix)
            offsets.append(form.offset)
            # The property is evaluated in float64, step by step.
            with np.errstate(invalid="ignore", over="ignore"):
                sizes = np.abs(matrix) @ size + np.abs(form.offset)
            errors.append(2 * (form.terms + 8) * unit(torch.float64) * sizes)
        return tuple(torch.from_numpy(np.concatenate(parts)) for parts in (rows, offsets, errors))  # type: ignore[return-value]

    def _magnitude(self, base: Term) -> np.ndarray:
        bounds = self._analysis.bounds_of(self._operation(base))
        assert bounds is not None
        low, high = bounds.expand()
        return np.asarray(torch.maximum(low.double().abs(), high.double().abs()).reshape(-1))

    def _operation(self, base: Term) -> Operation:
        graph = self._analysis.graph
        if isinstance(base, Output):
            return graph.output_operations[base.index]
        (call,) = self._problem.calls
        position = call.variables.index(base.variable_name)
        return next(op for op in graph.inputs if op.name == call.graph.input_names[position])

    # decisions ----------------------------------------------------------------------------------------------------

    def _decide(self, bounds: LinearBounds) -> Tensor:
        """Tell for each box whether it holds no counterexample."""
        clauses, penalties = self._bound_margins(bounds.lower, bounds.upper)
        return (clauses >= 0).all(1) | (penalties < 0).any(1)

    def _bound_margins(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return for each box the least margins of the clauses and the greatest ones of the side conditions."""
        low = lower + self._offset - self._error
        high = upper + self._offset + self._error
        # Functionals without bounds are NaN after infinities are subtracted.
        low, high = low.nan_to_num(-torch.inf, torch.inf, -torch.inf), high.nan_to_num(torch.inf, torch.inf, -torch.inf)
        frame = _BoxFrame(self._problem, self._plain, self._known, self._valid, Enclosure(low, high))
        clauses = margin_bounds(self._problem.clause_circuit, frame).low
        return clauses, margin_bounds(self._problem.penalty_circuit, frame).high

    def _find_open(self, bounds: LinearBounds) -> Tensor:
        """Tell which rows, and which of their negatives, decide more of a box the better their bounds are."""
        count = len(self._rows)
        clauses, penalties = self._bound_margins(bounds.lower, bounds.upper)
        found = torch.zeros(2 * count, dtype=torch.bool)
        # A bound at a time is as good as it can be.
        for part in torch.arange(2 * count).split(_SIDES):
            low, high = (end.expand(len(part), -1).clone() for end in (bounds.lower, bounds.upper))
            number, row, is_lower = torch.arange(len(part)), part % count, part < count
            best = torch.where(is_lower, high[number, row], low[number, row]).nan_to_num(0.0, _LARGE, -_LARGE)
            low[number[is_lower], row[is_lower]] = best[is_lower]
            high[number[~is_lower], row[~is_lower]] = best[~is_lower]
            better = self._bound_margins(low, high)
            found[part] = ((clauses < 0) & (better[0] > clauses)).any(1) | (better[1] < penalties).any(1)
        return found


class _BoxFrame(BoundsFrame):
    """Bounds of terms on a batch of boxes, from bounds of functionals."""

    def __init__(
        self,
        problem: Problem,
        plain: Mapping[int, slice],
        known: Mapping[tuple[int, int], slice],
        valid: Mapping[int, bool],
        bounds: Enclosure,
    ) -> None:
        self._elements, self._bounds = plain, bounds

        def differences(first: Term, second: Term) -> Enclosure | None:
            rows = known.get((id(first), id(second)))
            return None if rows is None else bounds.map(lambda end: end[:, rows])

        def outputs(call: NetworkCall) -> Sequence[Enclosure]:
            raise AssertionError("outputs are looked up by their terms")

        def goals(goal: ValidityGoal) -> Tensor:
            return torch.full((len(bounds.low),), valid[id(goal)])

        super().__init__({"": bounds}, outputs, goals, differences)

    def value(self, term: Term) -> Enclosure:
        """Return the bounds of a term; of outputs and variables, those of their functionals."""
        rows = self._elements.get(id(term))
        if rows is None:
            return super().value(term)
        return self._bounds.map(lambda end: end[:, rows].reshape(-1, *term.shape))


def _list_comparisons(circuits: Sequence[Circuit]) -> Iterator[tuple[ComparisonLeaf, Term | None, LinearForm | None]]:
    """Yield leaves that compare, each with the difference of terms that decides it, and the linear form of that."""
    for leaf in chain.from_iterable(circuit.leaves for circuit in circuits):
        if isinstance(leaf, ComparisonLeaf):
            difference = leaf.difference if leaf.arg is None else leaf.arg.lead
            yield leaf, difference, None if difference is None else linear_form(difference)


def _list_forms(circuits: Sequence[Circuit]) -> Iterator[tuple[Term, Term, LinearForm]]:
    """Yield the pairs of terms whose difference decides a leaf and is linear, with its form."""
    for _, difference, form in _list_comparisons(circuits):
        if difference is not None and form is not None:
            first, second = difference.operands
            yield first, second, form


def _bases(circuits: Sequence[Circuit]) -> Iterator[Term]:
    """Yield the outputs and variables that leaves without a linear form read."""
    leaves = [leaf for leaf, _, form in _list_comparisons(circuits) if form is None]
    pending: list[Term] = [side for leaf in leaves for side in (leaf.left, leaf.right)]
    while pending:
        term = pending.pop()
        if isinstance(term, Output | Variable):
            yield term
            continue
        pending += term.operands
        if isinstance(term, Choice):
            yield from _bases([term.condition])


# terms as linear functions of network outputs and inputs --------------------------------------------------------------

_MOST_COEFFICIENTS = 1 << 22
"""Number of coefficients up to which a form is made."""


@dataclass(frozen=True, eq=False)
class LinearForm:
    """`sum of matrices[i] @ bases[i] + offset`, for flattened terms.

    Attributes:
        bases: Outputs and variables, each once.
        matrices: `(elements, base elements)` for each.
        offset: `(elements,)`.
        terms: The largest number of terms in a sum, from which its rounding error is bounded.
    """

    bases: tuple[Term, ...]
    matrices: tuple[np.ndarray, ...]
    offset: np.ndarray
    terms: int

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> LinearForm:
        """Apply a linear function to the elements (dimension 0)."""
        return LinearForm(self.bases, tuple(map(function, self.matrices)), function(self.offset), self.terms)

    def plus(self, other: LinearForm) -> LinearForm:
        """Return the sum."""
        found = dict(zip(map(id, self.bases), self.matrices, strict=True))
        bases = {id(base): base for base in (*self.bases, *other.bases)}
        for base, matrix in zip(other.bases, other.matrices, strict=True):
            found[id(base)] = found[id(base)] + matrix if id(base) in found else matrix
        terms = self.terms + other.terms
        return LinearForm(tuple(bases.values()), tuple(found[key] for key in bases), self.offset + other.offset, terms)


def linear_form(term: Term) -> LinearForm | None:
    """Return a term as a linear function; None if it is not linear, or if the function would be too large."""
    if isinstance(term, Variable | Output):
        if term.size**2 > _MOST_COEFFICIENTS:
            return None
        return LinearForm((term,), (np.eye(term.size),), np.zeros(term.size), 1)
    if isinstance(term, Const):
        return LinearForm((), (), term.array.reshape(-1), 1) if np.isfinite(term.array).all() else None
    if isinstance(term, Gather):
        return _gather(term)
    if isinstance(term, Reduce) and term.kind in ("sum", "mean"):
        return _reduce(term)
    if isinstance(term, Elementwise) and term.name in _ELEMENTWISE:
        forms = [linear_form(operand) for operand in term.operands]
        known = [form for form in forms if form is not None]
        if len(known) == len(forms):
            shapes = [operand.shape for operand in term.operands]
            return _ELEMENTWISE[term.name]([_spread(f, s, term.shape) for f, s in zip(known, shapes, strict=True)])
    return None


def _gather(term: Gather) -> LinearForm | None:
    # An element of a large tensor needs no identity over all of it.
    if isinstance(term.base, Variable | Output) and term.base.size * term.size <= _MOST_COEFFICIENTS:
        matrix = np.zeros((term.size, term.base.size))
        matrix[np.arange(term.size), term.index.reshape(-1)] = 1.0
        return LinearForm((term.base,), (matrix,), np.zeros(term.size), 1)
    inner = linear_form(term.base)
    return None if inner is None else inner.map(lambda rows: rows[term.index.reshape(-1)])


def _reduce(term: Reduce) -> LinearForm | None:
    inner = linear_form(term.base)
    if inner is None:
        return None
    count = term.base.size // max(1, term.size)
    scale = 1.0 / count if term.kind == "mean" and count else 1.0

    def reduced(rows: np.ndarray) -> np.ndarray:
        shaped = rows.reshape(*term.base.shape, *rows.shape[1:])
        return np.asarray(shaped.sum(axis=term.axes) * scale).reshape(term.size, *rows.shape[1:])

    form = inner.map(reduced)
    return LinearForm(form.bases, form.matrices, form.offset, form.terms * count + 1)


def _spread(form: LinearForm, shape: tuple[int, ...], wanted: tuple[int, ...]) -> LinearForm:
    if shape == wanted:
        return form
    index = np.broadcast_to(np.arange(form.offset.size).reshape(shape), wanted).reshape(-1)
    return form.map(lambda rows: rows[index])


def _scale(form: LinearForm, factor: np.ndarray) -> LinearForm:
    return form.map(lambda rows: rows * (factor[:, None] if rows.ndim == 2 else factor))


def _difference(forms: Sequence[LinearForm]) -> LinearForm:
    return forms[0].plus(_scale(forms[1], np.full(forms[1].offset.shape, -1.0)))


def _product(forms: Sequence[LinearForm]) -> LinearForm | None:
    first, second = forms
    if first.bases and second.bases:
        return None
    varying, constant = (first, second) if first.bases else (second, first)
    return _scale(varying, constant.offset)


def _quotient(forms: Sequence[LinearForm]) -> LinearForm | None:
    first, second = forms
    if second.bases or (second.offset == 0).any():
        return None
    return _scale(first, 1 / second.offset)


_ELEMENTWISE: dict[str, Callable[[Sequence[LinearForm]], LinearForm | None]] = {
    "+": lambda forms: forms[0].plus(forms[1]),
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "negate": lambda forms: _scale(forms[0], np.full(forms[0].offset.shape, -1.0)),
}
