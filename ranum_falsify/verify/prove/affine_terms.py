"""Terms as linear functions of network outputs and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ranum_falsify.properties.formula.terms import Const, Elementwise, Gather, Output, Reduce, Term, Variable

_LARGEST = 1 << 22
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
        if term.size**2 > _LARGEST:
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
    if isinstance(term.base, Variable | Output) and term.base.size * term.size <= _LARGEST:
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
