"""The examples in Markdown pages: found, run, and their outputs compared with what the page shows.

A fenced block is run if it is `python`, `console` (lines that begin with `$ ` are commands, what follows is their
output) or `sh` (commands), in the order of the page, all in one folder that has the repository's `networks` and
`properties`.  A `text` block right after a `python` or `sh` block is its output.  A block with `title="NAME"` is
written to the file NAME instead, and `<!-- not run: REASON -->` on the line before keeps a block from being run.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ranum_falsify.cli import main

__all__ = ["Block", "Session", "blocks", "matches", "rerun"]

ROOT = Path(__file__).resolve().parent.parent
RUN = frozenset({"python", "console", "sh"})

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>\S[^\n]*) -->\n)?```(?P<information>[^\n]*)\n(?P<text>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_PROGRESS = re.compile(r"^\w+(: .*)? \(\d+%\)\n", re.MULTILINE)
_CHANGES = (
    (r"^E +", ""),  # what pytest shows of errors
    (r"^time: .*\n", ""),
    (r"^notice: .* was not measured on processors of the family .*\n", ""),  # of the processor that runs the test
    (r"^(kernels|versions|processor): .*$", r"\1: #"),
    (r"^( *(operands.*?|at the first offending element)): .*$", r"\1: #"),
    (r"^( *confirmed by (ONNX Runtime|PyTorch)).*$", r"\1"),  # where results underflow, runtimes and processors differ
    (r"^( *outputs): .*$", r"\1: #"),  # of a repair: what kernels round, and how many inputs there is time for
    (r"\b(values in) \[.*\]", r"\1 #"),  # of a counterexample: the turn that finds it depends on the machine's load
    (r"\b(ONNX Runtime|PyTorch) \d+(\.\d+)+", r"\1 #"),
    (r"sha256 [0-9a-f]+", "sha256 #"),
    (r"\d+\.\d+ ?(s|ms)\b(?: \(\d+:\d\d:\d\d\))?", r"# \1"),
    (r"-?\d+(\.\d+)?e[+-]?\d+|-?\d+\.\d{3,}|-?\d{5,}", "#"),
    (r"\bsearched \d+ s\b", "searched # s"),
    (r"[ \t]+", " "),
)
"""What differs from run to run, or from one processor's kernels to another's, and what to put for it."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: The first word after the fence.
        title: The file that it is written to instead of being run.
        text: What it holds.
        output: What the page shows as its output, where a `text` block follows.
        reason: Why it is not run.
        line: Line of the page that it begins on.
    """

    language: str
    title: str | None
    text: str
    output: str | None
    reason: str | None
    line: int


def blocks(page: str) -> Iterator[tuple[Block, re.Match[str]]]:
    """Yield the fenced blocks of a page, each with the place that it was found at."""
    for found in _BLOCK.finditer(page):
        parts = found.groupdict()
        information = parts.pop("information")
        title = re.search(r'title="([^"]+)"', information)
        yield (
            Block(
                **parts,
                language=information.partition(" ")[0],
                title=title and title[1],
                line=page.count("\n", 0, found.start("text")),
            ),
            found,
        )


def matches(shown: str, found: str) -> bool:
    """Return whether an output is the one shown, but for what changes; `...` stands for anything."""
    pattern = re.escape(_settled(shown)).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, _settled(found), re.DOTALL) is not None


def _settled(text: str) -> str:
    for pattern, replacement in _CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text.strip()


def rerun(page: str, session: Session) -> str:
    """Return a page with the outputs that its blocks give now; those that match stay as they are."""
    parts, end = [], 0
    for block, found in blocks(page):
        if block.title is not None:
            session.write(block.title, block.text)
        elif block.reason is None and block.language in RUN:
            try:
                replaced = _replaced(block, session)
            except Exception as error:
                raise AssertionError(f"the block at line {block.line} of the page fails") from error
            for group, text in replaced.items():
                parts += [page[end : found.start(group)], text]
                end = found.end(group)
    return "".join([*parts, page[end:]])


def _replaced(block: Block, session: Session) -> dict[str, str]:
    """Run a block and return the groups of it that are no longer true, with their new text."""
    if block.language == "console":
        return {"text": _console(block.text, session)}
    if block.language == "python":
        output = session.python(block.text)
    else:
        output = "".join(session.command(line) for line in block.text.splitlines() if not line.startswith("#"))
    if block.output is None or matches(block.output, output):
        return {}
    return {"output": output}


def _console(text: str, session: Session) -> str:
    parts = []
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        output = session.command(command)
        parts += [f"$ {command}\n", shown if matches(shown, output) else output]
    return "".join(parts)


class Session:
    """A folder in which blocks are run, one after the other.

    Attributes:
        folder: The folder.
        processes: Whether commands get a process of their own, as users run them, which takes seconds each.
    """

    def __init__(self, folder: Path, *, processes: bool = False) -> None:
        self.folder = folder.resolve()
        self._processes = processes
        self._module = ModuleType("example")
        self._examples = 0
        for name in ("networks", "properties"):
            (folder / name).symlink_to(ROOT / name)

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def python(self, text: str) -> str:
        """Run Python in the namespace of what ran before, and return what it printed."""
        self._examples += 1
        path = self.folder / f"example_{self._examples}.py"
        path.write_text(text, encoding="utf-8")  # so that tracebacks and source lines are those of a file
        code = compile(text, str(path), "exec")
        self._module.__file__ = str(path)
        sys.modules["example"] = self._module
        printed = io.StringIO()
        try:
            with chdir(self.folder), redirect_stdout(printed), redirect_stderr(printed):
                sys.path.insert(0, str(self.folder))  # as for a script that lies there
                exec(code, vars(self._module))
        finally:
            sys.path.remove(str(self.folder))
            del sys.modules["example"]
            for name, module in list(sys.modules.items()):
                if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                    del sys.modules[name]
        return self._clean(printed.getvalue())

    def command(self, line: str) -> str:
        """Run a command and return what it printed, on standard error too, but not how far it had got meanwhile."""
        program, *arguments = shlex.split(line)
        if program != "ranum-falsify" or self._processes:
            return self._clean(self._process(line))
        printed = io.StringIO()
        with chdir(self.folder), redirect_stdout(printed), redirect_stderr(printed):
            main(arguments)
        return self._clean(printed.getvalue())

    def _clean(self, output: str) -> str:
        """Leave out where the folder is, and how far a command had got."""
        return _PROGRESS.sub("", output.replace(f"{self.folder}{os.sep}", ""))

    def _process(self, line: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Whether or not this package was installed since it has a plugin.
        installed = {"PYTHONPATH": str(ROOT), "PYTEST_PLUGINS": "ranum_falsify.testing"}
        environment = kept | installed | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return run.stdout
