"""Element expressions that several statements read: computed once a tile, under a name.

A score that a maximum and an exponential both read is such a one. Factors that elements share stay
outside, since `max(x * k)` and `exp(x * k - point)` take them in for nothing:

    max(30 * tanh(s)), exp(30 * tanh(s) - point)   -->   y = tanh(s); max(30 * y), ...

A sum of two products is made one of them, whose factor can stay outside:

    s * k - g * y   -->   (s - (g / k) * y) * k
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from redlang.codegen.cuda.matrix_fills import POSITIVE, kind_of
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.loops import Compute, Fold, Statement
from redlang.ir.program import Apply, Expr, Literal, Load, Ref
from redlang.ir.types import F32, Type
from redlang.schedule import tidy

IsFragment = Callable[[Expr], bool]


def with_shares(body: Sequence[Statement], is_fragment: IsFragment) -> tuple[Statement, ...]:
    """Return statements of which those that read an expression several times read a new one.

    Args:
        body: The element work of a loop.
        is_fragment: Tells elements from values of rows.
    """
    first = {value.name for value in first_values(body, is_fragment)}
    written = frozenset[str]().union(*map(tidy.writes, body)) - first
    counts: Counter[Expr] = Counter()
    for statement in body:
        for expr in _values(statement):
            counts.update(
                node
                for node in walk.nodes(expr)
                if isinstance(node, Apply)
                and node.type.dtype is F32
                and is_fragment(node)
                and not walk.refs(node) & written
            )
    repeated = {expr for expr, count in counts.items() if count > 1}
    inner = {
        node
        for expr in repeated
        for node in walk.nodes(expr)
        if node != expr and counts.get(node) == counts[expr]
    }
    wanted = dict.fromkeys(
        core for expr in repeated - inner if (core := _core(expr, is_fragment)) is not None
    )
    kept = list(body)
    # The largest first, so that none is looked for inside of another that is gone.
    for expr in sorted(wanted, key=lambda e: (-sum(1 for _ in walk.nodes(e)), str(e))):
        type_ = Type(F32, expr.type.axes)
        name = f"shared.{sum(s.name.startswith('shared.') for s in kept if isinstance(s, Compute))}"
        replaced = _replacing(expr, Ref(name, type_))
        kept = [tidy.map_expressions(statement, replaced) for statement in kept]
        place = max(
            (i + 1 for i, s in enumerate(kept) if tidy.writes(s) & walk.refs(expr)), default=0
        )
        kept.insert(place, Compute(name, expr, type_))
    return tuple(kept)


def with_common_factors(
    body: Sequence[Statement],
    builder: Builder,
    is_fragment: IsFragment,
    may_divide: Callable[[Expr], bool],
) -> tuple[Statement, ...]:
    """Return statements in which sums of products have a factor of the whole sum.

    Args:
        body: The element work of a loop.
        builder: The kernel's.
        is_fragment: Tells elements from values of rows.
        may_divide: Tells the values of rows that others may be divided by instead.
    """

    def rule(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.op in ("add", "sub") and node.type.dtype is F32:
            first, second = (_taken_apart(argument, is_fragment) for argument in node.arguments)
            if first is not None and second is not None and may_divide(first[1]):
                (x, k), (y, g) = first, second
                moved = builder.mul(builder.apply("div", g, k), y)
                return builder.mul(builder.apply(node.op, x, moved), k)
        return node

    return tuple(tidy.map_expressions(s, lambda e: walk.rewrite(e, rule)) for s in body)


def with_joined_factors(
    body: Sequence[Statement],
    builder: Builder,
    is_fragment: IsFragment,
    may_move: Callable[[Expr], bool],
) -> tuple[Statement, ...]:
    """Return statements in which factors that elements share meet before they meet the elements.

        x * k * c   -->   x * (k * c)

    Args:
        body: The element work of a loop.
        builder: The kernel's.
        is_fragment: Tells elements from values of rows.
        may_move: Tells the factors that may change places freely.
    """

    def rule(node: Expr) -> Expr:
        outer = _taken_apart(node, is_fragment) if node.type.dtype is F32 else None
        inner = None if outer is None else _taken_apart(outer[0], is_fragment)
        if outer is not None and inner is not None:
            (_, c), (x, k) = outer, inner
            if may_move(c) or may_move(k):
                return builder.mul(x, builder.mul(k, c))
        return node

    return tuple(tidy.map_expressions(s, lambda e: walk.rewrite(e, rule)) for s in body)


def _taken_apart(expr: Expr, is_fragment: IsFragment) -> tuple[Expr, Expr] | None:
    """Return x and k of elements x * k that share k."""
    if isinstance(expr, Apply) and expr.op == "mul":
        for x, k in (expr.arguments, expr.arguments[::-1]):
            if is_fragment(x) and not is_fragment(k):
                return x, k
    return None


def without_scalings(
    body: Sequence[Statement], readers: Sequence[Statement], is_fragment: IsFragment
) -> tuple[Statement, ...]:
    """Write values that are others times what elements share out where they are read.

    They cost nothing there, and registers as values; so do differences of them from a value of
    rows, which exponentials take in. On the way x + x becomes x * 2, and factors
    are joined to it where that is exact. What products and joins of states read keeps its name.

    Args:
        body: The element work of a loop.
        readers: All of the loop that may read them.
        is_fragment: Tells elements from values of rows.
    """
    whole = [s for s in (*body, *readers) if not isinstance(s, Compute | Fold)]
    named = frozenset[str]().union(*map(tidy.reads, whole))
    scaled: dict[str, Expr] = {}
    kept: list[Statement] = []

    def rule(node: Expr) -> Expr:
        if isinstance(node, Ref) and node.name in scaled:
            return scaled[node.name]
        if isinstance(node, Apply) and node.op == "add" and node.type.dtype is F32:
            a, b = node.arguments
            if a == b and is_fragment(a):
                return _doubled(a, is_fragment)
        return node

    for statement in body:
        done = tidy.map_expressions(statement, lambda e: walk.rewrite(e, rule))
        if (
            isinstance(done, Compute)
            and done.type.dtype is F32
            and done.name not in named
            and is_fragment(Ref(done.name, done.type))
            and _is_scaled(done.value, is_fragment)
            and not isinstance(done.value, Load)
        ):
            scaled[done.name] = done.value
        elif isinstance(done, Compute) and done.name not in named and _splits(done, is_fragment):
            core = _core(done.value, is_fragment)
            assert core is not None
            own = Compute(f"{done.name}.core", core, Type(F32, core.type.axes))
            kept.append(own)
            scaled[done.name] = _replacing(core, Ref(own.name, own.type))(done.value)
        else:
            kept.append(done)
    return tuple(kept)


def _splits(statement: Compute, is_fragment: IsFragment) -> bool:
    """Say whether a value is something computed of elements, times constants of the unit."""
    value = statement.value
    if statement.type.dtype is not F32 or not is_fragment(Ref(statement.name, statement.type)):
        return False
    core = _core(value, is_fragment)
    return core is not None and core != value and _shared_by_all(value, core)


def _shared_by_all(value: Expr, core: Expr) -> bool:
    """Say whether the factors beside a part of a product are positive and the same for all."""
    while value != core:
        assert isinstance(value, Apply)
        inner, factor = value.arguments
        if core not in tuple(walk.nodes(inner)):
            inner, factor = factor, inner
        if factor.type.axes or kind_of(factor, {}) != POSITIVE:
            return False
        value = inner
    return True


def _is_scaled(value: Expr, is_fragment: IsFragment) -> bool:
    """Say whether a value is another one times what elements share, less a value of rows."""
    if isinstance(value, Apply) and value.op == "sub" and not is_fragment(value.arguments[1]):
        value = value.arguments[0]
    return _core(value, is_fragment) is None


def _doubled(expr: Expr, is_fragment: IsFragment) -> Expr:
    """Return an expression times two, the two among its factors of rows: exact, as powers are."""
    two = Literal(2.0, Type(F32, weak=True))
    if isinstance(expr, Apply) and expr.op == "mul":
        a, b = expr.arguments
        if not is_fragment(b):
            return Apply("mul", (a, Apply("mul", (b, two), b.type)), expr.type)
        if not is_fragment(a):
            return Apply("mul", (Apply("mul", (a, two), a.type), b), expr.type)
    return Apply("mul", (expr, two), expr.type)


def _replacing(old: Expr, new: Expr) -> Callable[[Expr], Expr]:
    return lambda value: walk.rewrite(value, lambda node: new if node == old else node)


def first_values(body: Sequence[Statement], is_fragment: IsFragment) -> list[Compute]:
    """Return the element values of a body that read no result of its folds."""
    written = frozenset[str]().union(*map(tidy.writes, body))
    found: list[Compute] = []
    for statement in body:
        if isinstance(statement, Compute) and is_fragment(Ref(statement.name, statement.type)):
            before = {value.name for value in found}
            if statement.type.dtype is F32 and not walk.refs(statement.value) & (written - before):
                found.append(statement)
    return found


def _values(statement: Statement) -> tuple[Expr, ...]:
    match statement:
        case Compute(value=value):
            return (value,)
        case Fold(values=values):
            return values
        case _:
            return ()


def _core(expr: Expr, is_fragment: IsFragment) -> Expr | None:
    """Return an expression without the factors that elements share; None if nothing is left."""
    while isinstance(expr, Apply) and expr.op == "mul":
        inner = [argument for argument in expr.arguments if is_fragment(argument)]
        if len(inner) != 1:
            break
        (expr,) = inner
    return None if isinstance(expr, Ref | Load) else expr


def is_moved(statement: Statement, state: str) -> bool:
    """Say whether a statement is `state` times factors that do not read it."""
    if not isinstance(statement, Compute):
        return False
    reading = [f for f in walk.factors(statement.value) if state in walk.refs(f)]
    return len(reading) == 1 and isinstance(reading[0], Ref)
