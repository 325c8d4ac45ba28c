"""Ensembles of decision trees: the leaves that a box reaches, and the weights that they add up.

Every tree is walked with intervals: a branch whose test may go either way is followed both ways.  Tests on different
features are independent of each other, and a tree that was learned asks nothing that an earlier test of the same
feature has answered, so the reachable leaves are exactly those of the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ranum_falsify.domain.interval import Interval

_LARGEST_CUT = 2.0**31
"""Cutting larger numbers to integers may give anything."""


class Test(IntEnum):
    """How a branch compares a feature with its threshold."""

    __test__ = False

    AT_MOST = 0
    LESS = 1
    AT_LEAST = 2
    GREATER = 3
    EQUAL = 4
    DIFFERENT = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """The trees of an ensemble, all nodes numbered through; a leaf is its own successor.

    Attributes:
        feature: Which feature a branch tests, 0 for leaves; int64, `(nodes,)`.
        test: How, a :class:`Test`, int64.
        threshold: With what, float64.
        yes: The node that follows where the test is true, int64.
        no: The node that follows where it is false.
        nan_is_yes: Whether NaN goes where the test is true.
        is_leaf: Which nodes are leaves.
        tree: Number of the tree of each node, int64; -1 where none leads to it.
        roots: The first node of each tree, int64, `(trees,)`.
        levels: The branches of each depth, the roots first.
        weight: What a leaf gives each score, float64, `(nodes, scores)`; 0 where nothing.
        gives: Whether a leaf gives a score anything.
    """

    feature: Tensor
    test: Tensor
    threshold: Tensor
    yes: Tensor
    no: Tensor
    nan_is_yes: Tensor
    is_leaf: Tensor
    tree: Tensor
    roots: Tensor
    levels: tuple[Tensor, ...]
    weight: Tensor
    gives: Tensor

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    @property
    def scores(self) -> int:
        """Number of scores."""
        return int(self.weight.shape[1])

    @property
    def thresholds(self) -> dict[int, list[float]]:
        """The distinct thresholds of each feature."""
        branches = ~self.is_leaf
        pairs = set(zip(self.feature[branches].tolist(), self.threshold[branches].tolist(), strict=True))
        return {feature: sorted(t for f, t in pairs if f == feature) for feature in {f for f, _ in pairs}}


@dataclass(frozen=True, kw_only=True, eq=False)
class Reached:
    """What the trees give a box: float64, `(rows, trees, scores)`.

    Attributes:
        low: Least weights; 0 where a leaf may give nothing.
        high: Greatest weights.
        surely: Where every leaf that the box reaches gives the score something.
        perhaps: Where some of them do.
        given_low: Least weights of those leaves that give something, infinity where none does.
        given_high: Greatest weights of those, minus infinity where none does.
    """

    low: Tensor
    high: Tensor
    surely: Tensor
    perhaps: Tensor
    given_low: Tensor
    given_high: Tensor


def reach(forest: Forest, x: Interval) -> Reached:
    """Return what the trees give for features within bounds, `(rows, features)`, merged rows once."""
    low, high = (end.expand(end.shape[0], x.shape[1]) for end in _as_compared(x))
    reached = _reachable(forest, low, high, x.may_be_infinite)
    leaves = (forest.is_leaf & (forest.tree >= 0)).nonzero().reshape(-1)
    at = reached[:, leaves, None]
    weight, gives = forest.weight[leaves], forest.gives[leaves] & at
    given_low = _per_tree(forest, leaves, torch.where(gives, weight, torch.inf), "amin", torch.inf)
    given_high = _per_tree(forest, leaves, torch.where(gives, weight, -torch.inf), "amax", -torch.inf)
    without = _per_tree(forest, leaves, (at & ~forest.gives[leaves]).double(), "amax", 0.0) > 0
    perhaps = given_low < torch.inf
    return Reached(
        low=torch.where(without, given_low.clamp(max=0), given_low),
        high=torch.where(without, given_high.clamp(min=0), given_high),
        surely=perhaps & ~without,
        perhaps=perhaps,
        given_low=given_low,
        given_high=given_high,
    )


def _as_compared(x: Interval) -> tuple[Tensor, Tensor]:
    """Return the bounds in float64; kernels convert integers to float32 before they compare them."""
    if x.is_floating:
        return x.doubles()
    return x.lower.float().double(), x.upper.float().double()


def _per_tree(forest: Forest, leaves: Tensor, values: Tensor, how: str, start: float) -> Tensor:
    rows, _, scores = values.shape
    result = values.new_full((rows, forest.trees, scores), start)
    index = forest.tree[leaves][None, :, None].expand(values.shape)
    return result.scatter_reduce(1, index, values, how)


def _reachable(forest: Forest, low: Tensor, high: Tensor, may_be_nan: bool) -> Tensor:
    """Return which nodes some values within the bounds reach, `(rows, nodes)`.

    Args:
        forest: The trees.
        low: Least values, `(rows, features)`.
        high: Greatest values.
        may_be_nan: Whether a value may be NaN, a constant that no operator makes; then both ways count.
    """
    reached = torch.zeros(len(low), len(forest.feature), dtype=torch.uint8)
    reached[:, forest.roots] = 1
    for nodes in forest.levels:
        feature, threshold = forest.feature[nodes], forest.threshold[nodes]
        may, must = _outcomes(forest.test[nodes], low[:, feature], high[:, feature], threshold)
        if may_be_nan:
            may, must = torch.ones_like(may), torch.zeros_like(must)
        here = reached[:, nodes]
        for successor, possible in ((forest.yes, may), (forest.no, ~must)):
            index = successor[nodes].expand(here.shape)
            reached = reached.scatter_reduce(1, index, here * possible, "amax")
    return reached.bool()


def _outcomes(test: Tensor, low: Tensor, high: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Return where a test may be true, and where it is true whatever the value."""
    inside = (low <= threshold) & (high >= threshold)
    point = inside & (low == high)
    # Kernels make one test of several for equality, and cut what they compare to an integer then.
    near = (low.floor() <= threshold) & (high.ceil() >= threshold)
    near = near | (low < -_LARGEST_CUT) | (high > _LARGEST_CUT)
    choices = {
        Test.AT_MOST: (low <= threshold, high <= threshold),
        Test.LESS: (low < threshold, high < threshold),
        Test.AT_LEAST: (high >= threshold, low >= threshold),
        Test.GREATER: (high > threshold, low > threshold),
        Test.EQUAL: (near, point),
        Test.DIFFERENT: (~point, ~inside),
    }
    may, must = (torch.zeros_like(inside) for _ in range(2))
    for kind, (possible, certain) in choices.items():
        may, must = torch.where(test == kind, possible, may), torch.where(test == kind, certain, must)
    return may, must
