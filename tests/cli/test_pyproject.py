"""Options in `[tool.ranum-falsify]` of pyproject.toml."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ranum_falsify.cli.front import parse
from ranum_falsify.cli.options.questions import FalsifyOptions
from ranum_falsify.errors import UsageError
from tests.cli.workshop import Workshop

Write = Callable[[str], Path]
MAIN = "[tool.ranum-falsify]\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the file of a project; the working folder is one within it."""
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")

    def write(text: str) -> Path:
        path = tmp_path / "pyproject.toml"
        path.write_text(text)
        return path

    return write


def parsed(*arguments: str) -> FalsifyOptions:
    options = parse(["p.py", *arguments]).options
    assert isinstance(options, FalsifyOptions)
    return options


WORDS = {
    "n_starts = -1": "--n_starts=-1",
    "n-steps = 7": "--n_steps 7",
    "seed = 3": "--seed 3",
    "timeout = inf": "--timeout inf",
    "timeout = 2.5": "--timeout 2.5",
    "cuda = true": "--cuda",
    "cuda = false": "",
    "no-prove = true": "--no-prove",
    "no_self_check = true": "--no-self-check",
    "prove-timeout = 0": "--prove-timeout 0",
    'runtime = "torch"': "--runtime torch",
    'runtime = ["torch", "exact"]': "--runtime torch --runtime exact",
    'backend = ["pgd", "dnnf.pgd"]': "--backend pgd dnnf.pgd",
    "set.pgd.n_steps = 4": "--set pgd n_steps 4",
    "dim = {batch = 2, n = 3}": "--dim batch=2 --dim n=3",
    'prop = {lb = -1, name = "x"}': "--prop.lb=-1 --prop.name=x",
    'fail_on = "open"': "--fail-on open",
    'reach = "output"': "--reach output",
    "n_proc = 2": "-p 2",
    "verbose = false": "",
    "quiet = true": "-q",
    'dtype = "float16"': "--dtype float16",
    "memory = 1": "--memory 1",
    'json = "-"': "--json -",
    'explain = "log"': "--explain log",
}


@pytest.mark.parametrize("line", WORDS)
def test_a_key_means_the_same_as_the_option(write: Write, line: str) -> None:
    write(MAIN + line)
    given, typed = vars(parsed()), vars(parsed("--isolated", *WORDS[line].split()))
    assert given | {"isolated": True} == typed


@pytest.mark.parametrize(
    ("lines", "words", "path", "value"),
    [
        ("seed = 3", "--seed 4", "seed", 4),
        ("no-prove = true", "--prove-timeout 3", "prove_timeout", 3.0),
        ("prove-timeout = 3", "--no-prove", "prove", False),
        ("cuda = true", "--device cuda:1", "device", "cuda:1"),
        ("quiet = true", "-v", "verbose", True),
        ("dim = {a = 1}", "--dim b=2", "dims", {"b": 2}),
        ("set.'dnnf.pgd'.n_steps = 2", "", "backend_parameters", {}),
        ("seed = 3\nfalsify.seed = 5", "", "seed", 5),
        ("seed = 3\nconfirm.seed = 5", "", "seed", 3),
        ("runs = 3", "", "seed", 0),
    ],
)
def test_what_is_typed_overrides(write: Write, lines: str, words: str, path: str, value: object) -> None:
    write(MAIN + lines)
    assert getattr(parsed(*words.split()), path) == value


def test_paths_are_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    write(MAIN + 'network.N = "m.onnx"\nsave-violation = "out/cex.npy"\nreplay.input = {x = "x.npy"}')
    given = parsed()
    assert given.networks == {"N": Path("../m.onnx")}
    assert given.save_violation is not None
    assert given.save_violation.resolve() == tmp_path.resolve() / "out" / "cex.npy"
    assert parse(["replay"]).options.inputs == {"x": Path("../x.npy")}


