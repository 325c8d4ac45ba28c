"""DNNF's attacks by name: checks, before a run, that they are available and that their settings fit."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ranum_falsify import upstream
from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import BackendError

_OWN = ("pgd", "newton")
_CLEVERHANS = (
    "carlini_wagner_l2",
    "fast_gradient_method",
    "hop_skip_jump_attack",
    "projected_gradient_descent",
    "spsa",
)
_IMPORTED = {"foolbox": ("foolbox",), "cleverhans": tuple(f"cleverhans.torch.attacks.{name}" for name in _CLEVERHANS)}
"""What DNNF imports from each package; if one import fails, it goes without the package and does not say why."""

_LEAST = {"n_starts": -1, "n_steps": 0}
"""Settings that are DNNF's own, all whole numbers, with the least value of each."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One of DNNF's back ends, ready to run.

    Attributes:
        name: The name that `--backend` takes.
        method: Function of DNNF that attacks a model once.
        variant: Attack of the package, None for an attack of DNNF itself.
        settings: Parameters that it takes, and whether each must be given.
    """

    name: str
    method: Callable[..., Any]
    variant: str | None
    settings: Mapping[str, bool]

    def check(self, given: Mapping[str, Any]) -> None:
        """Check settings against what the attack takes.

        Raises:
            BackendError: One is unknown, missing, or not an allowed number.
        """
        for name in given:
            if name not in self.settings:
                has = ", ".join(self.settings)
                raise BackendError(f"--set {self.name} {name}: {self.name} has no such parameter; it has {has}")
        for name, needed in self.settings.items():
            if needed and name not in given:
                raise BackendError(f"--backend {self.name}: needs a value; give --set {self.name} {name} VALUE")
        for name, least in _LEAST.items():
            value = given.get(name, least)
            if name in self.settings and (type(value) is not int or value < least):
                raise BackendError(
                    f"--set {self.name} {name}: {value!r} is not a whole number of at least {least}; give one"
                )


def check_backends(config: SearchConfig) -> None:
    """Check that every back end of a run exists and accepts the settings it is given.

    Raises:
        BackendError: There is no such back end, its package is not installed, or a setting does not fit.
    """
    for name in config.backends:
        if name != "pgd":
            attack_of(name).check(config.backend_parameters.get(name, {}))


def attack_of(name: str) -> Attack:
    """Return a back end by its name: `dnnf.pgd`, `dnnf.newton`, `foolbox.X`, `cleverhans.X`.

    Raises:
        BackendError: There is none, or its package is not installed.
    """
    package, _, variant = name.partition(".")
    if package == "dnnf" and variant in _OWN:
        method = getattr(upstream.load("dnnf.falsifier"), variant)
        return Attack(name=name, method=method, variant=None, settings=dict.fromkeys(_LEAST, False))
    if package not in _IMPORTED or not variant:
        raise BackendError(
            f"--backend {name}: no such back end; use pgd, dnnf.pgd, dnnf.newton, foolbox.X or cleverhans.X"
        )
    _require(name, package)
    function = _attack_of_package(package, variant)
    if function is None:
        near = difflib.get_close_matches(variant, _names(package), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise BackendError(f"--backend {name}: {package} has no such attack; {hint}--long-help lists those that exist")
    method = getattr(upstream.load("dnnf.falsifier"), package)
    return Attack(name=name, method=method, variant=variant, settings=_settings(package, function))


def available() -> Iterator[str]:
    """Yield a line for each attack that is available here, with its other names, and for each missing package."""
    yield from ("pgd", "dnnf.pgd", "dnnf.newton")
    for package in _IMPORTED:
        try:
            _require(f"{package}.NAME", package)
        except BackendError as error:
            yield str(error).removeprefix("--backend ")
            continue
        choices = upstream.load("dnnf.backends").get_backend_choices(group_equivalent=True)
        yield from (line for line in choices if line.startswith(f"{package}."))


def _require(name: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise BackendError(f"--backend {name}: {package} is not installed; run: pip install {package}")
    for module in _IMPORTED[package]:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise BackendError(
                f"--backend {name}: {package} is installed but cannot be imported ({error}); install what it needs"
            ) from error


def _attack_of_package(package: str, variant: str) -> Callable[..., Any] | None:
    if variant not in _names(package):
        return None
    backends = upstream.load("dnnf.backends")
    found: Callable[..., Any] = (
        backends.cleverhans_backend[variant]
        if package == "cleverhans"
        else getattr(backends.foolbox_backend.attacks, variant)
    )
    return found


def _names(package: str) -> list[str]:
    backends = upstream.load("dnnf.backends")
    if package == "cleverhans":
        return list(backends.cleverhans_backend)
    return [name for names in backends.foolbox_attacks.values() for name in names]


def _settings(package: str, function: Callable[..., Any]) -> dict[str, bool]:
    """Return the parameters of an attack, without the model and the first point (CleverHans), which DNNF gives."""
    parameters = list(inspect.signature(function).parameters.values())[2 if package == "cleverhans" else 0 :]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {"n_starts": False, **{p.name: p.default is p.empty for p in named}}
