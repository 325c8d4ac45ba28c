"""The entry point: start-up, exit statuses, and every way of failing."""

import errno
import os
import signal
import subprocess
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import torch

import ranum_falsify
from ranum_falsify.cli import app, main
from tests.cli.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "ranum_falsify"]
# A model that an evaluation of which takes long enough to be interrupted.
SLOW = """g (float[1, 400] x) => (float[1, 400] y) {
    shape = Constant<value = int64[2] {400, 400}>()
    w = ConstantOfShape<value = float[1] {0.01}>(shape)
    %s
    y = Exp(t60)
}"""


def environment(*path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in (ROOT, *path))}


def process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)


def imported_by(arguments: list[str], names: set[str]) -> tuple[int, list[str]]:
    """Return the exit status of a command, and which of some modules it imports."""
    code = (
        f"import sys; from ranum_falsify.cli import main; s = main({arguments!r}); "
        f"print(); print(s, *sorted({names!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    status, *found = run.stdout.splitlines()[-1].split()
    return int(status), found


class TestStart:
    @pytest.mark.few(2)
    @pytest.mark.parametrize(
        ("arguments", "status"),
        [
            (["--help"], 0),
            (["--version"], 0),
            (["replay", "--help"], 0),
            (["p.py", "--x"], 2),
            (["check", "missing.onnx"], 2),
            (["check", __file__, "--json", "missing/report.json"], 2),
            (["check", __file__, "--report", "missing/report.html"], 2),
            (["missing.py", "--network", "N", __file__], 2),
            ([__file__, "--network", "N", "missing.onnx"], 2),
            (["fix", __file__, "--network", "N", "missing.onnx", "-o", "fixed.onnx"], 2),
            (["replay", "cex.json", "--network", "N", "missing.onnx"], 2),
        ],
    )
    def test_words_and_paths_are_looked_at_before_anything_slow_is_imported(
        self, arguments: list[str], status: int
    ) -> None:
        assert imported_by(arguments, {"torch", "dnnv", "onnx", "numpy"}) == (status, [])

    @pytest.mark.slow
    def test_a_check_imports_nothing_that_is_slow_to_import_and_not_needed(self) -> None:
        slow = {
            "sympy",
            "scipy",
            "skimage",
            "networkx",
            "onnxscript",
            "onnxruntime",
            "torch._dynamo",
            "torch._inductor",
        }
        model = str(ROOT / "networks" / "l2_normalise.onnx")
        assert imported_by(["check", model, "--box", "-1", "1", "--no-self-check"], slow) == (1, [])

    @pytest.mark.slow
    def test_rich_is_not_imported_in_a_pipe(self, workshop: Workshop) -> None:
        files = (str(workshop.property()), "-N", "N", str(workshop.model()))
        code = f"import sys; from ranum_falsify.cli import main; s = main({files!r}); print(s, 'rich' in sys.modules)"
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=60
        )
        assert run.stdout.endswith("1 False\n")

    def test_the_main_command_has_a_name(self, workshop: Workshop) -> None:
        asked = (workshop.property(), "--network", "N", workshop.model(), "--list-operators")
        run = workshop.run("falsify", *asked)
        assert run.status == 0 and run.out == workshop.run(*asked).out
        assert "PROPERTY is missing" in workshop.run("falsify").error

    def test_version_and_help_go_to_standard_output(self, workshop: Workshop) -> None:
        assert workshop.run("--version").out == f"ranum-falsify {ranum_falsify.__version__}\n"
        run = workshop.run("--help")
        assert (run.status, run.err) == (0, "")
        for option in ("--network", "--n_starts", "--save-violation", "--seed", "--cuda", "--vnnlib", "--processors"):
            assert option in run.out
        for option in ("--backend", "--set", "--prop", "--verbose", "--quiet", "--debug", "--version", "--json"):
            assert option in run.out

    def test_a_property_named_like_a_command_is_reachable(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workshop.property(name="replay")
        workshop.model()
        monkeypatch.chdir(workshop.folder)
        assert workshop.run("./replay", "-N", "N", "model.onnx").status == 1

    def test_the_installed_command_calls_the_same(self) -> None:
        text = (ROOT / "setup.cfg").read_text()
        assert "ranum-falsify = ranum_falsify.cli:run" in text


class TestWithoutUpstream:
    @pytest.fixture
    def bare(self, tmp_path: Path) -> Path:
        """A folder of packages that has everything but DNNV and DNNF."""
        folder = tmp_path / "packages"
        folder.mkdir()
        for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not entry.name.lower().startswith("dnn") and entry.suffix != ".pth" and entry.name != "__pycache__":
                (folder / entry.name).symlink_to(entry)
        return folder

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "arguments", [["operators"], [__file__], ["replay", "cex.npy"]], ids=lambda words: words[0]
    )
    def test_one_line_says_what_to_install(self, bare: Path, arguments: list[str]) -> None:
        code = "import ranum_falsify.bundle as b, sys; b._PACKAGE = b.Path('/nowhere/package')\n"
        code += "from ranum_falsify.cli import main; sys.exit(main())"
        run = subprocess.run(
            [sys.executable, "-S", "-c", code, *arguments],
            env=environment(bare),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr == (
            "ranum-falsify: dnnv and dnnf not found in /nowhere/third_party; install ranum-falsify again, or, in a "
            "checkout, run: pip install -e .\n"
        )


class TestFailures:
    def fail(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        def command(arguments: list[str], *, owns_process: bool) -> NoReturn:
            raise error

        monkeypatch.setattr(app, "_command", command)

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (ValueError("two\nlines"), "internal error (ValueError: two lines); please report it"),
            (RecursionError(), "internal error (RecursionError); please report it"),
            (MemoryError(), "out of memory"),
            (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
            (OSError(errno.ENOSPC, "No space left on device", "/full/cex.npy"), "/full/cex.npy: no space left"),
            (PermissionError(errno.EACCES, "Permission denied", "/secret"), "/secret: permission denied"),
        ],
    )
    def test_one_line_and_status_2(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
    ) -> None:
        self.fail(monkeypatch, error)
        run = workshop.run("p.py")
        assert (run.status, run.out) == (2, "")
        assert run.err.count("\n") == 1 and says in run.err

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["p.py"], "use fewer starts (--n_starts)"),
            (["suite", "s.toml"], "use fewer workers (--jobs)"),
            (["transform", "m.onnx"], "compare on fewer inputs (--samples)"),
            (["report", "r.jsonl"], "use a machine with more memory"),
        ],
    )
    def test_what_to_do_without_memory_fits_the_command(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
    ) -> None:
        self.fail(monkeypatch, MemoryError())
        assert f"out of memory; {says}" in workshop.run(*arguments).error

    def test_debug_shows_the_traceback_too(self, workshop: Workshop) -> None:
        run = workshop.run("none.py", "--debug")
        assert run.status == 2
        assert run.err.startswith("Traceback") and "none.py: no such file" in run.err.splitlines()[-1]

    def test_interruption_is_quiet(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail(monkeypatch, KeyboardInterrupt())
        run = workshop.run("p.py")
        assert (run.status, run.out, run.err) == (130, "", "")

    def test_warnings_of_libraries_are_not_shown(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        import warnings

        def command() -> int:
            warnings.warn("deprecated", FutureWarning, stacklevel=1)
            return 0

        monkeypatch.setattr(app, "_command", lambda arguments, *, owns_process: command)
        assert main(["p.py"]) == 0
        assert workshop.run("p.py").err == ""


@pytest.mark.slow
def test_a_closed_output_is_no_error() -> None:
    # Standard output is a pipe that nobody reads.
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        run = subprocess.run(
            [*COMMAND, "operators"], env=environment(), stdout=out, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (run.returncode, run.stderr) == (141, b"")


@pytest.mark.slow
def test_interrupting_the_search_gives_the_best_so_far(workshop: Workshop) -> None:
    nodes = "t0 = Tanh(x)\n" + "\n".join(f"m{i} = MatMul(t{i}, w)\nt{i + 1} = Tanh(m{i})" for i in range(60))
    model = workshop.model(SLOW % nodes)
    command = [*COMMAND, str(workshop.property()), "-N", "N", str(model), "--n_starts=-1", "-v", "--no-prove"]
    # Shells that start the tests in the background have the signal ignored, which children inherit.
    unignored = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True, preexec_fn=unignored) as run:
        assert run.stderr is not None
        first = run.stderr.readline()  # the search has begun
        assert first.startswith("search"), first
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 3, (out, err)
    assert out.startswith("unknown (ended early: Ctrl-C)\n") and "Traceback" not in err


def test_a_process_from_the_start_to_the_verdict(workshop: Workshop) -> None:
    # Where other work delays it, it would say how far it has got.
    run = process(workshop.property(), "--network", "N", workshop.model(), "-q")
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("violated\n")
