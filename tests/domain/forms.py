"""Forms of operators against ONNX Runtime: what is checked of one, and what a walk over the forms of a row found."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from ranum_falsify.errors import RanumFalsifyError, is_out_of_memory
from ranum_falsify.verify.prove.analyses import execution_of
from tests.domain.boxes import Box, Feeds, box, is_float, points, recipes
from tests.domain.search import Search, Tally
from tests.domain.subjects import Setting, Subject
from tests.network.building import runs, session
from tests.operators.forms.walk import Form, Slot, Walk
from tests.operators.harness import OperatorCase, model_of

__all__ = ["FormTally", "check_form", "describe", "limit_memory", "walk_forms"]

_MEMORY = 6 << 30
_WRITTEN = Setting(rewritten=False)
_OUTCOMES = ("ran", "refused by ONNX Runtime", "refused by the row")


@dataclass
class FormTally:
    """What was found of some forms.

    Attributes:
        forms: Forms by outcome: `ran` (ONNX Runtime ran it, and the row has it), `refused by ONNX Runtime`, `refused
            by the row` (and run by ONNX Runtime), `too large`, `not a model`.
        slots: The same by slot of the latest change.
        tally: Boxes and samples of those that ran, and the faults.
        refusals: Reasons for which rows refuse what ONNX Runtime runs.
    """

    forms: Counter[str] = field(default_factory=Counter)
    slots: Counter[tuple[Slot, str]] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    refusals: Counter[str] = field(default_factory=Counter)

    def add(self, other: FormTally) -> None:
        """Add another tally to this one."""
        self.forms += other.forms
        self.slots += other.slots
        self.tally.add(other.tally)
        self.refusals += other.refusals


def limit_memory() -> None:
    """Let this process take a few gibibytes at most: extreme sizes ask for any amount."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def describe(form: Form) -> str:
    """Return a form in a line."""
    case, slots = form.case, ", ".join(str(slot) for slot in form.slots)
    inputs = ", ".join("-" if x is None else _operand(x) for x in case.inputs)
    attributes = {name: _short(value) for name, value in case.attributes.items()}
    fixed = "" if case.constants is None else f", constants {sorted(case.constants)}"
    return f"{case.op_type}-{case.domain_opset} ({inputs}) {attributes}{fixed} [{case.name or 'case'}: {slots}]"


def _operand(x: Any) -> str:
    dtype = np.dtype(x.dtype).name
    values = f" = {np.asarray(x).tolist()}" if isinstance(x, np.ndarray) and x.size <= 8 else ""
    return f"{dtype}{list(x.shape)}{values}"


def _short(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value).tolist() if isinstance(value, onnx.TensorProto) else value


def walk_forms(
    cases: Sequence[OperatorCase],
    *,
    seed: int,
    forms: int,
    boxes: int = 2,
    samples: int = 8,
    note: Callable[[Form], None] = lambda form: None,
) -> FormTally:
    """Check the forms of a walk.

    Args:
        cases: Cases of one operator.
        seed: Seed of the walk.
        forms: How many forms.
        boxes: Boxes of each form that runs.
        samples: Points of each box.
        note: Called with each form before it is run: it may end the process.
    """
    rng = np.random.default_rng(seed)
    walk, found = Walk(cases, rng), FormTally()
    for _ in range(forms):
        form = walk.step()
        note(form)
        outcome, tally, reason = check_form(form.case, rng, boxes=boxes, samples=samples)
        found.forms[outcome] += 1
        if form.slots:
            found.slots[form.slots[-1], outcome] += 1
        if reason and outcome == "refused by the row":
            found.refusals[reason] += 1
        if outcome in ("ran", "refused by the row"):
            walk.keep(form)
        tally.faults = [f"{describe(form)}: {fault}" for fault in tally.faults[:1]]
        found.tally.add(tally)
    return found


