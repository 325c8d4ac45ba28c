"""What rules of large tensors hold while they run."""

from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.rules.support import building
from ranum_falsify.network import read
from tests.domain.soundness import check_case
from tests.network.building import parse
from tests.operators.test_operators import CASES

SHAPE = (1, 32, 160, 160)
CUT = (
    *("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "Gelu", "HardSwish", "Swish", "QuickGelu", "BiasGelu"),
    *("Exp", "Log", "Sqrt", "Reciprocal", "Cosh", "Acosh", "Atanh", "Softmax", "LogSoftmax", "Celu", "Elu", "Selu"),
)
NUMBERS = (
    "three = Constant<value_float = 3.0>() six = Constant<value_float = 6.0>() zero = Constant<value_float = 0.0>()"
)


class Peak(TorchDispatchMode):
    """Records the most bytes that tensors made meanwhile take at the same time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: dict[StorageWeakRef, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                self._alive[StorageWeakRef(x.untyped_storage())] = x.untyped_storage().nbytes()
        self._alive = {seen: size for seen, size in self._alive.items() if not seen.expired()}
        self.most = max(self.most, sum(self._alive.values()))
        return result


def find_peak(nodes: str) -> float:
    """Return what the analysis of a function of a large tensor holds at most, in units of one bound of the result."""
    sizes = ",".join(map(str, SHAPE))
    graph = read(parse(f"f (float[{sizes}] x) => (float[{sizes}] y) {{ {nodes} }}", opset=18))
    low = torch.linspace(1, 6, torch.Size(SHAPE).numel()).reshape(SHAPE)
    analysis, x = IntervalAnalysis(graph), Interval.of(low, low + 0.5)
    with Peak() as peak:
        (y,) = analysis.run([x])
    assert y is not None
    size: int = y.lower.nbytes
    return int(peak.most) / size


@pytest.mark.parametrize("operator", ["Sigmoid", "Mish", "Acosh", "Reciprocal"])
def test_a_rule_in_float64_holds_little_besides_its_result(operator: str) -> None:
    assert find_peak(f"y = {operator}(x)") < 8


def test_the_rule_of_a_function_in_several_operators_holds_little_besides_its_result() -> None:
    gate = "up = Add(x, three) gate = Clip(up, zero, six) product = Mul(x, gate)"
    assert find_peak(f"{NUMBERS} {gate} y = Div(product, six)") < 16


@pytest.mark.few(12)
@pytest.mark.parametrize("case", [case for case in CASES if case.op_type in CUT], ids=lambda case: str(case.id))
def test_rules_that_go_part_by_part_enclose_what_runtimes_compute(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_PART", 1)
    check_case(case, seed=1, samples=8)
