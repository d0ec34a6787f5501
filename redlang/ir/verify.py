"""What must hold of a program and of a sweep, between any two stages.

A broken rule is a mistake of redlang's own, never of a user: it is raised as `InternalError` with
the printed value. `verify` runs between stages in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from redlang.errors import InternalError
from redlang.ir import walk
from redlang.ir.build import same_type
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, State, Step, Sweep
from redlang.ir.operators import OPERATORS, REDUCTIONS
from redlang.ir.printing import to_text, type_text
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Cast,
    Expr,
    Fill,
    Index,
    Load,
    Mask,
    Monoid,
    Program,
    Reduce,
    Ref,
    Result,
    Scalar,
    Size,
)
from redlang.ir.program import Literal as Constant
from redlang.ir.types import BOOL, Type, compute_type

Form = Literal["resolved", "normalised"]


def verify(program: Program, form: Form = "resolved") -> None:
    """Check a program.

    Args:
        program: What to check.
        form: `normalised` also demands that masks, guards and absent types are gone.

    Raises:
        InternalError: A rule is broken; the message says which, and shows the program.
    """
    _raise(_program(program, form), program)


def verify_sweep(sweep: Sweep, program: Program) -> None:
    """Check a sweep against the normalised program that it was derived from.

    Raises:
        InternalError: A rule is broken; the message says which, and shows the sweep.
    """
    _raise(_sweep(sweep, program), sweep)


def _raise(problems: Iterable[str], value: Program | Sweep) -> None:
    found = list(problems)
    if found:
        hint = f"this is a mistake of redlang's own; please report it with\n{to_text(value)}"
        raise InternalError("; ".join(found), hint=hint)


@dataclass(frozen=True, slots=True)
class _Names:
    """What expressions may speak of: axes, parameters, and the types of earlier names."""

    order: tuple[str, ...]
    arrays: Mapping[str, ArrayParam]
    scalars: frozenset[str]
    form: Form
    types: dict[str, Type] = field(default_factory=dict)


def _names(program: Program, form: Form) -> _Names:
    return _Names(
        tuple(axis.name for axis in program.axes),
        {param.name: param for param in program.params if isinstance(param, ArrayParam)},
        frozenset(p.name for p in program.params if not isinstance(p, ArrayParam)),
        form,
    )


def _program(program: Program, form: Form) -> Iterator[str]:
    names = _names(program, form)
    yield from _unique("axis", names.order)
    yield from _unique("parameter", [param.name for param in program.params])
    yield from _unique("definition", [n for d in program.definitions for n in d.names])
    for axis in program.axes:
        if axis.extent is not None and not isinstance(axis.extent, int):
            yield from _expr(axis.extent, names)
    for param in names.arrays.values():
        if not set(param.axes) <= set(names.order):
            yield f"{param.name} has an axis that is not declared"
    for definition in program.definitions:
        value = definition.value
        types = walk.value_types(value)
        if len(types) != len(definition.names):
            yield f"{', '.join(definition.names)}: {len(types)} values"
        yield from _reduce(value, names) if isinstance(value, Reduce) else _expr(value, names)
        names.types.update(zip(definition.names, types, strict=False))
    for result in program.results:
        yield from _result(result, names)


def _result(result: Result, names: _Names) -> Iterator[str]:
    yield from _expr(result.value, names)
    if result.condition is not None:
        yield from _truth(result.condition, names)
    if not set(result.value.type.axes) <= set(result.axes):
        yield f"a result over {result.axes} has a value over {result.value.type.axes}"
    if not set(result.axes) <= set(names.order):
        yield "a result has an axis that is not declared"
    if result.value.type.absent and result.condition is None:
        yield "a result may be absent"


def _unique(what: str, names: Sequence[str]) -> Iterator[str]:
    for name in sorted(set(names)):
        if names.count(name) > 1:
            yield f"{what} {name} is defined {names.count(name)} times"


def _reduce(node: Reduce, names: _Names) -> Iterator[str]:
    for expr in walk.expressions(node):
        yield from _expr(expr, names)
    if node.op not in (*REDUCTIONS, "monoid"):
        yield f"no reduction {node.op!r}"
    if (node.op == "monoid") != (node.monoid is not None):
        yield f"a reduction {node.op!r} with the wrong monoid"
    if node.monoid is not None:
        yield from _monoid(node.monoid, len(node.operands))
    if node.op != "monoid" and len(node.operands) != 1:
        yield f"{node.op} of {len(node.operands)} operands"
    if {node.k is not None, node.new_axis is not None} != {node.op == "topk"}:
        yield "topk, and only topk, has k and a new axis"
    if node.condition is not None:
        if names.form == "resolved":
            yield "a condition before normalise"
        yield from _truth(node.condition, names)
    if len(set(node.axes)) != len(node.axes):
        yield f"{node.op} reduces an axis twice"
    used = {axis for expr in walk.expressions(node) for axis in expr.type.axes}
    if not set(node.axes) <= used:
        yield f"{node.op} reduces {node.axes} of something over {tuple(sorted(used))}"
    kept = (used - set(node.axes)) | ({node.new_axis} if node.new_axis is not None else set())
    for type_ in node.types:
        if type_.absent:
            yield f"the result of {node.op} may be absent"
        if type_.axes != _ordered(kept, names):
            yield f"{node.op} has axes {type_.axes} instead of {_ordered(kept, names)}"


def _monoid(monoid: Monoid, operands: int) -> Iterator[str]:
    """Check that a monoid's four parts speak of one state and of as many elements."""
    size = len(monoid.init)
    element = {f"x.{i}" for i in range(operands)}
    left, right = ({f"{side}.{i}" for i in range(size)} for side in "ab")
    parts = (
        ("init", monoid.init, set[str](), size),
        ("lift", monoid.lift, element, size),
        ("combine", monoid.combine, left | right, size),
        ("finish", monoid.finish, left, len(monoid.finish)),
    )
    for part, exprs, known, expected in parts:
        if len(exprs) != expected:
            yield f"{monoid.name}: {part} has {len(exprs)} parts instead of {expected}"
        for unknown in sorted(frozenset[str]().union(*map(walk.refs, exprs)) - known):
            yield f"{monoid.name}: {part} reads {unknown}"
    for values in zip(monoid.init, monoid.lift, monoid.combine, strict=False):
        if len({value.type.dtype for value in values}) > 1:
            yield f"{monoid.name}: a state of types {', '.join(str(v.type.dtype) for v in values)}"


