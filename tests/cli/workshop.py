"""Common parts of the command line's tests: models from text, property files, runs in this process."""

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser
import pytest

from ranum_falsify.cli import main
from tests.network.building import unchecked

__all__ = ["LOG", "PRODUCT", "QUOTIENT", "SAFE", "Outcome", "Workshop"]

LOG = "g (float[1, 2] x) => (float[1, 2] y) { [logarithm] y = Log(x) }"
QUOTIENT = "g (float[2] a, float[2] b) => (float[2] y) { [quotient] y = Div(a, b) }"
SAFE = "g (float[1, 2] x) => (float[1, 2] y) { [rectifier] y = Relu(x) }"
PRODUCT = """g (float[1, 2] x) => (float[1, 2] y) {
    [root] r = Sqrt(x)
    [minus] m = Neg(x)
    [logarithm] l = Log(m)
    y = Add(r, l)
}"""

HEAD = """\
from dnnv.properties import *
from ranum_falsify.properties import *

N = Network("N")
lb = Parameter("lb", float, default=-1.0)
ub = Parameter("ub", float, default=1.0)

"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of the command."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a refused command writes to standard error."""
        assert self.status == 2, self
        assert self.out == "", self.out
        assert self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        assert self.err.startswith("ranum-falsify: "), self.err
        assert "internal error" not in self.err and "Traceback" not in self.err, self.err
        return self.err.strip()


class Workshop:
    """A folder with property and model files, and the command in this process."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture

    def model(self, text: str = LOG, name: str = "model.onnx", opset: int = 17) -> Path:
        """Write a model in ONNX's text syntax to a file."""
        path = self.folder / name
        onnx.save(unchecked(text, opset), str(path))
        return path

    def property(self, formula: str = "", name: str = "prop.py") -> Path:
        """Write a property over the network N, with parameters lb and ub."""
        default = "Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x))))"
        path = self.folder / name
        path.write_text(HEAD + (formula or default) + "\n")
        return path

    def pair(self) -> Path:
        """Write a property over two inputs a and b of the network N."""
        return self.property(
            "Forall(a, Forall(b, Implies(And(-1 <= a <= 1, -1 <= b <= 1), no_invalid_input(N(a, b)))))", "pair.py"
        )

    def run(self, *arguments: str | Path) -> Outcome:
        """Run the command."""
        self._capture.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = self._capture.readouterr()
        return Outcome(status, captured.out, captured.err)

    def falsify(self, *arguments: str | Path, model: str = LOG, formula: str = "") -> Outcome:
        """Run the main command on a model and a property, with few starts."""
        files = (self.property(formula), "--network", "N", self.model(model))
        return self.run(*files, "--n_starts", "20", "--n_steps", "20", *arguments)
