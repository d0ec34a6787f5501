"""Sweeps whose elements go to classes: states in shared memory, moved by one element at a time.

Each thread has a place of its own for every class of its unit, so that nobody waits and nothing is
added in an order that changes. Threads lie side by side in a class's places: those of a warp are in
different banks, whichever classes their elements have. When the sweep is over, groups of threads
take classes instead of elements, and join what all groups have found, in their order. The states of
blocks are joined by a kernel that holds all segments at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from redlang.codegen.cuda.elements import Unit, emit_unit
from redlang.codegen.cuda.folds import BYTES, Folding, folding, summed_in
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.codegen.cuda.merging import SegmentUnit, take_apart
from redlang.codegen.cuda.values import Operands
from redlang.errors import InternalError
from redlang.ir.build import Builder
from redlang.ir.loops import Combine, Compute, Fold, GridAxis, Kernel, Loop, Loops, Statement, Store
from redlang.ir.program import Apply, Cast, Expr, Literal, Ref, Size
from redlang.ir.types import BOOL, I64, Type
from redlang.schedule.classes import ClassPlan, class_test
from redlang.schedule.threads import Spread, ThreadPlan

SEGMENTS = (8, 32)
"""Segments that a thread of the merge holds, and threads that share them."""
COLUMNS = (8, 4)
"""Lanes along the states that are adjacent, and the states of each."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the states of a reduction are.

    Attributes:
        how: What they are.
        axes: Their tile.
        offset: Where they begin, in bytes.
        size: Bytes of a thread's states of one class.
    """

    how: Folding
    axes: tuple[str, ...]
    offset: int
    size: int


def emit_by_class(
    loops: Loops,
    sweep: Kernel,
    merge: Kernel,
    plan: ThreadPlan,
    classes: Classes,
    by: ClassPlan,
) -> list[KernelText]:
    """Return the texts of a sweep by classes, and of its merge.

    Args:
        loops: The lowered program.
        sweep: Its kernel over segments.
        merge: The kernel that merges them.
        plan: The threads of a block.
        classes: What is known of the arrays of every launch.
        by: How elements go to classes.
    """
    unit = _ClassUnit(loops, sweep, merge, plan, classes, by)
    with unit.frame.scope(unit.unit_axes()) as scope:
        unit.begin()
        unit.whole()
    text = replace(unit.finished(scope.lines), segments=unit.index)
    whole, threads = _joined_whole(merge, loops)
    return [text, emit_unit(Unit(loops, whole, threads, classes))]


class _ClassUnit(SegmentUnit):
    """Writes a sweep whose elements go to classes."""

    def __init__(
        self,
        loops: Loops,
        sweep: Kernel,
        merge: Kernel,
        plan: ThreadPlan,
        classes: Classes,
        by: ClassPlan,
    ) -> None:
        super().__init__(loops, sweep, merge, plan, classes, across_blocks=True)
        self.by = by
        self.builder = Builder(self.frame.order)
        self.tile = next(grid.tile for grid in sweep.grid if grid.axis == by.axis)
        self.swept = tuple(axis for axis in plan.strips)
        self.places: dict[str, _Places] = {}
        # Of each partial result, the state that it is joined to; tests that have names.
        self.goals: dict[str, str] = {}
        self.named: dict[str, Expr] = {}

    def whole(self) -> None:
        """Write the sweep, then what becomes of its states."""
        frame = self.frame
        self._find(self.kernel.body)
        frame.line(f"own = i64({frame.thread()})")
        self._clear()
        self.run([s for s in self.kernel.body if s not in self.leaving])
        frame.line("t.barrier()")
        self._leave_classes()

    def _find(self, body: Sequence[Statement]) -> None:
        """Find the folds of a sweep and give their states places."""
        for statement in body:
            match statement:
                case Loop(body=inner):
                    self._find(inner)
                case Combine(names=(state,), right=(part,)) if state in self.spaces:
                    self.goals[part] = state
                case Compute(name=name, value=value) if self.by.axis in value.type.axes:
                    self.named[name] = value
                case _:
                    pass
        for statement in body:
            if isinstance(statement, Fold) and statement.names[0] in self.goals:
                self._reserve_places(statement)

    def _reserve_places(self, fold: Fold) -> None:
        frame = self.frame
        how = folding(fold.op, fold.types, fold.values[0].type.dtype)
        if self.by.wide and fold.op == "sum" and how.codes == ("f32",):
            how = summed_in(how, "f64")
        axes = frame.tile_axes(fold.types[0].axes)
        size = BYTES[how.codes[0]] * frame.size(axes)
        start = frame.shared_bytes
        self.places[self.goals[fold.names[0]]] = _Places(how, axes, start, size)
        frame.shared_bytes = start + -(-size * self.tile * self.plan.threads // 16) * 16

    def _clear(self) -> None:
        frame = self.frame
        for place in self.places.values():
            base = "nothing"
            (nothing,) = self.values.mapped(
                base, place.how.codes, [], place.how.neutral, Operands(), place.axes, frame.depth
            )
            put = self._word("put", place)
            frame.line("step = i64(0)")
            frame.line(f"while step < {self.tile}:")
            at = f"{self._own(place)} + step * {place.size * self.plan.threads}"
            frame.line(f"    {put}({at}, True, {nothing.text})")
            frame.line("    step = step + 1")

    def _word(self, verb: str, place: _Places) -> str:
        word = {"put": "shared_store", "get": "shared_load"}[verb]
        count, (code,) = self.frame.size(place.axes), place.how.codes
        return self.frame.module.declare(f"{verb}_{code}_{count}", f't.{word}("{code}", {count})')

    @staticmethod
    def _own(place: _Places) -> str:
        return f"own * {place.size} + {place.offset}"

    # The sweep --------------------------------------------------------------------------------

    def compute(self, statement: Compute) -> None:
        """Give a name its value, unless it is a state or a test of classes."""
        if statement.name not in self.spaces and statement.name not in self.named:
            super().compute(statement)

    def combine(self, statement: Combine) -> None:
        """Join nothing: elements have moved the states themselves."""

    def fold(self, statement: Fold) -> None:
        """Move the state of each element's class."""
        frame = self.frame
        place = self.places[self.goals[statement.names[0]]]
        found = class_test(statement.condition or _TRUE, self.by.axis, self.named.get)
        if found is None:
            raise InternalError(f"{statement.names[0]} has no class along {self.by.axis}")
        class_, tests = found
        rest = replace(statement, condition=self.builder.conjunction(tests))
        (values,) = self.folds.lifted(rest, place.how)
        rows = frame.tile_axes(statement.over)
        values = self._spread_to(values, frame.tile_axes((*rows, *place.axes)))
        at, shown = (
            self._spread_to(self.values.value(expr), rows) for expr in self._target(class_, place)
        )
        join = self._join_each(place)
        get, put = self._word("get", place), self._word("put", place)
        dealt = [self._dealt(value, rows) for value in (at, shown, values)]
        for where, test_, value in zip(*dealt, strict=True):
            frame.line(f"place = {self._own(place)} + {where}")
            frame.line(f"{put}(place, {test_}, {join}({get}(place), {value}))")

    def _target(self, class_: Expr, place: _Places) -> tuple[Expr, Expr]:
        """Return where an element's class is among the places, and whether it is there at all."""
        axis, axes = self.by.axis, class_.type.axes
        whole: Expr = class_
        tests: list[Expr] = []
        if class_.type.dtype.kind == "float":
            whole = Cast(class_, I64, Type(I64, axes), explicit=True)
            back = Cast(whole, class_.type.dtype, class_.type, explicit=False)
            tests = [Apply("eq", (class_, back), Type(BOOL, axes))]
        first = Ref(f"{axis}.first", Type(I64))
        local = Apply("sub", (whole, first), Type(I64, axes))
        for op, left, right in (
            ("ge", local, _number(0)),
            ("lt", local, _number(self.tile)),
            ("lt", whole, Size(axis, Type(I64))),
        ):
            tests.append(Apply(op, (left, right), Type(BOOL, axes)))
        inside = self.builder.conjunction(tests)
        assert inside is not None
        held = Apply("where", (inside, local, _number(0)), Type(I64, axes))
        step = _number(place.size * self.plan.threads)
        return Apply("mul", (held, step), Type(I64, axes)), inside

    def _spread_to(self, value: Value, tile: tuple[str, ...]) -> Value:
        if not set(value.axes) <= set(tile):
            raise InternalError(f"a class along {value.axes} in a tile along {tile}")
        return value if value.axes == tile else self._spread_out(value, tile)

    def _dealt(self, value: Value, rows: tuple[str, ...]) -> list[str]:
        """Return the parts of a tile, one for each element of a thread."""
        frame = self.frame
        count = frame.size(rows)
        if count == 1:
            return [value.text]
        counts = frame.counts(value.axes)
        make = frame.module.declare(
            "deal", f't.split("{value.code}", {counts}, "{" ".join(rows)}", {count})'
        )
        names = [frame.module.names.fresh("part") for _ in range(count)]
        neutral = "False" if value.code == "bool" else f"{value.code}(0)"
        frame.line(f"{', '.join(names)} = {make}({value.text}, {neutral})")
        return names

    # Afterwards -------------------------------------------------------------------------------

    def _leave_classes(self) -> None:
        """Join the states of all groups of threads, a group each some classes, and store them."""
        frame, axis = self.frame, self.by.axis
        groups = 1 << len(self._strip_bits())
        lanes = self.plan.threads // groups
        beside = [s for s in self.plan.spreads if s.axis not in self.swept]
        after = replace(self.plan, spreads=(Spread(axis, 1, groups), *beside), strips=())
        first = frame.first(axis)
        frame.line(f"begin = {first}")
        frame.plan = self.plan = after
        with self._block(f"while {first} < begin + {self.tile}:", [axis]):
            frame.line(f"row = t.smaller({frame.place(axis)} - begin, {self.tile - 1})")
            frame.line(f"lane = own & {lanes - 1}")
            for store in [s for s in self.leaving if isinstance(s, Store)]:
                self._leave_state(store, groups, lanes)
            frame.line(f"{first} = {first} + {groups}")

    def _leave_state(self, store: Store, groups: int, lanes: int) -> None:
        """Store what all groups of threads have found of one state."""
        frame = self.frame
        assert isinstance(store.value, Ref)
        place = self.places[store.value.name]
        get, join = self._word("get", place), self._join_each(place)
        at = f"row * {place.size * self.plan.threads} + lane * {place.size} + {place.offset}"
        found = frame.module.names.fresh("found")
        frame.line(f"{found} = {get}({at})")
        frame.line("peer = i64(1)")
        frame.line(f"while peer < {groups}:")
        frame.line(f"    {found} = {join}({found}, {get}({at} + peer * {lanes * place.size}))")
        frame.line("    peer = peer + 1")
        operands = Operands()
        state = operands.name(Value(found, place.axes, place.how.codes[0]))
        lines, texts = place.how.finish(state)
        (value,) = self.values.mapped(
            "state", place.how.results, lines, texts, operands, place.axes, frame.depth
        )
        memory = frame.memories[store.target]
        self.accesses.store(memory, store.axes, value, self.lead(store.axes))

    def _join_each(self, place: _Places) -> str:
        """Return what joins two tiles of states."""
        frame = self.frame
        join = self.folds.combiner(place.how, "join")
        if not place.axes:
            return join
        held = ", ".join(f'"{" ".join(place.axes)}"' for _ in range(2))
        counts = frame.counts(place.axes)
        return frame.module.declare("join_each", f"t.elementwise({join}, {counts}, {held})")


