"""Everything that can be wrong with what the user gives ends in one line and exit status 2."""

import gzip
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.cli.workshop import LOG, QUOTIENT, Workshop

INFINITE = '{"format": 1, "property": "p.py", "vnnlib": false, "parameters": {}, "dims": {"n": 1e999}}'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed=1"], "PROPERTY is missing"),
        (["--frobnicate"], "--frobnicate"),
        (["p.py", "extra.py"], "extra.py"),
        (["p.py", "-N", "N"], "-N requires 2 positional arguments"),
        (["p.py", "-N", "N", "a.onnx", "-N", "N", "b.onnx"], "--network: N is given twice"),
        (["p.py", "--n_starts", "many"], "--n_starts: 'many' is not a whole number"),
        (["p.py", "--n_starts=-2"], "at least -1"),
        (["p.py", "--n_steps=-1"], "at least 0"),
        (["p.py", "--seed=-1"], "at least 0"),
        (["p.py", "--seed=99999999999999999999"], "out of range"),
        (["p.py", "--timeout", "0"], "more than 0 seconds"),
        (["p.py", "--timeout", "nan"], "more than 0 seconds"),
        (["p.py", "-p", "0"], "at least 1"),
        (["p.py", "--fail-on", "far"], 'Invalid value "far" for --fail-on'),
        (["p.py", "--backend", "nothing"], "'nothing' is unknown"),
        (["p.py", "--set", "pgd", "n_steps"], "--set requires 3 positional arguments"),
        (["p.py", "--set", "dnnf.pgd", "n_steps", "2"], "not among the back ends (pgd)"),
        (["p.py", "--set", "pgd", "speed", "2"], "pgd has no such parameter; it has n_starts, n_steps"),
        (["p.py", "--set", "pgd", "n_steps", "x"], "not a whole number"),
        (["p.py", "--set", "pgd", "n_steps", "1", "--set", "pgd", "n_steps", "2"], "given twice"),
        (["p.py", "--prop.lb"], "--prop.lb: a value is missing"),
        (["p.py", "--prop.lb", "--prop.ub=1"], "--prop.lb: a value is missing"),
        (["p.py", "--prop.lb=1", "--prop.lb=2"], "--prop.lb: is given twice"),
        (["p.py", "--prop.=1"], "a value is missing"),
        (["p.py", "--dim", "batch"], "not of the form NAME=VALUE"),
        (["p.py", "--dim", "batch=0"], "at least 1"),
        (["p.py", "--cuda", "--device", "cuda:1"], "contradict"),
        (["p.py", "-v", "-q"], "-q specified multiple times"),
        (["replay"], "give either a counterexample"),
        (["replay", "a.npy", "--input", "x=b.npy"], "give either a counterexample"),
        (["replay", "--input", "b.npy", "-N", "N", "m.onnx"], "not of the form NAME=VALUE"),
        (["operators", "--json", "--markdown"], "contradict"),
        (["operators", "Log"], "Log"),
    ],
    ids=" ".join,
)
def test_arguments(workshop: Workshop, arguments: list[str], says: str) -> None:
    assert says in workshop.run(*arguments).error


def test_a_missing_property(workshop: Workshop) -> None:
    error = workshop.run(workshop.folder / "none.py", "-N", "N", workshop.model()).error
    assert "none.py: no such file" in error


def test_a_missing_model(workshop: Workshop) -> None:
    error = workshop.run(workshop.property(), "-N", "N", workshop.folder / "none.onnx").error
    assert "none.onnx: no such file" in error


def test_folders_instead_of_files(workshop: Workshop) -> None:
    assert "is a folder" in workshop.run(workshop.folder, "-N", "N", workshop.model()).error
    assert "is a folder" in workshop.run(workshop.property(), "-N", "N", workshop.folder).error


class TestModels:
    def refuse(self, workshop: Workshop, model: onnx.ModelProto | bytes) -> str:
        path = workshop.folder / "bad.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        error = workshop.run(workshop.property(), "-N", "N", path).error
        assert "bad.onnx" in error
        return error

    def built(self, nodes: list[onnx.NodeProto], inputs: tuple[str, ...] = ("x",)) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (*inputs, "y")]
        graph = helper.make_graph(nodes, "g", infos[:-1], infos[-1:])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @pytest.mark.parametrize("content", [b"", b"hello\n", b"\x89PNG\r\n\x1a\n" * 20, bytes(1000)])
    def test_not_onnx(self, workshop: Workshop, content: bytes) -> None:
        self.refuse(workshop, content)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
    def test_truncated(self, workshop: Workshop, share: float) -> None:
        whole = workshop.model(
            "g (float[1, 2] x) => (float[1, 2] y) { a = Log(x) b = Exp(a) y = Relu(b) }"
        ).read_bytes()
        self.refuse(workshop, whole[: int(share * len(whole))])

    def test_a_cycle(self, workshop: Workshop) -> None:
        nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
        nodes.append(helper.make_node("Neg", ["b"], ["y"]))
        assert "cycle" in self.refuse(workshop, self.built(nodes))

    def test_a_dangling_input(self, workshop: Workshop) -> None:
        assert "'nowhere'" in self.refuse(workshop, self.built([helper.make_node("Add", ["x", "nowhere"], ["y"])]))

    def test_unsupported_operators_are_all_named(self, workshop: Workshop) -> None:
        nodes = [helper.make_node("Foo", ["x"], ["a"]), helper.make_node("Bar", ["a"], ["y"], domain="my.domain")]
        error = self.refuse(workshop, self.built(nodes))
        assert "Foo (1)" in error and "my.domain::Bar (1)" in error and "No Op registered for Foo" in error

    def test_an_unknown_dimension(self, workshop: Workshop) -> None:
        assert "--dim width: no such symbolic dimension" in workshop.falsify("--dim", "width=3").error


