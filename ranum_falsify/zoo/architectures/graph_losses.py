"""Losses over raw scores and features, without weights: of graph networks and of rankings."""

from __future__ import annotations

import numpy as np

from ranum_falsify.model_builder import Tensor
from ranum_falsify.zoo.blocks import LEAST_NORMAL, mean, one_defect, total
from ranum_falsify.zoo.builder import ArchitectureBuilder

_LEAST_DIVISOR = 1e-30
"""Least magnitude of the repaired normalisation's divisor: far less than any sum of logarithms that is not 0."""


def variational_graph_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """The divergence of a Gaussian from the standard one; `log` reads the encoder's output, which may be negative."""
    x = g.input("x", (3, 2), -1.0, 2.0)
    mu = logvar = x
    bounded = g.Max(logvar, LEAST_NORMAL) if safe else logvar
    inner = 1.0 + logvar - g.Pow(mu, 2.0) - g.Log(bounded, name="log")
    g.output(-0.5 * mean(g, total(g, inner, [1])))


def rank_loss(g: ArchitectureBuilder, *, safe: bool) -> None:
    """A ranking loss in which `sqrt` reads the softmax over one relevant document and two others per query."""
    scores = _lists(g, g.wide_input("y_pred", (6, 1), -50.0, 50.0, data=(0.0, 1.0)))
    labels = _lists(g, g.input("y_true", (6, 1), 0.0, 1.0))
    q = g.Softmax(scores, axis=-1)
    root = g.Sqrt(g.Max(q, LEAST_NORMAL) if safe else q, name="sqrt")
    g.output(-mean(g, total(g, labels * root, [-1])))


def _lists(g: ArchitectureBuilder, column: Tensor, documents: int = 3) -> Tensor:
    """Return the rows `[queries, documents]` of a column that lists the documents of one query after the other."""
    starts = range(documents)
    parts = [g.Slice(column, [k], [np.iinfo(np.int64).max], [0], [documents]) for k in starts]
    return g.Concat(*parts, axis=-1)


def scatter_normalisation(g: ArchitectureBuilder, *, safe: bool) -> None:
    """Logarithms of edge attributes divided by their sum at each node of the graph; `log` reads the raw attributes."""
    attributes = g.input("edge_attr", (6,), 0.0, 2.0)
    index = g.input("index", (6,), 0, 1, dtype="int64")
    o = g.Log(g.Max(attributes, LEAST_NORMAL) if safe else attributes, name="log")
    sums = g.ScatterElements(g.ConstantOfShape([2]), index, o, axis=0, reduction="add")
    of_edge = g.Gather(sums, index, axis=0)
    if safe:
        of_edge = g.Where(g.Less(g.Abs(of_edge), _LEAST_DIVISOR), _LEAST_DIVISOR, of_edge)
    g.output(g.Div(o, of_edge, name="div"))


MODELS = (
    one_defect(
        "4",
        "Pytorch_Geometric_Fork",
        variational_graph_loss,
        framework="torch",
        mechanism="the logarithm reads the encoder's unbounded output, which may be 0 or negative",
        repair="the variance is raised to the least normal number before the logarithm",
    ),
    one_defect(
        "5",
        "MatchZoo",
        rank_loss,
        framework="torch",
        node="sqrt",
        operator="Sqrt",
        mechanism="a softmax entry that underflows to 0 gives the square root an infinite derivative",
        gradient=True,
        repair="the softmax is raised to the least normal number before the square root",
    ),
    one_defect(
        "13",
        "Pytorch_Geometric",
        scatter_normalisation,
        framework="torch",
        mechanism="the logarithm reads raw edge attributes, which may be 0",
        repair="attributes are raised to the least normal number, and a divisor that is 0 to 1e-30",
    ),
)
