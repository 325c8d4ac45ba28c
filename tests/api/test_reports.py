"""Results in the forms that other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

import ranum_falsify as rf


class Logarithm(nn.Module):
    """The logarithm of what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


def test_a_result_is_a_page_a_test_report_and_a_log(repository: Path) -> None:
    path = repository / "networks" / "log_mel.onnx"
    result = rf.check(path, box=(-1, 1), n_starts=5, self_check=False)
    assert result.to_html().startswith("<!doctype html>") and 'id="details-0"' in result.to_html()
    cases = ElementTree.fromstring(result.to_junit()).findall(".//testcase")
    assert len(cases) == len(result.operators) and sum(case.find("failure") is not None for case in cases) == 1
    (run,) = json.loads(result.to_sarif())["runs"]
    assert [one["ruleId"] for one in run["results"]]


def test_a_finding_in_a_module_is_at_its_line() -> None:
    result = rf.check(Logarithm(), (torch.ones(2),), box=(-1, 1), n_starts=5, self_check=False)
    (run,) = json.loads(result.to_sarif())["runs"]
    (place,) = run["results"][0]["locations"]
    physical = place["physicalLocation"]
    assert physical["artifactLocation"]["uri"].endswith("test_reports.py")
    line = Path(__file__).read_text().splitlines()[physical["region"]["startLine"] - 1]
    assert "torch.log(x)" in line


@pytest.mark.slow
def test_a_file_keeps_the_lines_that_the_exporter_notes(tmp_path: Path) -> None:
    path = tmp_path / "logarithm.onnx"
    torch.onnx.export(Logarithm(), (torch.ones(2),), path, dynamo=True, verbose=False)
    result = rf.check(path, box=(-1, 1), n_starts=5, self_check=False)
    (operator,) = result.operators
    assert operator.source is not None and operator.source.file == __file__
    assert operator.source.code == "return torch.log(x)"
