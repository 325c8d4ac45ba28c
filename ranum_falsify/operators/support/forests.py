"""Tree ensembles as the operators of `ai.onnx.ml` spell them, read into one form; and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dnnv.nn import Operation
from torch import Tensor

from ranum_falsify.domain.rules.learned.forest import Forest, Test
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.operators.support.ml import check_finite

_MODES = {
    "BRANCH_LEQ": Test.AT_MOST,
    "BRANCH_LT": Test.LESS,
    "BRANCH_GTE": Test.AT_LEAST,
    "BRANCH_GT": Test.GREATER,
    "BRANCH_EQ": Test.EQUAL,
    "BRANCH_NEQ": Test.DIFFERENT,
}
_MEMBER = 6
_DEEPEST = 1000


@dataclass(frozen=True)
class _Nodes:
    """Columns of a table of nodes; leaves are their own successors."""

    feature: list[int]
    test: list[int]
    threshold: list[float]
    yes: list[int]
    no: list[int]
    nan_is_yes: list[bool]

    @classmethod
    def empty(cls) -> _Nodes:
        return cls([], [], [], [], [], [])

    def add(self, feature: int, test: int, threshold: float, yes: int, no: int, nan_is_yes: bool) -> int:
        """Append a node and return its number."""
        for column, value in zip(vars(self).values(), (feature, test, threshold, yes, no, nan_is_yes), strict=True):
            column.append(value)
        return len(self.feature) - 1

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The columns as arrays, by name."""
        types = {"threshold": np.float64, "nan_is_yes": np.bool_}
        return {name: np.array(column, types.get(name, np.int64)) for name, column in vars(self).items()}

    def write(self, place: int, *entries: float) -> None:
        """Write a node over another one."""
        for column, entry in zip(vars(self).values(), entries, strict=True):
            column[place] = entry

    def add_leaf(self) -> int:
        number = len(self.feature)
        return self.add(0, Test.AT_MOST, 0.0, number, number, False)


def forest_of_nodes(op: Operation, prefix: str, scores: int) -> Forest:
    """Return the trees of a node whose leaves are nodes like others.

    The names of the attributes of leaves begin with a prefix, `class` or `target`.  A node whose attributes contradict
    each other, or with an unknown test, is refused.
    """
    trees, numbers = (np.asarray(column or (), np.int64) for column in (op.nodes_treeids, op.nodes_nodeids))
    places, count = _NodeIndex(trees, numbers), len(trees)
    names, mode = np.unique(np.asarray(op.nodes_modes or (), "U"), return_inverse=True)
    unknown = {*names.tolist()} - _MODES.keys() - {"LEAF"}
    _check(not unknown, f"no test is called {sorted(unknown)}")
    fields = op.nodes_featureids, op.nodes_truenodeids, op.nodes_falsenodeids
    columns = [np.asarray(column or (), np.int64) for column in fields]
    split = np.asarray(_floats(op, "nodes_values"), np.float64)
    _check(all(len(column) == count for column in (*columns, mode, split)), "its lists of nodes differ in length")
    tests = np.array([_MODES.get(name, Test.AT_MOST) for name in names.tolist()], np.int64)[mode]
    is_branch = (names != "LEAF")[mode]
    tracks = np.zeros(count, bool)
    given = np.asarray(op.nodes_missing_value_tracks_true or (), np.int64)[:count]
    tracks[: len(given)] = given == 1
    feature, *after = columns
    yes, no = (np.arange(count) for _ in range(2))
    for ends, column in zip((yes, no), after, strict=True):
        ends[is_branch] = places.find(trees[is_branch], column[is_branch], "a branch leads to")
    nodes = {
        "feature": np.where(is_branch, feature, 0),
        "test": np.where(is_branch, tests, 0),
        "threshold": np.where(is_branch, split, 0.0),
        "yes": yes,
        "no": no,
        "nan_is_yes": is_branch & tracks,
    }
    roots = np.flatnonzero(np.diff(trees, prepend=trees[:1] - 1))
    owners, own = (np.asarray(getattr(op, f"{prefix}_{name}") or (), np.int64) for name in ("treeids", "nodeids"))
    leaves = places.find(owners, own, "a weight is that of")
    weights = _floats(op, f"{prefix}_weights")
    forest = _build(nodes, roots, leaves, getattr(op, f"{prefix}_ids") or (), weights, scores)
    # Kernels number the nodes that they reach, and give these the weights of others.
    _check(bool((forest.tree[leaves] >= 0).all()), "a weight is that of a node to which no branch leads")
    return forest


