"""The callable given to torch.onnx: a module's call on plain tensors, with its backward pass where asked for."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.distributions import Distribution
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, make_fx
from torch.fx.proxy import TracerBase
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree as pytree

from ranum_falsify.api.casting import under_autocast
from ranum_falsify.api.fidelity import Use, list_uses, note_uses
from ranum_falsify.api.formulas import list_formulas
from ranum_falsify.api.resampling import INTERPOLATIONS
from ranum_falsify.api.sources import is_machinery
from ranum_falsify.errors import ModuleError
from ranum_falsify.network.source import BACKWARD


@dataclass(frozen=True)
class Arguments:
    """What a module is called with.

    Attributes:
        tensors: The tensors among the arguments by name: that of the parameter of `forward`, and of the place in it
            where it holds several (`args_0`, `batch_image`).
    """

    tensors: Mapping[str, Tensor]
    _leaves: Sequence[Any]
    _tree: pytree.TreeSpec

    def rebuild(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with these tensors, in the order of `tensors`, in their places."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        return args, kwargs


def name_arguments(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None) -> Arguments:
    """Return the arguments of a call `module(*args, **kwargs)`.

    Raises:
        ModuleError: They do not fit the module's `forward`.
    """
    given = (tuple(args) if isinstance(args, tuple | list) else (args,), dict(kwargs or {}))
    paths, tree = pytree.tree_flatten_with_path(given)
    owners = _owners(module, *given)
    tensors: dict[str, Tensor] = {}
    for (place, first, *rest), leaf in paths:
        if isinstance(leaf, Tensor):
            owner = owners[_key(place)][_key(first)]
            name = "_".join([owner, *(str(_key(key)) for key in rest)])
            tensors[name if name not in tensors else f"{name}_{len(tensors)}"] = leaf
    return Arguments(tensors, [leaf for _, leaf in paths], tree)


def _key(entry: Any) -> Any:
    """Return the index, key or attribute of an entry of a path."""
    return next(getattr(entry, kind) for kind in ("idx", "key", "name") if hasattr(entry, kind))


def _owners(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Mapping[int, str], Mapping[str, str]]:
    """Return the names that positional arguments have in the signature of `forward`, and those of keywords."""
    if isinstance(module, torch.jit.ScriptModule):
        raise ModuleError(
            f"{type(module).__name__}: TorchScript cannot be exported; give the module that it was made of"
        )
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ModuleError(
            f"{type(module).__name__}: the arguments do not fit forward{signature} ({error}); give a tuple of them"
        ) from error
    positional: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [f"{parameter.name}_{i}" for i in range(len(args) - len(positional))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter.name)
    return dict(enumerate(positional)), {name: name for name in kwargs}


def find_tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in what a module returns, whatever they are packed in."""
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]


