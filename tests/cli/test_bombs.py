"""Small files that ask for huge amounts of time or memory are refused, or end with the timeout."""

import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ranum_falsify.model_builder import ModelBuilder
from tests.cli.workshop import LOG, Workshop

BOX = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX += "".join(f"(assert (<= X_{i} 1.0))\n(assert (>= X_{i} -1.0))\n" for i in range(2))
ZEROS = gzip.compress(bytes(2**26), mtime=0)  # gzip files may be chained


def doubling(depth: int, width: int) -> onnx.ModelProto:
    """Return a model of functions, each of which calls the one before it several times."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    bodies = []
    for level in range(depth):
        names = ["a", *(f"t{i}" for i in range(width - 1)), "b"]
        called, domain = (f"f{level - 1}", "local") if level else ("Relu", "")
        nodes = [helper.make_node(called, [names[i]], [names[i + 1]], domain=domain) for i in range(width)]
        bodies.append(helper.make_function("local", f"f{level}", ["a"], ["b"], nodes, imports))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy")
    call = helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="local")
    return helper.make_model(
        helper.make_graph([call], "g", [x], [y]), functions=bodies, opset_imports=imports, ir_version=10
    )


def write_vnnlib(workshop: Workshop, assertion: str, name: str = "prop.vnnlib") -> Path:
    path = workshop.folder / name
    path.write_text(f"{BOX}(assert {assertion})\n")
    return path


class TestModels:
    def refuse(self, workshop: Workshop, model: onnx.ModelProto | str, *options: str) -> str:
        path = workshop.model(model) if isinstance(model, str) else workshop.folder / "model.onnx"
        if not isinstance(model, str):
            onnx.save(model, str(path))
        error = workshop.run(workshop.property(), "-N", "N", path, *options).error
        assert "model.onnx" in error
        return error

    def test_functions_that_expand(self, workshop: Workshop) -> None:
        model = doubling(9, 10)
        assert len(model.SerializeToString()) < 2500
        assert "9 local functions expand to 1,000,000,000 nodes" in self.refuse(workshop, model)

    @pytest.mark.slow
    def test_functions_of_functions_that_are_honest(self, workshop: Workshop) -> None:
        onnx.save(doubling(3, 5), str(workshop.folder / "model.onnx"))
        run = workshop.run(workshop.property(), "-N", "N", workshop.folder / "model.onnx")
        assert (run.status, run.out.splitlines()[0][:5]) == (0, "holds")

    @pytest.mark.parametrize("size", [2**28 + 1, 10**12])
    def test_constants_that_are_folded(self, workshop: Workshop, size: int) -> None:
        error = self.refuse(
            workshop,
            f"""g (float[1, 2] x) => (float[1, 2] y) <int64[1] n = {{{size}}}> {{
                c = ConstantOfShape(n)
                m = ReduceMax<keepdims = 0>(c)
                y = Add(x, m)
            }}""",
        )
        assert "node 'c' (ConstantOfShape) needs more memory" in error and "--memory GB" in error

    @pytest.mark.parametrize("size", [2**28 + 1, 2**62])
    def test_sparse_weights(self, workshop: Workshop, size: int) -> None:
        values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy")
        sparse = [helper.make_sparse_tensor(values, indices, [size])]
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], sparse_initializer=sparse
        )
        error = self.refuse(
            workshop, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        )
        assert "memory" in error or "initializer 'w' is malformed" in error

    def test_the_memory_is_the_users_choice(self, workshop: Workshop) -> None:
        text = """g (float[1, 2] x) => (float[1, 2] y) <int64[1] n = {30000000}> {
            c = ConstantOfShape(n)
            m = ReduceMax<keepdims = 0>(c)
            y = Add(x, m)
        }"""
        assert "--memory GB" in self.refuse(workshop, text, "--memory", "0.05")
        model = workshop.model(text)
        assert workshop.run(workshop.property(), "-N", "N", model, "--list-operators").status == 0

    def test_the_limit_ends_with_the_reading(self, workshop: Workshop) -> None:
        before = resource.getrlimit(resource.RLIMIT_DATA)
        assert workshop.falsify("--list-operators").status == 0
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


class TestCompression:
    def test_a_compressed_model_is_read_replayed_and_confirmed(self, workshop: Workshop) -> None:
        packed, prop = workshop.folder / "model.onnx.gz", workshop.property()
        packed.write_bytes(gzip.compress(workshop.model(LOG).read_bytes()))
        workshop.model(LOG).unlink()
        cex = workshop.folder / "cex.npy"
        run = workshop.run(prop, "-N", "N", packed, "--n_starts", "20", "--save-violation", cex)
        assert run.status == 1, run
        described = json.loads((workshop.folder / "cex.json").read_text())["networks"]["N"]
        assert described["path"].endswith("model.onnx.gz")
        assert described["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
        for file in ("cex.json", "cex.npy"):
            assert workshop.run("replay", workshop.folder / file, "-N", "N", packed).status == 1
        assert workshop.run("confirm", prop, "-N", "N", packed, "--runs", "1", "--no-span").status == 1

    def test_a_model_that_decompresses_to_gigabytes(self, workshop: Workshop) -> None:
        path = workshop.folder / "model.onnx.gz"
        path.write_bytes(ZEROS * 48)
        error = workshop.run(workshop.property(), "-N", "N", path).error
        assert "model.onnx.gz: decompresses to more than 67,108,864 bytes" in error

    def test_a_property_that_decompresses_to_gigabytes(self, workshop: Workshop) -> None:
        path = workshop.folder / "prop.vnnlib.gz"
        path.write_bytes(ZEROS * 48)
        error = workshop.run(path, "-N", "N", workshop.model()).error
        assert "prop.vnnlib.gz: decompresses to more than 67,108,864 bytes" in error

    @pytest.mark.parametrize("name", ["model.onnx.gz", "model.onnx"])
    def test_half_a_compressed_model(self, workshop: Workshop, name: str) -> None:
        path = workshop.folder / name
        packed = gzip.compress(workshop.model(LOG, "plain.onnx").read_bytes())
        path.write_bytes(packed[: len(packed) // 2])
        assert f"{name}: cannot be read" in workshop.run(workshop.property(), "-N", "N", path).error


class TestExternalData:
    def model(self, workshop: Workshop) -> Path:
        g = ModelBuilder()
        g.output(g.input("x", [1, 2]) @ g.constant(np.ones((2, 2), np.float32), "w"), [1, 2])
        path = workshop.folder / "model.onnx"
        onnx.save(g.build(), str(path), save_as_external_data=True, location="model.onnx.data", size_threshold=0)
        return path

    def test_a_file_that_is_not_there_is_named(self, workshop: Workshop) -> None:
        path = self.model(workshop)
        data = workshop.folder / "model.onnx.data"
        assert workshop.run(workshop.property(), "-N", "N", path, "--list-operators").status == 0
        data.unlink()
        error = workshop.run(workshop.property(), "-N", "N", path).error
        assert f"its external data file '{data}' is missing" in error

    @pytest.mark.parametrize(
        ("size", "says"), [(15, "is too short: tensor 'w' needs 16 bytes, and has 15"), (2**33, "--memory GB")]
    )
    def test_a_file_of_another_size_than_its_tensor(self, workshop: Workshop, size: int, says: str) -> None:
        path = self.model(workshop)
        model = onnx.load(path, load_external_data=False)
        entries = [entry for entry in model.graph.initializer[0].external_data if entry.key == "location"]
        del model.graph.initializer[0].external_data[:]
        model.graph.initializer[0].external_data.extend(entries)
        path.write_bytes(model.SerializeToString())
        os.truncate(workshop.folder / "model.onnx.data", size)
        assert says in workshop.run(workshop.property(), "-N", "N", path).error

    def test_a_compressed_model_keeps_its_data_beside_it(self, workshop: Workshop) -> None:
        path = self.model(workshop)
        packed = workshop.folder / "model.onnx.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        np.save(workshop.folder / "x.npy", np.full((1, 2), 3e38, np.float32))
        assert workshop.run(workshop.property(), "-N", "N", packed, "--list-operators").status == 0
        assert workshop.run("replay", workshop.folder / "x.npy", "-N", "N", packed).status == 1

    def test_a_pipe_is_no_data(self, workshop: Workshop) -> None:
        path = self.model(workshop)
        (workshop.folder / "model.onnx.data").unlink()
        os.mkfifo(workshop.folder / "model.onnx.data")
        assert "not regular file" in workshop.run(workshop.property(), "-N", "N", path).error


class TestVnnlib:
    @pytest.mark.parametrize(
        ("assertion", "says"),
        [
            (f"(<= Y_0 {'1' * 10**6})", ":9: a word of 1,000,000 characters"),
            (f"(<= X_0 -{'1' * 10**6}.5)", "a word of 1,000,003 characters"),
            (f"(<= Y_0 Y_{'1' * 10**6})", "a word of 1,000,002 characters"),
            ("(<= Y_0 1e999999999)", ":9: the number 1e999999999 is beyond every number format"),
            ("(<= X_0 1e-999999999)", "is 0 in every number format"),
            ("(and " * 10**5 + "(<= Y_0 0.0)" + ")" * 10**5, "parentheses are nested more than 100 deep"),
        ],
        ids=["output", "input", "name", "exponent", "small", "nested"],
    )
    def test_excess(self, workshop: Workshop, assertion: str, says: str) -> None:
        assert says in workshop.run(write_vnnlib(workshop, assertion), "-N", "N", workshop.model()).error

    def test_numbers_as_long_as_a_float_can_be(self, workshop: Workshop) -> None:
        smallest = f"{5e-324:.1074f}"
        path = write_vnnlib(workshop, f"(>= Y_0 {smallest})")
        assert workshop.run(path, "-N", "N", workshop.model(), "--list-operators").status == 0


class TestTimeout:
    def test_it_covers_the_property(self, workshop: Workshop) -> None:
        formula = "import time\nwait = time.sleep(600)\nForall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))"
        report = workshop.folder / "report.json"
        run = workshop.falsify("--timeout", "0.5", "--json", report, formula=formula)
        assert (run.status, run.err) == (3, "")
        assert run.out.splitlines()[0] == "unknown (ended early: timeout while reading)"
        assert json.loads(report.read_text())["verdict"] == "unknown"

    @pytest.mark.slow
    def test_it_covers_a_library_that_does_not_return(self, workshop: Workshop) -> None:
        model = workshop.model(
            """g (float[1] x) => (y) <int64[4] n = {1, 1, 3000, 3000}, int64[4] k = {1, 1, 1500, 1500}> {
                a = Expand(x, n)
                w = ConstantOfShape(k)
                y = Conv(a, w)
            }"""
        )
        command = [sys.executable, "-m", "ranum_falsify", str(workshop.property()), "-N", "N", str(model)]
        done = subprocess.run([*command, "--timeout", "0.5", "-p", "1"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (3, "")
        assert done.stdout.splitlines()[0] == "unknown (ended early: timeout while reading)"

    def test_what_reading_takes_is_gone(self, workshop: Workshop) -> None:
        formula = "import time\nwait = time.sleep(0.4)\nForall(x, Implies(-1 <= x <= 1, no_invalid_input(N(x))))"
        run = workshop.falsify(
            "--timeout",
            "2",
            "--n_starts=-1",
            formula=formula,
            model="""
            g (float[1, 2] x) => (float[1, 2] y) { a = Sin(x) b = Add(a, x) c = Exp(b) d = Sub(c, b) y = Sqrt(d) }
        """,
        )
        assert run.status in (0, 3)
        assert "timeout while reading" not in run.out


class TestReplay:
    def test_an_array_that_claims_more_than_it_holds(self, workshop: Workshop) -> None:
        path = workshop.folder / "x.npy"
        np.save(path, np.zeros(1, np.float32))
        path.write_bytes(path.read_bytes().replace(b"(1,)", b"(1000000000000,)"))
        assert "not an .npy file" in workshop.run("replay", path, "-N", "N", workshop.model()).error

    def test_pipes_and_devices(self, workshop: Workshop) -> None:
        os.mkfifo(workshop.folder / "x.npy")
        given = f"x={workshop.folder / 'x.npy'}"
        assert "is not a file" in workshop.run("replay", "--input", given, "-N", "N", workshop.model()).error
        cex = workshop.folder / "cex.npy"
        assert workshop.falsify("--save-violation", cex).status == 1
        assert (
            "/dev/zero: is not a file" in workshop.run("replay", cex.with_suffix(".json"), "-N", "N", "/dev/zero").error
        )

    def test_a_description_of_gigabytes(self, workshop: Workshop) -> None:
        with (workshop.folder / "cex.json").open("wb") as stream:
            stream.truncate(2**34)
        assert "holds more than 67,108,864 bytes" in workshop.run("replay", workshop.folder / "cex.json").error
