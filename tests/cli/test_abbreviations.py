"""Options may be abbreviated as DNNF's may, and `--long-help` lists the back ends as DNNF's does."""

from pathlib import Path

import pytest

from ranum_falsify.cli.front import parse
from ranum_falsify.cli.options.models import ConfirmOptions, ReplayOptions
from ranum_falsify.cli.options.questions import FalsifyOptions
from ranum_falsify.cli.options.tools import OperatorsOptions, ZooBuild
from tests.cli.workshop import Workshop


def options(*arguments: str) -> FalsifyOptions:
    given = parse(["prop.py", *arguments]).options
    assert isinstance(given, FalsifyOptions)
    return given


class TestMainCommand:
    def test_options_of_dnnf(self) -> None:
        given = options("--net", "N", "m.onnx", "--n_st", "10", "--save", "v.npy", "--see", "7", "--back", "dnnf.pgd")
        assert given.networks == {"N": Path("m.onnx")}
        assert (given.n_starts, given.seed, given.backend) == (10, 7, ("dnnf.pgd",))
        assert given.save_violation == Path("v.npy")
        assert options("--n_p", "2", "--cu") == options("-p", "2", "--cuda")
        assert options("--pro", "3").processors == 3
        assert options("--verb").verbosity == 1 and options("--q").verbosity == -1
        assert options("--vnn").vnnlib

    def test_our_own_options(self) -> None:
        given = options("--n_ste=5", "--no-p", "--time", "3", "--list")
        assert (given.n_steps, given.prove, given.timeout) == (5, False, 3.0)
        assert given.list_operators

    @pytest.mark.parametrize(
        ("word", "candidates"),
        [
            ("--no", ["--no-prove", "--no-self-check"]),
            ("--n_", ["--n_starts", "--n_steps", "--n_proc"]),
            ("--ver", ["--verbose", "--version"]),
            ("--prove-t", None),
        ],
    )
    def test_ambiguous_ones_name_the_candidates(
        self, workshop: Workshop, word: str, candidates: list[str] | None
    ) -> None:
        error = workshop.run("p.py", word, "2").error
        if candidates is None:
            assert "p.py: no such file" in error  # it is --prove-timeout alone
        else:
            assert f"ambiguous option: {word}" in error and f"match {', '.join(candidates)}" in error

    @pytest.mark.parametrize("words", [["--prop", "lb=1"], ["--prop=1"]])
    def test_a_parameter_needs_its_name(self, workshop: Workshop, words: list[str]) -> None:
        assert "write --prop.NAME=VALUE" in workshop.run("p.py", *words).error

    def test_debug_too(self, workshop: Workshop) -> None:
        run = workshop.run("none.py", "--deb")
        assert run.status == 2 and run.err.startswith("Traceback")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["replay", "cex.npy", "--net", "N", "m.onnx"], ReplayOptions(counterexample=Path("cex.npy"))),
        (["operators", "--mark"], OperatorsOptions(markdown=True)),
        (["zoo", "build", "--o", "zoo"], ZooBuild(out=Path("zoo"))),
        (["confirm", "p.py", "--ou", "d", "--prop.l=1"], ConfirmOptions(property_path=Path("p.py"), out=Path("d"))),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_subcommands(arguments: list[str], expected: object) -> None:
    given = parse(arguments).options
    assert type(given) is type(expected)
    for name in ("counterexample", "markdown", "out"):
        assert getattr(given, name, None) == getattr(expected, name, None)


def test_ambiguous_options_of_a_subcommand(workshop: Workshop) -> None:
    error = workshop.run("confirm", "p.py", "--no", "x").error
    assert "ambiguous option: --no could match --node, --no-span" in error


class TestParameters:
    FORMULA = (
        "Forall(x, Implies(And(Parameter('low', float) <= x, x <= Parameter('limit', float, default=1.0)), "
        "no_invalid_input(N(x))))"
    )

    def run(self, workshop: Workshop, *words: str) -> int:
        return workshop.falsify(*words, formula=self.FORMULA).status

    def test_a_beginning_is_enough(self, workshop: Workshop) -> None:
        assert self.run(workshop, "--prop.lo=0.5") == 0
        assert self.run(workshop, "--prop.lo=0", "--prop.lim", "2") == 1

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--prop.l=1",), "parameter 'l' is ambiguous; it could be lb, limit, low"),
            (("--prop.lo=1", "--prop.low=2"), "parameter 'low' is given twice"),
            (("--prop.lowest=1",), "the property has no parameter 'lowest'; did you mean 'low'?"),
        ],
    )
    def test_what_is_not_clear_is_refused(self, workshop: Workshop, words: tuple[str, ...], says: str) -> None:
        assert says in workshop.falsify(*words, formula=self.FORMULA).error


class TestLongHelp:
    def test_the_help_and_the_back_ends(self, workshop: Workshop) -> None:
        run = workshop.run("--long-help")
        assert (run.status, run.err) == (0, "")
        assert run.out.startswith(workshop.run("--help").out)
        ends = run.out.partition("back ends:\n")[2].splitlines()
        assert ends[:3] == ["  pgd", "  dnnf.pgd", "  dnnf.newton"]
        for package in ("foolbox", "cleverhans"):
            assert any(line.startswith(f"  {package}.") for line in ends)


class TestBackends:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["--backend", "dnnf.deepfool"], "dnnf.deepfool: no such back end"),
            (["--backend", "dnnf.pgd", "--set", "dnnf.pgd", "alpha", "0.1"], "dnnf.pgd has no such parameter"),
            (["--backend", "dnnf.pgd", "--set", "dnnf.pgd", "n_steps", "x"], "'x' is not a whole number"),
        ],
        ids=" ".join,
    )
    def test_what_is_wrong_is_told_before_files_are_read(self, workshop: Workshop, words: list[str], says: str) -> None:
        (workshop.folder / "m.onnx").write_text("no model")
        assert says in workshop.run(workshop.property(), "-N", "N", workshop.folder / "m.onnx", *words).error
