"""The page `benchmarks/clips.md`, written from what `bench_fix.py` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["page"]

_HEAD = """# Clips of {count} real defects

`scripts/bench_fix.py` narrows the ranges of inputs and weights of the [zoo](../docs/zoo.md)'s programs until all
operators of a program are proved valid at once, as [Repairs](../docs/repairs.md#clips) says, and writes this page from
`clips.json`.

| may be narrowed | proved | seconds of processor time |
|---|---|---|
{rows}

| may be narrowed | of a tensor | mean shrinkage | over ranges alone | programs with a tensor shrunk by more than 99 % |
|---|---|---|---|---|
{shrinkage}

In parentheses, from `published.json`: {source}.

Programs count once for each of their defects, as RANUM counts them.

- **Proved**: by the ordinary prover, over the narrowed ranges, for ONNX Runtime and PyTorch, as in any other verdict.
- **Seconds**: the search with its proofs, one thread; building and reading the models takes {prepare:.1f} s more.
  {machine}. {versions}.
- **Shrinkage** of an element: 1 - kept width / original width, from 0 (all is kept) to 1 (a single number is left).
  That of a tensor is the *mean* over its elements, as RANUM's program computes it, or that of the *least element*,
  which keeps the smallest share. RANUM narrows all elements of a tensor alike, so that its figures are both. Here a
  tensor may keep all of one half and next to nothing of the other, with a mean of about 0.5.
- *Mean shrinkage*: over all tensors that no node computes, as RANUM's program does it: what may not be narrowed and
  what is constant count as 0. *Over ranges alone*: over the inputs and weights that have a range, of which those that
  keep it, or may not be narrowed, count as 0. Then the mean over programs.

## What differs from RANUM's setting

- Condition: bounds of what the kernels of ONNX Runtime and PyTorch return, with their errors, and of the model as ONNX
  Runtime rewrites it; RANUM asks that operands of Log, Sqrt and divisors be at least 1e-37, in exact arithmetic. So a
  logarithm of 1 - p needs a p that does not round to 1, from a logit of 17 on, where RANUM's needs nothing.
- Ranges: inputs have the plausible ranges of the programs, such as pixels in [0, 1]; RANUM gives every float input
  [-50, 50]. That makes it harder here to narrow inputs alone: where features lie in [1, 6], no box of them contains 0,
  and weights of 10 saturate all the same. *Wide inputs* have RANUM's ranges, and so have the weights of 2a and 2b,
  which it took from trained models: biases within 7.3 of 0. The zoo's biases there start as zeros, range over
  [-10, 10] by the same rule as RANUM's elsewhere, and alone make 1 - p zero in float32.
- Models: in 22, the only program that RANUM narrows at inputs alone and this does not, its exported graph takes the
  reconstruction as a second input. Here it is computed, and overflows whatever the image is.
- RANUM stops at the first success; here ends are moved outward again as far as the proof holds.

## Where inputs alone cannot help

{obstacles}

A proof that an operator fails is one of interval analysis: for these weights, and for random numbers that could be
drawn, whatever the inputs in their ranges are, on ONNX Runtime or on PyTorch. Where a failure was replayed, something
between the inputs and the operator is the same number for all inputs. Such a program has no box of inputs to be found,
not even a single point.

## How much must go

In twelve softmax regressions ({floor}), 784 pixels in [0, 1] meet weights in [-10, 10]. A softmax entry is 0 in
float32 once its logit lies 104 below another. With all pixels 1, two classes' logits come as far apart as the widths of
their weights allow, so the widths of the weights of two classes sum to at most 208 over 784 pixels: on average 0.13 of
20, 0.7 %. The same holds for the pixels alone, whose greatest values sum to at most 5.2 of 784. In 2 and 9, a logarithm
of 1 - p beside that of p keeps logits between about -16 and 17, which leaves still less of the weights. Nobody who
narrows weights alone keeps 1 % in these sixteen defects; where pixels may be narrowed, too, each keeps half, on one
half of the pixels.

With inputs alone, like arithmetic gives the most of the input that any box can keep: {most}. So of the {proved}
defects that are proved with inputs alone, at least {brutal} must shrink a tensor by more than 99 %, and the mean
shrinkage of any method is at least {least:.3f} (here {ours:.3f}). With RANUM's ranges still more must go: 784 pixels in
[-50, 50] keep at most 0.013 %.

"""

_FLOOR = ("3", "10", "19", "20", "21", "25", "30", "45a", "48b", "50", "52", "60")

_MOST_KEPT: Mapping[str, float] = {
    **dict.fromkeys(_FLOOR, 5.2 / 784),
    "4": 2 / 3,
    "12": 15.4 / 784,
    "13": 0.5,
    "18": 70 / 784,
    **dict.fromkeys(("23", "27", "46", "57"), 104 / 120),
    **dict.fromkeys(("32", "34"), 1.2 / 24),
    "37": 5.2 / 10,
    "38": 14.4 / 200,
    **dict.fromkeys(("40", "41", "42"), 8.4 / 200),
    "53": 0.74 / 5,
    "59": 14 / 784,
}
"""The greatest share of the float input that a box of inputs can keep: what keeps the logits of a softmax within 104 of
each other, those of a sigmoid below 17.4, logarithms positive and sums of theirs not 0."""

_PUBLISHED = Path(__file__).resolve().parents[3] / "benchmarks" / "published.json"
_TITLES = {"all": "inputs and weights", "weights": "weights", "inputs": "inputs", "wide inputs": "wide inputs"}


def page(measured: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    published = json.loads(_PUBLISHED.read_text(encoding="utf-8"))["clips"]
    theirs: Mapping[str, Mapping[str, Any]] = published["sets"] | {"wide inputs": published["sets"]["inputs"]}
    models: Sequence[Mapping[str, Any]] = measured["models"]
    names = [name for name in _TITLES if all(name in model["sets"] for model in models)]
    head = _HEAD.format(
        count=sum(len(model["defects"]) for model in models),
        source=published["source"],
        rows="\n".join(_row(name, models, theirs[name]) for name in names),
        shrinkage="\n".join(_shrinkage(name, models, key, theirs[name]) for name in names for key in _OF_TENSOR),
        prepare=sum(model["sets"][names[0]]["prepare_s"] for model in models),
        floor=", ".join(_FLOOR),
        obstacles=_count_obstacles(models),
        **_least_of_inputs(models),
        **measured["facts"],
    )
    return head + "\n".join(line for name in names for line in _table(name, models)).rstrip() + "\n"


def _row(name: str, models: Sequence[Mapping[str, Any]], theirs: Mapping[str, Any]) -> str:
    done = _list_done(name, models)
    defects = sum(len(model["defects"]) for model in models)
    total = sum(model["sets"][name]["cpu_s"] for model in models)
    proved = sum(record["proved"] for record in done)
    return f"| {_TITLES[name]} | {proved} of {defects} ({theirs['proved']}) | {total:.1f} ({theirs['cpu_s']}) |"


def _list_done(name: str, models: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records of one set that have clips, each once for each defect of its model."""
    found = (model["sets"][name] for model in models for _ in model["defects"])
    return [record for record in found if record["clips"] is not None]


def _shrinkage(name: str, models: Sequence[Mapping[str, Any]], key: str, theirs: Mapping[str, Any]) -> str:
    """Return the row about one set, where a clip of a tensor counts by the share that its elements keep."""
    done = _list_done(name, models)
    shares = [[1 - clip[key] for clip in record["clips"]] for record in done]
    means = [_mean([sum(s) / r[count] for s, r in zip(shares, done, strict=True)]) for count in ("starts", "tensors")]
    brutal = sum(max(s, default=0.0) > 0.99 for s in shares)
    beside = [f" ({theirs[one]})" if key == "kept" else "" for one in ("shrinkage", "brutal")]
    cells = f"{means[0]:.3f}{beside[0]} | {means[1]:.3f} | {brutal}{beside[1]}"
    return f"| {_TITLES[name]} | {_OF_TENSOR[key]} | {cells} |"


_OF_TENSOR = {"kept": "mean", "least": "least element"}
"""What the record calls the share of a tensor's ranges that is kept, and what the page does."""


def _count_obstacles(models: Sequence[Mapping[str, Any]]) -> str:
    """Return how many defects have which reason why inputs alone cannot be clipped, as a list."""
    count: dict[str, int] = {}
    for model in models:
        for name in ("inputs", "wide inputs"):
            record = model["sets"].get(name, {"clips": []})
            if record["clips"] is None:
                subject = "the operator " if "`" in record["why"] else ""
                how = f"{_TITLES[name].capitalize()}: {subject}{_kind(record['why'])}"
                count[how] = count.get(how, 0) + len(model["defects"])
    return "\n".join(f"- {how}: {number} defects." for how, number in sorted(count.items()))


def _kind(why: str) -> str:
    return why.split("` ")[-1].replace("on them", "on inputs").replace("they are", "inputs are")


def _least_of_inputs(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what narrowing inputs costs at least, beside what it costs here."""
    found = [(model, model["sets"].get("inputs", {"clips": None})) for model in models]
    done = [(model["id"], record) for model, record in found if record["clips"] is not None for _ in model["defects"]]
    ours = [sum(1 - clip["kept"] for clip in record["clips"]) / record["starts"] for _, record in done]
    least = [(1 - _MOST_KEPT.get(name, 1.0)) / record["starts"] for name, record in done]
    groups: dict[float, list[str]] = {}
    for name, share in _MOST_KEPT.items():
        groups.setdefault(share, []).append(name)
    most = [f"{100 * share:.2g} % in {', '.join(names)}" for share, names in sorted(groups.items())]
    return {
        "proved": len(done),
        "brutal": sum(_MOST_KEPT.get(name, 1.0) < 0.01 for name, _ in done),
        "least": _mean(least),
        "ours": _mean(ours),
        "most": "; ".join(most),
    }


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else 0.0


def _table(name: str, models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"## {_TITLES[name].capitalize()}\n"
    yield "| program | s | kept |"
    yield "|---|---|---|"
    for model in models:
        record = model["sets"][name]
        clips = record["clips"]
        kept = f"none: {record['why']}" if clips is None else "; ".join(map(_clip_text, clips))
        yield f"| {model['id']} {model['program']} | {record['cpu_s']:.2f} | {kept} |"
    yield ""


def _clip_text(clip: Mapping[str, Any]) -> str:
    where = f"[{clip['lower']:.4g}, {clip['upper']:.4g}]" if clip["uniform"] else "by element"
    return f"`{clip['tensor']}` {100 * clip['kept']:.3g} %, {where}"
