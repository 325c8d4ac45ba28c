"""A script that finds nothing to do says so in one line, with exit status 2: it is no success."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests.network.building import parse

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"

VNNLIB = """\
(declare-const X_0 Real)
(declare-const Y_0 Real)
(assert (>= X_0 0.0))
(assert (<= X_0 1.0))
(assert (<= Y_0 0.5))
"""


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """A benchmark of one family with one instance, whose property some input violates."""
    folder = tmp_path / "family"
    folder.mkdir()
    onnx.save(parse("g (float[1, 1] x) => (float[1, 1] y) { y = Relu(x) }"), str(folder / "m.onnx"))
    (folder / "p.vnnlib").write_text(VNNLIB)
    (folder / "expected.csv").write_text("onnx,vnnlib,expected\nm.onnx,p.vnnlib,sat\n")
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], name: str, *arguments: str | Path) -> str:
    status = importlib.import_module(name).main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert status == 2, said
    assert "wrong: 0 of 0" not in said.out
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.skipif(not (SCRIPTS.parent / ".venv/bin/ranum-falsify").exists(), reason="the scripts use .venv")
class TestScriptsOfVnncomp:
    """The three that the competition calls, on a property that some input violates and on one that none does."""

    @staticmethod
    def call(name: str, *arguments: str | Path) -> int:
        script = [str(SCRIPTS / "vnncomp" / f"{name}_instance.sh"), *map(str, arguments)]
        return subprocess.run(script, check=False, capture_output=True).returncode

    def test_results_are_the_competitions(self, benchmark: Path) -> None:
        """One test: whatever an earlier instance left is ended by the preparation of the next."""
        model, text = benchmark / "family" / "m.onnx", benchmark / "family" / "p.vnnlib"
        results = benchmark / "results.txt"
        for least, said in (("0.5", "sat\n((X_0 "), ("-0.5", "unsat\n")):
            text.write_text(VNNLIB.replace("(<= Y_0 0.5)", f"(<= Y_0 {least})"))
            assert self.call("prepare", "v1", "family", model, text) == 0
            assert self.call("run", "v1", "family", model, text, results, "30") == 0
            assert results.read_text().startswith(said)
        absent = benchmark / "family" / "absent.onnx"
        assert self.call("prepare", "v1", "family", absent, text) == 1
        assert self.call("run", "v1", "family", absent, text, results, "30") == 0
        assert results.read_text() == "error\n"
        assert self.call("run", "v2") == 2


class TestVnncomp:
    def test_one_instance(self, capsys: pytest.CaptureFixture[str], benchmark: Path) -> None:
        assert importlib.import_module("bench_vnncomp").main([str(benchmark), "--n_starts", "20"]) == 0
        out = capsys.readouterr().out
        assert "family m p: violated (sat)" in out and out.endswith("wrong: 0 of 1\n")

    def test_rows_are_recorded(self, benchmark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row takes the place of the one before it, and no folder of this machine is named."""
        record, bench = benchmark / "figures.json", importlib.import_module("bench_vnncomp")
        monkeypatch.setattr(importlib.import_module("lab.bench.tables"), "RECORD", record)
        for timeout in ("9", "8"):
            assert bench.main([str(benchmark), "--n_starts", "20", "--timeout", timeout, "--record"]) == 0
        (row,) = json.loads(record.read_text())["vnncomp"]["rows"]
        assert row["cells"][:6] == ["family", "sat", "1", "1", "0", "0"] and float(row["cells"][6]) > 0
        assert row["command"] == "scripts/bench_vnncomp.py FOLDER --n_starts 20 --timeout 8"
        page = dict(importlib.import_module("lab.bench.pages").texts(benchmark))["figures"]
        assert f"| {' | '.join(row['cells'])} |" in page and f"`{row['command']}`: {row['machine']}" in page

    def test_a_folder_without_models(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert "no folder in it has an expected.csv" in refusal(capsys, "bench_vnncomp", tmp_path)
        assert "no folder in it" in refusal(capsys, "bench_vnncomp", tmp_path / "missing")

    def test_instances_that_are_not_there(self, capsys: pytest.CaptureFixture[str], benchmark: Path) -> None:
        says = refusal(capsys, "bench_vnncomp", benchmark, "--family", "family", "--family", "acasxu")
        assert "--family acasxu" in says and "it has family" in says
        assert "expected to be unsat" in refusal(capsys, "bench_vnncomp", benchmark, "--expected", "unsat")

    def test_models_that_are_not_there(self, capsys: pytest.CaptureFixture[str], benchmark: Path) -> None:
        (benchmark / "family" / "m.onnx").unlink()
        assert "m.onnx.gz: no such file" in refusal(capsys, "bench_vnncomp", benchmark)


def test_models_of_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no *.onnx" in refusal(capsys, "bench_domain", "--parts", "--models", tmp_path)
    assert "nothing to measure" in refusal(capsys, "bench_domain", "--parts")


def test_models_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model has such a name" in refusal(capsys, "bench_precision", "--match", "there is none")


def test_models_for_other_verifiers(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model has such a name" in refusal(capsys, "bench_lowering", "--match", "there is none")
    if not importlib.import_module("lab.bench.lirpa").is_installed():
        assert "nothing is measured: auto_LiRPA is not installed" in refusal(capsys, "bench_lowering")
        assert "nothing is measured: auto_LiRPA is not installed" in refusal(capsys, "bench_bounds")


def test_questions_of_robustness(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    robustness = importlib.import_module("make_robustness")
    assert robustness.main([str(tmp_path), "--family", "dense_50x3", "--pictures", "1"]) == 0
    assert "dense_50x3: 2 questions" in capsys.readouterr().out
    bench = importlib.import_module("bench_vnncomp")
    assert bench.main([str(tmp_path), "--timeout", "20", "--count", "1"]) == 0
    assert "wrong: 0 of 1" in capsys.readouterr().out


def test_defects_of_the_zoo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no defect '99'" in refusal(capsys, "bench_zoo", "--only", "99", "--folder", tmp_path)
    assert not list(tmp_path.iterdir())


def test_cases_of_the_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no case has such a name" in refusal(capsys, "sweep_domain", "--match", "there is none")
    assert "nothing was run" in refusal(capsys, "sweep_domain", "--cases", "0", "--graphs", "0", "--attacks", "0")


def test_functions_of_the_kernels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--only nothing: unknown" in refusal(capsys, "measure_kernels", "--only", "nothing", "--into", tmp_path)
    assert not list(tmp_path.iterdir())


class TestFingerprint:
    def test_instances_of_vnncomp(self, capsys: pytest.CaptureFixture[str], benchmark: Path) -> None:
        assert importlib.import_module("fingerprint_answers").main(["--only", "--instances", str(benchmark)]) == 0
        *bounds, proof, search = capsys.readouterr().out.splitlines()
        assert len(bounds) == 3 and all("instances/family/m p" in line and "bounds=" in line for line in bounds)
        assert proof.endswith("proof holds=False") and "violated" in search

    def test_a_folder_without_instances(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert "no folder in it" in refusal(capsys, "fingerprint_answers", "--only", "--instances", tmp_path)

    def test_instances_are_spread_over_families(self) -> None:
        vnncomp = importlib.import_module("lab.bench.vnncomp")
        sizes = {"large": 100, "small": 2, "other": 10}
        found = [
            vnncomp.Instance(family, Path(f"{number}.onnx"), Path("p.vnnlib"), "sat")
            for family, size in sizes.items()
            for number in range(size)
        ]
        chosen = [(i.family, int(i.onnx.stem)) for i in vnncomp.spread_over_families(found, 12)]
        assert chosen == [
            *(("small", number) for number in (0, 1)),
            *(("other", number) for number in (0, 2, 4, 6, 8)),
            *(("large", number) for number in (0, 20, 40, 60, 80)),
        ]


class TestStableForms:
    @pytest.mark.slow
    def test_defects_and_the_passes_that_repair_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        main = importlib.import_module("table_stable_forms").main
        assert main(["2", "5", "13", "16a", "22"]) == 0
        out = capsys.readouterr().out
        for row in (
            "| 2a | log_p | Log | stable_log_softmax, stable_log_one_minus_softmax | proved |  |  |",
            "| 5 | sqrt | Sqrt | stable_root_of_exp | proved |  |  |",
            "| 13 | log | Log |  | open | log, div |  |",
            "| 16a | exp_denominator | Exp | stable_log_quotient | proved |  |  |",
            "| 22 | exp | Exp | stable_softplus | proved |  |  |",
        ):
            assert row in out.splitlines()
        assert out.endswith("proved: 5 of 6\n")

    @pytest.mark.slow
    def test_what_is_verified(self, capsys: pytest.CaptureFixture[str]) -> None:
        main = importlib.import_module("table_stable_forms").main
        assert main(["57", "22", "--samples", "4"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[2].endswith("| yes |") and lines[3].endswith("| random |")

    def test_a_defect_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "there is no defect '99'" in refusal(capsys, "table_stable_forms", "99")
