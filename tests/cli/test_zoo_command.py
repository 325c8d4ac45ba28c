"""The command `zoo`: real defects listed, shown, written and detected."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import onnx
import pytest

from ranum_falsify.cli import zoo
from ranum_falsify.saving import cache_folder
from ranum_falsify.zoo.builder import Architecture
from ranum_falsify.zoo.catalogue import FUZZED, MODELS, model_of
from ranum_falsify.zoo.model import ZooModel
from tests.cli.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent.parent
DEFECTS = [defect for model in (*MODELS, *FUZZED) for defect in model.defects]
SOFTMAX = model_of("3")
SHARED = model_of("2a")  # a model with two defects


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ([], "zoo: no action is given; write ranum-falsify zoo list|show|build|detect"),
            (["biuld"], "zoo: there is no action 'biuld'"),
            (["show"], "ID"),
            (["show", "3", "4"], "unexpected arguments: 4"),
            (["show", "64"], "there is no defect '64'"),
            (["build", "3", "x"], "there is no defect 'x'"),
            (["detect", "log"], "there is no defect 'log'"),
            (["build", "--batch", "0"], "0 is out of range"),
            (["detect", "--inference=2"], "--inference"),
            (["list", "3"], "unexpected arguments: 3"),
        ],
        ids=" ".join,
    )
    def test_what_does_not_fit_is_one_line(self, workshop: Workshop, arguments: list[str], says: str) -> None:
        assert says in workshop.run("zoo", *arguments).error

    @pytest.mark.parametrize(
        "arguments", [["--help"], ["list", "-h"], ["show", "-h"], ["build", "-h"], ["detect", "-h"]]
    )
    def test_help(self, workshop: Workshop, arguments: list[str]) -> None:
        run = workshop.run("zoo", *arguments)
        assert (run.status, run.err) == (0, "")
        assert "ranum-falsify zoo" in run.out.partition("json")[0]

    def test_the_main_help_mentions_it(self, workshop: Workshop) -> None:
        assert "ranum-falsify zoo detect" in workshop.run("--help").out

    @pytest.mark.parametrize(("action", "status"), [("help", 2), ("list", 0)])
    def test_torch_is_not_imported_for_words(self, action: str, status: int) -> None:
        code = f"import sys; from ranum_falsify.cli import main; s = main(['zoo', '{action}'])"
        code += "; print(s, 'torch' in sys.modules)"
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.stdout.endswith(f"{status} False\n")


class TestList:
    def test_a_line_for_every_defect(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "list")
        assert (run.status, run.err) == (0, "")
        head, *lines = run.out.splitlines()
        assert head.split()[:4] == ["id", "program", "made", "with"]
        assert [line.split()[0] for line in lines[: len(DEFECTS)]] == [defect.id for defect in DEFECTS]
        for line, defect in zip(lines, DEFECTS, strict=False):
            assert f" {defect.operator}{chr(39) * defect.gradient} " in line and f" {defect.node} " in line

    def test_defects_of_derivatives_have_a_mark_that_is_explained(self, workshop: Workshop) -> None:
        *_, note = workshop.run("zoo", "list").out.splitlines()
        marked = any(defect.gradient for defect in DEFECTS)
        assert note.startswith("' of the derivative") is marked

    def test_json_holds_all_of_it(self, workshop: Workshop) -> None:
        rows = json.loads(workshop.run("zoo", "list", "--json").out)
        assert [row["id"] for row in rows] == [defect.id for defect in DEFECTS]
        (row,) = [row for row in rows if row["id"] == "3"]
        assert row == {
            "id": "3",
            "model": "3",
            "program": SOFTMAX.program,
            "framework": "tf",
            "operator": "Log",
            "node": "log",
            "mechanism": SOFTMAX.defects[0].mechanism,
            "gradient": False,
            "repair": SOFTMAX.repair,
        }


class TestShow:
    def test_the_facts(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "show", "3")
        assert (run.status, run.err) == (0, "")
        for fact in (
            f"3: {SOFTMAX.program} (tf)\n",
            f"defect 3 at log (Log): {SOFTMAX.defects[0].mechanism}\n",
            f"repair: {SOFTMAX.repair}\n",
            "  its developers (none): not fixed; a similar defect was reported to TensorFlow-Examples\n",
            "  training: Adam, learning rate 0.005, batches of 100; cross entropy, summed over batch and classes\n",
            "7 nodes, 31.1 KiB\n",
            "  x  float32 [1, 784]  in [0, 1]\n",
            "weights (7850 elements), with values at first\n",
            "  W  float32 [784, 10]  in [-10, 10], 0\n",
            '  no_invalid_input(free(N, "W", "b", loss=loss("Neg", one_hot=["y"]))(x, y, W, b)),\n',
        ):
            assert fact in run.out, fact

    def test_all_defects_of_a_model_whichever_is_asked_for(self, workshop: Workshop) -> None:
        out = workshop.run("zoo", "show", "2b").out
        assert out == workshop.run("zoo", "show", "2").out
        assert all(f"defect {defect.id} at {defect.node}" in out for defect in SHARED.defects)

    def test_the_repaired_twin_at_another_batch(self, workshop: Workshop) -> None:
        out = workshop.run("zoo", "show", "3", "--safe", "--batch", "5").out
        assert out.startswith(f"3: {SOFTMAX.program} (tf), repaired\n")
        assert "  x  float32 [5, 784]" in out and "--network N 3.safe.onnx" in out

    def test_the_data_of_a_program_that_the_zoo_widens(self, workshop: Workshop) -> None:
        wide, narrow = (workshop.run("zoo", "show", "38", *more).out for more in ((), ("--documented",)))
        assert "  x  float32 [4, 2]  in [-50, 50]\n" in wide and "data for x lie in [0, 1]; --documented" in wide
        assert "  x  float32 [4, 2]  in [0, 1]\n" in narrow and "--documented" not in narrow

    def test_json(self, workshop: Workshop) -> None:
        shown = json.loads(workshop.run("zoo", "show", "3", "--json").out)
        architecture = SOFTMAX.architecture()
        assert (shown["id"], shown["safe"], shown["nodes"]) == ("3", False, 7)
        assert shown["inputs"][0] == {"name": "x", "dtype": "float32", "shape": [1, 784], "low": 0.0, "high": 1.0}
        assert [w["name"] for w in shown["weights"]] == ["W", "b"]
        assert shown["training"]["optimizer"] == "Adam" and shown["developer_fixes"]["3"]["status"] == "none"
        assert shown["bytes"] == architecture.model.ByteSize()
        assert shown["property"] == SOFTMAX.property_text(architecture)
        assert [defect["node"] for defect in shown["defects"]] == ["log"]


class TestBuild:
    def test_files_that_the_main_command_takes(self, workshop: Workshop) -> None:
        out = workshop.folder / "zoo"
        run = workshop.run("zoo", "build", "3", "--out", out)
        names = ["3.onnx", "3.py", "3.safe.onnx", "3.safe.py"]
        assert (run.status, run.err) == (0, "")
        assert run.out.splitlines() == [str(out / name) for name in names]
        assert sorted(path.name for path in out.iterdir()) == names
        assert onnx.load(out / "3.onnx") == SOFTMAX.architecture().model
        few = ("--n_starts", "20", "--n_steps", "50", "--prove-timeout", "0")
        faulty = workshop.run(out / "3.py", "-N", "N", out / "3.onnx", "-v", *few)
        assert faulty.status == 1 and "  log (Log) gives infinity" in faulty.out
        assert workshop.run(out / "3.safe.py", "-N", "N", out / "3.safe.onnx", *few).out.startswith("holds")

    def test_several_and_again_give_the_same_bytes(self, workshop: Workshop) -> None:
        folders = [workshop.folder / name for name in ("one", "two")]
        for folder in folders:
            assert workshop.run("zoo", "build", "10", "3", "2b", "3", "--out", folder).status == 0
        contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
        assert contents[0] == contents[1]
        assert sorted(contents[0]) == sorted(
            f"{i}{s}.{k}" for i in "2 3 10".split() for s in ("", ".safe") for k in ("onnx", "py")
        )

    def test_an_existing_folder_is_used_and_its_files_replaced(self, workshop: Workshop) -> None:
        (workshop.folder / "3.py").write_text("old")
        (workshop.folder / "mine").write_text("kept")
        assert workshop.run("zoo", "build", "3", "--out", workshop.folder, "--batch", "2").status == 0
        assert "no_invalid_input" in (workshop.folder / "3.py").read_text()
        assert (workshop.folder / "mine").read_text() == "kept"
        assert onnx.load(workshop.folder / "3.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2

    @pytest.mark.parametrize(("given", "place"), [("cache", "cache"), ("", "home/.cache"), ("relative", "home/.cache")])
    def test_the_cache_is_where_the_user_has_it(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, given: str, place: str
    ) -> None:
        relative = given == "relative"
        monkeypatch.setenv("XDG_CACHE_HOME", str(workshop.folder / given) if given and not relative else given)
        monkeypatch.setenv("HOME", str(workshop.folder / "home"))
        monkeypatch.chdir(workshop.folder)
        run = workshop.run("zoo", "build", "3")
        folder = workshop.folder / place / "ranum-falsify" / "zoo"
        assert run.status == 0 and str(folder / "3.onnx") in run.out.splitlines()
        assert (folder / "3.safe.py").is_file()

    def test_all_where_none_is_named(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(zoo, "MODELS", (SHARED, SOFTMAX))
        run = workshop.run("zoo", "build", "--out", workshop.folder / "all")
        assert len(run.out.splitlines()) == 8

    def test_folders_that_cannot_be(self, workshop: Workshop) -> None:
        missing = workshop.folder / "a" / "b"
        file = workshop.folder / "file"
        file.write_text("")
        assert f"--out {missing}: there is no folder" in workshop.run("zoo", "build", "3", "--out", missing).error
        assert (
            f"--out {file}: cannot be created (file exists)" in workshop.run("zoo", "build", "3", "--out", file).error
        )

    def test_a_cache_that_cannot_be(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        file = workshop.folder / "file"
        file.write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(file))
        error = workshop.run("zoo", "build", "3").error
        assert "cannot be created" in error and "--out" in error

    def test_no_home_to_have_a_cache_in(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(uid: int) -> NoReturn:
            raise KeyError(uid)

        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", unknown)
        assert cache_folder() is None, "the check of the kernels keeps nothing then"
        assert "no home directory" in (error := workshop.run("zoo", "build", "3").error) and "--out" in error
        assert workshop.run("zoo", "build", "3", "--out", workshop.folder).status == 0

    def test_a_full_disk_leaves_no_half_file(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(source: object, target: object) -> NoReturn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("os.replace", full)
        out = workshop.folder / "out"
        assert (
            "3.py: cannot be written (no space left on device)" in workshop.run("zoo", "build", "3", "--out", out).error
        )
        assert list(out.iterdir()) == []


class TestDetect:
    def test_one_model(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "detect", "3")
        assert (run.status, run.err) == (0, "")
        head, row, blank, detected, repaired, analysis, besides, shot = run.out.splitlines()
        assert head.split()[:5] == ["id", "operator", "node", "detected", "analysis"]
        cells = row.split()
        assert (cells[:4], cells[5:]) == (["3", "Log", "log", "yes"], ["ms", "proved", "3", "after"])
        assert blank == "" and detected == "detected: 1 of 1 defect in 1 program"
        assert repaired == "repaired: 1 of 1 program proved (1 of 1 model); 0 of 6 operators flagged (0.00%)"
        assert analysis.startswith("analysis: 0.") and analysis.endswith("(1 thread)")
        assert besides.startswith("besides, for both: building ")
        assert re.fullmatch(r"one shot: \d+\.\d\d s of processor time, \d+\.\d\d s for the repaired ones .*", shot)

    @pytest.mark.slow
    def test_one_defect_of_a_model_with_two(self, workshop: Workshop) -> None:
        out = workshop.run("zoo", "detect", "2b").out
        _, row, _, detected, *_ = out.splitlines()
        first, second = SHARED.defects
        assert row.split()[:4] == ["2b", "Log", second.node, "yes"]
        assert first.node in row.split("proved")[1]
        assert detected == "detected: 1 of 1 defect in 1 program"
        assert len(workshop.run("zoo", "detect", "2").out.splitlines()) == len(out.splitlines()) + 1

    @pytest.mark.slow
    def test_the_programs_of_the_fuzzer(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "detect", "saf")
        assert run.status == 0
        assert "detected: 14 of 14 defects in 14 programs\nrepaired: 14 of 14 programs proved" in run.out

    @pytest.mark.slow
    def test_the_data_of_the_program(self, workshop: Workshop) -> None:
        assert "detected: 1 of 1" in workshop.run("zoo", "detect", "38").out
        run = workshop.run("zoo", "detect", "38", "--documented")
        assert run.status == 1 and "detected: 0 of 1" in run.out

    def test_verbose_names_all_that_is_flagged(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "detect", "3", "-v")
        assert "    log (Log) (documented): not shown: x > 0\n" in run.out
        assert "    only after those: Mul, ReduceSum, Neg\n" in run.out

    def test_quiet_prints_the_totals(self, workshop: Workshop) -> None:
        assert workshop.run("zoo", "detect", "3", "-q").out.startswith("detected: 1 of 1 defect")

    def test_inference_beside_it(self, workshop: Workshop) -> None:
        out = workshop.run("zoo", "detect", "3", "--inference").out
        assert out.splitlines()[0].split()[5:7] == ["inference", "ratio"]
        assert "inference on ONNX Runtime: " in out and "times one, median" in out

    def test_json(self, workshop: Workshop) -> None:
        path = workshop.folder / "report.json"
        run = workshop.run("zoo", "detect", "3", "--json", path)
        report = json.loads(path.read_text())
        assert run.out.startswith("id") and run.status == 0
        assert report["defects"] == [
            {"id": "3", "model": "3", "node": "log", "operator": "Log", "gradient": False, "verdict": "detected"}
        ]
        (model,) = report["models"]
        assert [flag["node"] for flag in model["faulty"]["flagged"]] == ["log", "Mul", "ReduceSum", "Neg"]
        assert model["faulty"]["flagged"][1] == {"node": "Mul", "op_type": "Mul", "conditions": [], "after": ["log"]}
        assert model["repaired"]["flagged"] == [] and len(model["repaired"]["seconds"]["analyses"]) == 1
        assert model["faulty"]["seconds"]["one_shot"] == report["seconds"]["one_shot"] > 0
        assert report["totals"]["programs_proved"] == report["totals"]["programs"] == 1
        assert report["totals"]["verdicts"] == {"detected": 1, "after": 0, "missed": 0}
        assert (report["threads"], report["batch"]) == (1, 1) and "onnxruntime" in report["versions"]

    @pytest.mark.slow
    def test_json_on_standard_output_is_all_there_is(self, workshop: Workshop) -> None:
        run = workshop.run("zoo", "detect", "3", "--json", "-", "--batch", "2", "-p", "2")
        report = json.loads(run.out)
        assert (report["threads"], report["batch"]) == (2, 2)

    def test_a_report_that_cannot_be_written_is_refused_before_the_work(self, workshop: Workshop) -> None:
        assert "there is no folder" in workshop.run("zoo", "detect", "3", "--json", workshop.folder / "a" / "b").error

    @pytest.mark.few(1)
    @pytest.mark.parametrize("side", ["missed", "unproved"])
    def test_what_differs_from_the_catalogue_is_status_1(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, side: str
    ) -> None:
        wrong = side == "missed"

        class Wrong(ZooModel):
            """A model both of whose twins are repaired, or neither."""

            def architecture(self, *, safe: bool = False, **options: Any) -> Architecture:
                return super().architecture(safe=wrong, **options)

        model = Wrong(**{name: getattr(SOFTMAX, name) for name in SOFTMAX.__dataclass_fields__})
        monkeypatch.setattr(zoo, "MODELS", (model,))
        run = workshop.run("zoo", "detect")
        assert run.status == 1
        if wrong:
            assert " NO " in run.out and "detected: 0 of 1 defect" in run.out
        else:
            assert "log; 3 after  3 after" in run.out and "repaired: 0 of 1 program proved" in run.out
            assert "4 of 7 operators flagged (57.14%), 1 of them by themselves" in run.out