def _ordered(axes: Iterable[str], names: _Names) -> tuple[str, ...]:
    wanted = set(axes)
    return tuple(axis for axis in names.order if axis in wanted)


def _truth(condition: Expr, names: _Names) -> Iterator[str]:
    if condition.type.dtype is not BOOL:
        yield f"a condition of type {type_text(condition.type)}"
    yield from _expr(condition, names)


def _expr(expr: Expr, names: _Names) -> Iterator[str]:
    for node in walk.nodes(expr):
        for problem in _node(node, names):
            yield f"{problem} in {to_text(node)}"


def _node(node: Expr, names: _Names) -> Iterator[str]:
    parts = walk.children(node)
    axes = {axis for part in parts for axis in part.type.axes}
    absent = any(part.type.absent for part in parts)
    if node.type.dtype is not compute_type(node.type.dtype):
        yield f"the storage type {node.type.dtype} is computed with"
    if names.form == "normalised" and node.type.absent:
        yield "an element may be absent after normalise"
    match node:
        case Constant():
            pass
        case Index(axis):
            axes = {axis}
        case Size(axis):
            if axis not in names.order:
                yield f"no axis {axis}"
        case Scalar(name):
            if name not in names.scalars:
                yield f"no scalar {name}"
        case Ref(name):
            known = names.types.get(name)
            if known is None:
                yield f"{name} is not defined before"
            elif not same_type(known, node.type):
                yield f"{name} has type {type_text(known)}, not {type_text(node.type)}"
            return
        case Load():
            absent = absent or any(node.guarded)
            yield from _load(node, names)
        case Apply():
            yield from _apply(node)
        case Cast():
            if node.type.dtype is not compute_type(node.to):
                yield f"a cast to {node.to} has type {node.type.dtype}"
        case Mask():
            absent = True
            if node.condition.type.dtype is not BOOL:
                yield "a mask by something that is not bool"
        case Fill():
            absent = node.value.type.absent
    if names.form == "normalised" and isinstance(node, Mask | Fill):
        yield "a mask after normalise"
    if node.type.axes != _ordered(axes, names) or not axes <= set(names.order):
        yield f"axes {node.type.axes} instead of {_ordered(axes, names)}"
    if node.type.absent != absent:
        yield f"absent is {node.type.absent} instead of {absent}"


