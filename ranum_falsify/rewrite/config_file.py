"""Configuration files: YAML that says which passes run and how they are verified."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ranum_falsify.errors import TransformError, reason_of
from ranum_falsify.rewrite.checks.comparing import Tolerance

Files = Sequence[Path] | Mapping[str, Path]
"""Arrays of references: in the model's order, or by name."""


@dataclass(frozen=True, kw_only=True)
class FileConfig:
    """What a configuration file says; paths in it are relative to its folder.

    Attributes:
        imports: Python files that register passes.
        passes: Passes, in order.
        inputs: Reference inputs, .npy files.
        outputs: What must come out of them.
        tolerance: For passes with the guarantee `tolerance`.
        metrics: Least and greatest value by metric.
        providers: ONNX Runtime's execution providers, in order of preference; by default the CPU.
        model_checker: Whether the ONNX checker must accept each model.
        verbose: Whether the report says more.
        checkpoint: Where the model before each pass is written, None for nowhere.
        keep_intermediates: Whether the models before all passes are kept.
    """

    imports: Sequence[Path] = ()
    passes: Sequence[str] = ()
    inputs: Files = ()
    outputs: Files = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    providers: Sequence[str] = ()
    model_checker: bool = True
    verbose: bool = False
    checkpoint: Path | None = None
    keep_intermediates: bool = False


def read_config(path: Path) -> FileConfig:
    """Read a configuration file.

    Raises:
        TransformError: It is missing, is not YAML, or holds what no configuration does.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, _UniqueKeyLoader)
    except OSError as error:
        raise TransformError(f"{path}: cannot be read ({reason_of(error)}); check the path") from error
    except UnicodeDecodeError as error:
        raise TransformError(f"{path}: is not UTF-8 text; give a YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise TransformError(f"{path}: is not YAML ({' '.join(str(error).split())}); repair it") from error
    return _ConfigReader(path).read(content)


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that takes no key twice; YAML forbids it, and others take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, of keys that are all different."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice!r} is there twice", node.start_mark)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


class _ConfigReader:
    """Checks a configuration as it takes it apart; every message names the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, content: Any) -> FileConfig:
        """Return what the file says."""
        fields: dict[str, Any] = {}
        readers: dict[str, Callable[[str, Any], None]] = {
            "imports": lambda key, value: fields.update(imports=self._paths(key, value)),
            "passes": lambda key, value: fields.update(passes=self._texts(key, value)),
            "reference": lambda key, value: fields.update(self._reference(key, value)),
            "verify": lambda key, value: fields.update(self._verify(key, value)),
            "onnxruntime": lambda key, value: fields.update(providers=self._providers(key, value)),
            "model_checker": lambda key, value: fields.update(model_checker=self._flag(key, value)),
            "logging": lambda key, value: fields.update(self._logging(key, value)),
        }
        for key, value in self._section("", content, readers).items():
            readers[key](key, value)
        return FileConfig(**fields)

    def _reference(self, key: str, value: Any) -> dict[str, Any]:
        section = self._section(key, value, ("inp", "out"))
        found = {name: self._files(f"{key}.{name}", entry) for name, entry in section.items()}
        if "out" in found and "inp" not in found:
            self._fail(f"{key}.out", "says what comes out, but nothing says of what; add reference.inp")
        return {"inputs": found.get("inp", ()), "outputs": found.get("out", ())}

    def _verify(self, key: str, value: Any) -> dict[str, Any]:
        section = self._section(key, value, ("tolerance", "metrics"))
        fields: dict[str, Any] = {}
        if "tolerance" in section:
            where = f"{key}.tolerance"
            given = self._section(where, section["tolerance"], ("rtol", "atol", "equal_nan"))
            numbers: dict[str, Any] = {
                name: self._number(f"{where}.{name}", given[name]) for name in ("rtol", "atol") if name in given
            }
            for name, number in numbers.items():
                if not 0 <= number < math.inf:
                    self._fail(
                        f"{where}.{name}", f"is {number:g}; write a number that is neither negative nor infinite"
                    )
            if "equal_nan" in given:
                numbers["equal_nan"] = self._flag(f"{where}.equal_nan", given["equal_nan"])
            fields["tolerance"] = Tolerance(**numbers)
        if "metrics" in section:
            fields["metrics"] = self._metrics(f"{key}.metrics", section["metrics"])
        return fields

    def _metrics(self, key: str, value: Any) -> dict[str, tuple[float, float]]:
        limits = {}
        for name, pair in self._section(key, value, None).items():
            if not (isinstance(pair, list) and len(pair) == 2):
                self._fail(f"{key}.{name}", f"is {pair!r}; write [least, most]")
            least, most = (self._number(f"{key}.{name}", bound) for bound in pair)
            if not least <= most:
                self._fail(f"{key}.{name}", f"allows nothing: {least:g} is more than {most:g}")
            limits[name] = (least, most)
        return limits

    def _providers(self, key: str, value: Any) -> Sequence[str]:
        section = self._section(key, value, ("providers",))
        if "providers" not in section:
            return ()
        import onnxruntime  # takes a while

        names, there = self._texts(f"{key}.providers", section["providers"]), onnxruntime.get_available_providers()
        for name in names:
            if name not in there:
                near = difflib.get_close_matches(name, there, n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(there)}"
                self._fail(f"{key}.providers", f"{name!r} is not available; {meant}")
        return names

    def _logging(self, key: str, value: Any) -> dict[str, Any]:
        section = self._section(key, value, ("verbose", "checkpoint", "keep_intermediates"))
        fields: dict[str, Any] = {}
        for name in ("verbose", "keep_intermediates"):
            if name in section:
                fields[name] = self._flag(f"{key}.{name}", section[name])
        if section.get("checkpoint") not in (None, False):
            fields["checkpoint"] = self._place(f"{key}.checkpoint", section["checkpoint"])
        if fields.get("keep_intermediates") and "checkpoint" not in fields:
            self._fail(f"{key}.keep_intermediates", "needs a place; set logging.checkpoint")
        return fields

    def _section(self, key: str, value: Any, known: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._fail(key, f"is {value!r}; write keys and values, as in `name: value`")
        for name in value:
            if not isinstance(name, str) or (known is not None and name not in known):
                near = difflib.get_close_matches(str(name), list(known or ()), n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known or ())}"
                self._fail(f"{key}.{name}".strip("."), f"is unknown; {meant}")
        return value

    def _files(self, key: str, value: Any) -> Files:
        if isinstance(value, dict):
            return {name: self._place(f"{key}.{name}", path) for name, path in value.items()}
        return self._paths(key, value)

    def _paths(self, key: str, value: Any) -> tuple[Path, ...]:
        return tuple(self._place(key, text) for text in self._texts(key, value))

    def _place(self, key: str, value: Any) -> Path:
        return self._path.parent / self._text(key, value)

    def _texts(self, key: str, value: Any) -> tuple[str, ...]:
        return tuple(self._text(key, one) for one in (value if isinstance(value, list) else [value]))

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            self._fail(key, f"is {value!r}; write a text")
        return value

    def _flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            self._fail(key, f"is {value!r}; write true or false")
        return value

    def _number(self, key: str, value: Any) -> float:
        """Return a number; YAML 1.1 reads 1e-5, without a point, as text."""
        try:
            return (
                float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else float("nan")
            )
        except ValueError:
            return self._fail(key, f"is {value!r}; write a number")

    def _fail(self, key: str, what: str) -> NoReturn:
        raise TransformError(f"{self._path}: {key + ' ' if key else ''}{what}")
