"""Verification refuses passes that are broken by hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ranum_falsify.errors import TransformError
from ranum_falsify.rewrite.outcome import PostconditionError, VerificationError
from ranum_falsify.rewrite.registry import register
from tests.rewrite.broken import BROKEN, Broken
from tests.rewrite.transform_kit import transformed

DOCS = (Path(__file__).resolve().parent.parent.parent / "docs" / "transform.md").read_text(encoding="utf-8")
SECONDS = 30.0  # a search ends when it has found something, which takes about one


def refusal(case: Broken, **config: float) -> Exception:
    """What verification says of a broken pass."""
    with pytest.raises((PostconditionError, TransformError)) as caught:
        transformed(case.build(), ["broken"], **{"samples": 64, **case.config, **config})
    return caught.value


@pytest.mark.few(2)
@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_pass_is_refused(case: Broken) -> None:
    register("broken")(case.make)
    by_search = case.stage.startswith("search")
    if by_search:
        done = transformed(case.build(), ["broken"], **{"samples": 64, **case.config})
        assert done.reports[0].verified[-1] == "sampled 64", "samples alone do not find it"
    error = refusal(case, verify_timeout=SECONDS if by_search else 0.0)
    cause = error.__cause__
    if case.stage == "read-only tensors":
        assert "read-only" in str(error)
        return
    assert isinstance(cause, VerificationError)
    assert (cause.inputs is None) == (case.stage == "structure")
    if case.stage in ("search", "samples"):
        assert "not as expected" in str(cause) or "does not run" in str(cause)
    elif case.stage != "structure":
        assert "receives invalid input where the old model receives none" in str(cause)


def test_the_table_says_what_finds_which() -> None:
    counts = Counter(case.stage for case in BROKEN)
    rows = {stage: int(count) for stage, count in re.findall(r"^\| ([a-z -]+?) \| (\d+) \|", DOCS, re.MULTILINE)}
    assert {stage: rows.get(stage) for stage in counts} == dict(counts)
    assert rows["all"] == len(BROKEN) >= 40
