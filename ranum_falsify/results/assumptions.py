"""Assumptions of a verdict, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ranum_falsify.config import ARM64, CUDA, Runtime, library_of
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.messages import show_range
from ranum_falsify.network.tensors import has_one_value, stored_once
from ranum_falsify.properties.problem.problem import InputVariable
from ranum_falsify.results.plain import list_some
from ranum_falsify.verify.prove.assumptions import Assumptions, Library, Rewriting, Sources, library

_MOST_GROUPS = 4
_MOST_NAMES = 4
_MOST_DIMS = 3
_LONGEST_VALUE = 40
_DIGITS = 12
"""Digits of a hash that are shown."""


def scope(runtimes: Sequence[Runtime], *, forward: bool, assumptions: Assumptions | None) -> str:
    """Return what a verdict is about, as its end: ` for torch, on the forward pass, with batch taken as 1`.

    Args:
        runtimes: Runtimes that it names.
        forward: Whether it leaves out that derivatives may be infinite.
        assumptions: What it rests on; ranges, sizes and element types that users did not ask for are named.
    """
    libraries = {} if assumptions is None else {of.runtime: of for of in assumptions.libraries}
    joined = {ARM64[of.runtime] for of in libraries.values() if of.arm64}
    listed = [name for name in runtimes if name not in joined]
    places = {name: _place(name, libraries.get(library_of(name))) for name in listed}
    alike = {place: [name for name in listed if places[name] == place] for place in places.values()}
    named = ", ".join(f"{_join_names(names)}{place}" if place else ", ".join(names) for place, names in alike.items())
    tried = {name: libraries[name] for name in listed if places[name] and name in libraries}
    # What stands against a proof is said of a library where it does not of all.
    against = {of.obstacle for of in tried.values()}
    obstacles = [
        of.obstacle if len(against) == 1 else f"{name}: {of.obstacle}" for name, of in tried.items() if of.obstacle
    ]
    elsewhere = f"; not proved on arm64 ({'; '.join(dict.fromkeys(obstacles))})" if obstacles else ""
    return (
        f"{f' for {named}' if named else ''}{', on the forward pass' if forward else ''}{_conditions(assumptions)}"
        f"{elsewhere}"
    )


def _place(runtime: Runtime, of: Library | None) -> str:
    """Return the processors that a proof is about, as its end; "" where it was tried for those of x86-64 alone."""
    if of is not None and runtime == CUDA and of.cuda:
        return f" ({of.cuda})"
    if of is None or runtime != of.runtime or not (of.arm64 or of.obstacle):
        return ""
    return f" on x86-64{' and arm64' if of.arm64 else ''}"


def _conditions(assumptions: Assumptions | None) -> str:
    if assumptions is None:
        return ""
    sources = assumptions.sources
    passes = () if sources is None else [name for how in sources.rewritten.values() for name in how.passes]
    rewritten = f", of the model after {_join_names(passes)}" if passes else ""
    converted = f", converted to {sources.dtype}" if sources is not None and sources.dtype else ""
    defaults = _list_few(assumptions.default_inputs, "inputs")
    box = f", with the default box of {defaults}" if defaults else ""
    return f"{rewritten}{converted}{box}{_sizes(assumptions.assumed_dims)}"


def _sizes(assumed: Mapping[str, int]) -> str:
    """Return the sizes of symbolic dimensions of which users say nothing, as the end of a sentence."""
    alike = {size: [name for name in assumed if assumed[name] == size] for size in assumed.values()}
    if len(assumed) > _MOST_DIMS and len(alike) > 1:
        return f", with sizes chosen for {len(assumed)} symbolic dimensions"
    parts = [f"{_list_few(names, 'symbolic dimensions')} taken as {size}" for size, names in alike.items()]
    return f", with {_join_names(parts)}" if parts else ""


def _list_few(names: Sequence[str], kind: str) -> str:
    """Return names, or how many they are; "" for none."""
    return "" if not names else _join_names(names) if len(names) <= _MOST_DIMS else f"{len(names)} {kind}"


def as_text(assumptions: Assumptions, *, verbose: bool = False) -> Iterator[str]:
    """Yield what a verdict rests on: the box, the files, the kernels; one line each."""
    yield f"box: {_box(assumptions, verbose=verbose)}"
    if assumptions.sources is not None:
        yield f"of: {_files(assumptions.sources, verbose=verbose)}"
    yield f"kernels: {_kernels(assumptions.libraries)}"


def steep_notice(steep: Sequence[str], *, from_file: bool = True) -> str:
    """Return what users should know where operators in question may have infinite derivatives.

    Args:
        steep: These operators.
        from_file: Whether a property file was given, which can ask for derivatives; else options do.
    """
    how = "no_invalid_input(..., gradient=True) in the property" if from_file else "gradient=True, or --gradient,"
    return f"derivatives may be infinite at {list_some(steep, _MOST_NAMES)}; {how} asks for them"


def describe_replay(networks: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield what the replay of a counterexample rests on: the models, and what ran them."""
    if networks:
        yield f"of: {'; '.join(_models(networks))}"
    yield f"kernels: {_kernels([library('onnxruntime')])}"


