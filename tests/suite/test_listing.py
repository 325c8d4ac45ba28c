"""What suites list: VNN-COMP's and DNNV's files, and our own."""

import gzip
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ranum_falsify.cli.suite import read_group
from ranum_falsify.errors import UsageError
from ranum_falsify.model_builder import ModelBuilder
from ranum_falsify.suite.listing import list_instances
from ranum_falsify.suite.planning import choose, override, plan
from ranum_falsify.suite.record import Instance


def listed(path: Path) -> list[Instance]:
    return list_instances(path, read_group)


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_folder_of_vnncomp(tmp_path: Path) -> None:
    folder = tmp_path / "acas"
    touch(folder, "onnx/a.onnx.gz", "vnnlib/p.vnnlib", "onnx/b.onnx")
    (folder / "instances.csv").write_text("onnx/a.onnx, vnnlib/p.vnnlib,116\n\n./onnx/b.onnx,vnnlib/p.vnnlib,5.5\n")
    first, second = listed(folder)
    assert (first.id, first.category, first.timeout) == ("acas/a/p", "acas", 116)
    assert first.networks == {"": str(folder / "onnx/a.onnx.gz")}
    assert first.property_path == str(folder / "vnnlib/p.vnnlib")
    assert (second.model, second.timeout) == ("./onnx/b.onnx", 5.5)
    assert second.networks == {"": str(folder / "onnx/b.onnx")}
    assert listed(folder / "instances.csv") == [first, second]


def test_a_folder_of_folders_and_a_compressed_list(tmp_path: Path) -> None:
    for name in ("b", "a"):
        touch(tmp_path, f"{name}/x.onnx")
        data = gzip.compress(b"x.onnx,p.vnnlib,1\nx.onnx,p.vnnlib,1\n")
        (tmp_path / name / "instances.csv.gz").write_bytes(data)
    assert [one.id for one in listed(tmp_path)] == ["a/x/p", "a/x/p#2", "b/x/p", "b/x/p#2"]


def test_problems_of_dnnv(tmp_path: Path) -> None:
    (tmp_path / "problems_two.csv").write_text(
        "problem_id,property_filename,network_names,network_filenames,parameter_names,parameter_values\n"
        "EQ_1,properties/eq.py,N1:N2,onnx/a.onnx:onnx/b.onnx,epsilon,0.5\n"
        "LOC_2,properties/p.py,N,onnx/a.onnx,,\n"
    )
    first, second = listed(tmp_path)
    assert first.networks == {"N1": str(tmp_path / "onnx/a.onnx"), "N2": str(tmp_path / "onnx/b.onnx")}
    assert first.parameters == {"epsilon": "0.5"} and first.id == f"{tmp_path.name}/EQ_1"
    assert second.networks == {"N": str(tmp_path / "onnx/a.onnx")} and second.parameters == {}


TOML = """
name = "night"
timeout = 20
[[group]]
name = "boxes"
models = ["*.onnx"]
box = {x = [-1, 1], mask = 0}
n_starts = 7
timeout = 5
[[group]]
models = "deep/*.onnx"
properties = ["*.vnnlib", "p.py"]
prop = {lb = 0}
no-prove = true
"""


def test_a_suite_of_ours(tmp_path: Path) -> None:
    touch(tmp_path, "b.onnx", "a.onnx", "deep/c.onnx", "s.vnnlib", "p.py")
    (tmp_path / "suite.toml").write_text(TOML)
    found = listed(tmp_path)
    assert [one.id for one in found] == [
        "night/boxes/a.onnx/box",
        "night/boxes/b.onnx/box",
        "night/deep/c.onnx/s.vnnlib lb=0",
        "night/deep/c.onnx/p.py lb=0",
    ]
    assert found[0].question == {"box": {"x": [-1, 1], "mask": 0}}
    assert found[0].options == {"n_starts": 7} and found[0].timeout == 5
    assert found[2].options == {"prove": False} and found[2].timeout == 20
    assert found[2].parameters == {"lb": "0"} and found[2].property_path == str(tmp_path / "s.vnnlib")
    assert all(Instance.from_json(one.to_json()) == one for one in found)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("suite.toml", "a = [", "suite.toml: is not TOML"),
        ("suite.toml", "timeout = 3", r"suite.toml: has no \[\[group\]\]"),
        ("suite.toml", "[[group]]\nbox = [0, 1]", r"\[group 1\] models is missing"),
        ("suite.toml", "[[group]]\nmodels = 'x*.onnx'", r"models: 'x\*.onnx' matches no file"),
        ("suite.toml", "[[group]]\nmodels = 3", "models is no text"),
        ("suite.toml", "[[group]]\nmodels = 'm.onnx'\nn_start = 3", "n_start: there is no such option; did you mean"),
        (
            "suite.toml",
            "[[group]]\nmodels = 'm.onnx'\nn_starts = 'x'",
            "n_starts: is a string where a number is needed",
        ),
        ("suite.toml", "[[group]]\nmodels = 'm.onnx'\nmemory = 3", "memory: is no option of a group"),
        ("instances.csv", "a,b,c,d", "row 1 has 4 columns; write model, property and time limit"),
        ("instances.csv", "a,b,soon", "row 1: 'soon' is no number of seconds; write a time limit"),
        ("instances.csv", "a,b,-1", "row 1: '-1' is no number of seconds"),
        ("instances.csv", "", "lists no instances; add some"),
        (
            "problems.csv",
            "problem_id,property_filename,network_names,network_filenames\na,p.py,N:M,x.onnx",
            "row 2: network_names and network_filenames do not match",
        ),
        ("other.txt", "", "has no suite.toml, instances.csv, instances.csv.gz or problems"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, message: str) -> None:
    touch(tmp_path, "m.onnx")
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        listed(tmp_path)