def _load(node: Load, names: _Names) -> Iterator[str]:
    param = names.arrays.get(node.array)
    if param is None:
        yield f"no array {node.array}"
        return
    if not len(param.axes) == len(node.subscripts) == len(node.guarded):
        yield f"{len(node.subscripts)} subscripts for {len(param.axes)} axes"
    if node.type.dtype is not compute_type(param.dtype):
        yield f"{node.array} holds {param.dtype} and is read as {node.type.dtype}"
    if any(part.type.dtype.kind not in ("int", "uint") for part in node.subscripts):
        yield "a subscript that is no integer"
    if names.form == "normalised" and any(node.guarded):
        yield "a guarded load after normalise"


def _apply(node: Apply) -> Iterator[str]:
    operator = OPERATORS.get(node.op)
    if operator is None:
        yield f"no operator {node.op!r}"
        return
    if len(node.arguments) != operator.arity:
        yield f"{node.op} takes {operator.arity} arguments"
        return
    dtypes = [part.type.dtype for part in node.arguments]
    match operator.rule:
        case "compare" | "test":
            same, result_fits = dtypes, node.type.dtype is BOOL
        case "where":
            same, result_fits = dtypes[1:], node.type.dtype is dtypes[1]
            if dtypes[0] is not BOOL:
                yield "where by something that is not bool"
        case _ if node.op == "ldexp":
            same, result_fits = dtypes[:1], node.type.dtype is dtypes[0]
        case _:
            same, result_fits = dtypes, node.type.dtype is dtypes[0]
    if any(dtype is not same[0] for dtype in same):
        yield f"arguments of types {', '.join(map(str, dtypes))}"
    if not result_fits:
        yield f"{node.op} of {', '.join(map(str, dtypes))} has type {node.type.dtype}"


def _sweep(sweep: Sweep, program: Program) -> Iterator[str]:
    names = _names(program, "normalised")
    types = walk.definition_types(program)
    own = {state.name: state.type for state in sweep.states}
    visible = {name: type_ for name, type_ in types.items() if name not in sweep.stages}
    yield from _unique("state", [state.name for state in sweep.states])
    if not set(sweep.axes) <= set(names.order):
        yield f"no axes {sweep.axes}"
    for state in sweep.states:
        yield from _state(state, sweep, names)
    names.types.update({**visible, **own})
    yield from _steps(sweep.update, sweep, names)
    yield from _commits(sweep.commits, own, names)
    names.types.clear()
    both = {f"{side}.{name}": type_ for side in "ab" for name, type_ in own.items()}
    names.types.update({**visible, **both})
    yield from _steps(sweep.merge, sweep, names)
    yield from _commits(sweep.merge_commits, own, names)
    if sorted(commit.state for commit in sweep.merge_commits) != sorted(own):
        yield "merge does not commit every state once"
    names.types.clear()
    names.types.update({**visible, **own})
    for step in sweep.finish:
        _admit_lists(step, sweep, program, names)
        yield from _steps((step,), sweep, names)
    for stage in sweep.stages:
        if stage not in types:
            yield f"no definition {stage}"
        elif stage not in names.types:
            yield f"{stage} is not finished"
        elif not same_type(names.types[stage], types[stage]):
            yield f"{stage} is finished as {type_text(names.types[stage])}"


