# ruff: noqa: D102 - a visitor method is named after the expression it interprets
"""From DNNP expressions to terms and formulas.

An `ExpressionVisitor` whose result for an expression is a `Term` or formula where it depends on a quantified input,
and a plain Python value (array, number, function, `Graph`, ...) where it does not.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping
from functools import partialmethod
from typing import Any

import numpy as np
import torch
from dnnv.properties import BinaryExpression, Expression, ExpressionVisitor

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.properties.formula import numpy_functions
from ranum_falsify.properties.formula.circuit import Choice, Circuit
from ranum_falsify.properties.formula.formula import (
    Comparison,
    Formula,
    Goal,
    Junction,
    Kind,
    Truth,
    applies_network,
    conjunction,
    disjunction,
    negate,
)
from ranum_falsify.properties.formula.numpy_functions import as_term
from ranum_falsify.properties.formula.terms import (
    Elementwise,
    NetworkCall,
    Output,
    Term,
    Trainable,
    ValidityGoal,
    Variable,
    rearrange,
)
from ranum_falsify.properties.language.vocabulary import FiniteOutputs, Free, NoInvalidInput
from ranum_falsify.properties.language.walk import guard, index_text, shorten
from ranum_falsify.properties.problem.words import (
    AllInputs,
    bounds_of,
    check_free,
    element_of,
    finite_outputs,
    pair,
    validity_goal,
)

_SYMBOLIC = (Term, AllInputs, Truth, Comparison, Goal, Junction)


class Interpreter(ExpressionVisitor):
    """Interprets a property over given networks.

    Attributes:
        variables: What each quantified name stands for: an input, or all inputs of a network that takes several; to
            be filled before anything that uses them is visited.
        calls: The applications met so far, each once.
        goals: The validity goals met so far, each once.
    """

    def __init__(self, networks: Mapping[str, Graph]) -> None:
        super().__init__()
        self._networks = networks
        self._names: dict[int, str] = {id(graph): name for name, graph in networks.items()}
        self._graphs: dict[object, Graph] = {}
        self._trainable: dict[int, Trainable] = {}
        self._results: dict[int, tuple[Expression, Any]] = {}
        self._operations: dict[object, tuple[tuple[Term, ...], Term]] = {}
        self._calls: dict[object, tuple[NetworkCall, Any]] = {}
        self._goals: dict[object, Goal] = {}
        self.variables: dict[str, Variable | AllInputs] = {}

    @property
    def calls(self) -> tuple[NetworkCall, ...]:
        """The applications met so far, each once."""
        return tuple(call for call, _ in self._calls.values())

    @property
    def goals(self) -> tuple[ValidityGoal, ...]:
        """The validity goals met so far, each once."""
        return tuple(goal.goal for goal in self._goals.values())

    def visit(self, expression: Any) -> Any:
        """Return an expression's meaning; each expression object is interpreted once.

        DNNV's own cache compares expressions, which can make further expressions or raise.
        """
        if not isinstance(expression, Expression):
            return expression
        key = id(expression)
        if key not in self._results:
            method: Callable[[Any], Any] = getattr(self, f"visit_{type(expression).__name__}", self.generic_visit)
            self._results[key] = (expression, method(expression))
        return self._results[key][1]

    def generic_visit(self, expression: Any) -> Any:
        raise PropertyError(f"property: {type(expression).__name__} is not supported here: {shorten(expression)}")

    def formula(self, expression: Any) -> Formula:
        """Interpret an expression as a formula."""
        value = self.visit(expression)
        if isinstance(value, Truth | Comparison | Goal | Junction):
            return value
        if isinstance(value, bool | np.bool_) or (isinstance(value, np.ndarray) and value.dtype == bool):
            return Truth(bool(np.all(value)))
        raise PropertyError(f"property: a formula is needed, got {shorten(expression)}")

    # terms of DNNP ----------------------------------------------------------------------------------------------

    def visit_Constant(self, expression: Any) -> Any:
        return self.visit(expression.value)

    def visit_Symbol(self, expression: Any) -> Any:
        name = expression.identifier
        if name in self.variables:
            return self.variables[name]
        if expression.is_concrete:
            return expression.value
        known = [*self.variables, *self._networks]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PropertyError(
            f"property: {name!r} is neither quantified (Forall), nor a Parameter, a Network or an import{hint}"
        )

    def visit_Parameter(self, expression: Any) -> Any:
        if not expression.is_concrete:
            hint = f"give --prop.{expression.name}=VALUE"
            raise PropertyError(f"property: parameter {expression.name!r} has no value; {hint}")
        return expression.value

    def visit_Network(self, expression: Any) -> Graph:
        return self._networks[expression.identifier]

    def visit_Image(self, expression: Any) -> Any:
        return guard(expression, lambda: np.asarray(type(expression).load(self.visit(expression.path)).value))

    def visit_Slice(self, expression: Any) -> slice:
        return slice(self.visit(expression.start), self.visit(expression.stop), self.visit(expression.step))

    def visit_ExtSlice(self, expression: Any) -> tuple[Any, ...]:
        return tuple(self.visit(part) for part in expression.expressions)

    def _quantifier(self, expression: Any) -> Any:
        raise PropertyError(f"property: quantifiers stand at the beginning only: {shorten(expression)}")

    visit_Forall = visit_Exists = _quantifier

    # arithmetic -------------------------------------------------------------------------------------------------

    def _operation(self, name: str, torch_function: Any, numpy_function: Any, operands: list[Any], source: Any) -> Any:
        if not any(map(_is_symbolic, operands)):
            return guard(source, lambda: numpy_function(*operands))
        terms = tuple(map(as_term, operands))
        key = (name, tuple(map(id, terms)))
        if key not in self._operations:
            try:
                self._operations[key] = (terms, Elementwise(name, torch_function, *terms))
            except PropertyError as error:
                raise PropertyError(f"{error}: {shorten(source)}") from error
        return self._operations[key][1]

    def _fold(self, name: str, torch_function: Any, numpy_function: Any, expression: Any) -> Any:
        is_pair = isinstance(expression, BinaryExpression)
        parts = (expression.expr1, expression.expr2) if is_pair else expression.expressions
        values = [self.visit(part) for part in parts]
        result = values[0]
        for value in values[1:]:
            result = self._operation(name, torch_function, numpy_function, [result, value], expression)
        return result

    visit_Add = partialmethod(_fold, "+", torch.add, operator.add)
    visit_Multiply = partialmethod(_fold, "*", torch.mul, operator.mul)
    visit_Subtract = partialmethod(_fold, "-", torch.sub, operator.sub)
    visit_Divide = partialmethod(_fold, "/", torch.div, operator.truediv)

    def visit_Negation(self, expression: Any) -> Any:
        return self._operation("negate", torch.neg, operator.neg, [self.visit(expression.expr)], expression)

    def visit_Subscript(self, expression: Any) -> Any:
        value, index = self.visit(expression.expr1), self.visit(expression.expr2)
        if isinstance(index, _SYMBOLIC):
            raise PropertyError(f"property: an index must not depend on the inputs: {shorten(expression)}")
        if isinstance(value, Graph):
            name = f"{self._names[id(value)]}[{index_text(index)}]"
            return self._derive((id(value), repr(index)), name, expression, lambda: value[index])
        if isinstance(value, Term):
            try:
                return rearrange(value, lambda positions: positions[index])
            except (IndexError, TypeError, ValueError) as error:
                raise PropertyError(f"property: {shorten(expression)}: {error}; its shape is {value.shape}") from error
        return guard(expression, lambda: value[index])

    def visit_Elements(self, expression: Any) -> Term:
        return element_of(expression, self.visit(expression.tensor.tensor))

    def visit_ElementBounds(self, expression: Any) -> Formula:
        return bounds_of(expression, self.visit(expression.elements.tensor.tensor))

    def visit_Attribute(self, expression: Any) -> Any:
        value, name = self.visit(expression.expr1), self.visit(expression.expr2)
        if not isinstance(value, Term):
            return guard(expression, lambda: getattr(value, name))
        if name in ("shape", "size"):
            return getattr(value, name)
        if name == "ndim":
            return len(value.shape)
        if name == "T":
            return rearrange(value, np.transpose)
        if name in numpy_functions.METHODS:
            method = numpy_functions.METHODS[name]
            return lambda *args, **kwargs: method(value, *args, **kwargs)
        names = ", ".join(("T", "ndim", "shape", "size", *sorted(numpy_functions.METHODS)))
        raise PropertyError(f"property: {shorten(expression)}: {name!r} is not supported; these are: {names}")

    # logic ------------------------------------------------------------------------------------------------------

    def visit_And(self, expression: Any) -> Formula:
        return conjunction([self.formula(part) for part in expression.expressions])

    def visit_Or(self, expression: Any) -> Formula:
        return disjunction([self.formula(part) for part in expression.expressions])

    visit_AllOf, visit_AnyOf = visit_And, visit_Or

    def visit_Not(self, expression: Any) -> Formula:
        return negate(self.formula(expression.expr))

    def visit_Implies(self, expression: Any) -> Formula:
        return disjunction([negate(self.formula(expression.expr1)), self.formula(expression.expr2)])

    def visit_IfThenElse(self, expression: Any) -> Any:
        condition = self.formula(expression.condition)
        chosen, otherwise = self.visit(expression.t_expr), self.visit(expression.f_expr)
        if isinstance(condition, Truth):
            return chosen if condition.value else otherwise
        logical = (Truth, Comparison, Goal, Junction, bool, np.bool_)
        if isinstance(chosen, logical) and isinstance(otherwise, logical):
            first = disjunction([negate(condition), self.formula(expression.t_expr)])
            return conjunction([first, disjunction([condition, self.formula(expression.f_expr)])])
        circuit = Circuit([condition])
        return Choice(condition, circuit, applies_network(condition), as_term(chosen), as_term(otherwise))

    def _compare(self, kind: Kind, expression: Any, swap: bool = False, negated: bool = False) -> Any:
        first, second = self.visit(expression.expr1), self.visit(expression.expr2)
        if isinstance(first, AllInputs) or isinstance(second, AllInputs):
            sides = pair(first, second, expression)
            parts = [self._compare_values(kind, a, b, expression, swap, negated) for a, b in sides]
            return disjunction(parts) if negated else conjunction(parts)
        return self._compare_values(kind, first, second, expression, swap, negated)

    def _compare_values(self, kind: Kind, first: Any, second: Any, expression: Any, swap: bool, negated: bool) -> Any:
        if kind == "==" and any(isinstance(side, _SYMBOLIC) and not isinstance(side, Term) for side in (first, second)):
            p, q = self.formula(expression.expr1), self.formula(expression.expr2)
            same = conjunction([disjunction([negate(p), q]), disjunction([p, negate(q)])])
            return negate(same) if negated else same
        if not _is_symbolic(first) and not _is_symbolic(second):
            return guard(expression, lambda: expression.__class__.OPERATOR(first, second))
        left, right = (second, first) if swap else (first, second)
        a, b = self._side(left, expression), self._side(right, expression)
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError as error:
            shapes = f"{a.shape} and {b.shape}" if not swap else f"{b.shape} and {a.shape}"
            raise PropertyError(f"property: shapes {shapes} cannot be compared: {shorten(expression)}") from error
        if (0 in a.shape or 0 in b.shape) and not (a.applies_network or b.applies_network):
            return Truth(not negated)  # an input without elements lies within all bounds
        return Comparison(kind, a, b, negated=negated, any=negated, source=expression)

    def _side(self, value: Any, source: Any) -> Term:
        if isinstance(value, tuple) and any(isinstance(part, Term) for part in value):
            raise PropertyError(
                f"property: a network with {len(value)} outputs; select one, as in N(x)[0]: {shorten(source)}"
            )
        return as_term(value)

    visit_LessThanOrEqual = partialmethod(_compare, "<=")
    visit_LessThan = partialmethod(_compare, "<")
    visit_GreaterThanOrEqual = partialmethod(_compare, "<=", swap=True)
    visit_GreaterThan = partialmethod(_compare, "<", swap=True)
    visit_Equal = partialmethod(_compare, "==")
    visit_NotEqual = partialmethod(_compare, "==", negated=True)

    # calls ------------------------------------------------------------------------------------------------------

    def visit_Call(self, expression: Any) -> Any:
        function = self.visit(expression.function)
        if isinstance(function, NoInvalidInput | FiniteOutputs):
            return self._question(function, expression)
        args = [self.visit(arg) for arg in expression.args]
        kwargs = {name: self.visit(arg) for name, arg in expression.kwargs.items()}
        if isinstance(function, Free):
            return self._free(expression, args, kwargs)
        if isinstance(function, Graph):
            return self._apply(function, args, kwargs, expression)
        if getattr(function, "__name__", "") == "compose" and isinstance(getattr(function, "__self__", None), Graph):
            return self._compose(function, args, expression)
        if any(map(_is_symbolic, (*args, *kwargs.values()))):
            handler = numpy_functions.find(function)
            if handler is None:
                known = ", ".join(numpy_functions.list_supported())
                raise PropertyError(
                    f"property: {shorten(expression)}: this function is not supported; these are: {known}"
                )
            return guard(expression, lambda: handler(*args, **kwargs))
        return guard(expression, lambda: function(*args, **kwargs))

    def _question(self, word: NoInvalidInput | FiniteOutputs, expression: Any) -> Formula:
        """Return what a word asks of an application of a network."""
        applied: Any = expression.args[0] if len(expression.args) == 1 else None
        function = self.visit(applied.function) if type(applied).__name__ == "Call" else None
        if not isinstance(function, Graph):
            raise PropertyError(f"property: {shorten(expression)}: write {word.usage}")
        call, outputs = self._application(function, [self.visit(arg) for arg in applied.args], applied.kwargs, applied)
        options = {name: self.visit(value) for name, value in expression.kwargs.items()}
        if isinstance(word, FiniteOutputs):
            return finite_outputs(outputs if isinstance(outputs, tuple) else (outputs,), options, expression)
        goal = validity_goal(call, options, expression)
        return self._goals.setdefault((id(call), goal.only, goal.nodes, goal.gradient), Goal(goal))

    def _derive(self, key: object, name: str, source: Any, derive: Callable[[], Graph]) -> Graph:
        """Return a graph derived from another, the same for the same key."""
        if key not in self._graphs:
            self._graphs[key] = graph = guard(source, derive)
            self._names[id(graph)] = name
        return self._graphs[key]

    def _compose(self, function: Any, args: list[Any], source: Any) -> Graph:
        outer = function.__self__
        if len(args) != 1 or not isinstance(args[0], Graph):
            raise PropertyError(f"property: compose takes one network: {shorten(source)}")
        name = f"{self._names[id(outer)]}.compose({self._names[id(args[0])]})"
        return self._derive(("compose", id(outer), id(args[0])), name, source, lambda: function(args[0]))

    def _free(self, expression: Any, args: list[Any], kwargs: Mapping[str, Any]) -> Graph:
        graph, trained = check_free(expression, args, kwargs)
        names = trained.weights
        text = f"free({self._names[id(graph)]}, {', '.join(map(repr, names))})"
        freed = self._derive(("free", id(graph), trained), text, expression, lambda: graph.free(names))
        if trained.loss:
            self._trainable[id(freed)] = trained
        return freed

    def _apply(self, graph: Graph, args: list[Any], kwargs: Mapping[str, Any], source: Any) -> Any:
        if not kwargs and args and not any(isinstance(arg, _SYMBOLIC) for arg in args):
            return guard(source, lambda: graph(*args))
        return self._application(graph, args, kwargs, source)[1]

    def _application(
        self, graph: Graph, args: list[Any], kwargs: Mapping[str, Any], source: Any
    ) -> tuple[NetworkCall, Any]:
        """Return an application and its output (a tuple of them, if it has several)."""
        name = self._names[id(graph)]
        details = graph.input_details
        if len(args) == 1 and isinstance(args[0], AllInputs):
            args = list(args[0])
        inputs = ", ".join(f"{n} {list(d.shape)}" for n, d in zip(graph.input_names, details, strict=True))
        if kwargs or len(args) != len(details):
            given = f"{len(args)} arguments" if not kwargs else f"the keyword {next(iter(kwargs))!r}"
            raise PropertyError(
                f"property: {shorten(source)}: network {name!r} takes {len(details)} ({inputs}), got {given}"
            )
        terms = tuple(map(as_term, args))
        for term, detail, input_name in zip(terms, details, graph.input_names, strict=True):
            if term.shape != tuple(detail.shape):
                raise PropertyError(
                    f"property: {shorten(source)}: input {input_name!r} of network {name!r} has shape "
                    f"{tuple(detail.shape)}, got {term.shape}"
                )
        keys = [arg if isinstance(arg, Term) else source for arg in args]
        key = (id(graph), tuple(map(id, keys)))
        if key not in self._calls:
            call = NetworkCall(network=name, graph=graph, arguments=terms, trainable=self._trainable.get(id(graph)))
            outputs = tuple(Output(call, i) for i in range(len(graph.output_details)))
            self._calls[key] = (call, outputs[0] if len(outputs) == 1 else outputs)
        return self._calls[key]


def _is_symbolic(value: Any) -> bool:
    """Whether a value depends on the inputs; the outputs of a network with several are a tuple."""
    return isinstance(value, _SYMBOLIC) or (type(value) is tuple and any(isinstance(part, Term) for part in value))