class TestProperties:
    @pytest.mark.parametrize(
        ("formula", "says"),
        [
            ("Forall(x, no_invalid_input(N(x)))", "'x'"),
            ("Forall(x, Implies(x <= 1, no_invalid_input(N(x))))", "'x'"),
            ("Forall(x, Implies(0 <= x <= float('inf'), no_invalid_input(N(x))))", "'x'"),
            ("Forall(x, Implies(2 <= x <= 1, no_invalid_input(N(x))))", ""),
            ("Forall(x, Implies(float('nan') <= x <= 1, no_invalid_input(N(x))))", ""),
            ("Forall(x, Implies(np.nan <= x <= np.nan, no_invalid_input(N(x))))", ""),
            ("Forall(x, Implies(np.zeros((3, 4)) <= x <= np.ones((3, 4)), no_invalid_input(N(x))))", ""),
            ("Forall(x, Implies(-1 <= x <= 1, N(x)[0, 7] > 0))", ""),
            ("Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x, x))))", "'N'"),
            ('Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x), only=["Exp"])))', "'Exp'"),
            ('Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x), nodes=["away"])))', "'away'"),
            ('Forall(x, Implies(-1 <= x <= 1, no_invalid_input(Network("M")(x))))', "'M'"),
            ("Exists(x, And(-1 <= x <= 1, no_invalid_input(N(x))))", "Exists"),
            ("Forall(x, Implies(-1 <= x <= 1, N(x)[0, 0] > 1 / 0))", "(1 / 0): ZeroDivisionError"),
            ("Forall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x)))", ":8"),
            ("Forall(x, Implies(-1 <= x <= , no_invalid_input(N(x))))", ":8"),
            ("print('hello')\n7", ":8"),
            ("'only a text'", ""),
        ],
    )
    def test_what_does_not_fit(self, workshop: Workshop, formula: str, says: str) -> None:
        error = workshop.falsify(formula="import numpy as np\n" + formula if "np." in formula else formula).error
        assert says in error

    def test_a_syntax_error_names_file_and_line(self, workshop: Workshop) -> None:
        path = workshop.property("x = (")
        assert f"{path}:8: " in workshop.run(path, "-N", "N", workshop.model()).error

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\x00", b"((((" * 5000, gzip.compress(b"x", mtime=0)])
    @pytest.mark.parametrize("suffix", [".py", ".vnnlib"])
    def test_no_property_at_all(self, workshop: Workshop, content: bytes, suffix: str) -> None:
        path = workshop.folder / f"bad{suffix}"
        path.write_bytes(content)
        assert f"bad{suffix}" in workshop.run(path, "-N", "N", workshop.model()).error

    @pytest.mark.parametrize("command", [[], ["fix", "-o", "fixed.onnx"], ["confirm"]])
    def test_a_model_in_place_of_a_property(self, workshop: Workshop, command: list[str]) -> None:
        path = workshop.model()
        error = workshop.run(*command, path, "--network", "N", path).error
        assert "a model, where a property file is expected" in error and "--print-property" in error

    def test_an_unknown_parameter(self, workshop: Workshop) -> None:
        assert "'lbb'" in workshop.falsify("--prop.lbb=1").error

    def test_a_parameter_of_the_wrong_type(self, workshop: Workshop) -> None:
        assert "'zero'" in workshop.falsify("--prop.lb=zero").error

    def test_bounds_by_parameters(self, workshop: Workshop) -> None:
        workshop.falsify("--prop.lb=3").error  # noqa: B018 - reading it checks that there is one line
        workshop.falsify("--prop.lb", "nan").error  # noqa: B018

    def test_a_network_that_is_not_given_and_one_that_is_not_named(self, workshop: Workshop) -> None:
        prop, model = workshop.property(), workshop.model()
        assert "'N'" in workshop.run(prop).error
        assert "'N'" in workshop.run(prop, "-N", "M", model).error
        assert "'M'" in workshop.run(prop, "-N", "N", model, "-N", "M", model).error


class TestOutputs:
    @pytest.mark.parametrize("option", ["--save-violation", "--json"])
    def test_a_missing_folder(self, workshop: Workshop, option: str) -> None:
        assert "there is no folder" in workshop.falsify(option, workshop.folder / "away" / "cex.npy").error

    @pytest.mark.parametrize("option", ["--save-violation", "--json"])
    def test_a_folder_instead_of_a_file(self, workshop: Workshop, option: str) -> None:
        folder = workshop.folder / "cex.npy"
        folder.mkdir()
        assert "is a folder" in workshop.falsify(option, folder).error

    @pytest.mark.parametrize("option", ["--save-violation", "--json"])
    def test_a_folder_that_cannot_be_written(self, workshop: Workshop, option: str) -> None:
        # Even root cannot create files there.
        assert "cannot be written" in workshop.falsify(option, Path("/proc/cex.npy")).error

    def test_a_device_is_not_replaced(self, workshop: Workshop) -> None:
        os.mkfifo(workshop.folder / "cex.npy")
        assert "no regular file" in workshop.falsify("--save-violation", workshop.folder / "cex.npy").error

    def test_report_and_counterexample_in_one_file(self, workshop: Workshop) -> None:
        both = ("--save-violation", workshop.folder / "cex.npy", "--json", workshop.folder / "cex.json")
        assert "--save-violation writes this file too" in workshop.falsify(*both).error

    def test_it_is_found_before_the_model_is_read(self, workshop: Workshop) -> None:
        bad = workshop.folder / "bad.onnx"
        bad.write_bytes(b"not ONNX")
        run = workshop.run(workshop.property(), "-N", "N", bad, "--json", workshop.folder / "away" / "r.json")
        assert "there is no folder" in run.error


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("device", [["--cuda"], ["--device", "cuda"], ["--device", "cuda:3"]], ids=" ".join)
def test_cuda_without_cuda(workshop: Workshop, device: list[str]) -> None:
    assert "CUDA" in workshop.falsify(*device).error


@pytest.mark.parametrize("device", ["toaster", "meta", "cpu:x"])
def test_an_unknown_device(workshop: Workshop, device: str) -> None:
    assert f"--device {device}" in workshop.falsify("--device", device).error


class TestReplay:
    def test_arrays_that_do_not_fit(self, workshop: Workshop) -> None:
        model, path = workshop.model(), workshop.folder / "x.npy"
        for array, says in ((np.zeros((1, 2)), "float64 [1, 2]"), (np.zeros((2, 2), np.float32), "float32 [2, 2]")):
            np.save(path, array)
            error = workshop.run("replay", path, "-N", "N", model).error
            assert "input 'x' takes float32 [1, 2]" in error and says in error

    @pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"hello", b"PK\x03\x04"])
    def test_files_that_are_no_arrays(self, workshop: Workshop, content: bytes) -> None:
        path = workshop.folder / "x.npy"
        path.write_bytes(content)
        assert "not an .npy file" in workshop.run("replay", path, "-N", "N", workshop.model()).error

    def test_several_arrays_and_objects(self, workshop: Workshop) -> None:
        path = workshop.folder / "x.npz"
        np.savez(path, np.zeros(2))
        assert "several arrays" in workshop.run("replay", path, "-N", "N", workshop.model()).error
        np.save(workshop.folder / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
        assert "not an .npy" in workshop.run("replay", workshop.folder / "o.npy", "-N", "N", workshop.model()).error

    def test_missing_files(self, workshop: Workshop) -> None:
        model = workshop.model()
        assert "x.npy: no such file" in workshop.run("replay", workshop.folder / "x.npy", "-N", "N", model).error
        assert "x.json: cannot be read" in workshop.run("replay", workshop.folder / "x.json").error
        assert "no such file" in workshop.run("replay", "--input", "x=none.npy", "-N", "N", model).error

    @pytest.mark.parametrize("content", ["", "[]", "{}", INFINITE, '{"format": 1}', '{"format": 9}', "[" * 100000])
    def test_descriptions_that_are_none(self, workshop: Workshop, content: str) -> None:
        path = workshop.folder / "cex.json"
        path.write_text(content)
        assert "cex.json" in workshop.run("replay", path).error

    def test_inputs_that_the_model_has_not(self, workshop: Workshop) -> None:
        model, path = workshop.model(QUOTIENT), workshop.folder / "x.npy"
        np.save(path, np.zeros(2, np.float32))
        assert "2 inputs (a, b)" in workshop.run("replay", path, "-N", "N", model).error
        assert "input 'b'" in workshop.run("replay", "--input", f"a={path}", "-N", "N", model).error
        given = [argument for name in "abc" for argument in ("--input", f"{name}={path}")]
        assert "no input 'c'" in workshop.run("replay", *given, "-N", "N", model).error

    def test_networks_that_are_not_given(self, workshop: Workshop) -> None:
        path = workshop.folder / "x.npy"
        np.save(path, np.zeros((1, 2), np.float32))
        assert "give one network" in workshop.run("replay", path).error
        cex = workshop.folder / "cex.npy"
        assert workshop.falsify("--save-violation", cex, model=LOG).status == 1
        assert "of N; use this name" in workshop.run("replay", cex, "-N", "M", workshop.model()).error