def test_tables_of_commands(write: Write) -> None:
    write(
        MAIN + "seed = 3\nprocessors = 4\n[tool.ranum-falsify.confirm]\nruns = 2\n[tool.ranum-falsify.zoo]\nbatch = 9"
    )
    config = parse(["confirm", "p.py"]).options
    assert (config.runs, config.seed, config.processors) == (2, 3, 4)
    detect = parse(["zoo", "detect"]).options
    assert (detect.batch, detect.processors) == (9, 4)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("sed = 3", "[tool.ranum-falsify] sed: there is no such option; did you mean seed?"),
        ("n-start = 3", "[tool.ranum-falsify] n-start: there is no such option; did you mean n_starts?"),
        ("zzz = 3", "[tool.ranum-falsify] zzz: there is no such option"),
        ("confirm.run = 3", "[tool.ranum-falsify.confirm] run: there is no such option; did you mean runs?"),
        ("debug = true", "debug: there is no such option"),
        ('replay.property = "p.py"', "[tool.ranum-falsify.replay] property: there is no such option"),
        ("confirm = 3", "[tool.ranum-falsify.confirm]: is an integer where a table is needed"),
        ('seed = "3"', "[tool.ranum-falsify] seed: is a string where a number is needed"),
        ("seed = true", "seed: is a boolean where a number is needed"),
        ("seed = 1.5", "seed: '1.5' is not a whole number"),
        ("seed = -1", "seed: -1 is out of range; at least 0 is needed"),
        ("cuda = 1", "cuda: is an integer where true or false is needed"),
        ("explain = 1", "explain: is an integer where a string is needed"),
        ("explain = 2020-01-01", "explain: is a date or time where a string is needed"),
        ("dim = 3", "dim: is an integer where a table is needed"),
        ("dim = {n = [1]}", "dim: is an array where a string or a number is needed"),
        ('reach = "far"', 'reach: Invalid value "far"'),
        ('network = "m.onnx"', "network: is a string where a table is needed"),
        ('cuda = true\ndevice = "cuda:1"', "[tool.ranum-falsify]: --cuda and --device cuda:1 contradict each other"),
        ('json = "../r.json"', "json: ../r.json lies outside the folder of this file"),
        ('save-violation = "/tmp/cex.npy"', "save-violation: /tmp/cex.npy lies outside the folder of this file"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(write: Write, lines: str, says: str) -> None:
    write(MAIN + lines)
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        parsed()
    assert str(caught.value).startswith("../pyproject.toml: [tool.ranum-falsify") and "\n" not in str(caught.value)
    assert parsed("--isolated").property_path == Path("p.py")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.ranum-falsify", "is not TOML"),
        ("x = " + "[" * 5000 + "# ranum-falsify", "is not TOML"),
        ("[tool]\nranum-falsify = 3", "tool.ranum-falsify is an integer where a table is needed"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(workshop: Workshop, write: Write, text: str, says: str) -> None:
    path = write(text)
    error = workshop.run("p.py").error
    assert str(path) in error and says in error and "--isolated" in error


def test_what_is_no_regular_file_is_passed_over(write: Write, tmp_path: Path) -> None:
    write(MAIN + "seed = 8")
    os.mkfifo(tmp_path / "src" / "pyproject.toml")
    assert parsed().seed == 8


def test_a_huge_file_is_refused(workshop: Workshop, write: Write) -> None:
    write("x = [" + "1," * 2**20 + "] # ranum-falsify")
    assert "larger than any such file" in workshop.run("p.py").error


@pytest.mark.parametrize(
    "text", ["", "[tool.other]\nseed = 1", "[tool]\nother = 'ranum-falsify'", "tool = 'ranum-falsify'"]
)
def test_files_of_others_are_passed_over(write: Write, tmp_path: Path, text: str) -> None:
    write(MAIN + "seed = 8")
    (tmp_path / "src" / "pyproject.toml").write_text(text)
    assert parsed().seed == 8


def test_the_nearest_file_counts_alone(write: Write, tmp_path: Path) -> None:
    write(MAIN + "seed = 8\nn_steps = 9")
    (tmp_path / "src" / "pyproject.toml").write_text(MAIN + "seed = 1")
    assert (parsed().seed, parsed().n_steps) == (1, 100)


def test_a_run_says_where_its_options_come_from(workshop: Workshop, write: Write) -> None:
    write(MAIN + "n_starts = 20\nverbose = true")
    run = workshop.run(workshop.property(), "-N", "N", workshop.model())
    assert run.status == 1 and "ranum-falsify: options from ../pyproject.toml\n" in run.err
    assert "options from" not in workshop.run(workshop.property(), "-N", "N", workshop.model(), "-q").err
