"""`--dim NAME=LO..HI`: one verdict for all sizes, and which ones differ."""

import json

import pytest

from ranum_falsify.api.sizes import list_sizes
from ranum_falsify.errors import UsageError
from tests.cli.workshop import Workshop

GROWING = """g (float[seq, 2] x) => (float[seq, 2] y) <int64[1] first = {0}, float limit = {LIMIT}> {
    s = Shape(x) n = Gather(s, first) f = Cast<to = 1>(n) d = Sub(limit, f) m = Mul(x, d) [root] y = Sqrt(m)
}"""


def growing(limit: float) -> str:
    """A root that is invalid on positive inputs in sizes above the limit."""
    return GROWING.replace("LIMIT", str(limit))


@pytest.mark.parametrize("command", ["check", "property"])
def test_all_sizes_hold(workshop: Workshop, command: str) -> None:
    model = growing(9.5)
    if command == "check":
        run = workshop.run("check", workshop.model(model), "--box", "0", "1", "--dim", "seq=1..4")
    else:
        run = workshop.falsify("--prop.lb=0", "--dim", "seq=1..4", model=model)
    assert (run.status, run.err) == (0, "")
    first = run.out.splitlines()[0]
    assert first.startswith("holds for onnxruntime") and first.endswith(", for seq = 1..4")
    assert "seq = 4" not in run.out and "taken as 1" not in run.out


def test_the_size_that_fails_is_named(workshop: Workshop) -> None:
    path = workshop.folder / "report.json"
    run = workshop.run("check", workshop.model(growing(3.5)), "--box", "0", "1", "--dim", "seq=1..4", "--json", path)
    assert run.status == 1
    assert run.out.splitlines()[:2] == [
        "violated",
        "sizes: holds with seq = 1; not looked at with seq = 2..3; violated with seq = 4",
    ]
    assert "seq = 4" in next(line for line in run.out.splitlines() if line.startswith("box:"))
    report = json.loads(path.read_text())
    assert report["sizes"][0] == {"dims": {"seq": 1}, "verdict": "holds"}
    assert [one["verdict"] for one in report["sizes"]] == ["holds", None, None, "violated"]
    assert report["assumptions"]["dims"] == {"N": {"seq": 4}}


def test_what_remains_open_is_named(workshop: Workshop) -> None:
    arguments = ("--box", "0", "1", "--dim", "seq=1..3", "--n_starts", "0")
    run = workshop.run("check", workshop.model(growing(2.5)), *arguments)
    assert run.status == 3
    assert run.out.splitlines()[:2] == [
        "unknown for onnxruntime, for seq = 1..3",
        "sizes: holds with seq = 1..2; unknown with seq = 3",
    ]


def test_every_combination_the_extreme_ones_first() -> None:
    sizes = list_sizes({"batch": 2, "seq": range(1, 4), "width": range(5, 7)})
    assert [(one["seq"], one["width"]) for one in sizes] == [(1, 5), (1, 6), (3, 5), (3, 6), (2, 5), (2, 6)]
    assert all(one["batch"] == 2 for one in sizes)
    with pytest.raises(UsageError, match="1,024 combinations of sizes, more than 1,000"):
        list_sizes({"a": range(1, 33), "b": range(1, 33)})


@pytest.mark.parametrize("wrong", ["seq=4..1", "seq=0..2", "seq=1..", "seq=a..b"])
def test_wrong_ranges_end_in_one_line(workshop: Workshop, wrong: str) -> None:
    assert "--dim" in workshop.run("check", workshop.model(growing(1.5)), "--dim", wrong).error
