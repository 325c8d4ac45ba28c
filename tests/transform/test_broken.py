"""Verification refuses passes that are broken by hand."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ranum_falsify.errors import TransformError
from ranum_falsify.transform.outcome import PostconditionError
from ranum_falsify.transform.registry import register
from tests.transform.broken import BROKEN, Broken
from tests.transform.transform_kit import transformed

DOCS = (Path(__file__).resolve().parent.parent.parent / "docs" / "transform.md").read_text(encoding="utf-8")
SECONDS = 30.0  # a search ends when it has found something, which takes about one


def refusal(case: Broken, **config: float) -> Exception:
    """What verification says of a broken pass."""
    register("broken")(case.make)
    with pytest.raises((PostconditionError, TransformError)) as caught:
        transformed(case.build(), ["broken"], **{"samples": 64, **case.config, **config})
    return caught.value


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_pass_is_refused_and_the_text_says_why(case: Broken) -> None:
    if case.stage in ("search", "search for invalid input"):
        register("broken")(case.make)
        done = transformed(case.build(), ["broken"], **{"samples": 64, **case.config})
        assert done.reports[0].verified[-1] == "sampled 64", "samples alone do not find it"
        with pytest.raises(PostconditionError) as caught:
            transformed(case.build(), ["broken"], **{"samples": 64, **case.config, "verify_timeout": SECONDS})
        error: Exception = caught.value
    else:
        error = refusal(case)
    assert re.search(case.said, str(error.__cause__ or error))


def test_the_table_says_what_finds_which() -> None:
    counts = Counter(case.stage for case in BROKEN)
    rows = dict(re.findall(r"^\| ([a-z, ]+?) \| (\d+) \|$", DOCS, re.MULTILINE))
    assert {stage: int(rows[stage]) for stage in counts} == dict(counts)
    assert int(rows["all"]) == len(BROKEN) >= 40
