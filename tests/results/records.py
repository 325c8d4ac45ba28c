"""Results of instances, made by hand."""

from collections.abc import Mapping
from typing import Any

from ranum_falsify.suite.record import Instance, InstanceRecord, Status

__all__ = ["HOSTILE", "make_operator", "make_record", "make_report"]

HOSTILE = "</script><script>alert('x')</script> {0} ]]> [a](http://x) \x1b[31m \u202e &amp; '\" \ud800"
"""A name that is markup, a placeholder, a link, control characters, and a lone surrogate."""


def make_operator(node: str = "logarithm", verdict: str = "violated", **facts: Any) -> dict[str, Any]:
    """An operator of a JSON report."""
    return {
        "node": node,
        "op_type": "Log",
        "network": "N",
        "verdict": verdict,
        "runtimes": ["onnxruntime"],
        "constraint": "x > 0",
        "reason": "logarithm of a non-positive number",
        "kind": "nan" if verdict == "violated" else None,
        "operands": {"x": [-1.0, "inf"]} if verdict == "violated" else {},
        "after": [],
        "inside": [],
        "rewritten": False,
        "reach": "output" if verdict == "violated" else None,
        "optimisations": None,
        "fused": "",
        "source": None,
        "gradients": [],
        "proved_after_rewriting": [],
        "counterexample": None,
    } | facts


def make_report(*operators: Mapping[str, Any], model: str = "a/model.onnx", **facts: Any) -> dict[str, Any]:
    """A JSON report of operators."""
    verdicts = {operator["verdict"] for operator in operators}
    verdict = "violated" if "violated" in verdicts else "unknown" if "open" in verdicts else "holds"
    return {
        "format": 1,
        "verdict": verdict,
        "runtimes": ["onnxruntime"],
        "operators": list(operators),
        "counterexample": None,
        "seconds": {"read": 0.1, "reduce": 0.0, "prove": 0.2, "search": 0.3, "replay": 0.0},
        "seed": 0,
        "starts": 10,
        "steps": 20,
        "ended_early": None,
        "steep": [],
        "notices": [],
        "unconfirmed": [],
        "assumptions": {
            "property": None,
            "parameters": {},
            "networks": {"N": {"path": model, "sha256": "0" * 64, "external_data": {}}},
            "dtype": None,
            "default_inputs": [],
            "inputs": [{"name": "x", "shape": [1, 2], "dtype": "float32", "lower": -1.0, "upper": 1.0}],
            "empty": False,
            "regions": [],
            "side_conditions": [],
            "dims": {},
            "assumed_dims": {},
            "element_types": ["float32"],
            "libraries": {},
        },
        "versions": {"ranum-falsify": "0.1.0"},
        "float32": None,
    } | facts


def make_record(
    name: str = "a", report: Mapping[str, Any] | None = None, *, status: Status | None = None, **facts: Any
) -> InstanceRecord:
    """What an instance came to; its status is that of its report."""
    by_verdict: Mapping[str, Status] = {"violated": "sat", "holds": "unsat", "unknown": "unknown"}
    found = status or ("error" if report is None else by_verdict[report["verdict"]])
    instance = Instance(
        id=f"tiny {name}", category="tiny", model=f"{name}.onnx", property="", networks={"N": f"{name}.onnx"}
    )
    values: dict[str, Any] = {"instance": instance, "fingerprint": "", "status": found, "preparation": 0.1}
    values |= {"seconds": 0.5, "files": {}, "report": report, "error": "it broke" if found == "error" else ""}
    return InstanceRecord(**(values | facts))
