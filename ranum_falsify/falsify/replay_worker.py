"""The child process of `ranum_falsify.falsify.replay`: ONNX Runtime, every tensor looked at.

Commands: ``load`` ({"path"} and what `Setting` holds), ``run`` and ``outputs`` (the inputs by name).

It starts in a fraction of a second, because it imports neither torch nor this package.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

__all__ = ["Model", "Setting", "service"]

Value = Any  # an array, or a list of arrays for an ONNX sequence
Status = tuple[bool, bool]  # (holds NaN, holds infinity)

_GOOD: Status = (False, False)
_FLOATS = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"}
_INTEGERS = {f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_READABLE = _FLOATS | _INTEGERS | {"tensor(bool)"} | {f"seq({kind})" for kind in _FLOATS}
_FLOAT_INITIALIZERS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
_SHAPE_ONLY = {"Shape", "Size"}
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
# Operators of which one output element depends on one element of each operand.
_ELEMENTWISE = set(
    "Acos Acosh Add Asin Atan Atanh Cast Cos Cosh Div Exp Log Mod Mul Neg Pow Reciprocal Sin Sinh Sqrt Sub Tan".split()
)
# The activations that the reference evaluator computes, whatever the attribute says.
_RECURRENT = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}


def _status(value: Value) -> Status:
    """Whether a tensor, or any tensor of a sequence, holds NaN and whether it holds infinity."""
    if isinstance(value, list):
        found = [_status(item) for item in value]
        return any(nan for nan, _ in found), any(inf for _, inf in found)
    array = np.asarray(value)
    if array.dtype.kind not in "fV" or np.isfinite(array).all():
        return _GOOD
    return bool(np.isnan(array).any()), bool(np.isinf(array).any())


def _range(value: Value) -> tuple[float, float] | None:
    """Least and greatest element, NaN aside; None for what has neither."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fVbiu" or not value.size:
        return None
    wide = value.astype(np.float64)
    wide = wide[~np.isnan(wide)]
    return (float(wide.min()), float(wide.max())) if wide.size else None


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names of all tensors that a node reads, those captured by its subgraphs included."""
    names = [name for name in node.input if name]
    for graph in _subgraphs(node):
        inside = {value.name for value in graph.input} | {t.name for t in graph.initializer}
        for child in graph.node:
            names += [name for name in _reads(child) if name not in inside]
            inside |= set(child.output)
        names += [value.name for value in graph.output if value.name not in inside]
    return list(dict.fromkeys(names))


def _attribute_status(node: onnx.NodeProto, folder: str) -> Status:
    """Whether attributes, or constants of subgraphs, hold NaN or infinity: operands in all but name."""
    found = [_GOOD]
    for attribute in node.attribute:
        found.append(_status(np.asarray([attribute.f, *attribute.floats], np.float32)))
        tensors = [attribute.t, *attribute.tensors]
        found += [_tensor_status(t, folder) for t in tensors if t.data_type in _FLOAT_INITIALIZERS]
    for graph in _subgraphs(node):
        found += [_tensor_status(t, folder) for t in graph.initializer if t.data_type in _FLOAT_INITIALIZERS]
        found += [_attribute_status(child, folder) for child in graph.node]
    return any(nan for nan, _ in found), any(inf for _, inf in found)


def _tensor_status(tensor: onnx.TensorProto, folder: str) -> Status:
    return _status(numpy_helper.to_array(tensor, folder))


def _sorted_nodes(graph: onnx.GraphProto) -> list[int]:
    """Positions of the nodes in topological order, as close to the order of the file as possible."""
    producer = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producer[n] for n in _reads(node) if n in producer} for node in graph.node]
    users: list[list[int]] = [[] for _ in needs]
    for k, sources in enumerate(needs):
        for source in sources:
            users[source].append(k)
    waiting = [len(sources) for sources in needs]
    ready = [k for k, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for user in users[k]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return order


def _clear_repeated_names(graph: onnx.GraphProto) -> None:
    """ONNX lets nodes share a name, which means nothing; ONNX Runtime refuses such a model."""
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            node.name = ""
        seen.add(node.name)


def _stored(node: onnx.NodeProto) -> list[onnx.TensorProto]:
    """The tensor of a Constant node, which need not be computed to be known."""
    if node.op_type != "Constant" or node.domain:
        return []
    return [attribute.t for attribute in node.attribute if attribute.name == "value"]


@dataclass(frozen=True)
class Setting:
    """How to run a model.

    Attributes:
        folder: folder of its external data.
        threads: number of intra-operator threads.
        flush: whether denormal numbers are replaced by 0, as many devices do.
    """

    folder: str
    threads: int
    flush: bool = False


class Session:
    """An ONNX Runtime session on the CPU, optimisations off; ``expose`` adds outputs.

    Args:
        model: the model to run; not changed.
        expose: names of further tensors that `run` returns.
        setting: how to run it.
    """

    def __init__(self, model: onnx.ModelProto, expose: Iterable[str], setting: Setting) -> None:
        self._setting = setting
        given = {value.name for value in model.graph.output}
        names = list(dict.fromkeys(name for name in expose if name and name not in given))
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        _clear_repeated_names(changed.graph)
        changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        self._session = self._create(changed)
        types = {value.name: value.type for value in self._session.get_outputs()}
        self._inputs = {value.name: value.type for value in self._session.get_inputs()}
        self._inputs |= {v.name: v.type for v in self._session.get_overridable_initializers()}
        self._fetch = {name: name for name, kind in types.items() if kind in _READABLE}
        brain = [name for name, kind in types.items() if kind == "tensor(bfloat16)"]
        if brain:  # NumPy has no bfloat16, so ONNX Runtime hands over a widened copy
            for name in brain:
                wide = self._fetch[name] = f"{name}::widened"
                cast = onnx.helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.FLOAT)
                changed.graph.node.append(cast)
                changed.graph.output.add(name=wide)
            self._session = self._create(changed)

    def _create(self, model: onnx.ModelProto) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self._setting.threads
        options.log_severity_level = 4
        folder = self._setting.folder
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        options.add_session_config_entry("session.set_denormal_as_zero", str(int(self._setting.flush)))
        return ort.InferenceSession(model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"])

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Value]:
        """Every readable output by name; bfloat16 comes as float32."""
        fed = {name: self._feed(name, array) for name, array in feeds.items()}
        values = self._session.run(list(self._fetch.values()), fed) if self._fetch else []
        return {name: v for name, v in zip(self._fetch, values, strict=True) if v is not None}

    def _feed(self, name: str, array: np.ndarray) -> Any:
        if self._inputs.get(name) != "tensor(bfloat16)" or array.dtype.itemsize != 2:
            return array
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)


class Model:
    """A model, its sessions, and what about it does not depend on the input.

    Args:
        path: the ONNX file.
        setting: how to run it.
    """

    def __init__(self, path: str, setting: Setting) -> None:
        self._proto = onnx.load(path, load_external_data=False)
        self._setting, folder = setting, setting.folder
        # Before anything else looks at the graph: ONNX Runtime's complaint about a bad one is the better.
        names = [n for node in self._proto.graph.node if not _stored(node) for n in node.output]
        self._exposed = Session(self._proto, names, setting)
        self._plain: Session | None = None
        self._cut: dict[frozenset[int], Session | None] = {}
        self._nodes = list(self._proto.graph.node)
        self._order = _sorted_nodes(self._proto.graph)
        self._reads = [_reads(node) for node in self._nodes]
        self._producer = {name: k for k, node in enumerate(self._nodes) for name in node.output if name}
        self._recurrent = {k for k, node in enumerate(self._nodes) if node.op_type in _RECURRENT}
        self._attributes = [_attribute_status(node, folder) for node in self._nodes]
        self._tensors = {tensor.name: tensor for tensor in self._proto.graph.initializer}
        self._tensors |= {node.output[0]: t for node in self._nodes for t in _stored(node)}
        self._constants = {
            name: _tensor_status(tensor, folder)
            for name, tensor in self._tensors.items()
            if tensor.data_type in _FLOAT_INITIALIZERS
        }

    def _constant(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self._tensors[name], self._setting.folder)

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The graph outputs, computed without exposing anything else."""
        if self._plain is None:
            self._plain = Session(self._proto, [], self._setting)
        return self._graph_outputs(self._plain.run(feeds))

    def _graph_outputs(self, values: Mapping[str, Value]) -> dict[str, np.ndarray]:
        names = [value.name for value in self._proto.graph.output]
        return {name: values[name] for name in names if isinstance(values.get(name), np.ndarray)}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Graph outputs and findings; see `ranum_falsify.falsify.replay.Replayer.run`."""
        zeros: list[int] = []
        try:
            values = self._exposed.run(feeds)
            outputs = self._graph_outputs(values)
        except Exception as error:
            outputs = {}
            try:
                values, zeros = self._divisions_by_zero(feeds)
            except Exception:
                raise error from None  # what went wrong first says more
            if not zeros:
                raise
        return {"outputs": outputs, "findings": self._findings(feeds, values, zeros)}

    def _divisions_by_zero(self, feeds: Mapping[str, np.ndarray]) -> tuple[dict[str, Value], list[int]]:
        """Integer divisions whose divisor holds a zero, and all values computed without them.

        ONNX Runtime ends the run there with an error that need not identify the node. So the
        graph is run as far as it goes without any division; divisions whose divisor turns out
        to be good join it, until one is not or nothing new comes out.
        """
        divisions = [k for k, node in enumerate(self._nodes) if node.op_type in ("Div", "Mod") and not node.domain]
        safe: frozenset[int] = frozenset()
        while divisions:
            values = self._run_without(feeds, [k for k in divisions if k not in safe], safe)
            known = set(safe)
            zeros = []
            for k in divisions:
                divisor = self._value(self._nodes[k].input[1], feeds, values)
                if k in safe or divisor is None:
                    continue
                known.add(k)
                if divisor.dtype.kind in "iu" and not divisor.all():
                    zeros.append(k)
            if zeros:
                return values, zeros
            if known == safe:
                break
            safe = frozenset(known)
        return {}, []

    def _run_without(
        self, feeds: Mapping[str, np.ndarray], left_out: list[int], key: frozenset[int]
    ) -> dict[str, Value]:
        """Run the nodes that depend on none of ``left_out``; ``key`` identifies the cut."""
        if key not in self._cut:
            gone: set[str] = set()
            kept = []
            for k in self._order:
                if k in left_out or not gone.isdisjoint(self._reads[k]):
                    gone.update(self._nodes[k].output)
                else:
                    kept.append(self._nodes[k])
            model = onnx.ModelProto()
            model.CopyFrom(self._proto)
            del model.graph.node[:], model.graph.output[:]
            model.graph.node.extend(kept)
            names = [name for node in kept for name in node.output]
            # ONNX Runtime does not take a graph without nodes.
            self._cut[key] = Session(model, names, self._setting) if kept else None
        session = self._cut[key]
        return session.run(feeds) if session else {}

    def _value(self, name: str, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]) -> Value:
        if name in feeds:
            return feeds[name]
        if name in values:
            return values[name]
        return self._constant(name) if name in self._tensors else None

    def _findings(
        self, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value], zeros: list[int]
    ) -> list[dict[str, Any]]:
        known = self._constants | {k: _status(v) for k, v in (*values.items(), *feeds.items())}
        suspects = {self._producer[name] for name in values if name in self._producer and any(known[name])}
        suspects |= self._recurrent | set(zeros)
        if not suspects:
            return []
        varying = self._varying(feeds)
        found: dict[int, dict[str, Any]] = {}
        for k in (k for k in self._order if k in suspects):
            node, operands = self._nodes[k], [known.get(name, _GOOD) for name in self._reads[k]]
            operands.append(self._attributes[k])
            if k in zeros:
                found[k] = self._zero_finding(k, feeds, values)
                continue
            if any(nan for nan, _ in operands):
                continue
            # Computed infinities that no input can change are constants, such as an attention mask.
            overflow = k in varying and not any(inf for _, inf in operands)
            bad = [(name, known.get(name, _GOOD)) for name in node.output]
            for name, (nan, inf) in bad:
                if nan or (inf and overflow):
                    test = np.isnan if nan else np.isinf
                    found[k] = self._finding(k, name, test, values[name], "onnxruntime")
                    break
            else:
                hidden = self._hidden(k, feeds, values)
                if hidden is not None:
                    found[k] = self._finding(k, hidden[0], np.isnan, hidden[1], "reference")
        reach = self._reaching(known, zeros)
        for k, finding in found.items():
            finding["operands"], finding["values"] = self._operands(k, finding["index"], feeds, values)
            finding["reach"] = "output" if k in reach else "masked"
        return list(found.values())

    def _varying(self, feeds: Mapping[str, np.ndarray]) -> set[int]:
        """Nodes whose value depends on the value, not only the shape, of an input or is random."""
        names, nodes = set(feeds), set()
        for k in self._order:
            node = self._nodes[k]
            depends = node.op_type not in _SHAPE_ONLY and not names.isdisjoint(self._reads[k])
            if depends or node.op_type in _RANDOM:
                nodes.add(k)
                names.update(node.output)
        return nodes

    def _finding(self, k: int, name: str, test: Callable[[Any], Any], value: Value, oracle: str) -> dict[str, Any]:
        index: tuple[int, ...] = ()
        if isinstance(value, np.ndarray):
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(test(value))), value.shape))
        return self._record(k, name, "nan" if test is np.isnan else "inf", index, oracle)

    def _zero_finding(self, k: int, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]) -> dict[str, Any]:
        dividend, divisor = (self._value(name, feeds, values) for name in self._nodes[k].input)
        shape = np.broadcast_shapes(np.shape(dividend), np.shape(divisor))
        zero = np.broadcast_to(divisor == 0, shape)
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(zero)), shape))
        return self._record(k, self._nodes[k].output[0], "nan", index, "onnxruntime")

    def _record(self, k: int, name: str, kind: str, index: tuple[int, ...], oracle: str) -> dict[str, Any]:
        node = self._nodes[k]
        return {
            "node_index": k,
            "node": node.name,
            "op_type": node.op_type,
            "output": name,
            "kind": kind,
            "index": index,
            "oracle": oracle,
        }

    def _operands(
        self, k: int, index: tuple[int, ...], feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]
    ) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
        """Range of each operand and, of an elementwise operator, its element behind output ``index``."""
        ranges, elements = {}, {}
        for name in self._reads[k]:
            value = self._value(name, feeds, values)
            limits = _range(value)
            if limits is None:
                continue
            ranges[name] = limits
            if self._nodes[k].op_type in _ELEMENTWISE:
                tail = index[len(index) - value.ndim :]
                at = tuple(0 if n == 1 else i for n, i in zip(value.shape, tail, strict=True))
                elements[name] = float(value[at])
        return ranges, elements

    def _reaching(self, known: Mapping[str, Status], ends: Iterable[int]) -> set[int]:
        """Nodes from which a path of non-finite tensors leads to a graph output, or to ``ends``."""
        bad = {name for name, status in known.items() if any(status)}
        live = {value.name for value in self._proto.graph.output} & bad
        reach = set()
        for k in reversed(self._order):
            if k in ends or not live.isdisjoint(self._nodes[k].output):
                reach.add(k)
                live |= bad.intersection(self._reads[k])
        return reach

    def _hidden(
        self, k: int, feeds: Mapping[str, np.ndarray], values: Mapping[str, Value]
    ) -> tuple[str, np.ndarray] | None:
        """First output that holds NaN by the reference evaluator, where ONNX Runtime clips NaN away.

        That is LSTM and GRU with a bias: adding it clips to the finite range, and NaN
        becomes a bound. The other operators that swallow NaN cannot make one.
        """
        node = self._nodes[k]
        if node.op_type not in _RECURRENT or len(node.input) < 4 or not node.input[3]:
            return None
        operands = {name: self._value(name, feeds, values) for name in node.input if name}
        given = [operands.get(name) for name in node.input]
        if any(value is None for value in given[:4]):
            return None  # the run ended before this node
        if not _reference_agrees(node, given) or not _may_overflow(given):
            return None
        for name, value in zip((n for n in node.output if n), _reference(node, operands), strict=False):
            if np.isnan(value).any():
                return name, value
        return None


def _reference_agrees(node: onnx.NodeProto, operands: list[Value]) -> bool:
    """Whether the reference evaluator honours all attributes and inputs of an LSTM or GRU."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    names = [name.decode().lower() for name in attributes.get("activations", [])]
    defaults = _RECURRENT[node.op_type]
    if names not in ([], defaults, 2 * defaults) or any(
        attributes.get(name) for name in ("clip", "input_forget", "activation_alpha", "activation_beta")
    ):
        return False
    steps = operands[0].shape[1 if attributes.get("layout") else 0]
    lengths = operands[4] if len(operands) > 4 else None
    return lengths is None or bool((np.asarray(lengths) == steps).all())


