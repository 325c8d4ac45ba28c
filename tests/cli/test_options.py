"""Options are made from the fields of the settings classes: what a field says is what the command line does."""

import re
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from ranum_falsify.cli.options import FalsifyOptions, parse
from ranum_falsify.cli.options.fields import add_fields, build, list_options, read
from ranum_falsify.cli.usage import Parser
from ranum_falsify.config import ConfirmConfig, SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.option import Argument, Group, Option, Switch, to_mapping
from tests.cli.workshop import Workshop

COMMANDS = [
    "",
    "confirm",
    "replay",
    "report",
    "operators",
    "doctor",
    "examples",
    "zoo list",
    "zoo show",
    "zoo build",
    "zoo detect",
]


@dataclass(frozen=True, kw_only=True)
class Oven:
    """How to bake.

    Attributes:
        heat: Degrees, more than 50 % of which
            are upper heat.
        timer: Minutes.
    """

    heat: Annotated[int, Option("--oven-heat -o", least=20)] = 180
    timer: Annotated[float, Option(parse=float, metavar="MIN")] = 2.5


@dataclass(frozen=True, kw_only=True)
class Cake:
    """What to bake.

    Attributes:
        names: Names of the cake.
        oven: How to bake it.
        toppings: ONNX toppings.
        size: Size.
        notes: Notes.
    """

    names: Annotated[tuple[str, ...], Argument("NAME", many=True)] = ()
    oven: Annotated[Oven | None, Group("oven"), Switch("--raw", value=None, help="no oven")] = field(
        default_factory=Oven
    )
    toppings: Annotated[tuple[str, ...], Option("--top", many=True)] = ()
    size: Annotated[int, Switch("--small", value=1, help="small"), Switch("--big", value=3, help="big")] = 2
    shape: Annotated[str, Option(metavar="SHAPE"), Switch("--round", value="disc", help="round")] = "square"
    notes: Annotated[dict[str, str], Option("--note.NAME", metavar="TEXT", gather=to_mapping)] = field(
        default_factory=dict
    )


def bake(*arguments: str) -> Cake:
    parser = Parser(prog="bake")
    add_fields(parser, Cake)
    cake = build(Cake, read(parser, Cake, arguments))
    assert isinstance(cake, Cake)
    return cake


class TestFields:
    def test_nothing_given_leaves_the_defaults(self) -> None:
        assert bake() == Cake()

    def test_each_kind_of_option(self) -> None:
        given = bake("a", "--oven-heat", "99", "--top", "x", "y", "--small", "--round", "--note.k=-1", "--note.l", "-2")
        assert given == Cake(
            names=("a",), oven=Oven(heat=99), toppings=("x", "y"), size=1, shape="disc", notes={"k": "-1", "l": "-2"}
        )
        assert bake("a", "b", "-o", "20", "--timer=1").oven == Oven(heat=20, timer=1.0)
        assert bake("--raw").oven is None

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("--oven-heat 19", "argument --oven-heat/-o: 19 is out of range; at least 20 is needed"),
            ("--raw --timer 2", "--raw and --timer contradict each other"),
            ("--shape oval --round", "--round and --shape oval contradict each other"),
            ("--small --big", "not allowed with argument"),
            ("--note.a=1 --note.a=2", "--note.NAME a is given twice"),
            ("--note.a", "--note.a: a value is missing; write --note.NAME=VALUE"),
            ("--oven-heet=3", "unrecognized arguments: --oven-heet=3; did you mean --oven-heat?; bake --help"),
            ("--zzz", "unrecognized arguments: --zzz; bake --help lists the options"),
        ],
    )
    def test_what_is_wrong_is_told(self, words: str, says: str) -> None:
        with pytest.raises(UsageError, match=re.escape(says)):
            bake(*words.split())

    def test_the_help_is_the_line_of_the_docstring(self) -> None:
        parser = Parser(prog="bake")
        add_fields(parser, Cake)
        text = " ".join(parser.format_help().split())
        assert "degrees, more than 50 % of which are upper heat (default: 180)" in text
        assert "--top TOPPINGS [TOPPINGS ...] ONNX toppings" in text
        assert re.search(r"oven: --raw +no oven .* --timer MIN minutes \(default: 2.5\)", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(workshop: Workshop, command: str) -> None:
    run = workshop.run(*command.split(), "--help")
    assert run.status == 0
    options = re.findall(r"^  (-.*?)(?:  (.*))?\n( {20}.*)?", run.out, re.MULTILINE)
    assert len(options) >= 2
    assert [option for option, text, more in options if not (text.strip() or more.strip())] == []


@pytest.mark.parametrize("settings", [SearchConfig, ConfirmConfig, FalsifyOptions])
def test_every_field_of_the_settings_is_an_option(settings: type) -> None:
    given = {option.path.split(".")[0] for option in list_options(settings)}
    assert given == set(settings.__dataclass_fields__)  # type: ignore[attr-defined]


def test_defaults_are_those_of_the_classes() -> None:
    assert parse(["p.py"]).options.config == SearchConfig()
    assert parse(["confirm", "p.py"]).options.config == ConfirmConfig()
