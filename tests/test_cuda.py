"""PyTorch on NVIDIA's graphics processors: what is published of it, what is proved by that, and what is not."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import Tensor

import ranum_falsify as rf
from ranum_falsify.config import CUDA, ProveConfig, SearchConfig
from ranum_falsify.domain import Interval, IntervalAnalysis
from ranum_falsify.domain.kernels import envelope, find_envelope
from ranum_falsify.domain.kernels.records import FOLDER, Record, read_record, record_text, use_measured
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.network import Graph, read
from ranum_falsify.results.assumptions import scope
from ranum_falsify.selfcheck.subjects import SUBJECTS, Subject
from ranum_falsify.verify.search.device import batch_limit
from tests.cli.test_app import environment
from tests.domain.tensor_cores import draw
from tests.network.building import parse

ROOT = Path(__file__).resolve().parent.parent
HALVES = (torch.float16, torch.bfloat16)
PUBLISHED = [subject for subject in SUBJECTS if find_envelope(subject.key, torch.float32, CUDA) is not None]


def record() -> Record:
    return read_record(FOLDER / "torch-cuda_documented.json")


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("lab.kernels.documented")


# the record ---------------------------------------------------------------------------------------------------------


def test_every_figure_is_published_or_made_of_what_is(documented: Any) -> None:
    of = record()
    assert record_text(of) == record_text(documented.documented())
    assert of.rows.keys() == of.swept.keys() and not of.versions
    assert all(documented.GUIDE in source and "of PyTorch" in source for source in of.swept.values())
    for name, kernel in documented.KERNELS.items():
        for dtype in HALVES:
            relative, absolute, *_ = of.rows[name][str(dtype).removeprefix("torch.")]
            single = of.rows[name]["float32"]
            rounding = kernel.steps * torch.finfo(dtype).eps / 2
            assert relative >= single[0] + rounding or relative == single[0] == 0
            assert absolute >= single[1] + rounding * torch.finfo(dtype).tiny or relative == 0
        for i, dtype in enumerate((torch.float32, torch.float64)):
            relative = of.rows[name][str(dtype).removeprefix("torch.")][0]
            called = [
                errors[i] for function, errors in documented.PUBLISHED.items() if function in kernel.form.split("(")
            ]
            least = sum(error + 0.5 for error in called if error) * torch.finfo(dtype).eps
            assert relative >= least and (kernel.units is not None or relative < 1.1 * least)


def test_nothing_is_surely_0_or_1_where_no_range_is_published() -> None:
    assert not record().saturation
    for function in ("Exp", "Sigmoid", "Tanh", "Erf", "Softmax"):
        found = envelope(function, torch.float32, ("torch", CUDA))
        assert (found.floor_until, found.ceiling_from) == (-math.inf, math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("subject", PUBLISHED, ids=lambda subject: f"{subject.key} {subject.exponent or ''}".strip())
def test_kernels_of_the_processor_lie_within_what_is_published(
    subject: Subject, dtype: torch.dtype, documented: Any
) -> None:
    outside = documented.find_outside(subject, dtype, "torch")
    # Square roots of float32 are not rounded correctly on every processor, as they are on CUDA; and some processors'
    # Erf of bfloat16 has an absolute error.
    assert outside == [] or (subject.key, dtype) in (("Sqrt", torch.float32), ("Erf", torch.bfloat16))


def test_rounded_functions_are_as_on_other_processors() -> None:
    for dtype in (torch.float32, torch.float64):
        for function in ("Sqrt", "Reciprocal"):
            found = find_envelope(function, dtype, CUDA)
            assert found is not None and (found.relative, found.absolute) == (0.0, 0.0)
            assert envelope(function, dtype, ("torch", CUDA)) == envelope(function, dtype, ("torch",))


# proofs -------------------------------------------------------------------------------------------------------------

LOSS = "g (float[2, 4] x, float[4, 3] w) => (float[2, 3] y) { p = MatMul(x, w) s = Softmax<axis = -1>(p) y = Log(s) }"


def prove(text: str, until: float = 1.0) -> rf.Result:
    box = (-until, until)
    return rf.check(parse(text, 22), box=box, runtime=CUDA, n_starts=4, timeout=10, self_check=False)


def test_a_proof_covers_the_processor_too_and_says_what_it_rests_on() -> None:
    result = prove(LOSS)
    assert result.runtimes == ("torch", CUDA) == ProveConfig(runtime=CUDA).runtimes
    verdict, *_ = lines = str(result).splitlines()
    assert verdict.startswith("holds for torch on x86-64 and arm64, torch-cuda (documented, not measured)")
    (kernels,) = (line for line in lines if line.startswith("kernels: "))
    assert ", and of torch on CUDA, documented, not measured; not of onnxruntime " in kernels
    assert kernels.endswith(" or other GPUs")


def test_the_verdict_says_where_kernels_were_measured() -> None:
    measured = record()
    use_measured([Record(**{**vars(measured), "family": "nvidia_x", "versions": {"2.13.0": "on X"}})])
    try:
        assert str(prove(LOSS)).startswith(
            "holds for torch on x86-64 and arm64, torch-cuda (measured (nvidia_x, 2.13.0))"
        )
    finally:
        use_measured([])


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "body",
    [
        "e = Exp(x) y = Log(e)",
        "s = Softmax<axis = -1>(x) y = Sqrt(s)",
        "l = LogSoftmax<axis = -1>(x) y = Exp(l)",
        "t = Tanh(x) o = Mul(t, x) m = ReduceMean<keepdims = 0>(o) y = Exp(m)",
        "s = Sigmoid(x) r = Relu(x) a = Add(s, r) y = Reciprocal(a)",
    ],
)
def test_half_precision_is_proved_as_documented(type_: str, body: str) -> None:
    shape = "" if "keepdims" in body else "[2, 4]"
    result = prove(f"g ({type_}[2, 4] x) => ({type_}{shape} y) {{ {body} }}")
    assert result.verdict == "holds", str(result)


# What is published allows what no kernel of a processor gives.
BEYOND = {
    "tanh above 1": ("t = Tanh(x) d = Sub(one, t) y = Sqrt(d)", (0.0, 20.0), 1.0),
    "erf above 1": ("t = Erf(x) d = Sub(one, t) y = Sqrt(d)", (0.0, 20.0), 1.0),
    "exp(0) is not 1": ("t = Exp(x) d = Sub(one, t) y = Sqrt(d)", (-1.0, 0.0), 1.0),
    "log(1) is not 0": ("t = Log(x) y = Sqrt(t)", (1.0, 2.0), 1.0),
    "cos(0) above 1": ("t = Cos(x) d = Sub(one, t) y = Sqrt(d)", (-1.0, 1.0), 1.0),
    "a share above 1": ("t = LogSoftmax<axis = -1>(x) d = Neg(t) y = Sqrt(d)", (-1.0, 30.0), 1.0),
}


@pytest.mark.parametrize(("body", "box", "one"), BEYOND.values(), ids=list(BEYOND))
def test_what_documentation_allows_is_not_proved_away(body: str, box: tuple[float, float], one: float) -> None:
    model = parse(f"g (float[2] x) => (float[2] y) <float one = {{{one}}}> {{ {body} }}", 22)
    options: dict[str, Any] = {"box": box, "n_starts": 4, "timeout": 10, "self_check": False}
    assert rf.check(model, runtime="torch", **options).verdict == "holds"
    assert rf.check(model, runtime=CUDA, **options).verdict == "unknown"


@pytest.mark.parametrize("limit", [1.0000012, 1.00001])
def test_beyond_the_published_error_proofs_hold(limit: float) -> None:
    text = f"g (float[2] x) => (float[2] y) <float k = {{{limit}}}> {{ t = Tanh(x) d = Sub(k, t) y = Sqrt(d) }}"
    assert prove(text, 20.0).verdict == "holds"


CONVOLUTION = "g (float[1, 1, 4] x) => (float[1, 1, 3] y) <float[1, 1, 2] w = {1, 1}> { [c] p = Conv(x, w) y = Exp(p) }"


@pytest.mark.usefixtures("no_cudnn")
def test_without_cudnn_convolutions_are_products_of_matrices() -> None:
    assert prove(CONVOLUTION).verdict == "holds"


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("[2, 2]", "r = RandomUniformLike(x) y = Exp(r)"),
        ("[2, 2]", "r = RandomNormalLike(x) y = Exp(r)"),
        ("", "s = LogSoftmax<axis = 1>(x) y = NegativeLogLikelihoodLoss(s, t)"),
        ("", "y = SoftmaxCrossEntropyLoss(x, t)"),
        ("[2, 2]", "i = Cast<to = 7>(x) f = Cast<to = 1>(i) y = Exp(f)"),
        ("[2, 2]", "w = ScatterElements<axis = 1>(x, j, x) y = Exp(w)"),
        ("[2, 2]", 'w = ScatterElements<axis = 1, reduction = "add">(x, j, x) y = Exp(w)'),
    ],
)
def test_what_is_documented_is_proved(shape: str, body: str) -> None:
    stored = "int64[2] t = {0, 1}, int64[2, 2] j = {0, 0, 1, 0}"
    assert prove(f"g (float[2, 2] x) => (float{shape} y) <{stored}> {{ {body} }}").verdict == "holds"


def test_atomic_sums_take_denormal_numbers_for_0() -> None:
    text = """g (float[1] x) => (float[1] y) <int64[1] i = {0}, float[1] least = {1.2e-38}> {
        w = ScatterElements<axis = 0, reduction = "add">(least, i, x) y = Log(w)
    }"""
    options: dict[str, Any] = {"box": (1e-39, 2e-39), "n_starts": 4, "timeout": 10, "self_check": False}
    verdicts = [rf.check(parse(text, 22), runtime=runtime, **options).verdict for runtime in ("torch", CUDA)]
    assert verdicts == ["holds", "unknown"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (CONVOLUTION, "Conv c by cuDNN, which torch.backends.cudnn.enabled = False does without"),
        ("g (float[2] x) => (float[2] y) { y = Gelu(x) }", "Gelu"),
        ("g (float16[2] x) => (float16[2] y) <float16 k = {11878}> { e = Exp(x) y = Pow(e, k) }", "in half precision"),
        (
            "g (bfloat16[2] x) => (bfloat16[2] y) <int64[2] i = {0, 0}> "
            '{ w = ScatterElements<reduction = "add">(x, i, x) y = Exp(w) }',
            "Scatter",
        ),
        ("g (float16[1, 1, 4] x, float16[1, 1, 2] w) => (float16[1, 1, 5] y) { y = ConvTranspose(x, w) }", "ConvTr"),
        ("g (float[2] x) => (float[2] y) <float k = {3}> { y = Div(x, k) }", "by a single number"),
        (
            'g (float[2] x) => (float[2] y) <int64[2] i = {0, 0}> { y = ScatterElements<reduction = "mul">(x, i, x) }',
            "Sc",
        ),
        ("g (float[2] x) => (float[2] y) { y = Mish(x) }", "Mish"),
        ("g (float[2] x) => (float[2] y) { y = Selu(x) }", "Selu"),
    ],
)
def test_what_has_no_published_error_is_left_open_by_name(text: str, named: str) -> None:
    result = prove(text)
    assert result.verdict == "unknown" and all(operator.verdict == "open" for operator in result.operators)
    (notice,) = (notice for notice in result.answer.notices if "PyTorch on CUDA" in notice)
    assert "no error is published of " in notice and named in notice


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("setting", "verdict"),
    [
        ("torch.set_float32_matmul_precision('high')", "holds"),
        ("torch.set_float32_matmul_precision('medium')", "unknown"),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "holds"),
    ],
)
def test_products_in_tf32_are_proved_but_not_in_less(setting: str, verdict: str) -> None:
    """PyTorch has an older setting and a newer one, and refuses to tell the older where the newer was used."""
    lines = ["import torch", "from tests.test_cuda import LOSS, prove", setting, "print(prove(LOSS))"]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(verdict) and ("MatMul" in done.stdout and "TF32" in done.stdout) == (
        verdict == "unknown"
    )


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class InverseRoot(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rsqrt(torch.exp(x))


class Silu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.nn.functional.silu(x))


class Half(torch.nn.Module):
    def __init__(self, compares: bool = False) -> None:
        super().__init__()
        self.layer, self.compares = torch.nn.Linear(4, 3), compares

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.log_softmax(self.layer(x[0].half()), -1)
        return torch.exp(torch.where(y > -0.1, -y, y) if self.compares else y)


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv1d(3, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.amax(self.layer(x[0]), 2)
        return torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2]))


@pytest.fixture
def no_cudnn() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=False):
        yield


@pytest.mark.few(3)
@pytest.mark.usefixtures("no_cudnn")
@pytest.mark.parametrize(
    ("module", "open_"),
    [
        (Attention(), "CastLike"),
        (InverseRoot(), "aten.rsqrt"),
        (Silu(), ""),
        (Loss(), ""),
        (Half().half(), ""),
        (Half(compares=True).half(), "Cast"),
    ],
)
def test_modules_are_proved_where_their_kernels_are_those_that_the_exporter_writes(
    module: torch.nn.Module, open_: str
) -> None:
    result = rf.check(module, (torch.rand(1, 2, 3, 4),), box=(0, 1), runtime=CUDA, n_starts=2, self_check=False)
    told = " ".join(notice for notice in result.answer.notices if "PyTorch on CUDA" in notice)
    assert (result.verdict, open_ in told, bool(told)) == ("unknown" if open_ else "holds", True, bool(open_))


def test_json_says_how_the_kernels_are_known() -> None:
    assumptions = prove(LOSS).answer.assumptions
    assert assumptions is not None
    (torch_library,) = (of for of in assumptions.libraries if of.runtime == "torch")
    assert torch_library.cuda == "documented, not measured"
    assert scope(("torch", CUDA), forward=False, assumptions=None) == " for torch, torch-cuda"


def test_a_quotient_by_a_power_of_two_is_exact() -> None:
    text = "g (float[2] x) => (float[2] y) <float k = {8}> { q = Div(x, k) e = Exp(q) y = Log(e) }"
    assert prove(text).verdict == "holds"


def test_pytorch_judges_what_is_about_it_alone() -> None:
    judges = [SearchConfig(runtime=names).judge for names in ("torch", CUDA, ("torch", "exact"))]
    assert judges == ["torch", "torch", "onnxruntime"]


# attacks ------------------------------------------------------------------------------------------------------------

SETTINGS = {"tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def of_tensor(name: str, x: Tensor) -> onnx.TensorProto:
    kind = getattr(onnx.TensorProto, str(x.dtype).removeprefix("torch.").replace("float32", "float").upper())
    return helper.make_tensor(name, kind, x.shape, x.contiguous().view(torch.uint8).numpy().tobytes(), raw=True)


def layers(fused: bool, w: Tensor, b: Tensor, v: Tensor) -> Graph:
    """Return two layers, y = (x w + b) v."""
    parts = [of_tensor(name, x) for name, x in (("w", w), ("b", b), ("v", v))]
    kind = parts[0].data_type
    first = [helper.make_node("Gemm", ["x", "w", "b"], ["a"])]
    if not fused:
        first = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["a"])]
    inputs = [helper.make_tensor_value_info("x", kind, [2, w.shape[0]])]
    outputs = [helper.make_tensor_value_info("y", kind, [2, v.shape[1]])]
    graph = helper.make_graph([*first, helper.make_node("MatMul", ["a", "v"], ["y"])], "g", inputs, outputs, parts)
    return read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def bound_of(graph: Graph, *box: Interval) -> Interval:
    """Return the bounds of the last node, infinite results among them."""
    found: list[Interval] = []
    IntervalAnalysis(graph, runtimes=("torch", CUDA)).run(box, lambda visited: found.extend(visited.outputs))
    return found[-1]


def strays(seed: int, setting: str, reduces: bool, runtimes: tuple[str, ...]) -> list[str]:
    """Return in which analyses of two layers bounds do not hold what tensor cores may make of points of a box."""
    rng, dtype = np.random.default_rng(seed), SETTINGS[setting]
    n, k, m = int(rng.integers(1, 30)), int(rng.integers(1, 40 if setting == "bfloat16" else 200)), 3
    w, b, v = (torch.from_numpy(rng.standard_normal(s) * 2.0 ** rng.integers(-6, 3)) for s in ((k, n), (n,), (n, m)))
    if seed % 3 == 0:
        w, b, v = w.abs(), b.abs(), v.abs()
    w, b, v = w.to(dtype), b.to(dtype), v.to(dtype)
    scale = 2.0 ** rng.integers(-14, 3)
    centre, radius = (
        torch.from_numpy(rng.standard_normal((2, k)) * scale),
        scale * float(rng.choice([0, 1e-4, 1e-2, 1])),
    )
    low, high = (centre - radius).to(dtype), (centre + radius).to(dtype)
    graph = layers(fused := bool(rng.integers(2)), w, b, v)
    plain, linear = IntervalAnalysis(graph, runtimes=runtimes), LinearAnalysis(graph, runtimes=runtimes)
    box = Interval.of(low, high, (2, k))
    (whole,), _ = plain.run([box]), linear.run([box])
    bounds = {"interval": whole, "linear": linear.tighten(graph.nodes[-1])}
    found = []
    for _ in range(6):
        x = torch.where(torch.from_numpy(rng.random((2, k))) < rng.random(), low, high)
        cores = draw(rng, factor_bits=11 if setting == "tf32" else 0, between=reduces)
        # What is linear in three dimensions adds its bias inside, and is written with two nodes.
        inside = fused or rng.integers(2)
        y = cores(cores(x, w, b) if inside else cores(x, w) + b, v).double()
        for name, bound in bounds.items():
            assert bound is not None
            least, greatest = bound.doubles()
            if not bool(((y >= least) & (y <= greatest)).all()):
                found.append(f"{name} of {seed}")
    return found


@pytest.fixture
def allowed() -> Iterator[Any]:
    settings = torch.backends.cuda.matmul
    reductions = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    before = {name: getattr(settings, name) for name in ("allow_tf32", *reductions)}

    def allow(*, tf32: bool, reduces: bool) -> None:
        settings.allow_tf32 = tf32
        for name in reductions:
            setattr(settings, name, reduces)

    yield allow
    for name, value in before.items():
        setattr(settings, name, value)


@pytest.mark.parametrize(
    ("setting", "reduces"),
    [("tf32", False), *((half, way) for half in ("float16", "bfloat16") for way in (True, False))],
)
def test_products_of_tensor_cores_lie_within_the_bounds(setting: str, reduces: bool, allowed: Any) -> None:
    allowed(tf32=setting == "tf32", reduces=reduces)
    assert [stray for seed in range(20) for stray in strays(seed, setting, reduces, ("torch", CUDA))] == []
    # The attack finds what bounds of other processors leave out.
    outside = [stray for seed in range(20) for stray in strays(seed, setting, reduces, ("torch",))]
    assert outside or setting == "float16" or not (setting == "tf32" or reduces)


def test_batches_of_products_may_be_rounded_whatever_is_set(allowed: Any) -> None:
    allowed(tf32=False, reduces=False)

    def width(x: str, w: str, y: str) -> float:
        text = f"g (float16{x} x, float16{w} w) => (float16{y} y) {{ y = MatMul(x, w) }}"
        analysis = IntervalAnalysis(read(parse(text)), runtimes=("torch", CUDA))
        (found,) = analysis.run([Interval.fill(1, 1, op.shape, torch.float16) for op in analysis.graph.inputs])
        assert found is not None
        return found.extremes[1] - found.extremes[0]

    assert width("[1, 2, 99]", "[1, 99, 2]", "[1, 2, 2]") > 8 * width("[2, 99]", "[99, 2]", "[2, 2]")


@pytest.mark.parametrize(
    ("shapes", "body"),
    [
        ("float[1, 1, 9] x, float[1, 1, 9] w", "y = Conv(x, w)"),
        ("float[1, 9] x, float[9, 1] w", "y = Gemm(x, w)"),
        ("float[1, 9] x, float[9] w", "l = ReduceL2<axes = [1]>(x) u = Div(x, l) y = MatMul(u, w)"),
        ("float[1, 9] x", "l = ReduceL2<axes = [1]>(x) u = Div(x, l) t = Transpose(u) y = MatMul(u, t)"),
    ],
    ids=["convolution", "product", "length of one", "length of both"],
)
def test_every_bound_of_products_allows_for_tf32(shapes: str, body: str, allowed: Any) -> None:
    rank = body.count("Conv") + 2 - body.count("(u, w)")
    graph = read(parse(f"g ({shapes}) => (float[{', '.join('1' * rank)}] y) {{ {body} }}", 13))
    greatest = []
    for tf32 in (False, True):
        allowed(tf32=tf32, reduces=False)
        box = [Interval.fill(1, 1.5, op.shape, torch.float32) for op in graph.inputs]
        greatest.append(bound_of(graph, *box).extremes[1])
    assert greatest[1] > greatest[0] * (1 + 2.0**-9)


def test_a_factor_may_be_rounded_to_infinity(allowed: Any) -> None:
    allowed(tf32=True, reduces=False)
    text = "g (float[1, 1] x) => (float[1, 1] y) <float[1, 1] w = {1e-30}> { y = MatMul(x, w) }"
    for size, may_be_infinite in ((3.39e38, False), (3.4028e38, True)):
        y = bound_of(read(parse(text)), Interval.fill(0, size, (1, 1), torch.float32))
        assert y.may_be_infinite is may_be_infinite


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_rounded_to_half_precision_lies_within_the_bounds(dtype: torch.dtype) -> None:
    name, generator = str(dtype).removeprefix("torch."), torch.Generator().manual_seed(0)
    for subject in PUBLISHED:
        kernel, half = (find_envelope(subject.key, of, CUDA) for of in (torch.float32, dtype))
        if subject.exponent is not None or subject.op_domain or kernel is None or half is None:
            continue
        size = torch.exp2(torch.rand(256, dtype=torch.float64, generator=generator) * 30 - 26)
        sign = torch.randint(2, size.shape, generator=generator) * 2.0 - 1
        x = (size * sign).clamp(*subject.domain).to(dtype)
        text = f"g ({name}[256] x) => ({name}[256] y) {{ y = {subject.key}(x) }}"
        bounds = bound_of(read(parse(text, 22)), Interval.of(x, x, (256,)))
        exact = subject.value(x).nan_to_num(math.nan, math.nan, math.nan)
        error = kernel.relative * exact.abs() + kernel.absolute
        for y in (exact - error, exact, exact + error):
            rounded = y.clamp(kernel.lowest, kernel.highest).float().to(dtype).double()
            least, greatest = bounds.doubles()
            outside = ~((rounded >= least) & (rounded <= greatest)) & ~rounded.isnan()
            assert not bool(outside.any()), (subject.key, x[outside].tolist())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("exponent", [2.0, 3.0, -2.0])
def test_products_that_are_powers_are_rounded_each(dtype: torch.dtype, exponent: float) -> None:
    reach = (-24, 16) if dtype is torch.float16 else (-130, 126)
    size = torch.exp2(torch.linspace(*reach, 2001, dtype=torch.float64))
    x, k = torch.cat([size, -size]).to(dtype), of_tensor("k", torch.tensor([exponent], dtype=dtype))
    ends = [helper.make_tensor_value_info(name, k.data_type, [len(x)]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Pow", ["x", "k"], ["y"])], "g", ends[:1], ends[1:], [k])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    bounds = bound_of(read(model), Interval.of(x, x, (len(x),)))
    square = x * x
    y = square if exponent == 2 else square * x if exponent == 3 else (1 / square.double()).to(dtype)
    least, greatest = bounds.doubles()
    assert bool(((y.double() >= least) & (y.double() <= greatest)).all())


@pytest.mark.parametrize(
    ("body", "dtype", "proved"),
    [
        (lambda x: (x - 0.1).exp(), torch.float16, False),
        (lambda x: (x + 0.0625).exp(), torch.float16, True),
        (lambda x: torch.add(x, 0.1, alpha=0.5).exp(), torch.bfloat16, False),
        (lambda x: (x / 3).exp(), torch.bfloat16, False),
    ],
    ids=["difference", "exact", "scaled", "quotient"],
)
def test_numbers_that_an_export_rounds_to_half_precision_are_left_open(
    body: Callable[[Tensor], Tensor], dtype: torch.dtype, proved: bool
) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return body(x)

    x = (torch.ones(1, 4, dtype=dtype),)
    found = rf.check(Module(), x, box=(0.125, 1), runtime=CUDA, n_starts=2, timeout=30, self_check=False)
    assert (found.verdict == "holds") is proved


# the device ---------------------------------------------------------------------------------------------------------


def test_a_batch_takes_half_of_the_memory_that_is_free_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []

    def free(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return 1 << 33, 1 << 34

    monkeypatch.setattr(torch.cuda, "mem_get_info", free)
    device = torch.device("cuda:1")
    assert batch_limit(1 << 20, device) == 1 << 12 and batch_limit(1 << 40, device) == 1
    assert asked == [device, device]


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(("name", "arguments"), [("measure_kernels", ["--device", "cuda"]), ("bench_gpu", [])])
def test_without_a_device_scripts_say_so(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script(name, monkeypatch).main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "no CUDA device is available to torch" in err


def test_parts_of_the_benchmark_run_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, cpu = script("bench_gpu", monkeypatch), torch.device("cpu")
    speed = bench.compare("acasxu", cpu, starts=8, steps=2, rounds=1)
    assert speed.ours > 0 and speed.theirs > 0
    assert all(line.startswith("Sqrt of torch.float32") for line in bench.strays("torch", points=512))
    assert len(bench.strays("torch", points=512, narrowed=1e-3)) > 10
    found = bench.counterexamples([3], cpu, seconds=20.0)
    assert found == {3: "violated"}
