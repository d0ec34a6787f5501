"""What a stream runs: the sweeps over the streamed axis, and what may stand around them.

A kernel can be a stream along an axis if its sweeps take all elements in at once, each read at its
own place, none waits for the result of another, and nothing asks for the elements again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redlang.errors import ArgumentError, FusionError
from redlang.ir import walk
from redlang.ir.incremental import Combine, Each, Let, Partial, Sweep
from redlang.ir.program import ArrayParam, Expr, Index, Load, Program, Reduce, Size

ORDERED = frozenset({"argmax", "argmin", "topk", "monoid"})
"""Reductions whose result depends on which elements come first."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What a fold runs.

    Attributes:
        program: The program that the sweeps belong to.
        sweeps: All its sweeps.
        own: Those over the streamed axis, in order; none of them reads what another one finishes.
        axis: The streamed axis.
    """

    program: Program
    sweeps: tuple[Sweep, ...]
    own: tuple[Sweep, ...]
    axis: str

    @property
    def varying(self) -> tuple[str, ...]:
        """Array parameters that vary with the axis, in order."""
        params = self.program.params
        return tuple(p.name for p in params if isinstance(p, ArrayParam) and self.axis in p.axes)

    def element_expressions(self) -> Iterator[Expr]:
        """Yield what is evaluated for elements, through definitions that vary with nothing else."""
        roots = [e for sweep in self.own for e in element_expressions(sweep)]
        yield from roots
        for name in reachable(self.program, roots, self.stages):
            for definition in self.program.definitions:
                if name in definition.names:
                    yield from walk.expressions(definition.value)

    @property
    def stages(self) -> tuple[str, ...]:
        """What the sweeps over the axis finish."""
        return tuple(stage for sweep in self.own for stage in sweep.stages)

    @property
    def placed(self) -> bool:
        """Whether the result depends on where in the axis an element stands."""
        steps = [step for sweep in self.own for step in (*sweep.update, *sweep.merge)]
        if any(isinstance(s, Partial | Combine) and s.op in ORDERED for s in steps):
            return True
        return any(map(self._reads_index, self.element_expressions()))

    def constants(self) -> set[str]:
        """Return the reductions that the sweeps read and that do not wait for an element."""
        roots = [let.value for sweep in self.own for let in sweep.finish]
        roots += [e for sweep in self.own for e in element_expressions(sweep)]
        values = {name: d.value for d in self.program.definitions for name in d.names}
        return {
            name
            for name in reachable(self.program, roots, self.stages)
            if isinstance(value := values[name], Reduce)
            and not any(self.axis in type_.axes for type_ in value.types)
            and not reachable(self.program, list(walk.expressions(value)), ()) & set(self.stages)
        }

    def needs_size(self) -> bool:
        """Tell whether an element's value depends on the extent of the axis."""
        nodes = (node for expr in self.element_expressions() for node in walk.nodes(expr))
        return any(isinstance(node, Size) and node.axis == self.axis for node in nodes)

    def _reads_index(self, expr: Expr) -> bool:
        if isinstance(expr, Index):
            return expr.axis == self.axis
        children = walk.children(expr)
        if isinstance(expr, Load) and self.axis in self.program.array(expr.array).axes:
            # The index by which a chunk's own element is read says nothing of its place.
            return False
        return any(map(self._reads_index, children))


def stream(program: Program, sweeps: tuple[Sweep, ...], axis: str) -> Stream:
    """Return the stream of a fused program along `axis`.

    Raises:
        FusionError: The program passes over the axis more than once, returns it, or reads an array
            along it at other places than the current one.
        ArgumentError: It has no such axis.
    """
    if axis not in {a.name for a in program.axes}:
        names = ", ".join(a.name for a in program.axes)
        raise ArgumentError(f"{program.name} has no axis {axis!r}", hint=f"it has {names}")
    over = [sweep for sweep in sweeps if axis in sweep.axes]
    if not over:
        raise FusionError(f"{program.name} does not reduce {axis}", hint="fold a reduced axis")
    _check_independent(program, over, axis)
    _check_order(program, over, axis)
    later = [r.value for r in program.results]
    later += [let.value for sweep in over for let in sweep.finish]
    reads = reachable(program, later, [stage for sweep in over for stage in sweep.stages])
    definitions = [d for d in program.definitions if reads & set(d.names)]
    later += [e for d in definitions for e in walk.expressions(d.value)]
    for expr in later:
        if axis in expr.type.axes:
            raise FusionError(
                f"{program.name} needs the elements of {axis} again after it is reduced",
                hint="a stream keeps no elements: return what is left after the reduction",
            )
    made = Stream(program, sweeps, tuple(over), axis)
    for expr in (*made.element_expressions(), *later):
        _check_loads(made, expr)
    return made


def _check_independent(program: Program, over: Sequence[Sweep], axis: str) -> None:
    """No element of a sweep over the axis may need what another one finishes."""
    for sweep in over:
        others = [stage for other in over if other is not sweep for stage in other.stages]
        read = reachable(program, element_expressions(sweep), sweep.stages)
        first = next((stage for stage in others if stage in read), None)
        if first is not None:
            second = sweep.stages[0]
            raise FusionError(
                f"{program.name} needs a second pass over {axis}: {second} needs {first} first",
                hint=f"explain('fuse') says why {second} cannot share the sweep",
            )


def _check_order(program: Program, over: Sequence[Sweep], axis: str) -> None:
    """Where the order of elements matters, a piece of the axis must be a range of that order."""
    for sweep in over:
        ordered = any(isinstance(s, Partial) and s.op in ORDERED for s in sweep.update)
        if ordered and sweep.axes[0] != axis:
            axes = ", ".join(sweep.axes)
            raise FusionError(
                f"{program.name} takes {sweep.stages[0]} in the order of {axes}, of which pieces "
                f"along {axis} are no ranges",
                hint=f"fold along {sweep.axes[0]}",
            )


def _check_loads(made: Stream, expr: Expr) -> None:
    """Every array along the axis must be read at the current element only."""
    for node in walk.nodes(expr):
        if isinstance(node, Load) and made.axis in made.program.array(node.array).axes:
            own = made.program.array(node.array).axes
            plain = [part.axis for part in node.subscripts if isinstance(part, Index)]
            if tuple(plain) != own:
                raise FusionError(
                    f"{made.program.name} reads {node.array} along {made.axis} at computed places",
                    hint="a stream has only the current chunk",
                )


def element_expressions(sweep: Sweep) -> list[Expr]:
    """Return what a sweep evaluates before it finishes."""
    steps = (*sweep.update, *sweep.merge)
    return [expr for step in steps for expr in step_expressions(step)]


def step_expressions(step: object) -> tuple[Expr, ...]:
    """Return the expressions of a step that are evaluated for elements."""
    match step:
        case Each(_, value) | Let(_, value):
            return (value,)
        case Partial(values=values, condition=condition):
            return values if condition is None else (*values, condition)
        case _:
            return ()


def reachable(program: Program, roots: Sequence[Expr], done: Sequence[str]) -> set[str]:
    """Return the definitions that `roots` read, through each other, short of those in `done`."""
    values = {name: d.value for d in program.definitions for name in d.names}
    found: set[str] = set()
    todo = [name for expr in roots for name in walk.refs(expr)]
    while todo:
        name = todo.pop()
        if name in values and name not in found and name not in done:
            found.add(name)
            todo += [ref for expr in walk.expressions(values[name]) for ref in walk.refs(expr)]
    return found
