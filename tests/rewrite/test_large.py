"""A model of 2 GB passes through without a second copy of its weights in memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

LAYERS, WIDTH = 20, 5120  # 2.1 GB


def write_model(folder: Path) -> Path:
    """Layers of zeros, in a file with holes; an Identity before each."""
    size = WIDTH * WIDTH * 4
    nodes, weights, before = [], [], "x"
    for number in range(LAYERS):
        weight = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "w.bin", "offset": str(number * size), "length": str(size)}.items():
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
        after = "y" if number == LAYERS - 1 else f"m{number}"
        nodes.append(helper.make_node("Identity", [before], [f"i{number}"]))
        nodes.append(helper.make_node("MatMul", [f"i{number}", weight.name], [after]))
        before = after
    with (folder / "w.bin").open("wb") as file:
        file.truncate(LAYERS * size)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def anonymous_bytes(process: psutil.Process) -> int:
    """Memory of a process that is no mapped file."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.partition("RssAnon:")[2].split()[0]) if "RssAnon:" in status else 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_holds_the_weights_of_a_large_model(tmp_path: Path) -> None:
    path, out = write_model(tmp_path), tmp_path / "out.onnx"
    command = [sys.executable, "-m", "ranum_falsify", "transform", str(path), "eliminate_identity", "-o", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    root, most = psutil.Process(process.pid), 0
    while process.poll() is None:
        for one in (root, *root.children(recursive=True)):
            most = max(most, anonymous_bytes(one))
        time.sleep(0.02)
    assert process.returncode == 0 and ", proved, sampled" in process.communicate()[0]
    assert most < 1e9
    assert out.stat().st_size < 1e5 and out.with_name("out.onnx.data").stat().st_size == LAYERS * WIDTH * WIDTH * 4
