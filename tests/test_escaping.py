"""What makes text from files safe to show."""

import json
import sys

import pytest

from ranum_falsify.escaping import escape, json_text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("scores/log (Log)", "scores/log (Log)"),
        ("größe 日本 \\x1b", "größe 日本 \\x1b"),
        ("\x1b[2Ja\rb\nc\td", "\\x1b[2Ja\\rb\\nc\\td"),
        ("\x00\x7f\x85\x9b", "\\x00\\x7f\\x85\\x9b"),
        ("\u2028\u2029\u202e\u2066\ufeff", "\\u2028\\u2029\\u202e\\u2066\\ufeff"),
        ("\ud800 \udc80", "\\ud800 \\udc80"),
        ("\U000e0041", "\\U000e0041"),
        ("::error::x", "\\x3a:error::x"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("com.microsoft::Gelu", "com.microsoft::Gelu"),
        ("a ##[error]x", "a \\x23#[error]x"),
        ("##vso[task.complete]##teamcity[x]", "\\x23#vso[task.complete]\\x23#teamcity[x]"),
        ("## heading", "## heading"),
        ("section_start:1:x", "\\x73ection_start:1:x"),
        ("--- x", "\\x2d-- x"),
        ("\n::error::x", "\\n::error::x"),
    ],
)
def test_lines(line: str, shown: str) -> None:
    assert escape(line) == shown


def test_every_character_is_printable_afterwards() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = escape(everything)
    assert shown.isprintable()
    assert shown.encode()


def test_json_says_the_same_in_printable_ascii() -> None:
    value = {"\x7f\x1b\n": ["##vso[task.complete]", "\u202e\ud800\x9b", "::error::x", 1.5, None]}
    text = json_text(value)
    assert json.loads(text) == value
    assert text.isascii() and text.replace("\n", "").isprintable()
    assert "##" not in text and not any(line.lstrip().startswith("::") for line in text.split("\n"))
