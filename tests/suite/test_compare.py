"""Two results compared: ours, those of the competition's tools, and what is expected."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from ranum_falsify.api.instances import replay_claim
from ranum_falsify.errors import UsageError
from ranum_falsify.suite.cactus import cactus_plot
from ranum_falsify.suite.comparison import read_entries, read_times
from ranum_falsify.suite.planning import plan
from tests.cli.workshop import LOG, Workshop
from tests.suite.test_results import make_record

OURS = """acas,onnx/a.onnx,vnnlib/p1.vnnlib,0.1,sat,1.5
acas,onnx/a.onnx,vnnlib/p2.vnnlib,0.1,unsat,2.0
acas,onnx/b.onnx,vnnlib/p1.vnnlib,0.1,timeout,100
acas,onnx/b.onnx,vnnlib/p2.vnnlib,0.1,unsat,1.0
"""
THEIRS = """2023_acas,./benchmarks/acas/onnx/a.onnx,./benchmarks/acas/vnnlib/p1.vnnlib.gz,7.5,unsat,3
2023_acas,./benchmarks/acas/onnx/a.onnx,./benchmarks/acas/vnnlib/p2.vnnlib,7.5,holds,4
2023_acas,./benchmarks/acas/onnx/b.onnx,./benchmarks/acas/vnnlib/p1.vnnlib,7.5,violated,5
2023_acas,./benchmarks/acas/onnx/c.onnx,./benchmarks/acas/vnnlib/p1.vnnlib,7.5,run_instance_timeout,116
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "results.csv", tmp_path / "theirs.csv"
    first.write_text(OURS)
    second.write_text(THEIRS)
    return first, second


def test_disagreements_come_first(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    run = workshop.run("suite", "compare", *pair)
    assert run.status == 1
    lines = run.out.splitlines()
    assert lines[:3] == [
        "disagreements: 1; in each, one of the two is wrong",
        "  acas/a/p1: sat in results.csv (no counterexample at hand), unsat in theirs.csv",
        "3 instances in both; 1 only in results.csv, 1 only in theirs.csv",
    ]
    assert "decided by theirs.csv alone: 1" in lines and "  acas/b/p1: sat" in lines
    assert lines[-1] == "decided by both: 2; theirs.csv takes 2.00 x as long as results.csv (median)"


def test_files_of_a_comparison(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    plot, report = workshop.folder / "cactus.svg", workshop.folder / "compared.json"
    workshop.run("suite", "compare", *pair, "--cactus", plot, "--json", report)
    assert len(ET.parse(plot).findall("{http://www.w3.org/2000/svg}polyline")) == 2
    found = json.loads(report.read_text())
    assert found["disagreements"] == [{"instance": ["acas", "a", "p1"], "statuses": ["sat", "unsat"], "evidence": None}]
    assert found["missing"] == [[["acas", "c", "p1"]], [["acas", "b", "p2"]]]
    assert found["seconds"] == [[1.5, 2.0], [3.0, 4.0, 5.0]]


def test_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "acas").mkdir()
    (tmp_path / "acas" / "expected.csv").write_text(
        "onnx,vnnlib,expected,tools_sat,tools_unsat,alpha_beta_crown_s\nonnx/a.onnx,vnnlib/p1.vnnlib,sat,6,0,7.5\n"
    )
    found = read_entries(tmp_path)
    assert [(key, entry.status, entry.seconds) for key, entry in found.items()] == [(("acas", "a", "p1"), "sat", 7.5)]


def test_records_name_their_counterexamples_and_times(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(make_record("a").line())
    (entry,) = read_entries(path).values()
    assert entry.key == ("tiny", "a", "spec") and entry.status == "sat" and entry.seconds == 1.5
    assert read_times(tmp_path / "results.csv") == {"tiny/a": 1.75}


@pytest.mark.parametrize("text", ["", "a,b,c\n"])
def test_what_holds_no_results(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"holds no results|row 1 has 3 columns"):
        read_entries(path)


@pytest.mark.parametrize("times", [[], [0.0], [1e-9, 5e4], [3.0] * 500])
def test_a_plot_keeps_to_its_frame(times: list[float]) -> None:
    root = ET.fromstring(cactus_plot({"a <b>": times, "c": [1.0]}))
    for line in root.findall("{http://www.w3.org/2000/svg}polyline"):
        for x, y in (point.split(",") for point in (line.get("points") or "").split()):
            assert 0 <= float(x) <= 640 and 0 <= float(y) <= 400


def test_two_results_are_needed(workshop: Workshop, pair: tuple[Path, Path]) -> None:
    assert "takes two results, not 1" in workshop.run("suite", "compare", pair[0]).error
    assert "RESULTS is missing" in workshop.run("suite", "compare").error


def test_a_program_that_a_record_names_is_not_run(workshop: Workshop) -> None:
    prop, marker = workshop.folder / "prop.txt", workshop.folder / "marker"
    prop.write_text(f"open({str(marker)!r}, 'w')\nfrom dnnv.properties import *\nForall(x, Network('N')(x) > 0)\n")
    one = replace(
        make_record("a").instance, networks={"": str(workshop.model(LOG))}, property_path=str(prop), parameters={}
    )
    shown = replay_claim(one, plan([one])[0].fingerprint, workshop.folder / "cex.json")
    assert shown == (None, f"{prop} is a program; run replay if you trust it") and not marker.exists()


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give a results\.jsonl, a results\.csv, or an expected\.csv"):
        read_entries(tmp_path / "none.csv")
