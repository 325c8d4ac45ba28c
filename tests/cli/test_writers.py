"""Reports and files from results that need no search."""

import dataclasses
import errno
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from ranum_falsify.cli import files
from ranum_falsify.cli.output import say, show_progress
from ranum_falsify.errors import SaveError
from ranum_falsify.results import counterexample, text
from ranum_falsify.results.counterexample import Origin, Saved
from ranum_falsify.results.places import Base
from ranum_falsify.results.plain import as_json
from ranum_falsify.results.run_report import make_report
from ranum_falsify.saving import save_together
from ranum_falsify.verify.search.result import Answer, Counterexample, OperatorResult

MORE: dict[str, Any] = {"../in:0": np.zeros(1), "IN_0": np.ones(1)}


def example(value: float, network: str = "N", **more: np.ndarray) -> Counterexample:
    arrays = {"x": np.full((1, 2), value, np.float32), **more}
    return Counterexample(inputs=arrays, network=network, feeds=arrays)


def violated(node: str, found: Counterexample, **changes: object) -> OperatorResult:
    operator = OperatorResult(
        network=found.network,
        node=node,
        op_type="Div",
        verdict="violated",
        constraint="b != 0",
        reason="division by zero",
        kind="nan",
        reach="output",
        oracle="onnxruntime",
        operands={"a": (-np.inf, np.inf), "b": (0.0, 0.0)},
        counterexample=found,
    )
    return dataclasses.replace(operator, **changes)  # type: ignore[arg-type]


def result(*operators: OperatorResult, **changes: object) -> Answer:
    found = next((op.counterexample for op in operators if op.counterexample), None)
    verdict = "violated" if found else "unknown"
    return dataclasses.replace(Answer(verdict=verdict, operators=operators, counterexample=found), **changes)  # type: ignore[arg-type]


def lines(value: Answer, saved: Saved | None = None, **options: Any) -> list[str]:
    return list(text.report(value, saved or Saved(), **options))


class TestText:
    def test_open_operators_are_counted_by_type(self) -> None:
        types = ["Exp", "Div", "Exp", "Add"]
        operators = [
            OperatorResult(network="N", node=f"n{i}", op_type=t, verdict="open", constraint="c")
            for i, t in enumerate(types)
        ]
        assert "open: 4 operators (Exp 2, Add 1, Div 1)" in lines(result(*operators))
        assert "  n1 (Div): c" in lines(result(*operators), verbosity=1)

    def test_unconfirmed_ones_notices_and_interruption(self) -> None:
        shown = lines(result(unconfirmed=("Exp e: no",), notices=("a notice",), interrupted="timeout"))
        assert shown[0] == "unknown (ended early: timeout)"
        assert shown[1:4] == ["unconfirmed (seen by torch, not by ONNX Runtime): 1", "  Exp e: no", "notice: a notice"]

    def test_a_proof(self) -> None:
        proved = OperatorResult(network="N", node="n", op_type="Log", verdict="proved", constraint="x > 0")
        shown = lines(result(proved, verdict="holds", runtimes=("torch",)))
        assert shown[:2] == ["holds for torch", "proved for torch: 1 operator (Log 1)"]
        shown = lines(result(proved, runtimes=("torch",)))
        assert shown[:2] == ["unknown for torch", "proved for torch: 1 operator (Log 1)"]

    def test_networks_are_named_where_there_are_several(self) -> None:
        assert lines(result(violated("d", example(0))))[1] == "  d (Div) gives NaN"
        assert lines(result(violated("d", example(0))), network_count=2)[1] == "  N: d (Div) gives NaN"

    def test_it_says_which_optimisations_a_violation_shows_with(self) -> None:
        off = violated("d", example(0), optimisations="off", reach="masked")
        assert lines(result(off))[4:6] == [
            "    reach: masked (no output turns non-finite with the default graph optimisations)",
            "    only with ONNX Runtime's graph optimisations off",
        ]
        default = violated("d", example(0), optimisations="default", fused="FusedMatMul")
        assert lines(result(default))[3:6] == [
            "    operands of FusedMatMul: a in [-inf, inf], b = 0",
            "    reach: output (an output turns non-finite)",
            "    only with ONNX Runtime's default graph optimisations (FusedMatMul)",
        ]
        assert not any(
            "optimisations" in line for line in lines(result(violated("d", example(0), optimisations="any")))
        )

    @pytest.mark.parametrize(
        ("runtimes", "said"),
        [((), ""), (("onnxruntime", "torch"), ", and by PyTorch"), (("onnxruntime",), " only, not by PyTorch")],
    )
    def test_it_says_which_runtimes_a_violation_occurs_on(self, runtimes: tuple[str, ...], said: str) -> None:
        assert f"    confirmed by ONNX Runtime{said}" in lines(result(violated("d", example(0), runtimes=runtimes)))

    def test_many_operands_are_cut(self) -> None:
        assert text.ranges({f"t{i}": (0.0, 1.0) for i in range(10)}).endswith("t7 in [0, 1], and 2 more")


