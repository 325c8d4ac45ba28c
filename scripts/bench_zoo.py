#!/usr/bin/env python3
"""Measure results on the zoo's 79 real defects, and on the 14 programs of a fuzzer's study.

Detection, ranges and runtimes, repaired twins, precision, developers' changes, unit tests, random sampling.

Writes benchmarks/zoo.json after every model, continues where it stopped, and writes benchmarks/zoo.md from it.

    scripts/bench_zoo.py
    scripts/bench_zoo.py --only 3 --parts tests --folder /tmp
    scripts/bench_zoo.py --emulate neon neon_fp16 sve     # needs qemu-aarch64 and scripts/make_arm64.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.bench.pages import write_pages
from lab.bench.zoo_changes import changes
from lab.bench.zoo_emulated import emulated
from lab.bench.zoo_records import write
from lab.bench.zoo_runs import detection, precision, ranges, twins, unit_tests
from lab.kernels.emulator import MACHINES
from ranum_falsify.config import ConfirmConfig
from ranum_falsify.errors import RanumFalsifyError
from ranum_falsify.results.plain import versions
from ranum_falsify.zoo.catalogue import FUZZED, MODELS, model_of
from ranum_falsify.zoo.model import ZooModel

_ROOT = Path(__file__).resolve().parent.parent
_PARTS = ("detection", "ranges", "twins", "precision", "developers", "tests", "random")


_ATTEMPTS = 2
"""Seeds from which an open operator is searched, if the first finds nothing."""
_EMULATED, _INPUTS = 3, 100
"""How many counterexamples are replayed on emulated processors, and on how many inputs twins run there."""


def facts(given: argparse.Namespace) -> dict[str, Any]:
    """Return where and how the measurements were made."""
    used = {name: version for name, version in versions().items() if name in ("torch", "onnxruntime", "numpy")}
    return {
        "runs": given.runs,
        "timeout": given.timeout,
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()}), {given.processors} used, no GPU",
        "versions": ", ".join(f"{name} {version}" for name, version in used.items()),
        "command": "scripts/bench_zoo.py",
    }


def entry(model: ZooModel) -> dict[str, Any]:
    """Return a model's record before anything is measured."""
    return {
        "id": model.id,
        "number": model.number,
        "program": model.program,
        "defects": [{"id": d.id, "node": d.node, "operator": d.operator} for d in model.defects],
    }


def choose_models(given: argparse.Namespace) -> tuple[ZooModel, ...]:
    """Return the models to measure.

    Raises:
        ZooError: There is no such model.
    """
    everything = MODELS if given.emulate else (*MODELS, *FUZZED)
    return everything if given.only is None else tuple(dict.fromkeys(model_of(name) for name in given.only))


def measure(model: ZooModel, record: dict[str, Any], given: argparse.Namespace) -> None:
    """Measure those of the requested figures of a model that are not known yet."""
    if "detection" in given.parts and (given.again or "detection" not in record):
        record["detection"] = detection(model, rounds=5, threads=given.processors)
    if "ranges" in given.parts and (given.again or "ranges" not in record):
        record["ranges"] = ranges(model)
    if "twins" in given.parts and (given.again or "twins" not in record):
        record["twins"] = twins(model)
    if "precision" in given.parts and (given.again or "precision" not in record):
        config = ConfirmConfig(runs=_ATTEMPTS, timeout=given.timeout, span=False, processors=given.processors)
        record["precision"] = precision(model, config=config)
        failing = sum(tried["triggered"] or tried["by_hand"] for tried in record["precision"])
        print(f"{model.id} precision: {failing} of {len(record['precision'])} open operators fail", flush=True)
    played = record.get("emulated", {})
    if families := [family for family in given.emulate if given.again or family not in played]:
        nodes = tuple(defect.node for defect in model.defects)
        config = ConfirmConfig(runs=_EMULATED, timeout=given.timeout, nodes=nodes, span=False)
        record["emulated"] = played | emulated(model, families, config=config, inputs=_INPUTS)
        print(f"{model.id} emulated: {record['emulated']}", flush=True)
    for defect, known in zip(model.defects, record["defects"], strict=True):
        is_wanted = "developers" in given.parts and defect.developer_fix is not None
        if is_wanted and (given.again or "developers" not in known):
            known["developers"] = changes(model, defect)
        for part in ("tests", "random"):
            if part in given.parts and (given.again or part not in known):
                config = ConfirmConfig(
                    runs=given.runs,
                    timeout=given.timeout,
                    nodes=(defect.node,),
                    descend=part == "tests",
                    span=part == "tests",
                    processors=given.processors,
                )
                known[part] = unit_tests(model, defect, config=config)
                found = known[part]
                print(
                    f"{defect.id} {part}: {found['triggered']} of {found['runs']} trigger, {found['spans']} spans, "
                    f"{sum(found['seconds']) / len(found['seconds']):.2f} s a run",
                    flush=True,
                )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="ID", help="models or defects; all by default")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument(
        "--emulate",
        nargs="+",
        default=[],
        choices=[family for family, machine in MACHINES.items() if "onnxruntime" in machine.libraries],
        help="families of processors on which ONNX Runtime runs counterexamples and twins; nothing else is measured",
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds of one run's search")
    parser.add_argument("-p", "--processors", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=_ROOT / "benchmarks", help="where zoo.json and zoo.md go")
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    given = parser.parse_args(argv)
    given.parts = [] if given.emulate else given.parts
    try:
        wanted = choose_models(given)
    except RanumFalsifyError as error:
        print(error, file=sys.stderr)
        return 2
    path = given.folder / "zoo.json"
    read = json.loads(path.read_text()) if path.is_file() else {"models": []}
    known = {r["id"]: r for r in (*read["models"], *read.get("fuzzed", ()))}
    for model in wanted:
        record = known.setdefault(model.id, entry(model))
        measure(model, record, given)
        models, fuzzed = ([known[m.id] for m in some if m.id in known] for some in (MODELS, FUZZED))
        write(path, json.dumps({"facts": facts(given), "models": models, "fuzzed": fuzzed}, indent=1) + "\n")
    write_pages(given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
