"""Reduction of a DNNP property and its networks to a `Problem`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dnnv.properties import Expression
from dnnv.properties.expressions import Call, Exists, Network, Not, Quantifier

from ranum_falsify.errors import PropertyError
from ranum_falsify.network import Graph
from ranum_falsify.process.starting import pause_collector
from ranum_falsify.properties.formula.circuit import Choice
from ranum_falsify.properties.formula.formula import (
    Formula,
    Goal,
    Truth,
    conjunction,
    negate,
    walk,
)
from ranum_falsify.properties.formula.terms import Term, Variable
from ranum_falsify.properties.language.walk import is_free_symbol, shorten, subexpressions
from ranum_falsify.properties.problem.box import BoxBuilder, conjuncts
from ranum_falsify.properties.problem.cases import BoxCase, split
from ranum_falsify.properties.problem.problem import InputVariable, Problem
from ranum_falsify.properties.problem.robustness import Interpreter
from ranum_falsify.properties.problem.words import AllInputs


def reduce(phi: Expression, networks: Mapping[str, Graph], *, may_be_empty: bool = False) -> Problem:
    """Reduce a property to boxes, network applications and margins.

    Args:
        phi: The property, with its parameters applied, as `parse` returns it.
        networks: The graph of each network that the property names.
        may_be_empty: Whether the conditions on the inputs may exclude all of them; then there are no regions.

    Raises:
        PropertyError: The property does not fit the networks, leaves an input unbounded, or is not a statement about
            all inputs.
        ModelError: A slice, composition or freed weight does not exist.
    """
    try:
        with pause_collector():
            return _reduce(phi, networks, may_be_empty=may_be_empty)
    except RecursionError as error:
        raise PropertyError(
            "property: it is nested too deeply; join parts by And(a, b, c) in place of And(a, And(b, c))"
        ) from error


def _reduce(phi: Expression, networks: Mapping[str, Graph], *, may_be_empty: bool) -> Problem:
    names, body = _strip_quantifiers(phi)
    parts = list(subexpressions(phi))
    _check_networks(parts, networks)
    interpreter = Interpreter(networks)
    interpreter.variables.update(_variables(parts, names, interpreter))
    variables = _map_by_name(interpreter.variables)
    violation = _violation(interpreter, body)
    if isinstance(violation, Truth):
        raise PropertyError(f"property: it is always {str(not violation.value).lower()}, whatever the inputs")
    cases = split(violation, BoxBuilder(variables))
    if not any(case.violated for case in cases):
        raise PropertyError("property: its truth does not depend on what any network computes")
    if may_be_empty and all(case.box.is_empty for case in cases):
        cases[0].box.exchange_ends()
        return replace(_assemble(cases[:1], interpreter), regions=())
    return _assemble(cases, interpreter)


def _violation(interpreter: Interpreter, body: Expression) -> Formula:
    """Return what a counterexample satisfies; of a negation, which queries are, without negating it twice."""
    return interpreter.formula(body.expr) if isinstance(body, Not) else negate(interpreter.formula(body))


def _assemble(cases: Sequence[BoxCase], interpreter: Interpreter) -> Problem:
    """Return the problem of all cases; those that differ in their boxes alone become regions."""
    if len(cases) > 1:
        cases = [case for case in cases if not case.box.is_empty]
        if not cases:
            raise PropertyError("property: no input satisfies its conditions; are lower and upper bounds exchanged?")
    inputs = cases[0].box.hull([case.box for case in cases]).finish() if len(cases) > 1 else cases[0].box.finish()
    regions = BoxBuilder.finish_each([case.box for case in cases]) if len(cases) > 1 else [inputs]
    groups: dict[tuple[tuple[int, ...], ...], list[tuple[BoxCase, tuple[InputVariable, ...]]]] = {}
    for case, region in zip(cases, regions, strict=True):
        key = tuple(tuple(map(id, formulas)) for formulas in (case.violated, case.penalties))
        groups.setdefault(key, []).append((case, region))
    used = _find_used([formula for case in cases for formula in (*case.violated, *case.penalties)])
    calls = tuple(call for call in interpreter.calls if id(call) in used)
    goals = tuple(goal for goal in interpreter.goals if id(goal) in used)
    problems = tuple(
        Problem(
            inputs=inputs,
            regions=tuple(region for _, region in group),
            calls=calls,
            goals=goals,
            clauses=conjuncts(negate(conjunction(case.violated))),
            penalties=tuple(case.penalties),
        )
        for group in groups.values()
        for case, _ in group[:1]
    )
    if len(problems) == 1:
        return problems[0]
    return Problem(
        inputs=inputs,
        regions=tuple(region for problem in problems for region in problem.regions),
        calls=calls,
        goals=goals,
        clauses=tuple(clause for problem in problems for clause in problem.clauses),
        penalties=(),
        cases=problems,
    )


def _strip_quantifiers(phi: Expression) -> tuple[list[str], Expression]:
    """Return the names of the quantified variables, outermost first, and the formula over them."""
    names: list[str] = []
    negated = False
    while True:
        if isinstance(phi, Not) and isinstance(phi.expr, Quantifier | Not):
            negated, phi = not negated, phi.expr
        elif isinstance(phi, Quantifier):
            if isinstance(phi, Exists) != negated:
                raise PropertyError(
                    f"property: no input can falsify Exists({phi.variable}, ...); state the property with Forall"
                )
            name = phi.variable.identifier
            if name in names:
                raise PropertyError(f"property: {name!r} is quantified twice")
            names.append(name)
            phi = phi.expression
        else:
            break
    if not names:
        raise PropertyError("property: it quantifies no input; write Forall(x, Implies(lb <= x <= ub, ...))")
    return names, Not(phi) if negated else phi


def _check_networks(parts: Sequence[Expression], networks: Mapping[str, Graph]) -> None:
    mentioned = {e.identifier for e in parts if isinstance(e, Network)}
    text = ", ".join(sorted(mentioned)) or "none"
    for name in sorted(mentioned - networks.keys()):
        given = ", ".join(sorted(networks)) or "none"
        hint = f"add --network {name} MODEL.onnx"
        raise PropertyError(f"property: network {name!r} was not given (given: {given}); {hint}")
    for name in sorted(networks.keys() - mentioned):
        hint = f"it mentions: {text}"
        raise PropertyError(f"property: network {name!r} was given, but the property does not mention it; {hint}")


def _map_by_name(variables: Mapping[str, Variable | AllInputs]) -> dict[str, Variable]:
    """Return the inputs by their own names."""
    result: dict[str, Variable] = {}
    for variable in variables.values():
        for single in variable if isinstance(variable, AllInputs) else (variable,):
            result[single.name] = single
    return result


def _variables(
    parts: Sequence[Expression], names: list[str], interpreter: Interpreter
) -> dict[str, Variable | AllInputs]:
    """Return the variables, with shape and dtype of the network input that each is, or is part of."""
    direct: dict[str, tuple[Variable | AllInputs, str]] = {}
    indirect: dict[str, Variable] = {}
    for call in (e for e in parts if isinstance(e, Call)):
        if not _is_network(call.function):
            continue
        graph = interpreter.visit(call.function)
        if not isinstance(graph, Graph):
            continue
        if len(call.args) == 1 < len(graph.input_details) and is_free_symbol(call.args[0]):
            _bind(direct, call.args[0].identifier, _make_variables(graph, call.args[0].identifier, names), call)
            continue
        for arg, details in zip(call.args, graph.input_details, strict=False):
            shape, dtype = tuple(int(d) for d in details.shape), np.dtype(details.dtype)
            if is_free_symbol(arg) and arg.identifier in names:
                _bind(direct, arg.identifier, Variable(arg.identifier, shape, dtype), call)
            else:
                for part in subexpressions(arg):
                    if is_free_symbol(part) and part.identifier in names:
                        indirect.setdefault(part.identifier, Variable(part.identifier, shape, dtype))
    found: dict[str, Variable | AllInputs] = {**indirect, **{name: value for name, (value, _) in direct.items()}}
    for name in names:
        if name not in found:
            raise PropertyError(f"property: {name!r} is quantified but no network is applied to it, as in N({name})")
    return {name: found[name] for name in names}


def _make_variables(graph: Graph, name: str, names: list[str]) -> AllInputs:
    """Return a variable for each input, named like it unless the property uses that name otherwise."""
    taken = set(names) - {name}
    return AllInputs(
        Variable(
            f"{name}.{own}" if own in taken else own, tuple(int(d) for d in details.shape), np.dtype(details.dtype)
        )
        for own, details in zip(graph.input_names, graph.input_details, strict=True)
    )


def _is_network(function: Any) -> bool:
    """Whether a called expression can be a network: only then is it evaluated, before the variables are known."""
    parts = list(subexpressions(function))
    return any(isinstance(part, Network) for part in parts) and not any(map(is_free_symbol, parts))


def _bind(
    bound: dict[str, tuple[Variable | AllInputs, str]], name: str, variable: Variable | AllInputs, call: Expression
) -> None:
    other, where = bound.setdefault(name, (variable, shorten(call)))
    if _type_text(other) != _type_text(variable):
        raise PropertyError(
            f"property: {name!r} is {_type_text(other)} in {where}, but {_type_text(variable)} in {shorten(call)}"
        )


def _type_text(variable: Variable | AllInputs) -> str:
    if isinstance(variable, AllInputs):
        return ", ".join(map(_type_text, variable))
    return f"{variable.dtype} {list(variable.shape)}"


def _find_used(formulas: Sequence[Formula]) -> set[int]:
    """Return the ids of the applications and goals that formulas depend on."""
    used: set[int] = set()
    for part in walk(formulas, _arguments_and_conditions):
        if isinstance(part, Goal):
            used |= {id(part.goal), id(part.goal.call)}
        elif isinstance(part, Term) and (call := getattr(part, "call", None)) is not None:
            used.add(id(call))
    return used


def _arguments_and_conditions(part: Any) -> Sequence[Any]:
    if isinstance(part, Goal):
        return part.goal.call.arguments
    return (part.formula,) if isinstance(part, Choice) else ()