class TestFiles:
    def save(self, folder: Path, value: Answer) -> tuple[Saved, dict[str, object]]:
        model = folder / "m.onnx"
        model.write_bytes(b"model")
        origin = Origin(property_path=folder / "p.py", networks={"N": (model, counterexample.file_hash(model))})
        saved = counterexample.save(value, origin, Base(folder, "cex"))
        return saved, json.loads((folder / "cex.json").read_text())

    def test_equal_inputs_share_a_file(self, tmp_path: Path) -> None:
        operators = [violated("a", example(1)), violated("b", example(1)), violated("c", example(2))]
        saved, described = self.save(tmp_path, result(*operators))
        names = [saved.of(op.counterexample) for op in operators]
        assert [files["x"].name for files in names if files] == ["cex.npy", "cex.npy", "cex.c.npy"]
        entries = described["counterexamples"]
        assert isinstance(entries, list) and [len(entry["violations"]) for entry in entries] == [2, 1]

    def test_where_a_violation_shows_is_kept(self, tmp_path: Path) -> None:
        facts = {"optimisations": "default", "fused": "Conv", "runtimes": ("onnxruntime",)}
        value = result(violated("a", example(1), **facts))
        saved, described = self.save(tmp_path, value)
        kept = [described["counterexamples"][0]["violations"][0]]  # type: ignore[index]
        kept += as_json(make_report(value, saved, tmp_path))["operators"]
        for violation in kept:
            shown = violation["optimisations"], violation["fused"], violation["runtimes"]
            assert shown == ("default", "Conv", ["onnxruntime"])

    def test_infinities_are_text_in_strict_json(self, tmp_path: Path) -> None:
        self.save(tmp_path, result(violated("a", example(1))))
        content = (tmp_path / "cex.json").read_text()
        assert "Infinity" not in content and '"-inf"' in content

    def test_names_of_nodes_and_inputs_are_made_safe(self, tmp_path: Path) -> None:
        first = example(1, **MORE)
        operators = [violated("/a/b", first), violated("/a/b", example(2)), violated("..", example(3))]
        self.save(tmp_path, result(*operators))
        made = {path.name for path in tmp_path.glob("cex*")}
        assert made == {"cex.x.npy", "cex.in_0.npy", "cex.IN_0_2.npy", "cex.a_b.npy", "cex.unnamed.npy", "cex.json"}

    def test_dtype_and_shape_are_kept(self, tmp_path: Path) -> None:
        arrays: dict[str, np.ndarray] = {
            "i": np.zeros((2, 0, 3), np.int64),
            "h": np.ones((), np.float16),
            "b": np.array([True]),
        }
        found = Counterexample(inputs=arrays, network="N", feeds=arrays)
        saved, _ = self.save(tmp_path, result(violated("a", found)))
        paths = saved.of(found)
        assert paths is not None
        for name, array in arrays.items():
            loaded = np.load(paths[name])
            assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)

    def test_what_is_written_reads_back(self, tmp_path: Path) -> None:
        self.save(tmp_path, result(violated("a", example(1))))
        described = counterexample.read(tmp_path / "cex.json")
        assert described.networks["N"][1] == counterexample.file_hash(tmp_path / "m.onnx")
        (entry,) = described.entries
        assert entry.files == {"x": tmp_path / "cex.npy"} and entry.violations[0]["node"] == "a"

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "f"
        path.write_text("old")

        def full(stream: BinaryIO) -> None:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        said = r"g, .*f: cannot be written \(no space left on device\); what is there now is older"
        with pytest.raises(SaveError, match=said):
            save_together({tmp_path / "g": b"new", path: full})
        assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        save_together({tmp_path / "link": b"new"})
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"

    def test_checking_leaves_nothing(self, tmp_path: Path) -> None:
        files.check_writable("--json", tmp_path / ("n" * 250))
        assert list(tmp_path.iterdir()) == []


