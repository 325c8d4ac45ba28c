"""Options of the Python API: the fields of the settings of search and proof, flat."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, get_args

from ranum_falsify.config import RUNTIMES, HalfPrecision, ProveConfig, Reach, Runtime, SearchConfig
from ranum_falsify.errors import UsageError
from ranum_falsify.search.search import Progress

__all__ = ["Options", "Settings", "settings_of"]


class Options(TypedDict, total=False):
    """What `falsify`, `prove` and `check` take by keyword.

    Attributes:
        n_starts: Starting points per target, run as one batch; negative for as many as time allows, even where a
            violation is known; None, the default, for batches of 100 as long as nothing is decided.
        n_steps: Descent steps from each start.
        seed: Seed of every random choice.
        timeout: Seconds for reading, proof and search, None for no limit.
        device: torch device, such as `cpu` or `cuda`.
        backend: Attack back ends, tried in order.
        backend_parameters: Settings of back ends, by back end and name.
        reach: Report only violations of this reach, `output` or `masked`; None for all.
        processors: Threads for torch and ONNX Runtime, None for all cores.
        prove: Whether to prove before searching.
        prove_timeout: Seconds for proofs beyond one interval analysis, in their first turn.
        try_rewrites: Whether to say of operators that are not proved which passes of `transform`, equal in real
            arithmetic, would make them so; the verdict stays.
        runtime: The runtimes that the answer is about: `onnxruntime`, `torch`, `exact`, several of them, or None for
            the default. Proofs cover all of them. Violations are those that ONNX Runtime shows; with `torch` alone,
            unless `prove` is False, those that PyTorch shows, and the answer says what ONNX Runtime gives.
        dtype: `float16` or `bfloat16`: treat the networks as if converted to it.
        dims: Sizes of symbolic dimensions of models that are not loaded yet; a range, such as `range(1, 65)`, asks
            about each of its sizes, the extreme ones first, in the time of one run, and the verdict is about all.
        strict: Whether models that are not loaded yet are refused if they have operators that are not supported.
        self_check: Whether the installed kernels are checked before anything is proved.
        progress: Called now and then with how far the run has got.
    """

    n_starts: int | None
    n_steps: int
    seed: int
    timeout: float | None
    device: str
    backend: str | Sequence[str]
    backend_parameters: Mapping[str, Mapping[str, Any]]
    reach: Reach | None
    processors: int | None
    prove: bool
    prove_timeout: float
    try_rewrites: bool
    runtime: Runtime | Sequence[Runtime] | None
    dtype: HalfPrecision | None
    dims: Mapping[str, int | range] | None
    strict: bool
    self_check: bool
    progress: Callable[[Progress], None] | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options that were checked.

    Attributes:
        config: How to prove and search.
        dtype: Half precision that the networks are converted to.
        dims: Sizes of symbolic dimensions.
        strict: Whether operators that are not supported are refused.
        self_check: Whether the installed kernels are checked.
        progress: Called with how far the run has got.
    """

    config: SearchConfig
    dtype: HalfPrecision | None = None
    dims: Mapping[str, int | range] = field(default_factory=dict)
    strict: bool = False
    self_check: bool = True
    progress: Callable[[Progress], None] | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes, each of which must be one.

        Raises:
            UsageError: One is a range.
        """
        ranges = [name for name, size in self.dims.items() if isinstance(size, range)]
        if ranges:
            raise UsageError(f"dims: {ranges[0]!r} is a range, where one size is needed; give a whole number")
        return {name: size for name, size in self.dims.items() if not isinstance(size, range)}


def settings_of(options: Mapping[str, Any], *, runtimes: tuple[Runtime, ...] = RUNTIMES) -> Settings:
    """Return options as settings.

    Args:
        options: The options, as `Options` lists them.
        runtimes: The runtimes that proofs cover where the options name none.

    Raises:
        TypeError: There is no such option.
        UsageError: An option does not take its value.
    """
    for name in options:
        if name not in Options.__annotations__:
            near = difflib.get_close_matches(name, Options.__annotations__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"options: {', '.join(Options.__annotations__)}"
            raise TypeError(f"there is no option {name!r}; {hint}")
    given = dict(options)
    others: dict[str, Any] = {name: given.pop(name) for name in ("strict", "self_check", "progress") if name in given}
    dims = given.pop("dims", None) or {}
    dtype = given.pop("dtype", None)
    if dtype is not None and dtype not in get_args(HalfPrecision):
        raise UsageError(f"dtype={dtype!r}: is not half precision; give one of {', '.join(get_args(HalfPrecision))}")
    config = SearchConfig(prove=_prove_config(given, runtimes), **_search_fields(given))
    return Settings(config=config, dtype=dtype, dims=dict(dims), **others)


def _prove_config(given: dict[str, Any], runtimes: tuple[Runtime, ...]) -> ProveConfig | None:
    chosen, seconds = given.pop("runtime", None), given.pop("prove_timeout", ProveConfig().timeout)
    if chosen is not None:
        names = (chosen,) if isinstance(chosen, str) else tuple(chosen)
        for name in names:
            if name not in RUNTIMES:
                raise UsageError(f"runtime={name!r}: is unknown; {', '.join(RUNTIMES)} exist")
        runtimes = tuple(runtime for runtime in RUNTIMES if runtime in names)
    _check_number("prove_timeout", seconds, 0)
    rewrites = bool(given.pop("try_rewrites", False))
    if not given.pop("prove", True):
        return None
    return ProveConfig(timeout=seconds, runtimes=runtimes, try_rewrites=rewrites)


def _search_fields(given: dict[str, Any]) -> dict[str, Any]:
    for name, least in (("n_starts", None), ("n_steps", 0), ("seed", 0), ("processors", 1)):
        value = given.get(name)
        if value is not None or (name in ("n_steps", "seed") and name in given):
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name}={value!r}: is not a whole number; give an integer")
            _check_number(name, value, least)
    if given.get("timeout") is not None:
        _check_number("timeout", given["timeout"], 0)
        given["timeout"] = None if math.isinf(given["timeout"]) else float(given["timeout"])
    if given.get("reach") not in (None, *get_args(Reach)):
        raise UsageError(f"reach={given['reach']!r}: is unknown; give one of {', '.join(get_args(Reach))}")
    backend = given.pop("backend", SearchConfig().backend)
    given["backend"] = (backend,) if isinstance(backend, str) else tuple(backend)
    given["parameters"] = given.pop("backend_parameters", {})
    return given


def _check_number(name: str, value: Any, least: float | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name}={value!r}: is not a number; give one")
    if least is not None and value < least:
        raise UsageError(f"{name}={value!r}: is out of range; at least {least:g} is needed")
