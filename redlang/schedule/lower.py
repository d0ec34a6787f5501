"""Program + Plan → Loops: place every value in the outermost scope that it can be computed in.

Lowering works on demand. A nest asks for what its results need; a sweep opens loops over its axes
and asks, inside them, for what its steps need; a value is emitted once, in the deepest open scope
whose axes it varies with, and found there by everything after it. Inner sweeps are just values of
that kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from redlang.errors import InternalError
from redlang.ir import incremental, loops, walk
from redlang.ir.build import Builder, convert
from redlang.ir.program import Definition, Expr, Program, Reduce, Ref
from redlang.ir.types import Type
from redlang.schedule import tidy
from redlang.schedule.contract import split_product
from redlang.schedule.handed import hand_on
from redlang.schedule.inlining import Inlining
from redlang.schedule.joints import joint_statements, with_axis
from redlang.schedule.list_slots import with_slots
from redlang.schedule.nests import Nest
from redlang.schedule.plan import NestPlan, Plan, segment_axis
from redlang.schedule.unread import without_unread
from redlang.schedule.visited import visited


def lower(program: Program, nests: tuple[Nest, ...], plan: Plan) -> loops.Loops:
    """Return the loops of a fused program under a plan.

    Args:
        program: The normalised program.
        nests: Its nests; where the plan says on-chip, with one sweep a stage.
        plan: One nest plan for each nest.
    """
    kernels: list[loops.Kernel] = []
    workspaces: list[loops.Workspace] = []
    order = tuple(axis.name for axis in program.axes)
    segments = tuple(segment_axis(p.segmented) for p in plan.nests if p.segmented is not None)
    builder = Builder((*dict.fromkeys(segments), *order))
    definitions = {name: d for d in program.definitions for name in d.names}
    for number, (nest, nest_plan) in enumerate(zip(nests, plan.nests, strict=True)):
        name = f"{program.name}_{number}"
        lowering = _Lowering(program, builder, definitions, nest, nest_plan, name)
        made, spaces = lowering.run(tuple(workspaces))
        kernels.extend(made)
        workspaces.extend(spaces)
    found = loops.Loops(program.name, program, tuple(kernels), tuple(workspaces))
    return hand_on(found)


@dataclass(slots=True)
class _Scope:
    """An open scope: the axes it gives a current range, what it has so far, and its names."""

    axes: frozenset[str]
    body: list[loops.Statement] = field(default_factory=list)
    names: dict[str, Type] = field(default_factory=dict)


class _Lowering:
    """Lower one nest."""

    def __init__(
        self,
        program: Program,
        builder: Builder,
        definitions: dict[str, Definition],
        nest: Nest,
        plan: NestPlan,
        name: str,
    ) -> None:
        self.program = program
        self.builder = builder
        self.definitions = definitions
        self.nest = nest = without_unread(program, nest)
        self.plan = plan
        self.name = name
        self.scopes: list[_Scope] = []
        self.types = walk.definition_types(program)
        self.inner: dict[str, incremental.Sweep] = {
            stage: sweep
            for sweep in map(with_slots, (*nest.inner, *nest.sweeps))
            for stage in sweep.stages
        }
        self.sweeps = tuple(self.inner[sweep.stages[0]] for sweep in nest.sweeps)
        self.memory: dict[str, loops.Workspace] = {}
        self.inlining = Inlining(definitions)

    def run(
        self, earlier: tuple[loops.Workspace, ...]
    ) -> tuple[list[loops.Kernel], list[loops.Workspace]]:
        """Return the kernels of this nest and the workspaces that they write."""
        self.memory = {space.name: space for space in earlier}
        if self.plan.kind == "multi-segment":
            return self._segmented()
        self._open_unit()
        for sweep in self.sweeps:
            self._ensure(sweep)
        spaces = self._store_exports()
        for number in self.nest.results:
            self._store_result(number)
        return [self._close_unit(self.plan.kind)], spaces

    # Scopes ---------------------------------------------------------------------------------

    def _open_unit(self, *extra: str) -> None:
        axes = {grid.axis for grid in self.plan.grid} | set(self.plan.resident) | set(extra)
        self.scopes = [_Scope(frozenset(axes))]

    def _close_unit(self, kind: loops.Kind, segment: loops.Segment | None = None) -> loops.Kernel:
        (unit,) = self.scopes
        suffix = {"multi-segment": "_segments", "merge": "_merge"}.get(kind, "")
        body = tidy.tidy(tuple(unit.body))
        name = self.name + suffix
        return loops.Kernel(
            name, self.plan.grid, segment, self.plan.resident, body, kind, self.plan.limits
        )

    @contextmanager
    def _loop(self, axis: str, tile: int, some: Expr | None = None) -> Iterator[None]:
        """Open a loop over tiles of `axis`, unless a scope already gives it a range."""
        if any(axis in scope.axes for scope in self.scopes):
            yield
            return
        self.scopes.append(_Scope(frozenset({axis})))
        yield
        scope = self.scopes.pop()
        self._emit(loops.Loop(axis, tile, tuple(scope.body), some))

    @contextmanager
    def _outside(self, axes: frozenset[str]) -> Iterator[None]:
        """Work in the deepest open scope that gives one of `axes` a range."""
        depth = max((i for i, scope in enumerate(self.scopes) if scope.axes & axes), default=0)
        inner = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        yield
        self.scopes.extend(inner)

    def _emit(self, *statements: loops.Statement) -> None:
        self.scopes[-1].body.extend(statements)

    def _define(self, name: str, type_: Type) -> None:
        self.scopes[-1].names[name] = type_

    def _known(self, name: str) -> bool:
        return any(name in scope.names for scope in self.scopes)

    # Values ---------------------------------------------------------------------------------

    def _value(self, expr: Expr) -> Expr:
        """Make available what `expr` reads; inline the definitions that are cheap to repeat."""
        return walk.rewrite(expr, self._resolve_ref)

    def _resolve_ref(self, node: Expr) -> Expr:
        if not isinstance(node, Ref) or self._known(node.name) or node.name in self.memory:
            return node
        definition = self.definitions.get(node.name)
        if definition is None:
            return node
        if isinstance(definition.value, Reduce):
            if node.name not in self.inner:
                raise InternalError(
                    f"{self.name} reads {node.name}, which no nest before it leaves in memory"
                )
            self._ensure(self.inner[node.name])
            return node
        if self.inlining.body(node.name) is not None:
            return self._value(definition.value)
        with self._outside(frozenset(definition.value.type.axes)):
            if not self._known(node.name):
                self._compute(node.name, self._value(definition.value), node.type)
        return node

    def _compute(self, name: str, value: Expr, type_: Type) -> None:
        self._emit(loops.Compute(name, value, replace(type_, weak=False, absent=False)))
        self._define(name, type_)

    def _pointwise(self, name: str) -> Expr | None:
        """Return the expression behind a pointwise definition that is not kept under its name."""
        definition = self.definitions.get(name)
        if definition is None or isinstance(definition.value, Reduce) or self._known(name):
            return None
        return definition.value

    # Sweeps ---------------------------------------------------------------------------------

    def _ensure(self, sweep: incremental.Sweep) -> None:
        """Emit `sweep` where its results belong, unless they are known already."""
        if all(self._known(stage) or stage in self.memory for stage in sweep.stages):
            return
        axes = frozenset(axis for stage in sweep.stages for axis in self.types[stage].axes)
        with self._outside(axes - frozenset(sweep.axes)):
            self._begin(sweep)
            self._sweep_loops(sweep, sweep.axes)
            self._finish(sweep)

    def _begin(self, sweep: incremental.Sweep) -> None:
        for state in sweep.states:
            self._compute(state.name, self._value(state.initial), state.type)

    def _finish(self, sweep: incremental.Sweep) -> None:
        for let in sweep.finish:
            self._compute(let.name, self._value(let.value), let.value.type)

    def _sweep_loops(self, sweep: incremental.Sweep, axes: tuple[str, ...]) -> None:
        if not axes:
            self._update(sweep)
            return
        self._blocks(sweep, axes, dict(self.plan.blocks).get(axes[0], ()))

    def _blocks(
        self, sweep: incremental.Sweep, axes: tuple[str, ...], blocks: tuple[int, ...]
    ) -> None:
        """Sweep the first of some axes: by tiles, or by blocks whose states are then merged."""
        axis, *rest = axes
        if not blocks:
            some = None if rest else visited(sweep, self._pointwise, self.builder)
            with self._loop(axis, self._tile(axis), some):
                self._sweep_loops(sweep, tuple(rest))
            return
        *smaller, size = blocks
        level = f"{axis}.{len(blocks)}"
        whole = {state.name: f"{level}.{state.name}" for state in sweep.states}
        for state in sweep.states:
            # Not the initial value: a loop around this one has brought the state so far.
            self._compute(whole[state.name], Ref(state.name, state.type), state.type)
        self.scopes.append(_Scope(frozenset()))
        self._begin(sweep)
        self._blocks(sweep, axes, tuple(smaller))
        names = {f"a.{state}": name for state, name in whole.items()}
        names |= {f"b.{state}": state for state in whole}
        for step in sweep.merge:
            made = (step.name,) if isinstance(step, incremental.Let) else step.names
            names |= {name: f"{level}.join.{name}" for name in made}
        self._merge_steps(sweep, names)
        pairs = ((whole[c.state], names[c.value]) for c in sweep.merge_commits)
        self._emit(loops.Commit(tuple(pairs)))
        scope = self.scopes.pop()
        self._emit(loops.Loop(axis, size, tuple(scope.body)))
        for state in sweep.states:
            self._compute(state.name, Ref(whole[state.name], state.type), state.type)

    def _tile(self, axis: str) -> int:
        return dict(self.plan.tiles).get(axis, 1)

    def _update(self, sweep: incremental.Sweep) -> None:
        for step in sweep.update:
            match step:
                case incremental.Each() | incremental.Let():
                    self._compute(step.name, self._value(step.value), step.value.type)
                case incremental.Partial():
                    self._partial(step, sweep)
                case incremental.Combine():
                    self._combine(step)
        pairs = tuple((commit.state, commit.value) for commit in sweep.commits)
        self._emit(loops.Commit(pairs))

    def _partial(self, step: incremental.Partial, sweep: incremental.Sweep) -> None:
        over = sweep.axes
        condition = None if step.condition is None else self._value(step.condition)
        if step.op == "sum" and self._contract(step, sweep, condition):
            return
        values = tuple(map(self._value, step.values))
        self._emit(
            loops.Fold(
                step.names, step.op, over, values, condition, step.types, step.k, step.monoid
            )
        )
        for name, type_ in zip(step.names, step.types, strict=True):
            self._define(name, type_)

    def _contract(
        self, step: incremental.Partial, sweep: incremental.Sweep, condition: Expr | None
    ) -> bool:
        """Emit a sum as a contraction, if it is one."""
        integers = self.plan.integers and step.types[0].dtype.kind == "int"
        product = split_product(step, sweep, self.program, self._pointwise, integers=integers)
        if product is None:
            return False
        (name,), (type_,), over = step.names, step.types, sweep.axes
        left, right = self._value(product.left), self._value(product.right)
        shown = () if condition is None else condition.type.axes
        axes = {*left.type.axes, *right.type.axes, *shown}
        outer = product.outer
        if set(type_.axes) | set(over) != axes | set(() if outer is None else outer.type.axes):
            return False
        if outer is None:
            self._emit(loops.Contract(name, over, left, right, condition, type_))
            self._define(name, type_)
            return True
        inner = replace(type_, axes=self.builder.union([axes - set(over)]))
        part, factor = f"{name}.inner", f"{name}.outer"
        self._emit(loops.Contract(part, over, left, right, condition, inner))
        self._define(part, inner)
        # A sum over nothing is 0, whatever factor it has.
        some = self.builder.conjunction(
            self.builder.apply("gt", self.builder.size(axis), 0) for axis in over
        )
        assert some is not None
        value = self.builder.where(some, convert(self._value(outer), type_.dtype), 0.0)
        self._compute(factor, value, value.type)
        self._compute(name, self.builder.mul(Ref(part, inner), Ref(factor, value.type)), type_)
        return True

    def _combine(self, step: incremental.Combine) -> None:
        self._emit(
            loops.Combine(
                step.names, step.op, step.left, step.right, step.types, step.k, step.monoid
            )
        )
        for name, type_ in zip(step.names, step.types, strict=True):
            self._define(name, type_)

    # Memory ---------------------------------------------------------------------------------

    def _store_exports(self) -> list[loops.Workspace]:
        spaces = []
        for stage in self.nest.exports:
            type_ = self.types[stage]
            self._store(stage, Ref(stage, type_), type_.axes)
            spaces.append(loops.Workspace(stage, type_.axes, type_.dtype))
        return spaces

    def _store_result(self, number: int) -> None:
        result = self.program.results[number]
        self._store(f"result.{number}", result.value, result.axes)

    def _store(self, target: str, value: Expr, axes: tuple[str, ...]) -> None:
        """Store over the current ranges, opening loops for axes that have none."""
        free = [a for a in axes if not any(a in scope.axes for scope in self.scopes)]
        self._store_loops(target, value, axes, free)

    def _store_loops(
        self, target: str, value: Expr, axes: tuple[str, ...], free: list[str]
    ) -> None:
        if free:
            with self._loop(free[0], self._tile(free[0])):
                self._store_loops(target, value, axes, free[1:])
        else:
            self._emit(loops.Store(target, self._value(value), axes))

    # Segments -------------------------------------------------------------------------------

    def _segmented(self) -> tuple[list[loops.Kernel], list[loops.Workspace]]:
        """Lower to a kernel that sweeps segments and one that merges their states in order.

        Sweeps after the first follow the merge: they do not sweep the axis that is cut.
        """
        sweep, *others = self.sweeps
        assert self.plan.segmented is not None
        axis, index = self.plan.segmented, segment_axis(self.plan.segmented)
        self._open_unit(index)
        self._begin(sweep)
        self._sweep_loops(sweep, sweep.axes)
        partials = []
        for state in sweep.states:
            # Axes in the order in which they stand, but for the one that is to be innermost.
            axes = (index, *sorted(state.type.axes, key=lambda a: a == self.plan.innermost))
            space = loops.Workspace(f"{self.name}.{state.name}", axes, state.type.dtype)
            self._store(space.name, Ref(state.name, state.type), axes)
            partials.append(space)
        segment = loops.Segment(axis, self._tile(axis), index)
        first = self._close_unit("multi-segment", segment)
        self._open_unit()
        self._merge_loop(sweep, index)
        self._finish(sweep)
        for other in others:
            self._ensure(other)
        spaces = [*partials, *self._store_exports()]
        for number in self.nest.results:
            self._store_result(number)
        merge = replace(
            self._close_unit("merge"), joint=joint_statements(sweep, self.name, index, self.builder)
        )
        return [first, merge], spaces

    def _merge_loop(self, sweep: incremental.Sweep, index: str) -> None:
        self._begin(sweep)
        with self._loop(index, 1):
            for state in sweep.states:
                source = Ref(f"{self.name}.{state.name}", with_axis(state.type, index))
                # A segment index has one value here, so the axis drops out of the state.
                self._compute(f"b.{state.name}", source, state.type)
                self._compute(f"a.{state.name}", Ref(state.name, state.type), state.type)
            self._merge_steps(sweep, {})
            pairs = tuple((commit.state, commit.value) for commit in sweep.merge_commits)
            self._emit(loops.Commit(pairs))

    def _merge_steps(self, sweep: incremental.Sweep, names: Mapping[str, str]) -> None:
        """Emit what joins two states of a sweep, with other names for some."""
        for step in sweep.merge:
            match step:
                case incremental.Let(name, value):
                    value = walk.rename(self._value(value), names)
                    self._compute(names.get(name, name), value, value.type)
                case incremental.Combine():
                    made, left, right = (
                        tuple(names.get(name, name) for name in side)
                        for side in (step.names, step.left, step.right)
                    )
                    self._combine(replace(step, names=made, left=left, right=right))
