"""Make lowered statements say no more than they need: copies, neutral elements, separate adds.

Lowering writes every sweep in the same way: states, a loop, new values, a commit. Three rewrites
take away what a sweep does not need, whatever it computes:

    straight line   commit s = v          -->   later reads of s read v
                    combine(initial, p)   -->   p                   (the initial state is neutral)
    in a loop       v = f(s); commit s=v  -->   s = f(s)            (s is not read in between)
                    t = L @ R; v = a + t  -->   v = a; v += L @ R   (t is read once)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from redlang.ir import walk
from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Compute,
    Contract,
    Fold,
    Loop,
    Statement,
    Store,
)
from redlang.ir.program import Apply, Expr, Ref


def tidy(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Return a unit's body with the rewrites above applied."""
    return tuple(_drop_unread(_tidy_list(list(body))))


def _tidy_list(body: list[Statement]) -> list[Statement]:
    """Tidy one list of statements, nested lists first."""
    body = [
        replace(s, body=tuple(_tidy_list(list(s.body)))) if isinstance(s, Loop) else s for s in body
    ]
    # Sweeps that begin and end in this list are straight-line code of their own.
    body = _straight_line(body, only=defined_here(body))
    return _in_place(_accumulate(_forward(body)))


def reads(statement: Statement) -> frozenset[str]:
    """Return the names that a statement reads, nested statements included."""
    names = frozenset[str]()
    for expr in expressions(statement):
        names |= walk.refs(expr)
    match statement:
        case Combine(left=left, right=right):
            names |= {*left, *right}
        case Commit(pairs=pairs):
            names |= {value for _, value in pairs}
        case Contract(accumulate=True, name=name):
            names |= {name}
        case Loop(body=body):
            names |= frozenset[str]().union(*map(reads, body))
        case Branch(then=then, otherwise=otherwise):
            names |= frozenset[str]().union(*map(reads, (*then, *otherwise)))
        case _:
            pass
    return names


def writes(statement: Statement) -> frozenset[str]:
    """Return the names that a statement defines or gives a new value, nested ones included."""
    match statement:
        case Compute(name=name) | Contract(name=name):
            return frozenset({name})
        case Fold(names=names) | Combine(names=names):
            return frozenset(names)
        case Commit(pairs=pairs):
            return frozenset(state for state, _ in pairs)
        case Loop(body=body):
            return frozenset[str]().union(*map(writes, body))
        case Branch(then=then, otherwise=otherwise):
            return frozenset[str]().union(*map(writes, (*then, *otherwise)))
        case Store():
            return frozenset()
        case _:
            assert_never(statement)