def make(name: str, **fields: Any) -> Instance:
    return Instance(**{"category": "c", "model": name, "property": "", "networks": {}} | fields, id=name)


def test_instances_are_chosen() -> None:
    instances = [make(f"c/m{n}/p") for n in range(10)]

    def ids(patterns: tuple[str, ...] = (), shard: tuple[int, int] | None = None) -> list[str]:
        return [one.id[3] for one in choose(instances, patterns, shard)]

    assert ids(("m1",)) == ["1"] and ids(("*m[23]/p", "m5")) == ["2", "3", "5"]
    parts = [ids(shard=(i, 3)) for i in (1, 2, 3)]
    assert sorted(one for part in parts for one in part) == list("0123456789")
    assert max(map(len, parts)) - min(map(len, parts)) == 1
    with pytest.raises(UsageError, match="--filter x: matches none of 10 instances"):
        ids(("x",))


def test_the_longest_come_first() -> None:
    former: Mapping[str, float] = {"a": 1, "b": 3, "c": 2}
    assert [one.instance.id for one in plan([make(name) for name in "abcd"], former)] == ["d", "b", "c", "a"]
    assert [one.instance.id for one in plan([make(name) for name in "dab"])] == ["d", "a", "b"]


def test_options_for_all_replace_those_of_instances() -> None:
    one = make("a", options={"seed": 1, "n_starts": 5}, timeout=10)
    assert override(one, {"seed": 2}, None).options == {"seed": 2, "n_starts": 5}
    assert [override(one, {}, limit).timeout for limit in (None, 5, 20)] == [10, 5, 10]
    assert override(make("a"), {}, None).timeout == 45


def test_a_fingerprint_is_of_content_and_question(tmp_path: Path) -> None:
    def fingerprint(data: bytes, **fields: Any) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        path.write_bytes(data)
        one = Instance(id="a", category="c", model="a", property="", networks={"": str(path)}, **fields)
        return plan([one])[0].fingerprint

    first = fingerprint(b"1")
    assert first == fingerprint(b"1")
    assert len({first, fingerprint(b"2"), fingerprint(b"1", timeout=3), fingerprint(b"1", options={"seed": 1})}) == 4


def test_a_fingerprint_is_of_all_files_that_are_read(tmp_path: Path) -> None:
    m = ModelBuilder("external")
    weights = m.constant(np.ones((2, 2), np.float32), "w")
    m.output(m.MatMul(m.input("x", [1, 2]), weights), [1, 2])
    onnx.save(m.build(), str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    one = make("a", networks={"": str(tmp_path / "m.onnx")}, parameters={"input": str(tmp_path / "x.npy")})
    found = [plan([one])[0].fingerprint]
    for name in ("w.bin", "x.npy"):
        (tmp_path / name).write_bytes(bytes(16))
        found.append(plan([one])[0].fingerprint)
    assert len(set(found)) == 3
    assert plan([one, replace(one, id="b")])[0].fingerprint == found[-1]


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken", b"no model at any location", None])
def test_a_file_that_cannot_be_read_is_the_affair_of_its_instance(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    one = make("a", networks={"": str(path)}, property_path="/dev/zero", parameters={"p": "0.5", "q": "a\0b"})
    assert plan([one])[0].fingerprint


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lists_of_editors_that_mark_byte_orders(tmp_path: Path, end: str) -> None:
    touch(tmp_path, "a b.onnx", "p.vnnlib")
    (tmp_path / "list.csv").write_text(f"\ufeffa b.onnx , p.vnnlib , 5{end}", newline="")
    (tmp_path / "list.toml").write_text(f"\ufeff[[group]]{end}models = '*.onnx'{end}", newline="")
    assert [one.model for name in ("csv", "toml") for one in listed(tmp_path / f"list.{name}")] == ["a b.onnx"] * 2
