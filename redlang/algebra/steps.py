"""Put the steps of a sweep in order: shared values named, as few walks over a tile as possible.

Everything that is read twice per element becomes an `Each`, what does not vary along the sweep a
`Let`. Then the steps are sorted into *walks*: all values and partial results that can be had in one
walk over the tile stand together, with what is computed between two walks between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redlang.algebra.incremental import Emitter
from redlang.algebra.joint import joint
from redlang.algebra.terms import View
from redlang.ir import walk
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, Step, Sweep
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Ref, Size
from redlang.ir.types import Type


def arranged(
    emitter: Emitter, axes: tuple[str, ...], stages: tuple[str, ...], finish: Sequence[Let]
) -> Sweep:
    """Return the sweep that `emitter` collected, its steps in order."""
    update = _alive(emitter.update, emitter.commits)
    update = _in_walks(_Sharing(emitter).shared(update))
    merge = _Sharing(emitter).shared(_alive(emitter.merge, emitter.merge_commits))
    last = _Sharing(emitter).shared(finish)
    return Sweep(
        axes,
        stages,
        tuple(emitter.states),
        tuple(update),
        tuple(emitter.commits),
        tuple(step for step in merge if isinstance(step, Combine | Let)),
        tuple(emitter.merge_commits),
        tuple(step for step in last if isinstance(step, Let)),
        joint(emitter.merge, emitter.merge_commits, emitter.gathered),
    )


def names_of(step: Step) -> tuple[str, ...]:
    """Return the names that a step defines."""
    return step.names if isinstance(step, Partial | Combine) else (step.name,)


def reads_of(step: Step) -> frozenset[str]:
    """Return the names that a step reads."""
    match step:
        case Each() | Let():
            return walk.refs(step.value)
        case Partial():
            condition = () if step.condition is None else (step.condition,)
            return frozenset[str]().union(*map(walk.refs, (*step.values, *condition)))
        case Combine():
            return frozenset((*step.left, *step.right))


def _alive(steps: Sequence[Step], commits: Iterable[Commit]) -> list[Step]:
    """Return the steps that the commits need."""
    needed = {commit.value for commit in commits}
    kept: list[Step] = []
    for step in reversed(steps):
        if not needed.isdisjoint(names_of(step)):
            kept.append(step)
            needed |= reads_of(step)
    return kept[::-1]


class _Sharing:
    """Names what is computed more than once, and what need not be computed for every element."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.view: View = emitter.view
        self.pool = emitter.pool
        self.uses: dict[int, int] = {}
        self.named: dict[int, Expr] = {}
        self.steps: list[Step] = []

    def shared(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps with `Each` and `Let` steps for shared values put in."""
        for root in [self.pool.intern(root) for step in steps for root in _roots(step)]:
            self.uses[id(root)] = self.uses.get(id(root), 0) + 1
        self._count([self.pool.intern(root) for step in steps for root in _roots(step)])
        for step in steps:
            match step:
                case Partial(values=values, condition=condition):
                    values = tuple(self._named(self.pool.intern(v)) for v in values)
                    condition = condition and self._named(self.pool.intern(condition))
                    self.steps.append(replace(step, values=values, condition=condition))
                case Let(name, value):
                    self.steps.append(Let(name, self._inside(self.pool.intern(value), name)))
                case _:
                    self.steps.append(step)
        return self.steps

    def _count(self, roots: Sequence[Expr]) -> None:
        """Count the places that read each node, each distinct parent once."""
        seen: set[int] = set()
        for root in roots:
            for node in walk.nodes(root):
                if id(node) in seen:
                    continue
                seen.add(id(node))
                for child in walk.children(node):
                    self.uses[id(child)] = self.uses.get(id(child), 0) + 1

    def _named(self, root: Expr) -> Expr:
        """Return `root` with names in place of what is shared; append the steps for them."""
        for node in walk.nodes(root):
            if id(node) not in self.named:
                self.named[id(node)] = self._once(node, self._rebuilt(node))
        return self.named[id(root)]

    def _inside(self, root: Expr, name: str) -> Expr:
        """Return the value of a `Let`, which gives its name to later uses of the same value."""
        if id(root) in self.named:
            return self.named[id(root)]
        for child in walk.children(root):
            self._named(child)
        value = self._rebuilt(root)
        self.named[id(root)] = Ref(name, _type(root)) if _worth(root) else value
        return value

    def _rebuilt(self, node: Expr) -> Expr:
        """Return `node` with its children named, those that do not vary by a `Let`."""
        parts = []
        for child in walk.children(node):
            part = self.named[id(child)]
            if self.view.varies(node) and not self.view.varies(child) and _worth(part):
                part = self._let(child, part)
            parts.append(part)
        return walk.rebuild(node, parts)

    def _once(self, node: Expr, value: Expr) -> Expr:
        if self.uses.get(id(node), 0) < 2 or not _worth(value):
            return value
        if not self.view.varies(node):
            return self._let(node, value)
        name = self.emitter.fresh("each")
        self.steps.append(Each(name, value))
        return Ref(name, _type(node))

    def _let(self, node: Expr, value: Expr) -> Expr:
        if isinstance(self.named.get(id(node)), Ref):
            return self.named[id(node)]
        name = self.emitter.fresh("once")
        self.steps.append(Let(name, value))
        self.named[id(node)] = Ref(name, _type(node))
        return self.named[id(node)]


def _worth(expr: Expr) -> bool:
    """Return whether `expr` costs more than a name for it."""
    match expr:
        case Cast():
            return expr.explicit or _worth(expr.operand)
        case Apply("add" | "sub", (Index() | Size() | Literal(), Index() | Size() | Literal())):
            # A place beside another one is spelled where it is used: it may be part of an address.
            return False
        case _:
            return isinstance(expr, Apply)


def _type(expr: Expr) -> Type:
    return replace(expr.type, weak=False)


def _roots(step: Step) -> tuple[Expr, ...]:
    """Return the expressions of a step."""
    match step:
        case Partial(values=values, condition=condition):
            return values if condition is None else (*values, condition)
        case Each(value=value) | Let(value=value):
            return (value,)
        case Combine():
            return ()


def _in_walks(steps: Sequence[Step]) -> list[Step]:
    """Return the steps sorted by walk, within a walk: between-walk steps, elements, partials."""
    walk_of: dict[str, int] = {}
    order: list[tuple[int, int, int, Step]] = []
    partial: set[str] = set()
    for position, step in enumerate(steps):
        on_elements = isinstance(step, Each | Partial)
        number = 0
        for name in reads_of(step):
            if name in walk_of:
                number = max(number, walk_of[name] + (name in partial and not on_elements))
        for name in names_of(step):
            walk_of[name] = number
            if isinstance(step, Partial):
                partial.add(name)
        kind = 1 if isinstance(step, Each) else 2 if isinstance(step, Partial) else 0
        order.append((number, kind, position, step))
    order.sort(key=lambda entry: entry[:3])
    return [step for *_, step in order]