def _admit_lists(step: Let, sweep: Sweep, program: Program, names: _Names) -> None:
    """Let `step` read the k slots of a top-k state along an axis of extent k."""
    lists = {state.name: state.k for state in sweep.states if state.k is not None}
    extents = {axis.name: axis.extent for axis in program.axes}
    for node in walk.nodes(step.value):
        if isinstance(node, Ref) and node.name in lists:
            known = names.types[node.name]
            new = [axis for axis in node.type.axes if axis not in known.axes]
            if len(new) == 1 and extents.get(new[0]) == lists[node.name]:
                names.types[node.name] = replace(known, axes=_ordered({*known.axes, *new}, names))


def _state(state: State, sweep: Sweep, names: _Names) -> Iterator[str]:
    yield from _expr(state.initial, names)
    if set(state.type.axes) & set(sweep.axes):
        yield f"state {state.name} varies along the swept axes"
    if state.initial.type.dtype is not state.type.dtype:
        yield f"state {state.name} starts as {type_text(state.initial.type)}"


def _steps(steps: Sequence[Step], sweep: Sweep, names: _Names) -> Iterator[str]:
    for step in steps:
        match step:
            case Each(name, value) | Let(name, value):
                yield from _expr(value, names)
                defined = {name: value.type}
                if isinstance(step, Let) and set(value.type.axes) & set(sweep.axes):
                    yield f"{name} varies along the swept axes"
            case Partial(step_names, op, values, condition, types):
                for value in values:
                    yield from _expr(value, names)
                if condition is not None:
                    yield from _truth(condition, names)
                yield from _results(step_names, op, types, sweep)
                defined = dict(zip(step_names, types, strict=False))
            case Combine(step_names, op, left, right, types):
                for side in (left, right):
                    yield from _side(side, types, names)
                yield from _results(step_names, op, types, sweep)
                defined = dict(zip(step_names, types, strict=False))
        for name in defined:
            if name in names.types:
                yield f"{name} is defined twice"
        names.types.update(defined)


def _results(
    step_names: Sequence[str], op: str, types: Sequence[Type], sweep: Sweep
) -> Iterator[str]:
    if len(step_names) != len(types):
        yield f"{op} has {len(step_names)} names and {len(types)} types"
    expected = {"argmax": 2, "argmin": 2, "topk": 2, "mantissa": 2, "monoid": len(types)}
    if len(types) != expected.get(op, 1):
        yield f"{op} has {len(types)} results"
    if op not in (*REDUCTIONS, "mantissa", "monoid"):
        yield f"no reduction {op!r}"
    for type_ in types:
        if set(type_.axes) & set(sweep.axes):
            yield f"{op} varies along the swept axes"


def _side(side: Sequence[str], types: Sequence[Type], names: _Names) -> Iterator[str]:
    if len(side) != len(types):
        yield f"a side of {len(side)} parts for {len(types)} results"
    for name, type_ in zip(side, types, strict=False):
        known = names.types.get(name)
        if known is None:
            yield f"{name} is not defined before"
        elif known.dtype is not type_.dtype or not set(known.axes) <= set(type_.axes):
            yield f"{name} of type {type_text(known)} is combined as {type_text(type_)}"


def _commits(commits: Sequence[Commit], states: Mapping[str, Type], names: _Names) -> Iterator[str]:
    yield from _unique("commit of", [commit.state for commit in commits])
    for commit in commits:
        state, value = states.get(commit.state), names.types.get(commit.value)
        if state is None:
            yield f"no state {commit.state}"
        elif value is None:
            yield f"{commit.value} is not defined before"
        elif value.dtype is not state.dtype or not set(value.axes) <= set(state.axes):
            yield f"state {commit.state} of {type_text(state)} becomes {type_text(value)}"
