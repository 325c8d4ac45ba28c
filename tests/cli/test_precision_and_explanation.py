"""`--dtype` asks of converted networks and says what must stay in float32; `--explain` says where bounds come from."""

import json

import pytest

from tests.cli.workshop import Workshop

SQUARES = """g (float[1, 2] x) => (float[1, 2] y) <float[1] hundred = {100.0}> {
    [scale] a = Mul(x, hundred)
    [square] b = Mul(a, a)
    [root] c = Sqrt(b)
    [shrink] y = Div(c, hundred)
}"""
BOX = ("--prop.lb=-4", "--prop.ub=4", "--prove-timeout=3")


def test_a_network_that_holds_in_float32_is_violated_in_float16_and_replays(workshop: Workshop) -> None:
    assert workshop.falsify(*BOX, model=SQUARES).status == 0
    saved = workshop.folder / "cex.npy"
    run = workshop.falsify(*BOX, "--dtype", "float16", "--save-violation", str(saved), model=SQUARES)
    assert (run.status, run.err) == (1, "")
    assert "  square (Mul) gives infinity\n" in run.out
    assert run.out.endswith('2 nodes to keep (proved minimal): node_block_list = ["square", "root"]\n')
    again = workshop.run("replay", str(saved), "-N", "N", str(workshop.folder / "model.onnx"))
    assert again.status == 1
    assert "square (Mul) gives infinity" in again.out


def test_what_stays_in_range_needs_no_float32(workshop: Workshop) -> None:
    run = workshop.falsify("--prop.lb=-1", "--prop.ub=1", "--dtype", "bfloat16", model=SQUARES)
    assert run.status == 0
    assert run.out.endswith("float32: no node needs to stay in float32\n")


def test_json_holds_the_list(workshop: Workshop) -> None:
    run = workshop.falsify(*BOX, "--dtype", "float16", "--json", "-", model=SQUARES)
    kept = json.loads(run.out)["float32"]
    assert [entry["node"] for entry in kept["node_block_list"]] == ["square", "root"]
    assert kept["minimal"] is True
    assert kept["open_regardless"] == []


def test_explanation_names_the_chain_and_does_not_search(workshop: Workshop) -> None:
    run = workshop.falsify(*BOX, "--explain", "root", model=SQUARES)
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0] == "N: root (Sqrt)"
    assert lines[1] == "  x in [0, 160000], through 3 operators"
    assert "width x 200" in lines[2] and "square (Mul)" in lines[2]
    assert lines[-1].strip().startswith("input") and "x in [-4, 4]" in lines[-1]


@pytest.mark.parametrize("wrong", [("--explain", "nothing"), ("--dtype", "float8")])
def test_bad_values_end_in_one_line(workshop: Workshop, wrong: tuple[str, str]) -> None:
    assert wrong[1] in workshop.falsify(*BOX, *wrong, model=SQUARES).error
