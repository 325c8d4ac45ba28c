"""Counterexamples from strangers: what `replay` reads of them, and what it neither runs nor opens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.workshop import LOG, SAFE, Workshop

PROGRAM = """\
from pathlib import Path
from dnnv.properties import *
mark = Path({marker!r}).touch()
N = Network("N")
Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] <= 0.5))
"""
SQUARE_ROOT = "g (float[1, 2] x) => (float[1, 2] y) { [root] y = Sqrt(x) }"


class Stranger:
    """A counterexample of a network N that fails at 0, and a program that leaves a mark where it runs."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.marker = workshop.folder / "marker"
        self.program = workshop.folder / "stranger.py"
        workshop.folder.joinpath("stranger.py").write_text(PROGRAM.format(marker=str(self.marker)))
        np.save(workshop.folder / "cex.npy", np.array([[0.75, 0]], np.float32))

    def replay(self, *arguments: str | Path, model: str | None = LOG, **changes: Any) -> Any:
        """Write the description with changes, and replay it on a model, if any."""
        path = self.workshop.model(model or LOG)
        entry = {"network": "N", "inputs": {"x": "cex.npy"}, "violations": []} | changes.pop("entry", {})
        described = {
            "format": 1,
            "property": str(self.program),
            "vnnlib": False,
            "parameters": {},
            "dims": {},
            "networks": {"N": {"path": str(path), "sha256": "0"}},
            "counterexamples": [entry],
        }
        description = self.workshop.folder / "cex.json"
        description.write_text(json.dumps(described | changes))
        return self.workshop.run("replay", description, *(("-N", "N", path) if model else ()), *arguments)


@pytest.fixture
def stranger(workshop: Workshop) -> Stranger:
    return Stranger(workshop)


class TestPrograms:
    def test_the_property_that_it_names_does_not_run(self, stranger: Stranger) -> None:
        error = stranger.replay(model=SAFE, entry={"network": ""}).error
        assert "give it as --property PATH" in error and str(stranger.program) in error
        assert not stranger.marker.exists()

    @pytest.mark.parametrize("entry", [{}, {"network": "N[1:]"}, {"network": "N[:2]"}], ids=str)
    def test_where_operators_fail_the_model_decides(self, stranger: Stranger, entry: dict[str, Any]) -> None:
        run = stranger.replay(entry=entry)
        assert run.status == 1 and "logarithm (Log) gives infinity" in run.out
        assert not stranger.marker.exists()

    def test_so_it_does_of_derivatives_and_conversions(self, stranger: Stranger) -> None:
        violation = {"node": "root", "op_type": "Sqrt", "kind": "gradient"}
        run = stranger.replay(model=SQUARE_ROOT, entry={"violations": [violation]})
        assert run.status == 1 and "root (Sqrt) gives" in run.out
        np.save(stranger.workshop.folder / "cex.npy", np.zeros((1, 2), np.float16))
        assert stranger.replay(dtype="float16").status == 1
        assert not stranger.marker.exists()

    def test_the_property_that_the_user_names_runs(self, stranger: Stranger) -> None:
        run = stranger.replay("--property", stranger.program, model=SAFE, property="/away.py", entry={"network": ""})
        assert run.status == 1 and "the property is false" in run.out
        assert stranger.marker.exists()

    def test_one_that_is_not_needed_does_not(self, stranger: Stranger) -> None:
        run = stranger.replay("--property", stranger.program)
        assert run.status == 1 and "stranger.py: not read, because the models alone decide" in run.out
        assert not stranger.marker.exists()

    @pytest.mark.parametrize(
        "network", ["N[print('ran'):]", "free(N, print('ran'))", "print('ran')", "M", "N[", "N" + "[1:]" * 10000]
    )
    def test_the_text_of_a_network_is_data(self, stranger: Stranger, network: str) -> None:
        assert "is not part of N" in stranger.replay(entry={"network": network}).error


class TestPaths:
    def test_no_model_that_it_names_is_opened(self, stranger: Stranger) -> None:
        error = stranger.replay(model=None).error
        assert "give the model of N as --network N MODEL" in error and "model.onnx" in error

    @pytest.mark.parametrize("place", ["sub/cex.npy", "../{name}/cex.npy", "{folder}/cex.npy", "", ".."])
    def test_arrays_lie_beside_it(self, stranger: Stranger, place: str) -> None:
        folder = stranger.workshop.folder
        inputs = {"x": place.format(folder=folder, name=folder.name)}
        assert "in another folder" in stranger.replay(entry={"inputs": inputs}).error

    def test_a_parameter_that_may_be_a_path_is_given_again(self, stranger: Stranger) -> None:
        text = PROGRAM.format(marker=str(stranger.marker)).replace("0.5", 'Parameter("limit", float) + 0 * len(name)')
        stranger.program.write_text(text.replace("N =", 'name = Parameter("name", str)\nN ='))
        given: dict[str, Any] = {"model": SAFE, "entry": {"network": ""}}
        given["parameters"] = {"limit": "0.5", "name": "/secret"}
        error = stranger.replay("--property", stranger.program, **given).error
        assert "give --prop.name=VALUE again (it was '/secret')" in error


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float7"},
        {"networks": []},
        {"parameters": 3},
        {"counterexamples": []},
        {"entry": {"violations": [{"node": "n", "op_type": ["Log"]}]}},
    ],
    ids=str,
)
def test_what_is_no_description(stranger: Stranger, changes: dict[str, Any]) -> None:
    assert "does not describe a counterexample" in stranger.replay(**changes).error