class TestJson:
    def test_nodes_of_several_networks_are_told_apart(self) -> None:
        two = result(violated("d", example(0)), violated("d", example(0, "M")))
        nodes = [operator["node"] for operator in as_json(make_report(two, Saved(), Path()))["operators"]]
        assert nodes == ["N:d", "M:d"]

    def test_the_oracles_that_confirmed(self) -> None:
        both = result(violated("a", example(0)), violated("b", example(0), oracle="reference"))
        assert as_json(make_report(both, Saved(), Path()))["runtimes"] == ["onnxruntime", "reference"]

    def test_json_says_why_an_operator_is_violated(self) -> None:
        answer = result(violated("a", example(0), kind="nan", oracle="reference", returned=(-1.0, 1.0)))
        (operator,) = as_json(make_report(answer, Saved(), Path()))["operators"]
        assert operator["reason"] == answer.operators[0].reason
        assert (operator["kind"], operator["oracle"], operator["returned"]) == ("nan", "reference", [-1.0, 1.0])

    def test_what_is_returned_in_place_of_nan_is_said(self) -> None:
        answer = result(violated("a", example(0), kind="nan", oracle="reference", returned=(-1.0, 1.0)))
        written = lines(answer)
        at = written.index("    confirmed by the ONNX reference evaluator")
        assert written[at + 1] == "    instead, ONNX Runtime returns numbers in [-1, 1]"
        classic = Answer(verdict="violated", counterexample=example(0, ""))
        assert as_json(make_report(classic, Saved(), Path()))["runtimes"] == ["onnxruntime"]


@dataclass(frozen=True)
class Step:
    stage: str = "search"
    done: float = 0.5
    text: str = "round 1"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_a_pipe_sees_a_line_now_and_then(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        now = [0.0]
        monkeypatch.setattr("ranum_falsify.results.progress.time.monotonic", lambda: now[0])
        with show_progress() as display:
            for seconds in (0, 1, 4.9, 5, 6, 9, 10.5):
                now[0] = seconds
                display(Step(text=f"at {seconds}"))
        assert capsys.readouterr().err.splitlines() == ["search: at 5 (50%)", "search: at 10.5 (50%)"]

    def test_verbose_shows_every_stage(self, capsys: pytest.CaptureFixture[str]) -> None:
        with show_progress(1) as display:
            for stage in ("search", "search", "replay"):
                display(Step(stage))
        assert capsys.readouterr().err.splitlines() == ["search: round 1 (50%)", "replay: round 1 (50%)"]

    def test_quiet_shows_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stderr", Terminal())
        with show_progress(-1) as display:
            display(Step())
            assert display._bar is None

    def test_a_terminal_shows_a_bar(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with show_progress() as display:
            display(Step(text="[bold]round[/bold] 1"))
        assert "search: [bold]round[/bold] 1" in terminal.getvalue()


class TestColours:
    def shown(self, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        for name, value in ({"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": ""} | environment).items():
            monkeypatch.setenv(name, value)
        say(["violated", "m.onnx: holds for onnxruntime", "of: violated", "\x1b[31mopen"])
        return terminal.getvalue()

    def test_verdicts_have_colours_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.shown(monkeypatch).splitlines() == [
            "\x1b[1;31mviolated\x1b[0m",
            "m.onnx: \x1b[1;32mholds\x1b[0m for onnxruntime",
            "of: violated",
            "\\x1b[31mopen",
        ]

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_there_are_none_where_none_are_wanted(
        self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
    ) -> None:
        assert "\x1b" not in self.shown(monkeypatch, **environment)

    def test_a_pipe_has_none(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        say(["violated"])
        assert capsys.readouterr().out == "violated\n"