def defined_here(body: Iterable[Statement]) -> frozenset[str]:
    """Return the names that statements of this list itself define."""
    names = frozenset[str]()
    for statement in body:
        if not isinstance(statement, Loop | Branch | Commit):
            names |= writes(statement)
    return names


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself."""
    match statement:
        case Compute(value=value) | Store(value=value):
            return (value,)
        case Fold(values=values, condition=condition):
            return values if condition is None else (*values, condition)
        case Contract(left=left, right=right, condition=condition):
            return (left, right) if condition is None else (left, right, condition)
        case Loop(some=some):
            return () if some is None else (some,)
        case Branch(condition=condition):
            return (condition,)
        case Combine() | Commit():
            return ()
        case _:
            assert_never(statement)


def map_expressions(statement: Statement, rule: Callable[[Expr], Expr]) -> Statement:
    """Return a statement with a rule applied to each of its expressions, those inside too."""

    def maybe(value: Expr | None) -> Expr | None:
        return None if value is None else rule(value)

    match statement:
        case Compute() | Store():
            return replace(statement, value=rule(statement.value))
        case Fold(condition=condition):
            values = tuple(map(rule, statement.values))
            return replace(statement, values=values, condition=maybe(condition))
        case Contract(condition=condition):
            left, right = rule(statement.left), rule(statement.right)
            return replace(statement, left=left, right=right, condition=maybe(condition))
        case Loop(some=some):
            body = tuple(map_expressions(s, rule) for s in statement.body)
            return replace(statement, body=body, some=maybe(some))
        case Branch(condition=condition, then=then, otherwise=otherwise):
            bodies = (tuple(map_expressions(s, rule) for s in body) for body in (then, otherwise))
            return Branch(rule(condition), *bodies)
        case Combine() | Commit():
            return statement
        case _:
            assert_never(statement)


def rename(statement: Statement, names: Mapping[str, str]) -> Statement:
    """Return a statement with names replaced where it reads and where it writes."""
    if not names:
        return statement

    def new(name: str) -> str:
        return names.get(name, name)

    def expr(value: Expr) -> Expr:
        return walk.rename(value, names)

    def maybe(value: Expr | None) -> Expr | None:
        return None if value is None else expr(value)

    match statement:
        case Compute():
            return replace(statement, name=new(statement.name), value=expr(statement.value))
        case Fold():
            return replace(
                statement,
                names=tuple(map(new, statement.names)),
                values=tuple(map(expr, statement.values)),
                condition=maybe(statement.condition),
            )
        case Contract():
            return replace(
                statement,
                name=new(statement.name),
                left=expr(statement.left),
                right=expr(statement.right),
                condition=maybe(statement.condition),
            )
        case Combine():
            return replace(
                statement,
                names=tuple(map(new, statement.names)),
                left=tuple(map(new, statement.left)),
                right=tuple(map(new, statement.right)),
            )
        case Commit():
            return Commit(tuple((new(s), new(v)) for s, v in statement.pairs))
        case Store():
            return replace(statement, value=expr(statement.value))
        case Loop():
            body = tuple(rename(s, names) for s in statement.body)
            return replace(statement, body=body, some=maybe(statement.some))
        case Branch():
            return Branch(
                expr(statement.condition),
                tuple(rename(s, names) for s in statement.then),
                tuple(rename(s, names) for s in statement.otherwise),
            )
        case _:
            assert_never(statement)


def _forward(body: list[Statement]) -> list[Statement]:
    """Turn `v = f(s); u = v` into `u = f(s)`, and drop a copy of what nothing changes later."""
    for copy in [s for s in body if isinstance(s, Compute) and isinstance(s.value, Ref)]:
        assert isinstance(copy.value, Ref)
        source, target = copy.value.name, copy.name
        at = next((i for i, s in enumerate(body) if s is copy), None)
        if at is None or copy.value.type.axes != copy.type.axes:
            continue
        makers = [i for i, s in enumerate(body) if source in writes(s)]
        changed = any(target in writes(s) for i, s in enumerate(body) if i != at)
        if not makers or makers[-1] > at or changed or copy.value.type.dtype != copy.type.dtype:
            continue
        later = [rename(s, {target: source}) for s in body[at + 1 :]]
        if source not in defined_here(body) or any(source in writes(s) for s in body[at + 1 :]):
            continue
        body = [*body[:at], *later]
    return body


def _accumulate(body: list[Statement]) -> list[Statement]:
    """Turn `t = L @ R; v = a + t` into `v = a; v += L @ R` where nothing else reads t."""
    for contract in [s for s in body if isinstance(s, Contract) and not s.accumulate]:
        readers = [s for s in body if contract.name in reads(s)]
        if len(readers) != 1:
            continue
        rest = _addend(readers[0], contract.name)
        if rest is None:
            continue
        target, addend = rest
        at = next(i for i, s in enumerate(body) if s is readers[0])
        product = replace(contract, name=target, accumulate=True)
        body[at : at + 1] = [Compute(target, addend, contract.type), product]
        body = [s for s in body if s is not contract]
        if isinstance(addend, Ref) and _moves(addend.name, body):
            body = [
                rename(s, {addend.name: target}) for s in body if not _is_copy(s, target, addend)
            ]
    return body


def _moves(name: str, body: list[Statement]) -> bool:
    """Say whether a value is made once in this list and read once."""
    made = [s for s in body if name in writes(s)]
    read = [s for s in body if name in reads(s)]
    return len(made) == len(read) == 1 and isinstance(made[0], Compute)


def _is_copy(statement: Statement, target: str, source: Ref) -> bool:
    return isinstance(statement, Compute) and (statement.name, statement.value) == (target, source)


def _addend(statement: Statement, name: str) -> tuple[str, Expr] | None:
    """Return (v, a) where `statement` says `v = a + name` and a does not read `name`."""
    match statement:
        case Combine(op="sum", names=(target,), left=(left,), right=(right,), types=(type_,)):
            return (target, Ref(left, type_)) if right == name else None
        case Compute(name=target, value=Apply(op="add", arguments=(a, b)), type=type_):
            for addend, other in ((a, b), (b, a)):
                if isinstance(other, Ref) and other.name == name and name not in walk.refs(addend):
                    return (target, addend) if addend.type.axes == type_.axes else None
            return None
        case _:
            return None


def _straight_line(body: list[Statement], only: frozenset[str]) -> list[Statement]:
    """Replace commits of states that this list defines by renaming, and drop neutral combines."""
    initial: set[str] = set()
    alias: dict[str, str] = {}
    done: list[Statement] = []
    for raw in body:
        statement = rename_reads(raw, alias)
        match statement:
            case Compute(name=name):
                initial.add(name)
                done.append(statement)
            case Combine(names=names, left=left, right=right) if set(
                left
            ) <= initial and _is_initial(left, done):
                alias |= dict(zip(names, right, strict=True))
            case Commit(pairs=pairs):
                mine = [(s, v) for s, v in pairs if s in initial and s in only]
                others = tuple(pair for pair in statement.pairs if pair not in mine)
                alias |= dict(mine)
                alias = {k: _follow(k, alias) for k in alias}
                if others:
                    done.append(Commit(others))
            case Loop():
                initial -= writes(statement)
                done.append(statement)
            case _:
                done.append(statement)
    return done


def _is_initial(names: tuple[str, ...], done: list[Statement]) -> bool:
    """Say whether each name still holds the neutral constant it was first given."""
    for name in names:
        writers = [s for s in done if name in writes(s)]
        if len(writers) != 1 or not isinstance(writers[0], Compute):
            return False
        if walk.refs(writers[0].value) or writers[0].value.type.axes:
            return False
    return True


def _follow(name: str, alias: Mapping[str, str]) -> str:
    target = alias[name]
    while target in alias and target != alias[target]:
        target = alias[target]
    return target


def rename_reads(statement: Statement, alias: Mapping[str, str]) -> Statement:
    """Rename what a statement reads; what it writes keeps its name."""
    written = writes(statement)
    return rename(statement, {k: v for k, v in alias.items() if k not in written or k != v})


def _in_place(body: list[Statement]) -> list[Statement]:
    """Write a state's new value where the old one stands, if nothing reads the old one later."""
    at = next((i for i, s in enumerate(body) if isinstance(s, Commit)), None)
    if at is None:
        return body
    commit = body[at]
    assert isinstance(commit, Commit)
    kept: list[tuple[str, str]] = []
    for state, value in commit.pairs:
        if state == value:
            continue
        writers = [i for i, s in enumerate(body[:at]) if value in writes(s)]
        last_read = max((i for i, s in enumerate(body[:at]) if state in reads(s)), default=-1)
        shared = sum(v == value for _, v in commit.pairs) > 1
        if not writers or shared or last_read > writers[0] or not _elementwise(body[writers[0]]):
            kept.append((state, value))
            continue
        body = [rename(s, {value: state}) if i >= writers[0] else s for i, s in enumerate(body)]
        kept = [(s, state if v == value else v) for s, v in kept]
    rest: list[Statement] = [Commit(tuple(kept))] if kept else []
    body = [*body[:at], *rest, *body[at + 1 :]]
    return [s for s in body if not _is_identity(s)]


def _elementwise(statement: Statement) -> bool:
    return isinstance(statement, Compute | Combine)


def _is_identity(statement: Statement) -> bool:
    match statement:
        case Compute(name=name, value=Ref(name=other)):
            return name == other
        case _:
            return False


def _drop_unread(body: list[Statement]) -> list[Statement]:
    """Drop values that nothing reads."""
    while True:
        read = frozenset[str]().union(*map(reads, body))
        kept = [
            s
            for s in body
            if not isinstance(s, Compute | Fold | Combine | Contract) or writes(s) & read
        ]
        if len(kept) == len(body):
            return kept
        body = kept
