"""Loops → a CUDA kernel over element tiles: values in registers, threads as the plan spreads them.

The unit's scope holds what the grid gives a range; loops open scopes of their own. A fold goes from
a thread's registers to the lanes of its warp to the warps of the block; threads of a strip keep
states of their own until the sweep is over (`merging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import assert_never

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.folds import Folding, folding
from redlang.codegen.cuda.frame import CODES, Frame, Memory, Value
from redlang.codegen.cuda.kernel_text import Classes, KernelText
from redlang.codegen.cuda.values import Operands, Values
from redlang.ir.loops import (
    Branch,
    Combine,
    Commit,
    Compute,
    Contract,
    Fold,
    Kernel,
    Loop,
    Loops,
    Statement,
    Store,
)
from redlang.ir.program import Apply, Cast, Expr, Index
from redlang.ir.types import I64, Type, compute_type
from redlang.schedule import tidy
from redlang.schedule.threads import ThreadPlan

WARP_BITS = 5


def emit(loops: Loops, kernel: Kernel, plan: ThreadPlan, classes: Classes) -> KernelText:
    """Return the text of one kernel.

    Args:
        loops: The lowered program.
        kernel: One of its kernels, not one that only merges segments.
        plan: Its threads.
        classes: What is known of the arrays of every launch.
    """
    unit = Unit(loops, kernel, plan, classes)
    with unit.frame.scope(unit.unit_axes()) as scope:
        unit.ranges()
        unit.run(kernel.body)
    return unit.finished(scope.lines)


class Unit:
    """Writes the statements of one unit."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: ThreadPlan, classes: Classes) -> None:
        self.frame = Frame(loops, kernel, plan, classes)
        self.values = Values(self.frame, self._load)
        self.accesses = Accesses(self.frame, self.values)
        self.kernel = kernel
        self.plan = plan
        # Names that are given several values, and the variables that they have.
        self.changing = changing_names(kernel.body)
        self.variables: set[str] = set()

    def _load(self, expr: Expr, depth: int) -> Value:
        return self.accesses.load(expr, depth)  # type: ignore[arg-type]  # loads and memory refs

    # The unit ---------------------------------------------------------------------------------

    def unit_axes(self) -> list[str]:
        """Return the axes that have their range in the unit's scope."""
        segment = [] if self.kernel.segment is None else [self.kernel.segment.index]
        return [*(grid.axis for grid in self.kernel.grid), *self.kernel.resident, *segment]

    def ranges(self) -> None:
        """Write which tile of each grid axis this unit has."""
        frame = self.frame
        grid = self.kernel.grid
        if grid:
            unit = self._unit_number()
            for position, axis in reversed(list(enumerate(grid))):
                count = f"t.tiles({frame.parameter(Extent(axis.axis))}, {axis.tile})"
                tile = unit
                if position:
                    rest = frame.module.names.fresh("rest")
                    frame.line(f"{rest}, {axis.axis}_tile = t.divided({unit}, {count})")
                    tile, unit = f"{axis.axis}_tile", rest
                scaled = f" * {axis.tile}" if axis.tile > 1 else ""
                frame.line(f"{frame.first(axis.axis)} = i64({tile}){scaled}")
        for axis_name in self.kernel.resident:
            frame.line(f"{frame.first(axis_name)} = i64(0)")

    def _unit_number(self) -> str:
        frame = self.frame
        if self.plan.units == 1:
            frame.line("unit = i32(cuda.blockIdx.x)")
            return "unit"
        own = f"i32(cuda.threadIdx.x) // i32({self.plan.unit_threads})"
        frame.line(f"unit = i32(cuda.blockIdx.x) * i32({self.plan.units}) + {own}")
        frame.line(f"units = {self._unit_count()}")
        # The last block may have too few units: the rest repeat one and store nothing.
        frame.line("active = unit < units")
        frame.line("unit = i32(t.smaller(i64(unit), i64(units) - 1))")
        return "unit"

    def _unit_count(self) -> str:
        counts = [
            f"t.tiles({self.frame.parameter(Extent(grid.axis))}, {grid.tile})"
            for grid in self.kernel.grid
        ]
        return " * ".join(counts) or "i64(1)"

    def finished(self, lines: Sequence[str]) -> KernelText:
        """Return the kernel around the unit's lines."""
        frame = self.frame
        names = ", ".join(frame.parameters.values())
        body = [f"def {frame.entry}({names}):", *(f"    {line}" for line in lines)]
        return KernelText(
            entry=frame.entry,
            source=frame.module.text(body),
            parameters=tuple(frame.parameters),
            threads=self.plan.threads,
            min_blocks=self.plan.min_blocks,
            shared_bytes=frame.shared_bytes,
            grid=tuple((grid.axis, grid.tile) for grid in self.kernel.grid),
            units=self.plan.units,
        )

    # Statements -------------------------------------------------------------------------------

    def run(self, body: Sequence[Statement]) -> None:
        """Write statements in order."""
        for statement in body:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """Write one statement."""
        match statement:
            case Compute(name, value, type_):
                self.frame.define(name, self._named(name, self._over(value, type_, name)))
            case Fold():
                self.fold(statement)
            case Contract():
                self.contract(statement)
            case Combine():
                self.combine(statement)
            case Commit(pairs):
                self.commit(pairs)
            case Store():
                self.store(statement)
            case Loop():
                self.loop(statement)
            case Branch():
                self.branch(statement)
            case _:
                assert_never(statement)

    def _over(self, expr: Expr, type_: Type, base: str = "value") -> Value:
        """Return an expression as a tile over exactly the axes of a type."""
        tile = self.frame.tile_axes(type_.axes)
        value = self.values.value(expr, base)
        return value if value.axes == tile else self._spread_out(value, tile)

    def _spread_out(self, value: Value, tile: tuple[str, ...]) -> Value:
        operands = Operands()
        name = operands.name(value)
        (wide,) = self.values.mapped(
            "spread", [value.code], [], [name], operands, tile, self.frame.depth
        )
        return wide

    def _named(self, name: str, value: Value) -> Value:
        """Give a value a variable of its own where its name or its variable will change."""
        frame = self.frame
        if name not in self.changing:
            if value.text not in self.variables:
                return value
            return self.values.assign(name, value.text, value.axes, value.code, frame.depth)
        variable = frame.module.names.of("value", name)
        self.variables.add(variable)
        if value.text != variable:
            self.frame.line(f"{variable} = {value.text}")
        return replace(value, text=variable)

    def commit(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give states their new values, all at once."""
        found = []
        for state, name in pairs:
            value = self.frame.lookup(name)
            assert value is not None, name
            found.append((state, value))
        variables = [self.frame.module.names.of("value", state) for state, _ in found]
        texts = [value.text for _, value in found]
        if len(found) > 1 and set(variables) & set(texts):
            fresh = [self.frame.module.names.fresh("next") for _ in found]
            for name, text in zip(fresh, texts, strict=True):
                self.frame.line(f"{name} = {text}")
            texts = fresh
        for (state, value), variable, text in zip(found, variables, texts, strict=True):
            self.frame.line(f"{variable} = {text}")
            self.frame.define(state, replace(value, text=variable))

    def store(self, statement: Store) -> None:
        """Round and store a tile."""
        memory = self.frame.memories[statement.target]
        value = _rounded(statement.value, memory)
        type_ = Type(compute_type(memory.dtype), statement.axes)
        tile = self._over(value, type_)
        self.accesses.store(memory, statement.axes, tile, self.lead(statement.axes))

    def lead(self, axes: Sequence[str]) -> str:
        """Return a test for one of the threads that hold the same tile over `axes`."""
        own = {bit for axis in axes for bit in self.plan.bits(axis)}
        every = range((self.plan.unit_threads - 1).bit_length())
        copies = [bit for bit in every if bit not in own]
        tests = []
        if self.plan.units > 1:
            tests.append("active")
        if copies:
            mask = sum(1 << bit for bit in copies)
            tests.append(f"({self.frame.thread()} & i32({mask})) == i32(0)")
        return conjunction(tests)

    def loop(self, statement: Loop) -> None:
        """Write a loop over the tiles of an axis, or its body alone if there is only one."""
        frame = self.frame
        axis = statement.axis
        limit = self._extent_limit(axis)
        first = frame.first(axis)
        start, stop = self.bounds(axis)
        single = limit is not None and limit <= statement.tile
        before = frame.shared_bytes
        written = frozenset().union(*(tidy.writes(s) for s in statement.body))
        frame.line(f"{first} = {start}")
        with frame.scope([axis], written) as scope:
            if statement.some is not None:
                self._guarded_body(statement)
            else:
                self.run(statement.body)
            if not single and frame.shared_bytes > before:
                # The next round writes what slower threads may still be reading.
                frame.line("t.barrier()")
        if single:
            for line in scope.lines:
                frame.line(line)
            return
        frame.line(f"while {first} < {stop}:")
        for line in scope.lines:
            frame.line(f"    {line}")
        frame.line(f"    {first} = {first} + {statement.tile}")

    def bounds(self, axis: str) -> tuple[str, str]:
        """Return first index and end of what this unit covers of a looped axis."""
        if axis in self.frame.slots:
            return "i64(0)", f"i64({self.frame.slots[axis]})"
        return "i64(0)", self.frame.parameter(Extent(axis))

    def _extent_limit(self, axis: str) -> int | None:
        if axis in self.frame.slots:
            return self.frame.slots[axis]
        return self.frame.classes.limits.get(axis)

    def _guarded_body(self, statement: Loop) -> None:
        assert statement.some is not None
        test = self.values.value(statement.some)
        with self.frame.scope([]) as inner:
            self.run(statement.body)
        self.frame.line(f"if {test.text}:")
        for line in inner.lines or ["pass"]:
            self.frame.line(f"    {line}")

    def branch(self, statement: Branch) -> None:
        """Write both sides of a branch that all threads of a unit take alike."""
        frame = self.frame
        test = self.values.value(statement.condition)
        written = tidy.writes(statement)
        for head, body in ((f"if {test.text}:", statement.then), ("else:", statement.otherwise)):
            with frame.scope([], written) as scope:
                self.run(body)
            frame.line(head)
            for line in scope.lines or ["pass"]:
                frame.line(f"    {line}")
            for name, value in scope.names.items():
                frame.define(name, value)

    # Folds ------------------------------------------------------------------------------------

    def contract(self, statement: Contract) -> None:
        """Write a small matrix product as the fold that it is."""
        left, right = statement.left, statement.right
        axes = tuple(a for a in self.frame.order if a in {*left.type.axes, *right.type.axes})
        product = Apply("mul", (left, right), Type(statement.type.dtype, axes))
        name = f"{statement.name}.product" if statement.accumulate else statement.name
        self.fold(
            Fold((name,), "sum", statement.over, (product,), statement.condition, (statement.type,))
        )
        if statement.accumulate:
            self.combine(
                Combine((statement.name,), "sum", (statement.name,), (name,), (statement.type,))
            )

    def fold(self, statement: Fold) -> None:
        """Write a fold over the current ranges of its axes."""
        element = statement.values[0].type.dtype
        how = folding(statement.op, statement.types, element, statement.monoid)
        lifted = self._lifted(statement, how)
        kept = tuple(axis for axis in lifted[0].axes if axis not in statement.over)
        folded = self._in_thread(statement, how, lifted, kept)
        folded = self._across_threads(statement.over, how, folded, kept)
        self._finish(statement, how, folded, kept)

    def _lifted(self, statement: Fold, how: Folding) -> list[Value]:
        """Return the state of every element."""
        frame = self.frame
        exprs = [*statement.values]
        if statement.condition is not None:
            exprs.append(statement.condition)
        axes = {axis for expr in exprs for axis in expr.type.axes} | set(statement.over)
        tile = frame.tile_axes(axes)
        operands = Operands()
        bare = [self.values.operand_form(expr, tile, operands) for expr in exprs]
        texts, setting = self.values.spelled(bare, operands)
        tests = [texts[-1]] if statement.condition is not None else []
        tests += [self._inside(axis, operands) for axis in statement.over if not self._whole(axis)]
        lines = list(setting.lines)
        given = texts[: len(statement.values)]
        if how.indexed:
            given.append(self._flat_index(statement.over, operands))
        added, states = how.lift(*given)
        lines += added
        if tests:
            lines.append(f"takes_part = {conjunction(tests)}")
            states = [
                f"select(takes_part, {state}, {neutral})"
                for state, neutral in zip(states, how.neutral, strict=True)
            ]
        return self.values.mapped(
            f"{statement.op}_of", how.codes, lines, states, operands, tile, frame.depth
        )

    def _whole(self, axis: str) -> bool:
        return self.frame.is_whole(axis)

    def _inside(self, axis: str, operands: Operands) -> str:
        """Return the argument that says whether an element lies inside an axis."""
        frame = self.frame
        depth = frame.axis_depth(axis)
        spread = frame.spread(axis)
        name = frame.module.names.of("inside", f"{axis}_inside")
        if name not in frame.scopes[depth].variables:
            left = frame.left(axis)
            # Whole groups lie inside or outside where the extent is a multiple of their size.
            group = gcd(frame.classes.multiple(axis), spread.width)
            reaches = tuple(reach // group * group for reach in spread.reaches)
            make = frame.module.declare(f"{axis}_test", f"t.inside({reaches})")
            frame.at(depth).append(f"{name} = {make}({left})")
            frame.scopes[depth].variables.add(name)
        return operands.name(Value(name, frame.tile_axes([axis]), "bool"))

    def _flat_index(self, over: Sequence[str], operands: Operands) -> str:
        """Return text of an element's row-major index over the whole extents of `over`."""
        text = ""
        for axis in over:
            index = operands.name(self.values.value(Index(axis, _index_type(axis))))
            if not text:
                text = index
            else:
                extent = Value(self.frame.parameter(Extent(axis)), (), "i64")
                text = f"({text} * {operands.name(extent)} + {index})"
        return text

    def _combiner(self, how: Folding, base: str) -> str:
        """Return the name of the function that joins two states."""
        sides = [[f"{side}{i}" for i in range(len(how.codes))] for side in "ab"]
        paired = [name for side in sides for name in side]
        interleaved = list(paired)
        lines, results = how.combine(*sides[0], *sides[1])
        arguments = list(zip(interleaved, (*how.codes, *how.codes), strict=True))
        return self.frame.module.function(base, how.codes, arguments, lines, results)

    def _in_thread(
        self, statement: Fold, how: Folding, states: list[Value], kept: tuple[str, ...]
    ) -> list[Value]:
        frame = self.frame
        tile = states[0].axes
        if tile == kept:
            return states
        combiner = self._combiner(how, f"join_{statement.op}")
        over = " ".join(axis for axis in tile if axis not in kept)
        make = frame.module.declare(
            f"fold_{statement.op}", f't.fold({combiner}, {frame.counts(tile)}, "{over}")'
        )
        return self._called(make, "", states, kept, statement.op)

    def _called(
        self, function: str, before: str, states: list[Value], axes: tuple[str, ...], base: str
    ) -> list[Value]:
        names = [self.frame.module.names.fresh(base) for _ in states]
        given = ", ".join(state.text for state in states)
        self.frame.line(f"{', '.join(names)} = {function}({before}{given})")
        return [Value(name, axes, state.code) for name, state in zip(names, states, strict=True)]

    def _across_threads(
        self, over: Sequence[str], how: Folding, states: list[Value], kept: tuple[str, ...]
    ) -> list[Value]:
        """Fold over the threads that share the axes `over`, except those of a strip."""
        frame = self.frame
        bits = [
            bit for axis in over if axis not in self.plan.strips for bit in self.plan.bits(axis)
        ]
        count = frame.size(kept)
        combiner = self._combiner(how, "join")
        lanes = sorted(bit for bit in bits if bit < WARP_BITS)
        if lanes:
            masks = tuple(1 << bit for bit in lanes)
            ordered = ", ordered=True" if how.ordered else ""
            make = frame.module.declare("lanes", f"t.lanes({combiner}, {count}, {masks}{ordered})")
            states = self._called(make, "", states, kept, "all")
        warps = sorted(bit for bit in bits if bit >= WARP_BITS)
        if warps:
            peers = 1 << len(warps)
            make = frame.module.declare(
                "warps", f"t.warps({combiner}, {count}, {peers}, {frame.shared_bytes})"
            )
            rest = [b for b in range(self.plan.threads.bit_length() - 1) if b not in bits]
            frame.shared_bytes += warp_bytes(how.codes, count, peers) << len(rest)
            mask = sum(1 << bit for bit in lanes)
            writes = f"({frame.thread()} & i32({mask})) == i32(0)" if mask else "True"
            before = f"{frame.thread_bits(rest)}, {frame.thread_bits(warps)}, {writes}, "
            states = self._called(make, before, states, kept, "all")
        return states

    def _finish(
        self, statement: Fold, how: Folding, states: list[Value], kept: tuple[str, ...]
    ) -> None:
        operands = Operands()
        names = [operands.name(state) for state in states]
        lines, texts = how.finish(*names)
        if texts == names:
            results = states
        else:
            results = self.values.mapped(
                statement.op, how.results, lines, texts, operands, kept, self.frame.depth
            )
        for name, type_, value in zip(statement.names, statement.types, results, strict=True):
            tile = self.frame.tile_axes(type_.axes)
            wide = value if value.axes == tile else self._spread_out(value, tile)
            self.frame.define(name, self._named(name, wide))

    def combine(self, statement: Combine) -> None:
        """Write the joining of two partial results."""
        how = folding(statement.op, statement.types, statement.types[0].dtype, statement.monoid)
        sides = []
        for names in (statement.left, statement.right):
            side = []
            for name in names:
                value = self.frame.lookup(name)
                assert value is not None, name
                side.append(value)
            sides.append(side)
        operands = Operands()
        left, right = ([operands.name(value) for value in side] for side in sides)
        lines, texts = _joined(how, statement.op, left, right)
        tile = self.frame.tile_axes([a for type_ in statement.types for a in type_.axes])
        codes = [CODES[type_.dtype.name] for type_ in statement.types]
        results = self.values.mapped(
            f"join_{statement.op}", codes, lines, texts, operands, tile, self.frame.depth
        )
        for name, value in zip(statement.names, results, strict=True):
            self.frame.define(name, self._named(name, value))


def conjunction(tests: Sequence[str]) -> str:
    """Return the text of "all of these"."""
    if not tests:
        return "True"
    first, *others = tests
    for other in others:
        first = f"logical_and({first}, {other})"
    return first


def _joined(
    how: Folding, op: str, left: list[str], right: list[str]
) -> tuple[list[str], list[str]]:
    """Return the text that joins finished partial results rather than states of a fold."""
    if op == "count":
        return [], [f"{left[0]} + {right[0]}"]
    if op == "prod" and len(how.codes) > 1:
        return [], [f"{left[0]} * {right[0]}"]
    return how.combine(*left, *right)


def warp_bytes(codes: Sequence[str], count: int, peers: int) -> int:
    """Return the shared bytes that one group of threads needs for `t.warps`."""
    sizes = {"bool": 4, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
    total = sum(sizes[code] for code in codes) * count * peers
    return -(-total // 16) * 16


def changing_names(body: Sequence[Statement]) -> frozenset[str]:
    """Return the names that are given more than one value."""
    seen: dict[str, int] = {}
    changing: set[str] = set()

    def visit(statements: Sequence[Statement]) -> None:
        for statement in statements:
            match statement:
                case Loop(body=inner):
                    visit(inner)
                case Branch(then=then, otherwise=otherwise):
                    visit((*then, *otherwise))
                case Commit(pairs=pairs):
                    changing.update(state for state, _ in pairs)
                case Contract(name=name, accumulate=True):
                    changing.add(name)
                case _:
                    for name in tidy.writes(statement):
                        seen[name] = seen.get(name, 0) + 1

    visit(body)
    return frozenset(changing | {name for name, times in seen.items() if times > 1})


def _rounded(value: Expr, memory: Memory) -> Expr:
    """Return a value in the compute type of the memory that it is stored to."""
    target = compute_type(memory.dtype)
    if value.type.dtype is target:
        return value
    return Cast(value, memory.dtype, replace(value.type, dtype=target, weak=False))


def _index_type(axis: str) -> Type:
    return Type(I64, (axis,))
