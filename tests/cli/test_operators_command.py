"""The table of operators comes from the registry, and the documentation holds it."""

import json
from pathlib import Path

from ranum_falsify.cli.operators import markdown_table, rows
from ranum_falsify.network import list_supported
from tests.cli.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_operator_has_a_line(workshop: Workshop) -> None:
    run = workshop.run("operators")
    assert (run.status, run.err) == (0, "")
    names = [line.split()[0] for line in run.out.splitlines()[1:] if not line.startswith(" ")]
    assert len(names) == len(rows()) and {"Add", "Log", "Softmax", "LSTM"} <= set(names)
    assert {row.name for row in rows()} <= {spec.op_type for spec in list_supported()}


def test_conditions_in_words(workshop: Workshop) -> None:
    out = workshop.run("operators").out
    assert "x > 0 (else: logarithm of a non-positive number)" in out
    assert "random: results differ from run to run" in out


def test_json_has_the_same_rows(workshop: Workshop) -> None:
    table = json.loads(workshop.run("operators", "--json").out)
    assert [row["name"] for row in table] == [row.name for row in rows()]
    (log,) = [row for row in table if row["name"] == "Log"]
    assert log["domain"] == "ai.onnx" and log["opsets"] == [7, None] and not log["random"]
    assert log["constraints"] == [{"condition": "x > 0", "reason": "logarithm of a non-positive number"}]


def test_opsets_end_where_an_operator_was_retired() -> None:
    spans = {row.name: row.opsets for row in rows() if row.domain == "ai.onnx"}
    assert spans["Upsample"] == (7, 9)
    assert spans["Gelu"] == (20, None)


def test_markdown_is_one_row_per_operator_and_escaped(workshop: Workshop) -> None:
    out = workshop.run("operators", "--markdown").out
    lines = out.splitlines()
    assert out == markdown_table() + "\n"
    assert len(lines) == len(rows()) + 2
    assert all(line.replace("\\|", "").count("|") == 4 for line in lines)


def test_the_documentation_holds_the_table() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert markdown_table() in page, "paste the output of: python -m ranum_falsify operators --markdown"
