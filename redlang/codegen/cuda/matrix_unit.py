"""One warp group of a matrix kernel: its rows, its products, and how its results leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.elements import Unit, rounded
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_bodies import is_counted
from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_factors import FEWEST, factored, opened, row_factor
from redlang.codegen.cuda.matrix_frame import KNOWN, RANGE, MatrixFrame
from redlang.codegen.cuda.matrix_masks import apart
from redlang.codegen.cuda.matrix_memory import SharedPlan
from redlang.codegen.cuda.matrix_roles import Fetch, LoopWork, Multiply
from redlang.codegen.cuda.matrix_scans import Scan
from redlang.codegen.cuda.matrix_stores import staged_results, staging_bytes
from redlang.codegen.cuda.matrix_summaries import Summaries
from redlang.codegen.cuda.matrix_text import tile_text, unsuited
from redlang.codegen.cuda.matrix_values import MatrixValues
from redlang.codegen.cuda.reducing import Folds
from redlang.codegen.cuda.values import Operands
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.loops import Compute, Contract, Kernel, Loop, Loops, Store
from redlang.ir.program import Expr, Index, Literal, Load, Ref
from redlang.ir.types import F32, Type, compute_type
from redlang.schedule import tidy
from redlang.schedule.bounds import Knowledge, certain
from redlang.schedule.fragments import STEP, STEP_BYTES, SharedLine
from redlang.schedule.matrices import MatrixPlan


class MatrixUnit(Unit):
    """Writes what a warp group does with fragments."""

    def __init__(
        self,
        loops: Loops,
        kernel: Kernel,
        plan: MatrixPlan,
        classes: Classes,
    ) -> None:
        super().__init__(loops, kernel, plan.warp(), classes)
        frame = MatrixFrame(loops, kernel, plan, classes)
        frame.slots |= self.frame.slots
        self.frame: MatrixFrame = frame
        self.values = MatrixValues(frame, self._load)
        self.accesses = Accesses(frame, self.values)
        self.folds = Folds(frame, self.values)
        self.program = loops.program
        self.matrix = plan
        self.rows = tuple(axis for axis, _ in plan.rows)
        self.builder = Builder(frame.order)
        self.works: dict[int, LoopWork] = {}
        self.shared = SharedPlan({}, {}, 0, 0)
        self.ends: dict[int, tuple[str, str]] = {}
        self.wanted: dict[int, Ref] = {}
        self.checked: Mapping[Operand, Multiply] = {}
        self.last_reads: dict[Operand, Loop] = {}
        self.block_whole: Callable[[str, Expr], str | None] = lambda axis, condition: None
        self.staged = staged_results(loops, kernel, plan, classes)
        self.summaries = Summaries(frame, kernel, plan)
        self.knowledge = Knowledge(self.is_one, self.summaries.of)
        self.scan = Scan(frame)
        self.counted = {
            s.name
            for loop in kernel.body
            if isinstance(loop, Loop)
            for s in loop.body
            if isinstance(s, Contract) and is_counted(s)
        }

    streams: bool = False
    """Whether tiles of all units make one stream; then each unit has one at least."""

    # The unit ---------------------------------------------------------------------------------

    def is_fragment(self, expr: Expr) -> bool:
        """Say whether an expression varies along columns."""
        return any(self.matrix.width(axis) > 1 for axis in expr.type.axes if axis not in self.rows)

    def is_one(self, expr: Expr) -> bool:
        """Say whether an expression is an element of an array that the whole unit reads."""
        grid = {grid.axis for grid in self.kernel.grid if grid.tile == 1}
        return (
            isinstance(expr, Load)
            and not any(expr.guarded)
            and set(expr.type.axes) <= grid
            and all(isinstance(part, Index) for part in expr.subscripts)
        )

    def ranges(self) -> None:
        """Write the ranges of this warp."""
        frame = self.frame
        for axis in self.unit_axes():
            if axis not in self.rows:
                frame.line(f"{frame.first(axis)} = {frame.block_first(axis)}")
        frame.line(f"row = {self.first_row()}")
        inner = 1
        for axis, tile in reversed(self.matrix.rows):
            number = "row" if inner == 1 else f"(row // {inner})"
            if axis != self.rows[0]:
                number = f"({number} & {tile - 1})"
            frame.line(f"{frame.first(axis)} = {frame.block_first(axis)} + i64({number})")
            inner *= tile

    def first_row(self) -> str:
        """Return text of this warp's first row in the block's tile."""
        return "group * 64 + (i32(cuda.threadIdx.x) >> i32(5) & i32(3)) * 16"

    def entered(self, loop: Loop, *, alone: bool = False) -> list[str]:
        """Return lines that go to a loop's first tile, of a warp or of a thread alone."""
        first, (start, stop) = self.frame.first(loop.axis), self.ends[id(loop)]
        skipped = self.skipped(loop, alone=alone)
        lines = [f"{first} = {start}", *skipped]
        if self.streams and skipped:
            # A unit has a tile, if only one of which no element takes part.
            lines += [f"if {first} >= {stop}:", f"    {first} = {start}"]
        return lines

    def skipped(self, loop: Loop, first: str | None = None, *, alone: bool = False) -> list[str]:
        """Return lines that go past tiles of which no element takes part.

        Args:
            loop: The loop.
            first: The variable of a tile's first index; that of the current one if None.
            alone: Whether they are run by one thread, not by a warp.
        """
        answer = self.wanted.get(id(loop))
        if answer is None:
            return []
        _, stop = self.ends[id(loop)]
        first = first or self.frame.first(loop.axis)
        return [self.scan.following(answer, first, stop, alone=alone)]

    def certain(self, axis: str, condition: Expr) -> Expr | None:
        """Return a test that is true only for tiles of a loop without a hidden element.

        What numbers in arrays say of a tile has been asked of the block's, ahead.
        """
        test = certain(condition, self.builder, self.knowledge)
        if test is None or not any(name.startswith(f"{RANGE}.") for name in walk.refs(test)):
            return test
        return self.scan.ask(axis, test)

    def apart(self, axis: str, condition: Expr) -> tuple[Expr | None, Expr | None]:
        """Return the part of a condition that is bounds of a loop's index, and what is left."""
        return apart(condition, axis, self.builder)

    def answers(self, axis: str, conditions: Iterable[Expr | None]) -> None:
        """Read what has been found out of the current tile, while products are computed."""
        for condition in dict.fromkeys(conditions):
            if condition is None:
                continue
            for part in (condition, self.apart(axis, condition)[1]):
                test = None if part is None else self.certain(axis, part)
                for node in () if test is None else walk.nodes(test):
                    if isinstance(node, Ref) and node.name.startswith(f"{KNOWN}."):
                        self.values.value(node)

    # Products ---------------------------------------------------------------------------------

    def compute(self, statement: Compute) -> None:
        """Give a name its value; sums of integers begin as 32 bits, which products add up in."""
        if statement.name not in self.counted or walk.refs(statement.value):
            super().compute(statement)
            return
        assert isinstance(statement.value, Literal), statement
        frame = self.frame
        axes = frame.tile_axes(statement.type.axes)
        zeros = frame.module.declare("zeros", f'w.zeros({frame.size(axes)}, "i32")')
        value = self.values.assign("nothing", f"{zeros}()", axes, "i32", frame.depth)
        frame.define(statement.name, self._named(statement.name, value))

    def _over(self, expr: Expr, type_: Type, base: str = "value") -> Value:
        """Return an expression as a tile over exactly the axes of a type, in a compute type."""
        value = super()._over(expr, type_, base)
        if value.code != "i32":
            return value
        operands = Operands()
        text = f"i64({operands.name(value)})"
        (wide,) = self.values.mapped(
            "wide", ["i64"], [], [text], operands, value.axes, self.frame.depth
        )
        return wide

    def await_operands(self, products: Sequence[Multiply], before: Sequence[Multiply] = ()) -> None:
        """Wait for the tiles that products read and those `before` have not waited for."""
        for operand in self._but(products, before):
            ring = self.shared.rings[operand]
            self.frame.line(f"w.barrier_wait({ring.ready_barrier()}, {ring.parity})")

    def looped(self, products: Sequence[Multiply]) -> list[Operand]:
        """Return the operands of products that are copied for each tile of their loop."""
        operands = [o for p in products for o in (p.left, p.right) if o is not None]
        return [operand for operand in dict.fromkeys(operands) if operand.loop is not None]

    def issue(self, product: Multiply) -> None:
        """Issue a product whose operands have arrived."""
        frame = self.frame
        contract = product.contract
        width = self.matrix.width(product.column)
        counted = is_counted(contract)
        step = STEP_BYTES if counted else STEP
        contracted = -(-self.matrix.width(product.over) // step) * step
        rows_first = self.rows_first(product.column)
        right = self.shared.rings[product.right]
        parts = [f'w.Product("{product.dtype}", {width}, {contracted}']
        parts.append(tile_text(product.right.multiplied))
        arguments = []
        if product.left is not None:
            ring = self.shared.rings[product.left]
            parts.append(f"left={tile_text(product.left.tile)}")
            offset = product.left.tile.group_offset(1)
            arguments.append(f"w.opaque({ring.tile()} + group * {offset})")
        else:
            arguments.append(self.packed_name(product))
        if contract.accumulate:
            parts.append("accumulate=True")
            value = frame.lookup(contract.name)
            assert value is not None
            arguments.insert(0, value.text)
        if not rows_first:
            parts.append("rows_first=False")
        arguments.append(f"w.opaque({right.tile()})")
        make = frame.module.declare("product", f"w.product({', '.join(parts)}))")
        variable = frame.module.names.of("value", contract.name)
        self.variables.add(variable)
        frame.line(f"{variable} = {make}({', '.join(arguments)})")
        axes = frame.tile_axes(contract.type.axes)
        frame.define(contract.name, Value(variable, axes, "i32" if counted else "f32"))

    def rows_first(self, column: str) -> bool:
        """Say whether rows come before a column axis in fragments."""
        order = self.frame.order
        return all(order.index(axis) < order.index(column) for axis in self.rows)

    def packed_name(self, product: Multiply) -> str:
        """Return the variable of a product's packed left operand."""
        return self.frame.module.names.of("packed", f"{product.contract.name}_operand")

    def pack(self, product: Multiply) -> None:
        """Round a computed left operand and pack it for its product."""
        frame = self.frame
        value = self._over(product.rows, Type(F32, product.rows.type.axes))
        width = self.matrix.width(product.over)
        rows_first = "" if self.rows_first(product.over) else ", rows_first=False"
        make = frame.module.declare("pack", f'w.operand("{product.dtype}", {width}{rows_first})')
        frame.line(f"{self.packed_name(product)} = {make}({value.text})")

    def wait(self, pending: int, names: Sequence[str]) -> None:
        """Wait for products; the values of `names` are complete after it."""
        frame = self.frame
        values = [value for name in names if (value := frame.lookup(name)) is not None]
        counts = [str(pending), *(str(frame.size(value.axes)) for value in values)]
        if any(value.code != "f32" for value in values):
            counts.append(f"codes={tuple(value.code for value in values)}")
        make = frame.module.declare("wait", f"w.wait({', '.join(counts)})")
        texts = ", ".join(value.text for value in values)
        frame.line(f"{texts} = {make}({texts})" if texts else f"{make}()")
        for name, value in zip(names, values, strict=True):
            frame.define(name, value)

    def _but(self, products: Sequence[Multiply], others: Sequence[Multiply]) -> list[Operand]:
        """Return what products read of each tile of their loop, and others do not."""
        kept = self.looped(others)
        return [operand for operand in self.looped(products) if operand not in kept]

    def release(self, products: Sequence[Multiply], after: Sequence[Multiply] = ()) -> None:
        """Give the tiles back to the producer that products have read and those `after` do not."""
        frame = self.frame
        for operand in self._but(products, after):
            ring = self.shared.rings[operand]
            frame.line(f"w.barrier_arrive({ring.empty_barrier()}, leads)")
            for line in ring.advance():
                frame.line(line)

    # Arrays that are computed with ------------------------------------------------------------

    def fetch(self, fetches: Sequence[Fetch]) -> None:
        """Read tiles of arrays into fragments."""
        frame = self.frame
        for fetch in fetches:
            operand = fetch.operand
            ring = self.shared.rings[operand]
            dtype = frame.memories[operand.map.array].dtype
            width = self.matrix.width(str(operand.loop))
            rows_first = "" if self.rows_first(str(operand.loop)) else ", rows_first=False"
            text, place = f'w.fetch_line("{dtype}", {width})', ring.tile()
            if not isinstance(operand.tile, SharedLine):
                text = f'w.fetch("{dtype}", {width}, {tile_text(operand.tile)}{rows_first})'
                place = f"{place} + group * {operand.tile.group_offset(1)}"
            make = frame.module.declare("fetch", text)
            variable = frame.module.names.of("value", fetch.name)
            self.variables.add(variable)
            frame.line(f"w.barrier_wait({ring.full_barrier()}, {ring.parity})")
            frame.line(f"{variable} = {make}(w.opaque({place}))")
            axes = frame.tile_axes(fetch.type.axes)
            frame.define(fetch.name, Value(variable, axes, "f32"))

    def give_back(self, fetches: Sequence[Fetch]) -> None:
        """Give tiles that were read into fragments back to the producer.

        The arrival that is waited for lies behind, but `ptxas` moves no work across the wait: what
        was computed from the tiles is done beside the products in flight, and not after them.
        """
        frame = self.frame
        rings = [self.shared.rings[fetch.operand] for fetch in fetches]
        if rings:
            frame.line(f"w.barrier_wait({rings[0].full_barrier()}, {rings[0].parity})")
            frame.line("w.warp_barrier()")
        for ring in rings:
            frame.line(f"w.barrier_arrive({ring.empty_barrier()}, leads_warp)")
            for line in ring.advance():
                frame.line(line)

    # Results ----------------------------------------------------------------------------------

    def store(self, statement: Store) -> None:
        """Store a tile: a fragment of 16-bit elements through shared memory where that works."""
        staged = self.staged.get(statement.target)
        if staged is None:
            super().store(statement)
            return
        frame = self.frame
        memory = frame.memories[statement.target]
        value = self._leaving(
            rounded(statement.value, memory), Type(compute_type(memory.dtype), statement.axes)
        )
        name = frame.parameter(staged.map)
        columns = self.matrix.width(staged.column)
        rows_first = "" if self.rows_first(staged.column) else ", rows_first=False"
        text = f'w.stage("{memory.dtype}", {columns}, {tile_text(staged.tile)}{rows_first})'
        stage = frame.module.declare("stage", text)
        copy = frame.module.declare("copy_out", f"w.copy_out({len(staged.map.dims)})")
        own = f"(i32(cuda.threadIdx.x) >> i32(5)) * {staging_bytes(self.staged)}"
        start = frame.module.names.fresh("staging")
        frame.line(f"{start} = shared + {self.shared.staging} + {own}")
        frame.line("w.copies_read()")
        frame.line("w.warp_barrier()")
        frame.line(f"{stage}({start}, {value.text})")
        frame.line("w.shared_written()")
        frame.line("w.warp_barrier()")
        tile = staged.tile
        for block in range(-(-columns // tile.width)):
            places = [frame.first(axis) for axis in staged.map.dims]
            if block:
                places[0] = f"{places[0]} + {block * tile.width}"
            source = f"{start} + {block * tile.block_bytes}" if block else start
            lead = "i32((i32(cuda.threadIdx.x) & i32(31)) == i32(0))"
            frame.line(f"{copy}({source}, {name}, {lead}, {', '.join(places)})")
        frame.line("w.copies_commit()")

    def _leaving(self, expr: Expr, type_: Type) -> Value:
        """Return a result's tile: a fragment times a factor of rows where that is all it is."""
        frame = self.frame
        parts = factored(expr, self._made, self.is_fragment)
        if parts is None or parts.operations < FEWEST:
            return self._over(expr, type_)
        factor, plain = row_factor(self, parts)
        fragment = self._over(parts.fragment, type_)
        name = frame.module.names.fresh("leaving")
        # What takes an operation an element belongs to one branch or the other.
        own = walk.refs(parts.fragment)
        with frame.scope([], own) as short:
            operands = Operands()
            text = f"{operands.name(fragment)} * {operands.name(factor)}"
            (product,) = self.values.mapped(
                "scaled", ["f32"], [], [text], operands, fragment.axes, frame.depth
            )
            frame.line(f"{name} = {product.text}")
        with frame.scope([], own) as long:
            whole = opened(expr, self._made, self.is_fragment)
            frame.line(f"{name} = {self._over(whole, type_).text}")
        self.block(f"if {plain}:", short.lines)
        self.block("else:", long.lines)
        return Value(name, fragment.axes, "f32")

    def _made(self, name: str) -> Expr | None:
        """Return the value of a name that is written once, outside of loops."""
        writers = [s for s in self.kernel.body if name in tidy.writes(s)]
        only = writers[0] if len(writers) == 1 else None
        return only.value if isinstance(only, Compute) else None

    def block(self, head: str, lines: Sequence[str]) -> None:
        """Write a statement that holds lines."""
        self.frame.line(head)
        for line in lines:
            self.frame.line(f"    {line}")

    def contract(self, statement: Contract) -> None:
        """Refuse a product outside of loops."""
        raise unsuited("a product outside of a loop")
