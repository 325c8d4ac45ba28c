"""The command `check`: a model without a property file."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from ranum_falsify.cli.front import parse
from ranum_falsify.cli.options.questions import CheckOptions
from tests.cli.workshop import LOG, QUOTIENT, SAFE, Outcome, Workshop

HELD = "holds for onnxruntime on x86-64 and arm64"
LOOKUP = """g (int64[1, 2] ids, bool[1] flag, float[1, 3, 32, 32] image) => (float[1, 2, 2] y)
    <float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}> {
    [look] rows = Gather(table, ids)
    [logarithm] l = Log(rows)
    mean = ReduceMean(image)
    zero = Constant<value = float {0}>()
    kept = Where(flag, mean, zero)
    y = Add(l, kept)
}"""
WEIGHT = "g (float[1, 2] x) => (float[1, 2] y) <float[2] w = {1, 1}> { [quotient] y = Div(x, w) }"
ROOT_FIRST = "g (float[1, 2] x) => (float[1, 2] y) { [root] r = Sqrt(x) [logarithm] y = Log(r) }"
INTEGERS = "g (int32[1] a, int32[1] b) => (int32[1] y) {{ [quotient] y = {}(a, b) }}"
SLOPE = "g (float[1, 2] x) => (float[1, 2] y) { [root] y = Sqrt(x) }"


def check(workshop: Workshop, words: str, model: str = LOG) -> Outcome:
    return workshop.run("check", workshop.model(model), *shlex.split(words), "--n_starts", "20", "--n_steps", "20")


class TestIntegerDivision:
    @pytest.mark.parametrize(
        ("op_type", "words", "kind", "says"),
        [
            ("Div", "a=-5,5 --box b=0", "error", "gives an error: ONNX Runtime refuses this input"),
            ("Mod", "a=7 --box b=0", "error", "confirmed by ONNX Runtime, and by PyTorch"),
            ("Div", "a=-2147483648 --box b=-1", "crash", "this input ends the process of ONNX Runtime"),
            ("Mod", "a=-2147483648 --box b=-1", "crash", "the operands that ONNX Runtime computes, not by PyTorch"),
        ],
    )
    def test_every_report_says_what_happens(
        self, workshop: Workshop, op_type: str, words: str, kind: str, says: str
    ) -> None:
        written = {name: workshop.folder / f"report.{name}" for name in ("json", "sarif")}
        options = " ".join(f"--{name} {path}" for name, path in written.items())
        saved = workshop.folder / "cex.npy"
        run = check(workshop, f"--box {words} {options} --save-violation {saved}", INTEGERS.format(op_type))
        assert run.status == 1 and says in run.out and "(there is no output)" in run.out and "NaN" not in run.out
        (operator,) = json.loads(written["json"].read_text())["operators"]
        operands = {name: limits[0] for name, limits in operator["operands"].items()}
        assert operator["kind"] == kind and all(type(value) is int for value in operands.values())
        (result,) = json.loads(written["sarif"].read_text())["runs"][0]["results"]
        assert f"gives {'an error' if kind == 'error' else 'a crash'}: " in result["message"]["text"]
        assert all(f"{name} = {value}" in run.out for name, value in operands.items())
        again = workshop.run("replay", workshop.folder / "cex.json", "-N", "N", workshop.folder / "model.onnx")
        assert again.status == 1 and says in again.out and "NaN" not in again.out


class TestAnswers:
    @pytest.mark.parametrize(
        ("model", "words", "status", "says"),
        [
            (LOG, "--box -1 1", 1, "violated\n  logarithm (Log) gives NaN"),
            (LOG, "--box 1 2", 0, f"{HELD}\n"),
            (LOG, "--box 1 2 --runtime torch,exact", 0, "holds for torch on x86-64 and arm64, exact\n"),
            (LOG, "--box x=1,2", 0, "holds"),
            (LOG, "--box=0.5,2", 0, "holds"),
            (LOG, "--bo 1 2", 0, "holds"),
            (LOG, "--box x=3", 0, "holds"),
            (QUOTIENT, "--box -1 1 --box b=1,2", 0, "holds"),
            (QUOTIENT, "--box b=1,2", 0, f"{HELD}, with the default box of a\n"),
            (QUOTIENT, "--box 1 2 --box b=-1,2", 1, "quotient (Div)"),
            (SLOPE, "--box 0 1", 0, "holds"),
            (SLOPE, "--box 0 1 --gradient", 1, "root (Sqrt)"),
            (ROOT_FIRST, "--box -1 1 --only Sqrt", 1, "root (Sqrt)"),
            (ROOT_FIRST, "--box 0 1 --only Sqrt", 0, "holds"),
            (ROOT_FIRST, "--box 0 1 --only Log,Sqrt --only Log", 1, "logarithm (Log)"),
            (LOG, "--box -1 1 --nodes logarithm", 1, "logarithm"),
            (WEIGHT, "--box 1 2", 0, "holds"),
            (WEIGHT, "--box 1 2 --free all --weights -1,1", 1, "quotient (Div)"),
            (WEIGHT, "--box 1 2 --free w --weights 0.5", 0, "holds"),
            (LOG, "--box 1 2 --no-prove", 3, "unknown"),
        ],
    )
    def test_what_it_says(self, workshop: Workshop, model: str, words: str, status: int, says: str) -> None:
        run = check(workshop, words, model)
        assert run.status == status and says in run.out, run

    def test_options_come_before_the_model_too(self, workshop: Workshop) -> None:
        assert workshop.run("check", "--box", "-1", "-0.5", workshop.model(SLOPE)).status == 1

    def test_the_default_box_is_said_on_the_verdict(self, workshop: Workshop) -> None:
        run = check(workshop, "", LOOKUP)
        assert run.out.startswith(f"{HELD}, with the default box of ids, flag and image\n")
        assert "ids in [0, 3] (indices of a table)" in run.out and "image in [0, 1] (an image)" in run.out
        assert "flag in [0, 1] (booleans)" in run.out
        assert "default box" not in check(workshop, "--box 0 1", LOOKUP).out

    def test_it_searches_what_a_wider_box_allows(self, workshop: Workshop) -> None:
        assert "table" not in check(workshop, "--box 0 1 --box ids=0,2", LOOKUP).out

    def test_other_questions(self, workshop: Workshop) -> None:
        assert "logarithm (Log)" in check(workshop, "--box 0 1 --list-operators").out
        assert check(workshop, "--box 0 1 --explain logarithm").out.startswith("N: logarithm (Log)\n")
        found = json.loads(check(workshop, "--json - --dtype float16").out)
        assert found["verdict"] == "violated" and found["assumptions"]["default_inputs"] == ["x"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--box z=0,1", "box: the model has no input 'z'; it has x (float32 [1, 2])"),
        ("--box 0 nan", "box: input 'x': NaN cannot be a bound"),
        ("--box 1 0", "box: input 'x': lower bound 1 is above upper bound 0"),
        ("--box 0 one", "--box: '0,one' is not a range; write LO HI, or NAME=LO,HI"),
        ("--box 0,1,2", "--box: '0,1,2' is not a range"),
        ("--box x=", "--box: '' is not a range"),
        ("--box =0,1", "--box: '=0,1' names no input"),
        ("--box 0 1 --box 1 2", "--box: is given twice for all inputs"),
        ("--box x=0,1 --box x=1,2", "--box: x is given twice"),
        ("--box", "--box requires an argument"),
        ("--weights x", "--weights: 'x' is not a range"),
        ("--box 1", "--box: 1 is one number, where a range is needed; write LO HI"),
        ("--weights 0.2", "--weights: no weights range; name some with --free NAME"),
        ("--free nothing", "no initializer is named 'nothing'"),
        ("--only Lgo", "Lgo"),
        ("--nodes lgarithm", "lgarithm"),
        ("--print-property nowhere/p.py", "--print-property nowhere/p.py: there is no folder 'nowhere'"),
    ],
)
def test_what_is_wrong_is_one_line(workshop: Workshop, words: str, says: str) -> None:
    model = workshop.model()
    assert says in workshop.run("check", model, *shlex.split(words)).error


def test_files_that_are_none(workshop: Workshop) -> None:
    assert "check: MODEL is missing" in workshop.run("check").error
    assert "none.onnx: no such file" in workshop.run("check", "none.onnx").error


@pytest.mark.parametrize(
    ("start", "says"), [(b"PK\x03\x04", "torch.onnx.export"), (b"\x80\x02", "a pickle"), (b"\x89HDF", "tf2onnx")]
)
def test_models_of_other_formats_say_what_to_do(workshop: Workshop, start: bytes, says: str) -> None:
    (workshop.folder / "m.pt").write_bytes(start + b"rest")
    assert says in workshop.run("check", workshop.folder / "m.pt").error


def test_integers_of_which_nothing_is_known_have_a_default_too(workshop: Workshop) -> None:
    model = "g (int64[2] n) => (float[2] y) { f = Cast<to = 1>(n) [logarithm] y = Log(f) }"
    run = workshop.run("check", workshop.model(model))
    assert run.status == 1 and "n in [0, 1] (integers, of which nothing is known)" in run.out
    assert check(workshop, "--box 1 9", model).status == 0


class TestPrintedProperty:
    @pytest.mark.few(3)
    @pytest.mark.parametrize(
        ("model", "words"),
        [
            (LOG, "--box -1 1"),
            (SAFE, ""),
            (LOOKUP, "--box image=0,1"),
            (QUOTIENT, "--box a=1 --box b=-1,1"),
            (SLOPE, "--box 0 1 --gradient"),
            (ROOT_FIRST, "--box 0 1 --only Sqrt"),
            (LOG, "--box -1 1 --nodes logarithm"),
            (WEIGHT, "--box 1 2 --free w --weights -1,1"),
        ],
    )
    def test_it_gives_the_same_answer(self, workshop: Workshop, model: str, words: str) -> None:
        path = workshop.folder / "printed.py"
        direct = json.loads(check(workshop, f"{words} --json -", model).out)
        assert check(workshop, f"{words} --print-property {path}", model) == Outcome(0, "", "")
        command = path.read_text().splitlines()[0]
        assert command == "# ranum-falsify THIS_FILE --network N MODEL --runtime onnxruntime"
        rest = command.removeprefix("# ranum-falsify THIS_FILE --network N MODEL ").split()
        run = workshop.run(path, "-N", "N", workshop.folder / "model.onnx", *rest, "--json", "-", "--n_starts", "20")
        found = json.loads(run.out)
        assert found["verdict"] == direct["verdict"]
        assert [(o["node"], o["verdict"]) for o in found["operators"]] == [
            (o["node"], o["verdict"]) for o in direct["operators"]
        ]
        assert found["assumptions"]["inputs"] == direct["assumptions"]["inputs"]

    def test_it_goes_to_standard_output(self, workshop: Workshop) -> None:
        run = check(workshop, "--box 0 1 --print-property")
        assert run.out.endswith("Forall(x, Implies(0 <= x <= 1, no_invalid_input(N(x))))\n")


def test_counterexamples_replay(workshop: Workshop) -> None:
    cex = workshop.folder / "cex.npy"
    assert check(workshop, f"--box a=-1,1 --box b=-1,1 --save-violation {cex}", QUOTIENT).status == 1
    run = workshop.run("replay", cex.with_suffix(".json"), "-N", "N", workshop.folder / "model.onnx")
    assert run.status == 1 and "quotient (Div)" in run.out
    assert (np.load(workshop.folder / "cex.b.npy") == 0).any()


class TestProjectFile:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("box = [0, 1]", "--box 0 1"),
            ("box = {x = [-1, 1], m = 0.5}", "--box x=-1,1 --box m=0.5"),
            ("weights = 0.2\nfree = 'all'", "--weights 0.2 --free all"),
            ("weights = [-1, 1.5]\nfree = 'w'", "--weights -1,1.5 --free w"),
            ('free = ["w", "b"]', "--free w --free b"),
            ('only = ["Log", "Exp"]', "--only Log,Exp"),
            ('nodes = ["a,b"]', "--nodes a,b"),
            ("gradient = true", "--gradient"),
            ("n_starts = 3", "--n_starts 3"),
        ],
    )
    def test_its_table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pyproject.toml").write_text(f"[tool.ranum-falsify.check]\n{line}\n")
        given, typed = (parse(["check", "m.onnx", *rest]).options for rest in ([], ["--isolated", *words.split()]))
        assert isinstance(given, CheckOptions)
        assert vars(given) | {"isolated": True} == vars(typed)
        assert vars(given) != vars(CheckOptions(models=(Path("m.onnx"),)))


class TestSeveral:
    @pytest.fixture
    def folder(self, workshop: Workshop) -> Path:
        """A folder with a model that fails, one that holds, and one that is none."""
        folder = workshop.folder / "models"
        (folder / "more").mkdir(parents=True)
        for name, text in (("log.onnx", LOG), ("safe.onnx", SAFE)):
            workshop.model(text, name).rename(folder / name)
        (folder / "more" / "text.onnx").write_text("no model")
        return folder

    def test_each_has_its_verdict_and_the_worst_is_the_status(self, workshop: Workshop, folder: Path) -> None:
        run = workshop.run("check", folder / "safe.onnx", folder / "log.onnx", "--box", "-1", "1", "-q")
        assert run.out.splitlines() == [f"{folder}/safe.onnx: {HELD}", f"{folder}/log.onnx: violated"]
        assert (run.status, run.err) == (1, "")
        assert workshop.run("check", folder / "safe.onnx", folder / "safe.onnx", "--box", "-1", "1").status == 0

    def test_a_folder_is_searched_and_what_cannot_be_read_hinders_nothing(
        self, workshop: Workshop, folder: Path
    ) -> None:
        junit, sarif = workshop.folder / "j.xml", workshop.folder / "s.sarif"
        run = workshop.run("check", folder, "--box", "-1", "1", "-q", "--junit", junit, "--sarif", sarif)
        assert run.status == 2 and "more/text.onnx: " in run.err and len(run.err.splitlines()) == 1
        assert [line.rpartition(": ")[2] for line in run.out.splitlines()] == ["violated", HELD]
        assert 'tests="3" failures="1" errors="1"' in junit.read_text()
        (log,) = json.loads(sarif.read_text())["runs"]
        assert len(log["results"]) == 1 and not log["invocations"][0]["executionSuccessful"]

    @pytest.mark.parametrize("option", ["--json", "--save-violation", "--proof"])
    def test_what_is_about_one_model_is_refused(self, workshop: Workshop, folder: Path, option: str) -> None:
        run = workshop.run("check", folder, "--box", "-1", "1", option, workshop.folder / "out")
        assert (run.status, run.out) == (2, "") and f"{option}: is about one model, and 3 are given" in run.err

    def test_an_empty_folder_is_told(self, workshop: Workshop) -> None:
        (workshop.folder / "empty").mkdir()
        run = workshop.run("check", workshop.folder / "empty")
        assert run.status == 2 and "holds no *.onnx" in run.err


class TestRewrites:
    MODEL = "g (float[1, 2] x) => (float[1, 2] y) { [softmax] p = Softmax(x) [logarithm] y = Log(p) }"
    WORDS = "--box -90 90 --prove-timeout 0"

    @pytest.mark.slow
    def test_what_would_be_proved_is_told_and_the_verdict_stays(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(workshop.folder)
        words = ["check", str(workshop.model(self.MODEL)), *shlex.split(self.WORDS), "--n_starts", "0"]
        assert workshop.run(*words).out.startswith("unknown for onnxruntime\n")
        run = workshop.run(*words, "--try-rewrites", "--json", "r.json")
        assert (run.status, run.out.splitlines()[0]) == (3, "unknown for onnxruntime; proved after rewriting")
        command = next(line for line in run.out.splitlines() if "logarithm (Log): proved after" in line).split("`")[1]
        report = json.loads((workshop.folder / "r.json").read_text())
        assert report["verdict"] == "unknown"
        assert {one["node"]: one["proved_after_rewriting"] for one in report["operators"]} == {
            "softmax": [],
            "logarithm": ["stable_log_softmax"],
        }
        transformed = workshop.run(*shlex.split(command)[1:], "--box", "-80", "80", "--samples", "8")
        assert transformed.status == 0
        assert workshop.run("check", "stable.onnx", *shlex.split(self.WORDS)).status == 0
