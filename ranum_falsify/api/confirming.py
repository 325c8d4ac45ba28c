"""`confirm`: unit tests for the operators of a property that are not proved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ranum_falsify.api.entry_points import map_models, or_of_module
from ranum_falsify.api.loading import load
from ranum_falsify.api.making_tests import UnitTestGenerator
from ranum_falsify.api.models import ModelLike
from ranum_falsify.api.module_tests import confirm_module
from ranum_falsify.api.plain_torch import PlainTorch
from ranum_falsify.api.properties import PropertyLike, property_of
from ranum_falsify.config import ConfirmConfig, HalfPrecision
from ranum_falsify.errors import UsageError
from ranum_falsify.escaping import escape, json_text
from ranum_falsify.results.confirm_report import TestedOperator, lines, summary
from ranum_falsify.results.progress import FollowLike, follow
from ranum_falsify.saving import Content, make_folder, save_together
from ranum_falsify.witness.unit_test import write_arrays


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitTests:
    """Unit tests, with the operators that they trigger.

    Attributes:
        operators: The operators that one interval analysis does not prove, with their runs: `tests` of each holds the
            arrays, and the box in every point of which it is proved to be invalid, as `span`.
        generator: What made them.
        seconds: Time of all.
    """

    operators: Sequence[TestedOperator]
    generator: UnitTestGenerator
    seconds: float

    @property
    def untested(self) -> tuple[str, ...]:
        """Operators that are neither proved nor tested."""
        return self.generator.standing.untested

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know, one sentence each."""
        return self.generator.standing.notices

    def write(self, folder: str | Path) -> Path | None:
        """Write the tests as files that need NumPy, ONNX Runtime and pytest only, with `confirm.json`.

        Args:
            folder: Where they go; made where its parent exists.

        Returns:
            The pytest file; None where there are no tests.

        Raises:
            SaveError: They cannot be written; then none is.
        """
        place = make_folder(folder)
        tests: dict[str, Content] = {
            name: partial(_write, arrays) for name, arrays in self.generator.name_files().items()
        }
        test_file, common = self.generator.make_common_files()
        report = self.generator.report(test_file, sorted(common.keys() - {test_file}), self.seconds)
        contents: dict[str, Content] = {**tests, **common, "confirm.json": json_text(report).encode()}
        save_together({place / name: content for name, content in contents.items()})
        return None if test_file is None else place / test_file

    def to_json(self) -> dict[str, Any]:
        """Return the report as the command's `confirm.json` has it; docs/json.md explains it."""
        return self.generator.report(None, (), self.seconds)

    def report(self, *, verbosity: int = 0) -> str:
        """Return the report as the command shows it."""
        return "\n".join(map(escape, self._lines(verbosity)))

    def _lines(self, verbosity: int) -> Iterator[str]:
        several = len({operator.network for operator in self.operators}) > 1
        for operator in self.operators if verbosity >= 0 else ():
            yield from lines(operator, several=several, verbosity=verbosity)
        yield summary(self.operators, self.generator.standing)
        yield from self.generator.standing.lines(verbose=verbosity > 0)

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        return self.report(verbosity=-1)


@PlainTorch()
@or_of_module(confirm_module)
def confirm(
    model: ModelLike | Mapping[str, ModelLike],
    property: PropertyLike,
    *,
    runs: int = 10,
    seed: int = 0,
    timeout: float = 10.0,
    nodes: Sequence[str] | None = None,
    span: bool = True,
    device: str = "cpu",
    processors: int | None = None,
    dtype: HalfPrecision | None = None,
    dims: Mapping[str, int] | None = None,
    self_check: bool = True,
    progress: FollowLike = None,
) -> UnitTests:
    """Make unit tests for the operators that one interval analysis of a property does not prove.

    Of a PyTorch module, `confirm(module, args, **options)` with what `check` takes returns `ModuleTests`: tests that
    call the module, and are red until it is mended.

    Args:
        model: The model of the property's only network, or models by the names that it gives its networks.
        property: A loaded property, a path, or a text; it asks for valid operands.
        runs: Tests per operator, each from a seed of its own.
        seed: Seed of the first run.
        timeout: Seconds for the search of one run, and as many for its span.
        nodes: Test only these operators, proved or not.
        span: Whether a box around each test is proved, in every point of which the operator is invalid.
        device: torch device.
        processors: Threads of torch and ONNX Runtime, None for all cores.
        dtype: `float16` or `bfloat16`: treat the networks as if converted to it.
        dims: Sizes of symbolic dimensions of models that are not loaded yet.
        self_check: Whether the installed kernels are checked.
        progress: Whether to show how far the work has got, or a function that is called with it now and then; by
            default, notebooks show it.

    Raises:
        RanumFalsifyError: The model, the property or an option is invalid; one line says what to do.
    """
    for name, value, least in (("runs", runs, 1), ("seed", seed, 0), ("timeout", timeout, 0)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise UsageError(f"{name}={value!r}: is no number of at least {least}")
    config = ConfirmConfig(
        runs=runs,
        seed=seed,
        timeout=timeout,
        nodes=None if nodes is None else tuple(nodes),
        span=span,
        device=device,
        processors=processors,
    )
    began = time.monotonic()
    prop = property_of(property)
    loaded = load(prop, map_models(model, prop, dims), dtype=dtype)
    name = "property.py" if prop.path is None else prop.path.name
    generator = UnitTestGenerator(loaded, config, name=name, self_check=self_check)
    try:
        with follow(progress) as report:
            generator.work(report)
    except KeyboardInterrupt:
        generator.interrupt("Ctrl-C")  # what is finished counts
    return UnitTests(operators=generator.collect_tested(), generator=generator, seconds=time.monotonic() - began)


def _write(arrays: Mapping[str, Any], stream: Any) -> None:
    write_arrays(stream, arrays)