def check_form(case: OperatorCase, rng: np.random.Generator, *, boxes: int, samples: int) -> tuple[str, Tally, str]:
    """Check the row of a form against ONNX Runtime; return the outcome, what was run, and why the row refuses it."""
    try:
        with np.errstate(all="ignore"):
            model, arrays = model_of(case, case.arrays(int(rng.integers(2**31))))
            model.SerializeToString()
    except (ValueError, TypeError, OverflowError, KeyError):
        return "not a model", Tally(), ""
    feeds = {name: _without_nan(x) for name, x in arrays.items()}
    runs = _runner(model)
    if runs is None or not runs(feeds):
        return "refused by ONNX Runtime", Tally(faults=_accepted_badly(model)), ""
    try:
        subject = Subject(model, strict=True)
    except RanumFalsifyError as error:
        return "refused by the row", Tally(), str(error)
    except Exception as error:
        if is_out_of_memory(error):
            return "too large", Tally(), ""
        return "ran", Tally(faults=[f"reader: {type(error).__name__}: {error}"]), ""
    total = Tally()
    try:
        for number in range(boxes):
            total.add(_check_box(subject, feeds, rng, samples, is_point=number == 0))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return "too large", total, ""
    return "ran", total, ""


def _without_nan(x: Any) -> Any:
    return np.where(np.isnan(x), np.zeros_like(x), x) if is_float(x) else x


def _runner(model: onnx.ModelProto) -> Callable[[Feeds], bool] | None:
    for optimised in (False, True):
        try:
            loaded = session(model, optimised=optimised)
        except Exception:
            continue
        return lambda feeds: runs(loaded, feeds)
    return None


def _accepted_badly(model: onnx.ModelProto) -> list[str]:
    """Return what goes wrong in reading a model that ONNX Runtime refuses."""
    try:
        Subject(model, strict=True)
    except RanumFalsifyError:
        return []
    except Exception as error:
        if is_out_of_memory(error):
            return []
        return [f"reader, of what ONNX Runtime refuses: {type(error).__name__}: {error}"]
    return []


def _check_box(subject: Subject, feeds: Feeds, rng: np.random.Generator, samples: int, *, is_point: bool) -> Tally:
    with np.errstate(all="ignore"):
        bounds = box(feeds, recipes(feeds, rng), rng)
        if is_point:
            bounds = (dict(feeds), dict(feeds))
    try:
        verdict = subject.analyse(*bounds, _WRITTEN)
    except RanumFalsifyError:
        return Tally(boxes=1)
    except Exception as error:
        return Tally(boxes=1, faults=[f"analysis: {type(error).__name__}: {error}"])
    search = Search(subject, verdict, *bounds, rng, _WRITTEN, Tally(boxes=1))
    search.tally.outputs = len(subject.graph.output_names)
    search.tally.proved = len(subject.proved(verdict))
    with np.errstate(all="ignore"):
        for point in points(*bounds, 1 if is_point else samples, rng):
            search.run(point)
        if not (is_point or subject.is_random):
            search.approach(1)
    if any(fault.startswith("onnxruntime-optimised") for fault in search.tally.faults):
        search.tally.faults = _as_rewritten(search, bounds)
    return search.tally


def _as_rewritten(search: Search, bounds: Box) -> list[str]:
    """Return the faults of a search, those of the optimised graph only if the bounds of that graph have them too."""
    faults = [fault for fault in search.tally.faults if not fault.startswith("onnxruntime-optimised")]
    if execution_of(search.subject.graph) is None:
        return search.tally.faults
    verdict = search.subject.analyse(*bounds)
    lower, upper = bounds
    again = Search(search.subject, verdict, lower, upper, search.rng)
    run = search.subject.runtimes["onnxruntime-optimised"]
    for feeds, _ in search.tried:
        try:
            values = run(feeds)
        except Exception:
            continue
        faults += [f"onnxruntime-optimised: {fault}" for fault in again.final_faults(feeds, values)]
    return faults
