"""The pytest plugin: tests that no operator of a model can receive input on which it makes NaN or infinity.

pytest loads it wherever this package is installed, so it imports no more than pytest before a test asks something.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import tempfile
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ranum_falsify.escaping import escape

if TYPE_CHECKING:
    from ranum_falsify.api.result import OperatorReport, Result

__all__ = [
    "assert_no_invalid_input",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
]

_MARKER = "ranum_falsify"
_TEST: ContextVar[pytest.Item | None] = ContextVar("the running test", default=None)
_FACTORY = pytest.StashKey[pytest.TempPathFactory]()
_SAVED = pytest.StashKey[int]()
_RECORDS = pytest.StashKey[list[str]]()
_KEPT = "ranum_falsify_records"  # an attribute of the test's report, which comes from other processes whole
_UNPROVED = "ranum_falsify_unproved"  # a property of the test's report, which goes into JUnit files too


def assert_no_invalid_input(
    model: Any,
    args: Any = None,
    *,
    box: Any,
    holds: bool | None = None,
    folder: str | Path | None = None,
    **options: Any,
) -> Result:
    """Fail where an operator of a model can receive input on which it makes NaN or infinity.

    The message names the operator, for modules its line of Python, the files of the input, and the command that
    replays it.

    Args:
        model: A PyTorch module, or an ONNX model: a path, an `onnx.ModelProto`, or bytes.
        args: Arguments of an example call, for modules.
        box: What the inputs range over, as `ranum_falsify.check` takes it.
        holds: Whether to fail, too, where no such input was found but none was ruled out. By default as the test's
            marker `ranum_falsify(holds=True)` says, else not.
        folder: Where counterexamples go; by default a folder of `--ranum-falsify-dir`, else of pytest's `tmp_path`.
        **options: Those of `ranum_falsify.check`.

    Returns:
        The result, which holds or is unknown.

    Raises:
        AssertionError: There is such an input; or none is ruled out although that is asked for.
        RanumFalsifyError: The model, the box or an option is invalid.
    """
    __tracebackhide__ = True
    from ranum_falsify.api.checking import check

    test = _TEST.get()
    example = () if args is None else (args,)
    result = check(model, *example, box=box, **options)
    if test is not None and _find_results(test.config) is not None:
        test.stash.setdefault(_RECORDS, []).append(result.record(test.nodeid, illustrated=True).line())
    if result.verdict == "violated":
        place = _choose_folder(test) if folder is None else Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        raise AssertionError("\n".join(_describe_violation(result, place)))
    if result.verdict == "unknown":
        if _wants_proof(test) if holds is None else holds:
            raise AssertionError("\n".join(_describe_missing_proof(result)))
        if test is not None:
            test.user_properties.append((_UNPROVED, ", ".join(_name_open(result))))
    return result


# ------------------------------------------------------------------ what failures say


def _describe_violation(result: Result, folder: Path) -> Iterator[str]:
    violated = [op for op in result.operators if op.verdict == "violated"]
    yield escape(f"invalid input can reach {', '.join(map(_locate, violated))}")
    saved = result.save(folder / "cex")
    yield from result.report(verbosity=-1, saved=saved).splitlines()
    networks = [word for name, path in saved.models.items() for word in ("--network", name, str(path.resolve()))]
    yield f"replay: {shlex.join(['ranum-falsify', 'replay', str(saved.description), *networks])}"


def _locate(operator: OperatorReport) -> str:
    source = operator.source
    return f"{operator.node} ({operator.op_type})" + (f" at {source.file}:{source.line}" if source else "")


def _describe_missing_proof(result: Result) -> Iterator[str]:
    yield "not proved, and the test wants a proof: no counterexample was found, but none is ruled out"
    yield from result.report().splitlines()


def _name_open(result: Result) -> list[str]:
    """Name the operators that are open by themselves."""
    return [escape(f"{op.node} ({op.op_type})") for op in result.operators if op.verdict == "open" and not op.after]


# ------------------------------------------------------------------ what the test says


def _wants_proof(test: pytest.Item | None) -> bool:
    marker = None if test is None else test.get_closest_marker(_MARKER)
    return marker is not None and marker.kwargs["holds"]


def _choose_folder(test: pytest.Item | None) -> Path:
    """Return a folder for the counterexamples of one check, which is empty or was an earlier run's."""
    if test is None:
        return Path(tempfile.mkdtemp(prefix="ranum-falsify-"))
    count = test.stash[_SAVED] = test.stash.get(_SAVED, 0) + 1
    given = _read_folder(test.config)
    if given is not None:
        folder = given / _make_name(test.nodeid)
    elif isinstance(requested := getattr(test, "funcargs", {}).get("tmp_path"), Path):
        folder = requested
    else:
        folder = test.config.stash[_FACTORY].mktemp(_make_name(test.name)[:30])
    return folder if count == 1 else folder / str(count)