class _NodeIndex:
    """Where nodes stand in a table, by the numbers of their trees and their own."""

    def __init__(self, trees: np.ndarray, numbers: np.ndarray) -> None:
        """Index a table of nodes, no two of which may be one."""
        _check(len(trees) == len(numbers), "its lists of nodes differ in length")
        self._trees, self._numbers = np.unique(trees), np.unique(numbers)
        keys = self._key(trees, numbers)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        _check(not (np.diff(self._keys) == 0).any(), "two nodes of a tree have one number")

    def find(self, trees: np.ndarray, numbers: np.ndarray, what: str) -> np.ndarray:
        """Return the places of some nodes; an error, if one does not exist, begins with `what`."""
        _check(len(trees) == len(numbers), "its lists of nodes differ in length")
        if not len(trees):
            return np.zeros(0, np.int64)
        keys = self._key(trees, numbers)
        at = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        _check(len(self._keys) > 0 and bool((self._keys[at] == keys).all()), f"{what} a node that does not exist")
        places: np.ndarray = self._order[at]
        return places

    def _key(self, trees: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return one number for each pair of known ones, -1 for others."""
        tree, number = np.searchsorted(self._trees, trees), np.searchsorted(self._numbers, numbers)
        known = (tree < len(self._trees)) & (number < len(self._numbers))
        tree, number = np.where(known, tree, 0), np.where(known, number, 0)
        known[known] = (self._trees[tree] == trees)[known] & (self._numbers[number] == numbers)[known]
        keys: np.ndarray = np.where(known, tree * len(self._numbers) + number, -1)
        return keys


def forest_of_leaves(op: Operation) -> Forest:
    """Return the trees of a node that lists its leaves apart from its branches, if it does not contradict itself."""
    splits, modes = np.ravel(op.nodes_splits), np.ravel(op.nodes_modes)
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    columns = [getattr(op, f"nodes_{name}") for name in names]
    count = len(splits)
    _check(all(len(column) == count for column in (*columns, modes)), "its lists of nodes differ in length")
    sets = _member_sets(op, modes)
    tracks = op.nodes_missing_value_tracks_true or ()
    nodes = _Nodes.empty()
    for _ in range(count):
        nodes.add_leaf()
    copies: dict[int, int] = {}
    for place, (feature, yes, no, yes_leaf, no_leaf) in enumerate(zip(*columns, strict=True)):
        after = []
        for number, is_leaf in ((yes, yes_leaf), (no, no_leaf)):
            _check(is_leaf in (0, 1), "nodes_trueleafs or nodes_falseleafs are not all 0 or 1")
            _check(0 <= number < (len(op.leaf_targetids) if is_leaf else count), "a branch leads to no node")
            # Trees may share a leaf; here each has its own.
            after.append(nodes.add_leaf() if is_leaf else number)
            if is_leaf:
                copies[after[-1]] = number
        nan = place < len(tracks) and tracks[place] == 1
        _write_branch(nodes, place, feature, int(modes[place]), sets.get(place, [float(splits[place])]), after, nan)
    ids, weights = op.leaf_targetids, np.ravel(op.leaf_weights)
    given = [ids[number] for number in copies.values()], [float(weights[number]) for number in copies.values()]
    return _build(nodes.columns, op.tree_roots, list(copies), *given, int(op.n_targets))


def _write_branch(
    nodes: _Nodes, place: int, feature: int, mode: int, values: Sequence[float], after: Sequence[int], nan: bool
) -> None:
    """Write a branch; a test for one of several values becomes a chain of tests for each."""
    test = Test.EQUAL if mode == _MEMBER else Test(mode)
    chain = [place, *(nodes.add_leaf() for _ in values[1:])]
    for here, value, other in zip(chain, values, [*chain[1:], after[1]], strict=True):
        nodes.write(here, feature, test, value, after[0], other, nan)
    if not values:
        nodes.write(place, feature, Test.AT_MOST, -np.inf, after[1], after[1], nan)


def _member_sets(op: Operation, modes: np.ndarray) -> Mapping[int, list[float]]:
    """Return the values of each test for membership; NaN ends each set."""
    values = iter(() if op.membership_values is None else np.ravel(op.membership_values).tolist())
    sets: dict[int, list[float]] = {}
    for place in np.flatnonzero(modes == _MEMBER).tolist():
        sets[place] = found = []
        for value in values:
            if np.isnan(value):
                break
            found.append(value)
    return sets


def _floats(op: Operation, name: str) -> Sequence[float] | np.ndarray:
    """Return an attribute that is a list, or a tensor under another name."""
    tensor = getattr(op, f"{name}_as_tensor", None)
    values: Sequence[float] | np.ndarray = (getattr(op, name) or ()) if tensor is None else np.ravel(tensor)
    return values


def _check(holds: bool, why: str) -> None:
    if not holds:
        raise UnsupportedAttributeError(f"{why}; export the model again")


def _build(
    nodes: Mapping[str, np.ndarray],
    roots: Sequence[int] | np.ndarray,
    leaves: Sequence[int] | np.ndarray,
    ids: Sequence[int],
    weights: Sequence[float] | np.ndarray,
    scores: int,
) -> Forest:
    columns = {name: torch.from_numpy(column) for name, column in nodes.items()}
    yes, no = columns["yes"], columns["no"]
    count = len(yes)
    is_leaf = (yes == torch.arange(count)) & (no == torch.arange(count))
    weight, gives = torch.zeros(count, scores, dtype=torch.float64), torch.zeros(count, scores, dtype=torch.bool)
    at, which = (torch.from_numpy(np.array(column, np.int64)) for column in (leaves, ids))
    check_finite(weights, "its weights")
    values = torch.from_numpy(np.array(weights, np.float64))
    _check(len(at) == len(which) == len(values), "its lists of weights differ in length")
    _check(not len(which) or 0 <= int(which.min()) <= int(which.max()) < scores, "a weight is that of an unknown score")
    places = at * scores + which
    _check(len(places.unique()) == len(places), "a leaf has two weights for one score")
    weight.view(-1)[places], gives.view(-1)[places] = values, True
    tree, levels = _levels(yes, no, is_leaf, torch.tensor(roots))
    # Kernels take something else then, for which nothing stands; two classes may share one score.
    reached = gives[is_leaf & (tree >= 0)]
    _check(scores > 2 or bool(reached.any(1).all()), "a leaf has no weight")
    return Forest(
        **columns, is_leaf=is_leaf, tree=tree, roots=torch.tensor(roots), levels=levels, weight=weight, gives=gives
    )


def _levels(yes: Tensor, no: Tensor, is_leaf: Tensor, roots: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the tree of each node, and the branches of each depth."""
    _check(len(roots.unique()) == len(roots), "two trees share a root")
    tree = torch.full_like(yes, -1)
    tree[roots] = torch.arange(len(roots))
    here, levels = roots[~is_leaf[roots]], list[Tensor]()
    while len(here):
        _check(len(levels) < _DEEPEST, "a branch leads back to itself, or a tree is too deep")
        levels.append(here)
        after, owner = torch.cat([yes[here], no[here]]), torch.cat([tree[here], tree[here]])
        tree[after] = torch.where(tree[after] < 0, owner, tree[after])
        _check(bool((tree[after] == owner).all()), "two trees share a node")
        after = after.unique()
        here = after[~is_leaf[after]]
    return tree, tuple(levels)


def find_leaves(forest: Forest, x: Tensor) -> Tensor:
    """Return the leaf that each row of features reaches in each tree, `(rows, trees)`."""
    x = x if x.is_floating_point() else x.float()
    feature, test, threshold, yes, no = (
        column.to(x.device) for column in (forest.feature, forest.test, forest.threshold, forest.yes, forest.no)
    )
    nan_is_yes = forest.nan_is_yes.to(x.device)
    kinds = [Test(kind) for kind in forest.test[~forest.is_leaf].unique().tolist()]
    at = forest.roots.to(x.device).expand(x.shape[0], forest.trees)
    for _ in forest.levels:
        value = x.gather(1, feature[at])
        limit = threshold[at]
        true = torch.zeros_like(value, dtype=torch.bool)
        for kind in kinds:
            true = torch.where(test[at] == kind, _COMPARISONS[kind](value, limit), true)
        at = torch.where(true | (nan_is_yes[at] & value.isnan()), yes[at], no[at])
    return at


_COMPARISONS = {
    Test.AT_MOST: torch.le,
    Test.LESS: torch.lt,
    Test.AT_LEAST: torch.ge,
    Test.GREATER: torch.gt,
    Test.EQUAL: torch.eq,
    Test.DIFFERENT: torch.ne,
}