def _joined_whole(merge: Kernel, loops: Loops) -> tuple[Kernel, ThreadPlan]:
    """Return a merge as a kernel that folds over all segments at once, and its threads."""
    parts = take_apart(merge)
    spaces = {space.name: space for space in loops.workspaces}
    sources = {s.name: s.value for s in parts.body if isinstance(s, Compute)}
    folds: list[Statement] = []
    innermost = ""
    for step in parts.body:
        if isinstance(step, Combine):
            source = sources[step.right[0]]
            assert isinstance(source, Ref)
            innermost = spaces[source.name].axes[-1]
            op = "sum" if step.op == "count" else step.op
            folds.append(Fold(step.names, op, (parts.index,), (source,), None, step.types))
    each, threads = SEGMENTS
    lanes, width = COLUMNS
    plan = ThreadPlan((Spread(parts.index, each, threads), Spread(innermost, 1, lanes, width)))
    grid = tuple(GridAxis(g.axis, plan.spread(g.axis).extent) for g in merge.grid)
    body = (*folds, *parts.rest)
    resident = (*merge.resident, parts.index)
    whole = replace(merge, grid=grid, resident=resident, body=body, kind="on-chip", joint=())
    return whole, plan


_TRUE = Literal(True, Type(BOOL))


def _number(value: int) -> Literal:
    return Literal(value, Type(I64))