def _read_folder(config: pytest.Config) -> Path | None:
    option: str | None = config.getoption("ranum_falsify_dir")
    if option:
        return config.invocation_params.dir / option
    setting: str = config.getini("ranum_falsify_dir")
    return config.rootpath / setting if setting else None


def _find_results(config: pytest.Config) -> Path | None:
    """Return where the results of all checks go, None for nowhere."""
    option: str | None = config.getoption("ranum_falsify_results")
    return config.invocation_params.dir / option if option else None


def _make_name(text: str) -> str:
    """Return a test's name as one of a folder; those of two tests differ."""
    plain = text.replace("::", ".").replace("/", ".")
    safe = re.sub(r"[^\w.-]", "_", plain)
    return safe if safe == plain else f"{safe[:80]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# ------------------------------------------------------------------ hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting for the folder of counterexamples."""
    about = "folder for the counterexamples of ranum_falsify.testing, one in it for each test (default: in tmp_path)"
    group = parser.getgroup("ranum-falsify")
    group.addoption("--ranum-falsify-dir", metavar="DIR", help=about)
    results = "write what ranum_falsify.testing found here, for `ranum-falsify report`"
    group.addoption("--ranum-falsify-results", metavar="FILE.jsonl", help=results)
    parser.addini("ranum_falsify_dir", f"{about}; relative to the root directory", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    about = "ranum_falsify(holds=True): assert_no_invalid_input fails without a proof, too."
    config.addinivalue_line("markers", about)


@pytest.fixture(scope="session", autouse=True)
def _ranum_falsify_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what makes temporary folders, for tests that did not ask for one."""
    request.config.stash[_FACTORY] = tmp_path_factory


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse markers that say something else."""
    for marker in item.iter_markers(_MARKER):
        if marker.args or marker.kwargs.keys() != {"holds"} or not isinstance(marker.kwargs["holds"], bool):
            given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
            what = f"the marker {_MARKER} takes holds=True or holds=False, not ({', '.join(given)})"
            pytest.fail(f"{item.nodeid}: {what}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember which test runs."""
    token = _TEST.set(item)
    try:
        return (yield)
    finally:
        _TEST.reset(token)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand what was found in a test to the process that writes it."""
    report = yield
    if report.when == "call" and (records := item.stash.get(_RECORDS, None)):
        setattr(report, _KEPT, records)
    return report


def _write_results(reporter: pytest.TerminalReporter, path: Path) -> None:
    reports = [report for kind in ("passed", "failed") for report in reporter.getreports(kind)]
    lines = [line for report in reports for line in getattr(report, _KEPT, ())]
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        reporter.line(f"ranum-falsify: {path}: cannot be written ({error.strerror}); choose another path", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the results, and name the tests that passed although nothing was proved."""
    if (path := _find_results(terminalreporter.config)) is not None:
        _write_results(terminalreporter, path)
    unproved = [
        (report.nodeid, value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == _UNPROVED
    ]
    if unproved:
        terminalreporter.section("ranum-falsify: neither violated nor proved")
        for nodeid, operators in unproved:
            terminalreporter.line(f"{nodeid}: open: {operators}")
