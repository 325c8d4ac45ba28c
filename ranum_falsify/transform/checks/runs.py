"""A model run on samples by ONNX Runtime without optimisations, in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayTimeoutError
from ranum_falsify.replay.replayer import Finding, Replayer
from ranum_falsify.transform.checks.weights import WeightFile
from ranum_falsify.transform.checks.wide import WideModel
from ranum_falsify.transform.model import tensors_of

__all__ = ["Runs", "SampleRun"]

_MOST_KEPT = 256 * 2**20  # bytes of outputs
_LARGE = 512 * 2**20  # bytes of weights of which there must be no second copy
_BYTES_PER_SECOND = 16 * 2**20  # to be read, at least


@dataclass(frozen=True)
class SampleRun:
    """What one sample showed.

    Attributes:
        outputs: Arrays by output; those that are no numeric tensors are missing.
        findings: Operators that received invalid input.
        error: Why the model did not run, if it did not.
        seconds: How long it took a core.
    """

    outputs: Mapping[str, np.ndarray]
    findings: tuple[Finding, ...] = ()
    error: str = ""
    seconds: float = 0.0


class Runs:
    """Runs of one model; those on samples are kept, so that the next pass need not repeat them.

    Args:
        model: The model; it must not change any more.
        folder: Where its external data lies.
        weights: Where its tensors are stored.
        threads: ONNX Runtime's threads.
        timeout: Seconds for loading it, and for each run; more where it is large.
        providers: ONNX Runtime's execution providers, in order of preference; by default the CPU.
    """

    def __init__(
        self,
        model: ir.Model,
        folder: Path,
        weights: WeightFile,
        *,
        threads: int = 1,
        timeout: float = 60.0,
        providers: Sequence[str] = (),
    ) -> None:
        proto, place = weights.refer(model, folder)
        size = sum(tensor.nbytes for tensor in tensors_of(model))
        self._replayer = Replayer(
            proto,
            threads=threads,
            timeout=timeout + size / _BYTES_PER_SECOND,
            folder=place,
            prepacks=size < _LARGE,
            providers=providers,
        )
        outputs = model.graph.outputs
        self._brain = {value.name for value in outputs if value.dtype == ir.DataType.BFLOAT16}
        self._wide = WideModel(model)
        self._kept: dict[int, SampleRun] = {}
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._replayer.close()

    def start(self) -> None:
        """Have a child process load the model, without waiting for it."""
        self._replayer.start()

    def run(self, inputs: Mapping[str, np.ndarray], key: int | None = None) -> SampleRun:
        """Run the model, or return what it showed on the sample of this key.

        Raises:
            ReplayCrashError: ONNX Runtime died of it.
            ReplayTimeoutError: It did not end in time.
        """
        if key is not None and key in self._kept:
            return self._kept[key]
        try:
            seen = self._replayer.look(inputs)
            outputs = {name: self._typed(name, array) for name, array in seen.outputs.items()}
            run = SampleRun(outputs, seen.findings, seconds=seen.seconds)
        except (ReplayCrashError, ReplayTimeoutError):
            raise
        except ReplayError as error:
            run = SampleRun({}, error=str(error))
        if key is not None:
            size = sum(array.nbytes for array in run.outputs.values())
            if self._bytes + size <= _MOST_KEPT:
                self._kept[key] = run
                self._bytes += size
        return run

    def forget(self) -> None:
        """Forget what samples showed."""
        self._kept.clear()
        self._bytes = 0

    def wide(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs in double precision, as far as they can be computed."""
        return self._wide.run(inputs)

    def _typed(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return an output in its own type: bfloat16 comes widened."""
        return array.astype(ml_dtypes.bfloat16) if name in self._brain else array