def _may_overflow(operands: list[Value]) -> bool:
    """False where no sum inside an LSTM or GRU can leave the finite range, so that NaN is impossible.

    The hidden state stays below 1, or below its start; the cell state grows by at most 1 a step.
    """
    x, w, r, b = operands[:4]
    largest = [float(np.abs(v).max(initial=0)) if v is not None else 0.0 for v in operands]
    state = max(1.0, *largest[5:7], 0.0) + max(x.shape[:2])
    peephole = largest[7] if len(largest) > 7 else 0.0
    bound = largest[0] * largest[1] * w.shape[-1] + state * largest[2] * r.shape[-1]
    bound += 2 * largest[3] + state * peephole
    limit = 65504.0 if b.dtype == np.float16 else float(np.finfo(np.float32).max)
    return not bound < limit / 2


def _reference(node: onnx.NodeProto, operands: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of one node by `onnx.reference`; none where it cannot evaluate the node."""
    from onnx.reference import ReferenceEvaluator  # costs start-up time that few models need

    def info(name: str) -> onnx.ValueInfoProto:
        kind = onnx.helper.np_dtype_to_tensor_dtype(operands[name].dtype)
        return onnx.helper.make_tensor_value_info(name, kind, operands[name].shape)

    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", [info(name) for name in operands], outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8)
    try:
        return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, dict(operands))]
    except Exception:
        # Its gaps show as errors of any type; without a second opinion there is no finding.
        return []


def service() -> Callable[[str, Any], Any]:
    """What answers requests; see `ranum_falsify.network.child_server`."""
    ort.set_default_logger_severity(4)
    np.seterr(all="ignore")
    loaded: list[Model] = []

    def answer(command: str, argument: Any) -> Any:
        if command == "load":
            loaded[:] = [Model(argument.pop("path"), Setting(**argument))]
            return None
        if not loaded:
            raise RuntimeError("no model is loaded")
        return loaded[0].run(argument) if command == "run" else loaded[0].outputs(argument)

    return answer