def _box(assumptions: Assumptions, *, verbose: bool) -> str:
    groups: dict[str, list[str]] = {}
    for variable in assumptions.inputs:
        groups.setdefault(_range(variable), []).append(variable.name)
    parts = [f"{list_some(names, len(names) if verbose else _MOST_NAMES)} {text}" for text, names in groups.items()]
    if not verbose and len(parts) > _MOST_GROUPS:
        left = sum(map(len, list(groups.values())[_MOST_GROUPS:]))
        parts = [*parts[:_MOST_GROUPS], f"{left} more inputs"]
    if assumptions.is_empty:
        parts = ["empty"]
    parts += _describe_further(assumptions)
    return "; ".join(parts)


def _describe_further(assumptions: Assumptions) -> Iterator[str]:
    sizes = {name: size for dims in assumptions.dims.values() for name, size in dims.items()}
    yield from (f"{name} = {size}" for name, size in sizes.items() if name not in assumptions.assumed_dims)
    if len(assumptions.regions) > 1:
        yield f"{len(assumptions.regions)} boxes in it"
    if (count := len(assumptions.side_conditions)) > 0:
        yield f"{count} side condition{'s' * (count > 1)}"
    own = {variable.dtype.name for variable in assumptions.inputs}
    if not set(assumptions.element_types) <= own:
        yield f"computed in {_join_names(assumptions.element_types)}"


def _range(variable: InputVariable) -> str:
    lower, upper = (stored_once(bound).astype(np.float64) for bound in (variable.lower, variable.upper))
    if not lower.size:
        return f"empty ({variable.dtype.name})"
    low, high = lower.min(), upper.max()
    if variable.dtype.kind in "iu":
        low, high = int(stored_once(variable.lower).min()), int(stored_once(variable.upper).max())
    is_uniform = low == high or (has_one_value(lower) and has_one_value(upper))
    by_element = "" if is_uniform else f", at most {(upper - lower).max():.4g} wide"
    return f"{show_range(low, high)}{by_element} ({variable.dtype.name})"


def _files(sources: Sources, *, verbose: bool) -> str:
    values = [f"{name} = {_value(value)}" for name, value in sources.parameters.items()]
    with_values = f" with {', '.join(values)}" if values else ""
    models = _models(sources.networks, sources.rewritten, verbose=verbose)
    named = [] if sources.property is None else [f"{_file(sources.property, verbose=verbose)}{with_values}"]
    return "; ".join((*named, *models))


def _models(
    networks: Mapping[str, Fingerprint], rewritten: Mapping[str, Rewriting] | None = None, *, verbose: bool = False
) -> Iterator[str]:
    for name, of in networks.items():
        how = (rewritten or {}).get(name)
        if how is None:
            yield f"{name} = {_file(of, verbose=verbose)}"
        else:
            made = replace(of, path=f"after {_join_names(how.passes)}")
            yield f"{name} = {_file(how.before, verbose=verbose)} {_file(made, verbose=verbose)}"


def _file(of: Fingerprint, *, verbose: bool) -> str:
    hashes = [of.sha256, *of.external_data.values()]
    shown = hashes if verbose else [text[:_DIGITS] for text in hashes[:2]]
    more = f" and {len(hashes) - len(shown)} more" if len(shown) < len(hashes) else ""
    return f"{of.path} (sha256 {', '.join(shown)}{more})"


def _value(value: Any) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _kernels(libraries: Sequence[Library]) -> str:
    """Return where proofs hold, and where they do not; the versions alone where there are none."""
    covered = [of for of in libraries if of.covered]
    if not covered:
        return ", ".join(f"{of.runtime} {of.version}" for of in libraries)
    left = [f"{of.runtime} {of.version}" for of in libraries if not of.covered]
    without = [of.runtime for of in covered if not of.arm64]
    if without:
        left.append("arm64" if len(without) == len(covered) else f"{_join_names(without)} on arm64")
    graphics = [f"{of.runtime} on CUDA, {of.cuda}" for of in covered if of.cuda]
    left.append("other GPUs" if graphics else "GPUs")
    named = ", and of ".join([*map(_measured, covered), *graphics])
    return f"as measured of {named}; not of {' or '.join(left)}"


def _measured(of: Library) -> str:
    arm64 = f" and arm64 ({_families(of, of.arm64)})" if of.arm64 else ""
    return f"{of.runtime} {of.version} on x86-64 ({_families(of, of.covered)}){arm64}"


def _families(of: Library, covered: Sequence[tuple[str, str]]) -> str:
    versions = {family: "" if version == of.version else f" of {version}" for family, version in sorted(covered)}
    return ", ".join(f"{family}{version}" for family, version in versions.items())


def _join_names(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
