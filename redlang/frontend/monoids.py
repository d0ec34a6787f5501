"""User's monoids: functions init, lift, combine and finish over a state of one or more parts.

    @redlang.monoid
    class logsumexp:
        def init():
            return -inf, 0.0
        def lift(x):
            return x, 1.0
        def combine(a, b):
            m = maximum(a[0], b[0])
            return m, a[1] * exp(a[0] - m) + b[1] * exp(b[0] - m)
        def finish(a):
            return a[0] + log(a[1])

`lift` may be left out where the state is the element itself, `finish` where it is the result. A
state of one part is its value; several parts are taken apart by `m, s = a` or `a[0]`, or are listed
as parameters: `combine(m, s, n, t)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.errors import AbsenceError, DTypeError, RedlangError, UnknownNameError
from redlang.frontend import syntax
from redlang.frontend.draft import Frame, Tuple, Value
from redlang.frontend.reductions import check_axes
from redlang.frontend.scope import UserMonoid
from redlang.frontend.typing import coerce, promote
from redlang.frontend.wording import are, counted
from redlang.ir.program import Expr, Monoid, Reduce, Ref
from redlang.ir.types import BOOL, DType, Type

METHODS = ("init", "lift", "combine", "finish")


def reduce(
    frame: Frame,
    node: syntax.Call,
    entity: UserMonoid,
    axes: Sequence[str],
    operands: Sequence[Expr],
) -> Reduce | None:
    """Return the reduction of `operands` by a user's monoid; None if it has a mistake.

    Raises:
        DTypeError: The number of operands, or the states' types, do not fit.
    """
    span = frame.at(node.span)
    check_axes(frame.draft, node.function.text, axes, operands, node.span)
    monoid = _Resolver(frame, node, entity).monoid([o.type.dtype for o in operands])
    if monoid is None:
        return None
    kept = frame.draft.order(
        [[axis for axis in operand.type.axes if axis not in axes] for operand in operands]
    )
    types = tuple(Type(part.type.dtype, kept) for part in monoid.finish)
    return Reduce("monoid", tuple(axes), tuple(operands), None, types, monoid=monoid, span=span)


class _Resolver:
    """Resolves the methods of one monoid for given element types."""

    def __init__(self, frame: Frame, node: syntax.Call, entity: UserMonoid) -> None:
        self.frame, self.node, self.entity = frame, node, entity
        self.methods = {method.name: method for method in entity.syntax.methods}

    def monoid(self, elements: Sequence[DType]) -> Monoid | None:
        """Return the monoid, its state typed by what init, lift and combine give."""
        name = self.entity.syntax.name
        for required in ("init", "combine"):
            if required not in self.methods:
                raise UnknownNameError(
                    f"monoid {name} has no method {required}",
                    hint="a monoid has init and combine, and may have lift and finish",
                    span=self.node.span,
                )
        for method in self.methods:
            if method not in METHODS:
                raise UnknownNameError(
                    f"monoid {name} has a method {method}, which means nothing",
                    hint=f"methods are {', '.join(METHODS)}",
                    span=self.node.span,
                )
        init = self._run("init", [])
        xs = [_ref(f"x.{i}", dtype) for i, dtype in enumerate(elements)]
        lift = self._run("lift", xs) if "lift" in self.methods else xs
        if init is None or lift is None:
            return None
        self._same_length("lift", lift, init)
        states = [_meet([a.type, b.type]) for a, b in zip(init, lift, strict=True)]
        combine = self._combine(states)
        if combine is None:
            return None
        widened = [_meet([part.type, Type(s)]) for part, s in zip(combine, states, strict=True)]
        if widened != states:
            states = widened
            combine = self._combine(states)
            if combine is None:
                return None
        a = [_ref(f"a.{i}", dtype) for i, dtype in enumerate(states)]
        finish = self._run("finish", _grouped(a)) if "finish" in self.methods else a
        if finish is None:
            return None
        return Monoid(
            name, _all(init, states), _all(lift, states), _all(combine, states), tuple(finish)
        )

    def _combine(self, states: Sequence[DType]) -> list[Expr] | None:
        a = [_ref(f"a.{i}", dtype) for i, dtype in enumerate(states)]
        b = [_ref(f"b.{i}", dtype) for i, dtype in enumerate(states)]
        parts = self._run("combine", [*_grouped(a), *_grouped(b)])
        if parts is not None:
            self._same_length("combine", parts, states)
        return parts

    def _same_length(self, method: str, parts: Sequence[object], states: Sequence[object]) -> None:
        if len(parts) != len(states):
            raise DTypeError(
                f"{method} of monoid {self.entity.syntax.name} gives "
                f"{counted(len(parts), 'part')}, and init gives {len(states)}",
                hint="init, lift and combine return the same parts",
                span=self.node.span,
            )

    def _run(self, name: str, values: Sequence[Value]) -> list[Expr] | None:
        """Resolve a method's body with `values` for its parameters."""
        method, outer = self.methods[name], self.frame
        label = f"{self.entity.syntax.name}.{name}"
        frame = Frame(
            outer.draft,
            method,
            self.entity.source,
            self.entity.scope,
            called=outer.at(self.node.span),
            inline=True,
            path=(f"{label} is used by {self.node.function.text}", *outer.path),
        )
        try:
            frame.bindings = self._bindings(method, label, values)
        except RedlangError as error:
            frame.report(error, method.span)
            return None
        frame.fixed = set(frame.bindings)
        parts = outer.draft.body(frame)
        for part in parts:
            if part is not None and part.type.absent:
                problem = f"{label} may return something absent"
                frame.report(
                    AbsenceError(problem, hint="where(c, a, b) chooses"), method.body[-1].span
                )
                return None
        return None if any(part is None for part in parts) else [p for p in parts if p is not None]

    def _bindings(
        self, method: syntax.Function, label: str, values: Sequence[Value]
    ) -> dict[str, Value]:
        names = [parameter.name for parameter in method.parameters]
        flat: list[Value] = [
            part for v in values for part in (v.parts if isinstance(v, Tuple) else (v,))
        ]
        for candidate in (list(values), flat):
            if len(candidate) == len(names):
                return dict(zip(names, candidate, strict=True))
        raise DTypeError(
            f"{label} has {counted(len(names), 'parameter')}, and "
            f"{counted(len(values), 'value')} {are(len(values))} given",
            span=method.span,
        )


def _ref(name: str, dtype: DType) -> Ref:
    return Ref(name, Type(dtype))


def _grouped(parts: Sequence[Ref]) -> list[Value]:
    return [parts[0]] if len(parts) == 1 else [Tuple(tuple(parts))]


def _meet(types: Sequence[Type]) -> DType:
    return BOOL if all(type_.dtype is BOOL for type_ in types) else promote(types)[0]


def _all(parts: Sequence[Expr], states: Sequence[DType]) -> tuple[Expr, ...]:
    return tuple(coerce(part, dtype) for part, dtype in zip(parts, states, strict=True))
