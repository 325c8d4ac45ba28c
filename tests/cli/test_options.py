"""Options are made from the fields of the settings classes: what a field says is what the command line does."""

import inspect
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import pytest

import ranum_falsify as rf
from ranum_falsify.cli.commands import COMMANDS, MAIN, load_options
from ranum_falsify.cli.front import make_parser, parse
from ranum_falsify.cli.options.questions import PropertyGroup, SuiteOptions
from ranum_falsify.cli.options.shared import CommonOptions
from ranum_falsify.cli.parser import Parser, list_options
from ranum_falsify.config import ConfirmConfig, FixConfig, Options, TrainingConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option_marks import Argument, Option, to_mapping
from tests.cli.workshop import Workshop


@dataclass(frozen=True, kw_only=True)
class Oven(CommonOptions):
    """How to bake.

    Attributes:
        heat: Degrees, more than 50 % of which
            are upper heat.
        timer: Minutes.
    """

    heat: Annotated[int, Option("--oven-heat -o", least=20, group="oven")] = 180
    timer: Annotated[float, Option(parse=float, metavar="MIN", group="oven")] = 2.5


@dataclass(frozen=True, kw_only=True)
class Cake(Oven):
    """What to bake.

    Attributes:
        names: Names of the cake.
        toppings: ONNX toppings.
        soft: Whether it is soft.
        shape: Its shape.
        notes: Notes, as --note.NAME=TEXT.
    """

    names: Annotated[tuple[str, ...], Argument("NAME", many=True)] = ()
    toppings: Annotated[tuple[str, ...], Option("--top", many=True)] = ()
    soft: Annotated[bool, Option(off="--crisp")] = True
    shape: Annotated[str, Option(metavar="SHAPE", presets={"--round": "disc"})] = "square"
    notes: Annotated[Mapping[str, str], Option("--note.NAME", metavar="TEXT", gather=to_mapping)] = field(
        default_factory=dict
    )


def bake(*arguments: str) -> dict[str, Any]:
    return Parser(Cake, name="bake").read(arguments)


class TestParser:
    def test_what_is_not_given_is_left_out(self) -> None:
        assert bake() == {}

    def test_each_kind_of_option(self) -> None:
        words = "a --oven-heat 99 --top x y --crisp --round --note.k=-1 --note.l -2"
        assert bake(*words.split()) == {
            "names": ("a",),
            "heat": 99,
            "toppings": ("x", "y"),
            "soft": False,
            "shape": "disc",
            "notes": {"k": "-1", "l": "-2"},
        }
        assert bake("a", "b", "-o", "20", "--timer=1") == {"names": ("a", "b"), "heat": 20, "timer": 1.0}
        assert bake("--timer", "1", "--timer", "2", "--crisp", "--soft") == {"timer": 2.0, "soft": True}

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("--oven-heat 19", "--oven-heat: 19 is out of range; at least 20 is needed"),
            ("--shape oval --round", "--round and --shape oval contradict each other"),
            ("--note.a=1 --note.a=2", "--note.a: is given twice"),
            ("--note.a", "--note.a: a value is missing; write --note.NAME=VALUE"),
            ("--oven-heet=3", "Unknown option: --oven-heet=3. Did you mean --oven-heat?; bake --help"),
            ("--zzz", "Unknown option: --zzz"),
        ],
    )
    def test_what_is_wrong_is_told(self, words: str, says: str) -> None:
        with pytest.raises(UsageError, match=re.escape(says)):
            bake(*words.split())

    def test_the_help_is_the_line_of_the_docstring(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            bake("--help")
        text = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
        assert "--oven-heat -o HEAT Degrees, more than 50 % of which are upper heat. [default: 180]" in text
        assert "--top TOPPINGS ONNX toppings." in text and "--round The same as --shape disc." in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_and_every_example_is_one(command: str) -> None:
    parser = make_parser(command)
    assert [option.name for option in parser.options if not option.text] == []
    parse(shlex.split(f"{'' if command == MAIN else command} {load_options(command).example}"))


@pytest.mark.parametrize(
    ("settings", "front"),
    [
        (Options, SuiteOptions),
        (Options, PropertyGroup),
        (ConfirmConfig, "confirm"),
        (TrainingConfig, "confirm"),
        (FixConfig, "fix"),
    ],
)
def test_every_field_of_the_settings_is_an_option(settings: type[Any], front: Any) -> None:
    front = load_options(front) if isinstance(front, str) else front
    given = {option.field for option in list_options(front)}
    assert {each.name for each in fields(settings)} - given <= {"progress"}


def test_a_new_search_option_is_one_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @dataclass(frozen=True, kw_only=True)
    class Asked(Options, CommonOptions):
        """What is asked.

        Attributes:
            patience: How long to wait.
        """

        patience: Annotated[int, Option(group="search")] = 3

    assert Parser(Asked, name="ask").read(["--patience", "4"]) == {"patience": 4}
    assert Asked(patience=5).patience == 5


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_commands_and_options(workshop: Workshop, shell: str) -> None:
    script = workshop.run("completion", shell).out
    for word in ("check-proof", "compare", "detect", "n_starts", "save-violation", "no-prove", "float16"):
        assert word in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


class TestCommands:
    def test_alone_it_lists_them_with_examples(self, workshop: Workshop) -> None:
        run = workshop.run()
        assert run.status == 2, "0 would say that a property holds"
        for name in COMMANDS:
            assert f"ranum-falsify {'' if name == MAIN else f'{name} '}{load_options(name).example}".rstrip() in run.out

    @pytest.mark.parametrize(
        "words", ["help", "help check", "help check --box", "help suite compare", "help zoo", "zoo --help", "check -h"]
    )
    def test_help(self, workshop: Workshop, words: str) -> None:
        run = workshop.run(*words.split())
        assert (run.status, run.err) == (0, "")
        assert f"ranum-falsify {words.replace('help', '').replace('--box', '').strip(' -h')}".strip() in run.out

    @pytest.mark.parametrize(
        ("word", "says"),
        [("chek", "did you mean check?"), ("zo", "did you mean zoo"), ("checks.py", "checks.py: no such file")],
    )
    def test_what_is_nearly_a_command(self, workshop: Workshop, word: str, says: str) -> None:
        assert says in workshop.run(word, "m.onnx" if "." not in word else "--seed=1").error


def test_defaults_are_those_of_the_classes() -> None:
    asked = parse(["p.py"]).options
    assert {each.name: getattr(asked, each.name) for each in fields(Options)} == vars(Options())
    assert parse(["confirm", "p.py"]).options.runs == ConfirmConfig().runs


def test_python_takes_the_same_names() -> None:
    for function in (rf.check, rf.falsify, rf.prove):
        assert {each.name for each in fields(Options)} <= inspect.signature(function).parameters.keys()
    with pytest.raises(TypeError, match=r"there is no option 'sed'; did you mean 'seed'\?"):
        rf.prove("m.onnx", "p.py", sed=1)
    with pytest.raises(UsageError, match=r"seed=-1: is out of range; at least 0 is needed"):
        rf.prove("m.onnx", "p.py", seed=-1)
