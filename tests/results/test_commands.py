"""The commands that ask the same again are commands of this program, and ask the same."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from ranum_falsify.cli.front import parse
from ranum_falsify.cli.options.models import ReplayOptions
from ranum_falsify.cli.options.questions import CheckOptions, FalsifyOptions
from ranum_falsify.results.commands import commands_of
from ranum_falsify.results.run_report import report_of
from tests.results.records import make_operator, make_record, make_report


def commands(report: dict[str, Any] | None, files: dict[str, str] | None = None, **instance: Any) -> list[Any]:
    record = make_record("a b", report, status="sat", files=files or {})
    record = dataclasses.replace(record, instance=dataclasses.replace(record.instance, **instance))
    words = [shlex.split(command) for command in commands_of(record, report_of(record))]
    assert all(first == "ranum-falsify" for first, *_ in words)
    return [parse(rest).options for _, *rest in words]


def test_a_property_file() -> None:
    grounds = make_report()["assumptions"] | {"dims": {"N": {"batch": 3, "time": 1}}, "assumed_dims": {"time": 1}}
    report = make_report(make_operator(), assumptions=grounds, seed=7)
    instance = {"property_path": "my prop.txt", "vnnlib": True, "parameters": {"lb": "-1"}, "networks": {"": "-m.onnx"}}
    (asked, again) = commands(report, {"description": "cex/a.json"}, **instance, timeout=2.5)
    assert isinstance(asked, FalsifyOptions)
    assert (str(asked.property_path), asked.vnnlib, asked.parameters) == ("my prop.txt", True, {"lb": "-1"})
    assert {name: str(path) for name, path in asked.networks.items()} == {"N": "-m.onnx"}
    assert (asked.dims, asked.seed, asked.timeout) == ({"batch": 3}, 7, 2.5)
    assert isinstance(again, ReplayOptions)


def test_a_box() -> None:
    (asked,) = commands(make_report(make_operator()), question={"only": ["Log"], "gradient": True})
    assert isinstance(asked, CheckOptions)
    assert (asked.models, asked.only, asked.gradient) == ((Path("a b.onnx"),), ("Log",), True)
    assert asked.box == {"x": (-1, 1)}


def test_passes_come_first_and_the_counterexample_is_of_what_they_make() -> None:
    before = {"path": "a b.onnx", "sha256": "1" * 64, "external_data": {}}
    grounds = make_report()["assumptions"] | {"rewritten": {"N": {"passes": ["one", "two=3"], "before": before}}}
    report = make_report(make_operator(), assumptions=grounds)
    for question in ({}, {"passes": ["one", "two=3"]}):
        asked, again = commands(report, {"description": "cex/a.json"}, question=question)
        assert isinstance(asked, CheckOptions) and isinstance(again, ReplayOptions)
        assert (asked.models, asked.passes) == ((Path("a b.onnx"),), ("one", "two=3"))
        assert again.networks == {"N": Path("cex/a.onnx")}
    (asked,) = commands(None, question={"passes": ["one"]})
    assert isinstance(asked, CheckOptions) and asked.passes == ("one",)


def test_an_instance_without_a_report() -> None:
    (asked,) = commands(None, property_path="p.vnnlib", networks={"": "m.onnx"})
    assert isinstance(asked, FalsifyOptions)
