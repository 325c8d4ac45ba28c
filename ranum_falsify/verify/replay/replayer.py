"""Replay: ONNX Runtime runs the original model on a candidate, and every tensor is inspected.

Nothing counts as a violation before it is seen here. ONNX Runtime runs in a child process,
because a malformed model can crash it. It runs twice: with graph optimisations off and every
intermediate tensor of the main graph exposed, and at its default level with nothing exposed
but the outputs, as users run it. The first run names nodes; a node is a `Finding` when

(a) none of its operands holds NaN, yet an output holds NaN; or
(b) all its operands are finite, yet an output holds an infinity that is not a constant.

NaN that a stored tensor holds counts for the operator that computes with it: (a) takes it for a number,
also where operators that cannot be invalid, such as Where, hand it on.

Operands are what the node reads: inputs, tensors captured by its subgraphs, and constants in
its attributes. A subgraph (If, Loop, Scan) counts as one node. An elementwise operator is judged
element by element: what it reads is the elements of its operands at the same place. In (b) an infinity is a
constant when no input's value can change it, such as an attention mask computed from weights.
An integer division by zero, at which ONNX Runtime refuses to go on, is a finding, too, and so is a division
of the least integer of 32 or 64 bits by -1, at which processors end the process: if the
operands of a division allow it, the graph first runs up to there, and no further. Where ONNX Runtime
refuses to run an operator whose row says that there are such operands (an index outside of its table),
the graph runs without it and what depends on it, and the node is a finding as well; so is one in a
subgraph of which integers are divided by zero.

The second run shows what users see. Where the two differ, the graph that ONNX Runtime's optimiser
writes runs too, every tensor exposed: a finding whose tensors are finite there shows only with
optimisations off, and one that is found there alone shows only at the default level, for example
because constants are merged into one that overflows.

LSTM and GRU with a bias clip NaN to the finite range on ONNX Runtime; `onnx.reference`
decides there. MaxPool, GlobalMaxPool, ReduceMax, ReduceMin, ArgMax, ArgMin, QuantizeLinear
and casts to integers swallow NaN too, but make none from operands without NaN: the finding
is then the node before, and its reach is ``masked``. ONNX Runtime's CPU kernels keep chains of
float16 operators in float32: a tensor that is infinite in float16 can leave what follows finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import onnx

from ranum_falsify.config import FailureKind, Optimisations, Reach
from ranum_falsify.errors import ReplayCrashError, ReplayError, ReplayRefusalError, ReplayTimeoutError
from ranum_falsify.file_content import is_compressed
from ranum_falsify.network.messages import tidy_message
from ranum_falsify.network.model_file import model_bytes
from ranum_falsify.process.child import Child, ChildDeathError, SpareChild

_WORKER = Path(__file__).with_name("worker")
_spare = SpareChild(_WORKER)
_FORGETTING = 5.0  # seconds
_LARGEST = 2**31 - 1  # bytes that protobuf can hold in one message
_ADVICE = {
    "load": "repair the model, or convert it to operators and an opset that ONNX Runtime supports",
    "run": "give each input the name, type and shape that the model declares",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One node whose operands are good and whose output is not.

    Attributes:
        node_index: position of the node in ``graph.node``.
        node: ONNX name of the node; names may be empty or shared.
        op_type: operator.
        output: name of its first offending output tensor, unique in a model.
        kind: ``nan`` (rule (a) of this module), ``inf`` (rule (b)), ``error`` where ONNX Runtime refuses to go on, or
            ``crash`` where its process would end.
        index: position of the first offending element in ``output``, if there is one.
        operands: least and greatest element of each numeric operand, by tensor name.
        values: if the operator is elementwise, the elements of its operands that give the offending one.
        arrays: if it has conditions, its operands, by tensor name: for an elementwise operator, only the elements that
            give the offending one; none where they are large.
        returned: where the reference evaluator is the oracle: least and greatest element that ONNX Runtime returns in
            place of NaN.
        oracle: who saw it.
        reach: ``output`` when a graph output depends on what the node writes that is not finite at the
            default level either, or when ONNX Runtime stops at the node; else ``masked``. What a choice or a
            test leaves out goes no further.
        optimisations: with which graph optimisations of ONNX Runtime it shows; None where they
            cannot be compared, as in a model that draws random numbers or would end the process.
        fused: if it shows at the default level alone: the operator that the optimiser put in the
            place of the node and of others before it, if any; ``operands`` are then its own.
    """

    node_index: int
    node: str
    op_type: str
    output: str
    kind: FailureKind
    index: tuple[int, ...]
    operands: Mapping[str, tuple[float, float]]
    values: Mapping[str, float]
    oracle: Literal["onnxruntime", "reference"]
    reach: Reach
    optimisations: Optimisations | None = None
    fused: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    returned: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What one run showed.

    Attributes:
        outputs: the graph outputs that are numeric tensors, in the model's order (bfloat16 as
            float32), at the default level; empty when ONNX Runtime stopped at an integer division.
        findings: in topological order, so that the first one is the first node to go wrong.
        plain: the graph outputs without optimisations.
        refusal: what ONNX Runtime says where it runs the model without optimisations alone; ``outputs`` are then those.
        seconds: how long both runs took a core.
    """

    outputs: Mapping[str, np.ndarray]
    findings: tuple[Finding, ...]
    plain: Mapping[str, np.ndarray]
    refusal: str
    seconds: float


class Replayer:
    """Runs one model on ONNX Runtime in a child process, which serves any number of requests, and then another model.

    A context manager that starts the child on entry, so that it loads the model while the
    caller continues. A child that crashed or ran out of time is replaced at the next request.
    Not for use from several threads at once.

    Args:
        model: the model, or the path of its file. External data must be loaded, or lie where
            the path's file says.
        timeout: seconds that loading, and each request, may take.
        threads: ONNX Runtime's intra-operator threads.
        flush: whether it replaces denormal numbers by 0, as many devices do.
        folder: where the external data of a model in memory lies, if it is not loaded.
        prepacks: whether ONNX Runtime may keep a second copy of weights, in an order of its own.
        providers: its execution providers, in order of preference; by default the CPU.
        optimises: whether `run` runs it at the default level, too; else that shows what no optimisations do.
    """

    def __init__(
        self,
        model: onnx.ModelProto | Path,
        *,
        timeout: float = 60.0,
        threads: int = 1,
        flush: bool = False,
        folder: Path | None = None,
        prepacks: bool = True,
        providers: Sequence[str] = (),
        optimises: bool = True,
    ) -> None:
        self._model = model
        self._setting: dict[str, Any] = {
            "threads": threads,
            "flush": flush,
            "prepacks": prepacks,
            "optimises": optimises,
        }
        if providers:
            self._setting["providers"] = tuple(providers)
        self._folder = model.resolve().parent if isinstance(model, Path) else folder
        self._timeout = timeout
        self._label = f"model {str(model)!r}" if isinstance(model, Path) else "the model"
        # ONNX Runtime's first session decides for its whole process what becomes of denormal numbers.
        self._shares = not flush and not providers
        self._child: Child | None = None
        self._loading = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the child unless it is running, and have it load the model; does not wait.

        Raises:
            ReplayError: the file is missing, or the model is too large or lacks its external data.
        """
        if self._child is not None:
            return
        data = self._data()
        self._child = child = _spare.take() if self._shares else Child(_WORKER)
        path = self._model.resolve() if isinstance(self._model, Path) and data is None else child.folder / "model.onnx"
        try:
            if data is not None:
                path.write_bytes(data)
        except BaseException:
            self.close()
            raise
        self._loading = True
        # Importing the rows takes as long as the child takes to start, so both happen at once.
        from ranum_falsify.verify.replay.operator_facts import operator_facts

        child.send(
            "load",
            {
                "path": str(path),
                "folder": str((self._folder or path.parent).resolve()),
                "operators": operator_facts(),
                "scratch": str(child.folder),
                **self._setting,
            },
        )

    def run(self, inputs: Mapping[str, np.ndarray]) -> Replay:
        """Run the model with every intermediate exposed, and at the default level.

        Inputs go by name, in the model's types and shapes; initializers that are also inputs may be left out.

        Raises:
            ReplayError: ONNX Runtime refuses the model or the inputs.
            ReplayCrashError: the child died.
            ReplayTimeoutError: the child did not answer in time.
        """
        result = self._request("run", inputs)
        return Replay(**{**result, "findings": tuple(Finding(**finding) for finding in result["findings"])})

    def outputs(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run the model as users do and return its outputs only; arguments and errors as for `run`."""
        outputs: dict[str, np.ndarray] = self._request("outputs", inputs)
        return outputs

    def run_plain(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Run the model without optimisations and return its outputs only; arguments and errors as for `run`."""
        outputs: dict[str, np.ndarray] = self._request("plain", inputs)
        return outputs

    def find_revealing(self, samples: Mapping[str, np.ndarray], seconds: float) -> list[int]:
        """Run inputs `(count, *shape)`, one after the other; return the positions of a few that are worth a `run`.

        Half of them run as users run the model, which tells of outputs that are not finite; the others without
        optimisations, which tells of any tensor that is not.  Of inputs that show the same, few are returned.  After
        some seconds no further input is run.

        Raises:
            ReplayError: see `run`.
        """
        found: list[int] = self._request("tell", samples, seconds)
        return found

    def close(self) -> None:
        """Delete temporary files, and leave the child to the next replayer, or end it; a later request takes one."""
        child, idle = self._child, not self._loading
        self._child, self._loading = None, False
        if child is None or child.is_closed:
            return
        if not self._shares or not idle:
            child.close()
            return
        with suppress(ChildDeathError):
            if child.ask("forget", None, timeout=_FORGETTING) == ("ok", True):
                _spare.leave(child)
            else:
                child.close()

    def _data(self) -> bytes | None:
        """Return the bytes of a model that is in memory or compressed; None if ONNX Runtime reads the file itself."""
        if not isinstance(self._model, Path):
            return self._serialize(self._model)
        if not self._model.is_file():
            raise ReplayError(f"{self._label}: there is no such file; check the path")
        return model_bytes(self._model) if is_compressed(self._model) else None

    def _serialize(self, model: onnx.ModelProto) -> bytes:
        is_external = onnx.external_data_helper.uses_external_data
        if self._folder is None and any(is_external(tensor) for tensor in model.graph.initializer):
            raise ReplayError(f"{self._label}: its external data is not loaded; pass the path of its file")
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= _LARGEST:
            data: bytes = model.SerializeToString()
            if len(data) <= _LARGEST:
                return data
        raise ReplayError(
            f"{self._label} has more than {_LARGEST:,} bytes, which protobuf cannot hold; "
            "save it with external data and pass the path of its file"
        )

    def _request(self, command: str, inputs: Mapping[str, np.ndarray], *settings: float) -> Any:
        # ONNX Runtime rejects NumPy scalars and views.
        feeds = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in inputs.items()}
        self.start()
        if self._loading:
            self._exchange("load", None)
            self._loading = False
        return self._exchange(command, (feeds, *settings) if settings else feeds)

    def _exchange(self, command: str, argument: Any) -> Any:
        """Send a request (``load`` has been sent at the start) and wait for the answer."""
        assert self._child is not None
        try:
            if command == "load":
                kind, result = self._child.receive(timeout=self._timeout)
            else:
                kind, result = self._child.ask(command, argument, timeout=self._timeout)
        except ChildDeathError as error:
            self.close()
            raise self._death(command, error) from error
        except BaseException:
            self.close()
            raise
        if kind == "ok":
            return result
        if command == "load":
            self.close()
        verb, kind_of_error = ("load", ReplayError) if command == "load" else ("run", ReplayRefusalError)
        raise kind_of_error(f"{self._label}: ONNX Runtime cannot {verb} it: {tidy_message(result)}; {_ADVICE[verb]}")

    def _death(self, command: str, error: ChildDeathError) -> ReplayError:
        verb = "load" if command == "load" else "run"
        if error.late:
            limit = f"within {self._timeout:g} s"
            return ReplayTimeoutError(f"{self._label}: ONNX Runtime did not {verb} it {limit}; allow more time")
        return ReplayCrashError(
            f"{self._label}: ONNX Runtime crashed (exit status {error.status}) when asked to {verb} it; "
            "check the model with onnx.checker.check_model(model, full_check=True)"
        )
