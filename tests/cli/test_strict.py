"""Models with operators that have no row, on the command line."""

import onnx
import pytest
from onnx.parser import parse_model

import ranum_falsify as rf
from ranum_falsify.network import registry
from tests.cli.workshop import Workshop

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "my.own" : 1]>'


@pytest.fixture(autouse=True)
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CDist", "Inverse", "Unique"):
        monkeypatch.delitem(registry._ROWS, ("com.microsoft", name), raising=False)


def save(workshop: Workshop, operator: str) -> str:
    model = parse_model(f"{HEAD} g (float[3,3] x) => (float[3,3] y) {{ a = {operator}(x) y = Neg(a) }}")
    onnx.save(model, workshop.folder / "model.onnx")
    return str(workshop.folder / "model.onnx")


def test_strict_refuses_it(workshop: Workshop) -> None:
    path = save(workshop, "com.microsoft.Inverse")
    lenient = workshop.run("check", path, "--box", "1", "1", "--n_starts", "0")
    assert lenient.status == 3
    strict = workshop.run("check", path, "--box", "1", "1", "--strict")
    assert "com.microsoft::Inverse (1)" in strict.error
    with pytest.raises(rf.RanumFalsifyError, match=r"com\.microsoft::Inverse"):
        rf.check(path, box=(1, 1), strict=True)


def test_a_model_that_onnx_runtime_cannot_load_ends_in_one_line(workshop: Workshop) -> None:
    path = save(workshop, "my.own.Wavelet")
    refused = workshop.run("check", path, "--box", "1", "1")
    assert "my.own::Wavelet (1)" in refused.error