class FlatCall(torch.nn.Module):
    """A module called on the tensors among its arguments; returns those in its outputs.

    Args:
        module: The module.
        arguments: Its arguments; what is no tensor stays as it is there.
    """

    def __init__(self, module: torch.nn.Module, arguments: Arguments) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._arguments = arguments

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Call the module."""
        args, kwargs = self._arguments.rebuild(tensors)
        return tuple(find_tensors(self.module(*args, **kwargs)))


@dataclass(frozen=True)
class TrainingStep:
    """A module's forward and backward pass, as functions of its parameters, buffers and inputs.

    The backward pass starts from the sum of all floating outputs, which is the loss where that is the output.

    Attributes:
        module: The module.
        arguments: Its arguments.
        wrt: Names of the inputs and parameters that derivatives are taken in; None for all parameters that are trained,
            and for the inputs that require gradients or, where none does, those that hold floats and are no labels.
        autocast: The type that autocast casts to in the forward pass; None for no autocast.
    """

    module: torch.nn.Module
    arguments: Arguments
    wrt: tuple[str, ...] | None = None
    autocast: torch.dtype | None = None

    @property
    def state(self) -> dict[str, Tensor]:
        """The parameters and buffers of the module, as they are."""
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    @property
    def leaves(self) -> set[str]:
        """The inputs that derivatives are taken in."""
        floating = {name: x for name, x in self.arguments.tensors.items() if x.is_floating_point()}
        if self.wrt is not None:
            return floating.keys() & set(self.wrt)
        asked = {name for name, x in floating.items() if x.requires_grad}
        return asked or {name for name in floating if not _is_label(name)} or set(floating)

    @property
    def trained(self) -> set[str]:
        """The parameters that derivatives are taken in."""
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        return trained if self.wrt is None else trained & set(self.wrt)

    def hold(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values of parameters and buffers as leaves, of which those that are trained require gradients."""
        trained = self.trained
        return {name: x.detach().requires_grad_(name in trained) for name, x in state.items()}

    def forward(self, state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs."""
        args, kwargs = self.arguments.rebuild(tensors)
        with under_autocast(self.autocast):
            return find_tensors(torch.func.functional_call(self.module, dict(state), args, kwargs))

    def __call__(
        self, state: Mapping[str, Tensor], tensors: Sequence[Tensor], before_backward: Callable[[Tensor], None]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the outputs, and the gradients by the name of the parameter or input.

        Raises:
            ValueError: Nothing that the module returns has a gradient.
        """
        held = self.hold(state)
        named, leaves = zip(self.arguments.tensors, tensors, strict=True), self.leaves
        inputs = {name: x.detach().requires_grad_(name in leaves) for name, x in named}
        outputs = self.forward(held, list(inputs.values()))
        parts = [y.sum() if y.dim() else y for y in outputs if y.is_floating_point() and y.requires_grad]
        if not parts:
            raise ValueError("no output has a gradient")
        loss = sum(parts[1:], parts[0])
        before_backward(loss)
        wanted = {name: x for name, x in (*held.items(), *inputs.items()) if x.requires_grad}
        found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        gradients = {name: x for name, x in zip(wanted, found, strict=True) if x is not None}
        return [y.detach() for y in outputs], gradients


_LABELS = frozenset("label labels mask masks target targets truth".split())


def _is_label(name: str) -> bool:
    """Tell whether an input is named after labels or a mask, in which no loss is differentiated."""
    return (
        bool(_LABELS & set(re.findall("[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))) or name == "y_true"
    )


def trace_training(step: TrainingStep) -> tuple[torch.fx.GraphModule, list[Tensor], set[Use]]:
    """Trace a training step to the operators that autograd runs.

    Returns:
        The graph, whose nodes know their sources, its inputs, which are the state of the step and the tensors, and
        the operators that it stands for.
    """
    uses = set[Use]()
    state, tensors = step.state, list(step.arguments.tensors.values())

    def run(*values: Tensor) -> list[Tensor]:
        outputs, gradients = step(dict(zip(state, values, strict=False)), values[len(state) :], _note_origins)
        return [*outputs, *gradients.values()]

    given = [x.detach().clone() for x in (*state.values(), *tensors)]
    # Kernels of oneDNN for recurrent layers, and of GPUs for attention, have no derivatives in terms of operators.
    plain = torch.backends.mkldnn.flags(enabled=False)
    on_cpu = all(x.device.type == "cpu" for x in given)
    attention = contextlib.nullcontext() if on_cpu else sdpa_kernel(SDPBackend.MATH)
    with fx_traceback.preserve_node_meta(), keep_stacks(), _module_paths(), plain, attention:
        trace = make_fx(
            run,
            note_uses(list_formulas(), uses),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
            record_stack_traces=True,
        )
        graph = trace(*given)
    _blame(graph)
    _guard_divisions(graph)
    _keep_interpolation(graph)
    return graph, given, uses | list_uses(graph)


def _note_origins(loss: Tensor) -> None:
    """Make each operator of the backward pass note which one of the forward pass it belongs to."""
    waiting, seen = [loss.grad_fn], {loss.grad_fn}
    for node in waiting:
        if node is not None:
            origin = [f"{BACKWARD}{node._sequence_nr()}"]
            node.register_prehook(lambda _, origin=origin: fx_traceback.set_stack_trace(origin))
            following = {previous for previous, _ in node.next_functions} - seen
            seen |= following
            waiting += following


def _blame(graph: torch.fx.GraphModule) -> None:
    """Give the operators of the backward pass the stack and the submodule of those that they belong to."""
    forward: dict[int, torch.fx.Node] = {}
    for node in graph.graph.nodes:
        trace = node.stack_trace or ""
        if _is_backward(node):
            origin = forward.get(int(trace.removeprefix(BACKWARD)))
            node.stack_trace = BACKWARD + ("" if origin is None else origin.stack_trace or "")
            node.meta["nn_module_stack"] = {} if origin is None else origin.meta.get("nn_module_stack", {})
        elif node.op == "call_function":
            forward.setdefault(node.meta.get("seq_nr", -1), node)


def _guard_divisions(graph: torch.fx.GraphModule) -> None:
    """Divide by 1 where autograd's own formulas divide by 0 and throw the quotient away.

    Before: `where(n == 0, 0, a / n)` or `(a / n).masked_fill_(n == 0, 0)`, as in the derivatives of norms and
    deviations.  After: the same of `a / where(n == 0, 1, n)`.  The values are the same; but no operator gives a NaN
    that is not the user's.
    """
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if not _is_backward(node):
            continue
        if node.target is aten.where.self:
            condition, _, quotient = node.args
        elif node.target is aten.masked_fill_.Scalar:
            quotient, condition, _ = node.args
        else:
            continue
        if quotient.target is not aten.div.Tensor or len(quotient.users) > 1 or not _is_zero_test(condition):
            continue
        divisor = quotient.args[1]
        if not isinstance(divisor, torch.fx.Node):
            continue
        with graph.graph.inserting_before(node):
            dtype = {"dtype": divisor.meta["val"].dtype}
            one = graph.graph.call_function(aten.scalar_tensor.default, (1.0,), dtype)
            guarded = graph.graph.call_function(aten.where.self, (condition, one, divisor))
        for new in (one, guarded):
            new.meta |= {key: quotient.meta[key] for key in ("stack_trace", "nn_module_stack") if key in quotient.meta}
        quotient.args = (quotient.args[0], guarded)
        node.prepend(quotient)
    graph.recompile()


def _keep_interpolation(graph: torch.fx.GraphModule) -> None:
    """Write interpolation as a module does, for which the exporter knows it; it takes the operator below apart."""
    for node in graph.graph.nodes:
        operator = node.target
        if (
            isinstance(operator, OpOverload)
            and operator._overloadname == "default"
            and operator._opname in INTERPOLATIONS
        ):
            x, output_size, align_corners, *scales = node.args
            is_scaled = None not in (scales or [None])
            node.target = getattr(torch.ops.aten, operator._opname).vec
            node.args = (x, None if is_scaled else output_size, align_corners, scales if is_scaled else None)
    graph.recompile()


def _is_backward(node: torch.fx.Node) -> bool:
    return (node.stack_trace or "").startswith(BACKWARD)


def _is_zero_test(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.eq.Scalar and bool(node.args[1] == 0)


@contextlib.contextmanager
def _module_paths() -> Iterator[None]:
    """Make traced operators note the path of the submodule that runs."""
    running: list[str] = []
    names: dict[torch.nn.Module, str] = {}

    def enter(module: torch.nn.Module, inputs: Any) -> None:
        if not running:
            names.update({child: name for name, child in module.named_modules()})
        running.append(names.get(module, running[-1] if running else ""))
        note()

    def leave(module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        running.pop()
        note()

    def note() -> None:
        fx_traceback.get_current_meta()["nn_module_stack"] = {path: (f"module.{path}", "") for path in running}

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Make `torch.distributions` take any arguments: checks branch on values, and stop at what is looked for."""
    usual = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(usual)


@contextlib.contextmanager
def keep_stacks() -> Iterator[None]:
    """Make PyTorch's tracers keep the frames of functions that `forward` calls, which they leave out."""

    def kept(tracer: TracerBase, stack: traceback.StackSummary) -> traceback.StackSummary:
        # What lies above the call of the module is not part of it; a graph that is traced again has no call.
        call = max((i for i, frame in enumerate(stack) if frame.filename == __file__), default=len(stack))
        return traceback.StackSummary.from_list([f for f in stack[call + 1 :] if not is_machinery(f.filename)])

    usual = PythonKeyTracer._filter_traceback_frames
    PythonKeyTracer._filter_traceback_frames = kept  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        PythonKeyTracer._filter_traceback_frames = usual  # type: ignore[method-assign]
