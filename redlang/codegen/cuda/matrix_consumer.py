"""The consumers' text: products, and the element work between them, of one warp group.

A loop's tiles are software-pipelined. While the tensor core multiplies the last tile's computed
operands, the next tile's first products are already issued and its element work begins:

    issue heads of tile j; issue tails of tile j - 1; wait for heads; element work of tile j;
    wait for tails; move accumulators; pack computed operands

The first tile has no tails before it and the last one has its own after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.access import Accesses
from redlang.codegen.cuda.elements import Unit, rounded
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_checks import spoil
from redlang.codegen.cuda.matrix_fills import POSITIVE, Filling, Use, filling, kind_of
from redlang.codegen.cuda.matrix_frame import MatrixFrame
from redlang.codegen.cuda.matrix_masks import Bounds, greatest, index_bounds, least
from redlang.codegen.cuda.matrix_memory import SharedPlan
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply, Operand
from redlang.codegen.cuda.matrix_stores import staged_results, staging_bytes
from redlang.codegen.cuda.matrix_text import unsuited
from redlang.codegen.cuda.matrix_weights import Power, with_powers
from redlang.codegen.cuda.reducing import Folds, conjunction
from redlang.codegen.cuda.values import Operands, Values, constant
from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.loops import Combine, Compute, Contract, Fold, Kernel, Loop, Loops, Statement, Store
from redlang.ir.program import Apply, Expr, Literal, Ref
from redlang.ir.types import F32, I64, Type, compute_type
from redlang.schedule import tidy
from redlang.schedule.bounds import certain
from redlang.schedule.fragments import STEP, SharedTile
from redlang.schedule.matrices import MatrixPlan

_JOINS = {"sum": "a + b", "max": "maximum(a, b)", "min": "minimum(a, b)"}
_QUAD = (1, 2)
_TURNS = 1
"""The named barrier of the first group's turn; the others follow, 0 is the block's."""


@dataclass(slots=True)
class LoopText:
    """What the consumer knows of a loop while it writes it."""

    statement: Loop
    work: LoopWork
    elements: tuple[Statement | Power, ...]
    filling: Filling
    uses: tuple[Use, ...]
    partial: dict[str, str] = field(default_factory=dict)

    @property
    def axis(self) -> str:
        """Return the loop's axis."""
        return self.statement.axis


class Consumer(Unit):
    """Writes the statements of a block as one warp group runs them."""

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
        self.values = Values(frame, self._load)
        self.accesses = Accesses(frame, self.values)
        self.folds = Folds(frame, self.values)
        self.matrix = plan
        self.rows = tuple(axis for axis, _ in plan.rows)
        self.builder = Builder(frame.order)
        self.works: dict[int, LoopWork] = {}
        self.shared = SharedPlan({}, 0, 0)
        self.ends: dict[int, tuple[str, str]] = {}
        self.last_reads: dict[Operand, Loop] = {}
        self.block_whole: Callable[[Expr], str | None] = lambda condition: None
        self.staged = staged_results(loops, kernel, plan, classes)
        self.current: LoopText | None = None

    # The unit ---------------------------------------------------------------------------------

    def is_fragment(self, expr: Expr) -> bool:
        """Say whether an expression varies along columns."""
        return any(self.matrix.width(axis) > 1 for axis in expr.type.axes if axis not in self.rows)

    def ranges(self) -> None:
        """Write the ranges of this warp."""
        frame = self.frame
        for axis in self.unit_axes():
            if axis not in self.rows:
                frame.line(f"{frame.first(axis)} = {frame.block_first(axis)}")
        frame.line("row = group * 64 + (i32(cuda.threadIdx.x) >> i32(5) & i32(3)) * 16")
        inner = 1
        for axis, tile in reversed(self.matrix.rows):
            number = "row" if inner == 1 else f"(row // {inner})"
            if axis != self.rows[0]:
                number = f"({number} & {tile - 1})"
            frame.line(f"{frame.first(axis)} = {frame.block_first(axis)} + i64({number})")
            inner *= tile

    # Products ---------------------------------------------------------------------------------

    def await_operands(self, products: Sequence[Multiply]) -> None:
        """Wait for the tiles that products read."""
        for operand in self._looped(products):
            ring = self.shared.rings[operand]
            self.frame.line(f"w.barrier_wait({ring.ready_barrier()}, {ring.parity})")

    def _looped(self, products: Sequence[Multiply]) -> list[Operand]:
        """Return the operands of products that are copied for each tile of their loop."""
        operands = [o for p in products for o in (p.left, p.right) if o is not None]
        return [operand for operand in dict.fromkeys(operands) if operand.loop is not None]

    def issue(self, product: Multiply) -> None:
        """Issue a product whose operands have arrived."""
        frame = self.frame
        contract = product.contract
        width = self.matrix.width(product.column)
        contracted = -(-self.matrix.width(product.over) // STEP) * STEP
        rows_first = self._rows_first(product.column)
        right = self.shared.rings[product.right]
        parts = [f'w.Product("{product.dtype}", {width}, {contracted}']
        parts.append(tile_text(product.right.tile))
        arguments = []
        if product.left is not None:
            ring = self.shared.rings[product.left]
            parts.append(f"left={tile_text(product.left.tile)}")
            offset = product.left.tile.group_offset(1)
            arguments.append(f"w.opaque({ring.tile()} + group * {offset})")
        else:
            arguments.append(self._packed_name(product))
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
        frame.define(contract.name, Value(variable, axes, "f32"))

    def _rows_first(self, column: str) -> bool:
        order = self.frame.order
        return all(order.index(axis) < order.index(column) for axis in self.rows)

    def _packed_name(self, product: Multiply) -> str:
        return self.frame.module.names.of("packed", f"{product.contract.name}_operand")

    def pack(self, product: Multiply) -> None:
        """Round a computed left operand and pack it for its product."""
        frame = self.frame
        value = self._over(product.rows, Type(F32, product.rows.type.axes))
        width = self.matrix.width(product.over)
        rows_first = "" if self._rows_first(product.over) else ", rows_first=False"
        make = frame.module.declare("pack", f'w.operand("{product.dtype}", {width}{rows_first})')
        frame.line(f"{self._packed_name(product)} = {make}({value.text})")

    def wait(self, pending: int, names: Sequence[str]) -> None:
        """Wait for products; the values of `names` are complete after it."""
        frame = self.frame
        values = [value for name in names if (value := frame.lookup(name)) is not None]
        counts = ", ".join(str(frame.size(value.axes)) for value in values)
        make = frame.module.declare("wait", f"w.wait({pending}{', ' if counts else ''}{counts})")
        texts = ", ".join(value.text for value in values)
        frame.line(f"{texts} = {make}({texts})" if texts else f"{make}()")
        for name, value in zip(names, values, strict=True):
            frame.define(name, value)

    def release(self, products: Sequence[Multiply]) -> None:
        """Give the tiles that products have read back to the producer."""
        frame = self.frame
        for operand in self._looped(products):
            ring = self.shared.rings[operand]
            frame.line(f"w.barrier_arrive({ring.empty_barrier()}, leads)")
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
        value = self._over(
            rounded(statement.value, memory), Type(compute_type(memory.dtype), statement.axes)
        )
        name = frame.parameter(staged.map)
        columns = self.matrix.width(staged.column)
        rows_first = "" if self._rows_first(staged.column) else ", rows_first=False"
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

    # Loops ------------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        """Write a loop over tiles, pipelined."""
        work = self.works[id(statement)]
        loop = self._prepared(statement, work)
        self.current = loop
        frame = self.frame
        first, (start, stop) = frame.first(loop.axis), self.ends[id(statement)]
        written = frozenset().union(*map(tidy.writes, statement.body))
        written |= frozenset(s.name for s in loop.elements if isinstance(s, Power))
        frame.line(f"{first} = {start}")
        if loop.work.tails:
            self._pipelined(loop, written, first, stop)
        else:
            with frame.scope([loop.axis], written) as scope:
                self._heads(loop)
                self.wait(0, [p.contract.name for p in loop.work.heads])
                self.release(loop.work.heads)
                self._elements(loop)
                self._next(loop, first)
            self._block(f"while {first} < {stop}:", scope.lines)
            self.release_whole(statement)
        self._whole_states(loop)
        self.current = None

    def _pipelined(self, loop: LoopText, written: frozenset[str], first: str, stop: str) -> None:
        frame = self.frame
        heads = [p.contract.name for p in loop.work.heads]
        late = loop.work.late
        with frame.scope([]) as outer:
            with frame.scope([loop.axis], written) as scope:
                self._heads(loop)
                if heads:
                    self.wait(0, heads)
                self.release(loop.work.heads)
                self._elements(loop)
                self._moves(loop)
                for product in late:
                    self.pack(product)
                self._spoil(loop)
                self._next(loop, first)
            for line in scope.lines:
                frame.line(line)
            with frame.scope([loop.axis], written) as scope:
                self.await_operands([*loop.work.heads, *late])
                self._take_turn()
                for product in loop.work.products:
                    self.issue(product)
                self._pass_turn()
                if heads:
                    self.wait(len(late), heads)
                self.release(loop.work.heads)
                self._elements(loop)
                operands = [name for p in late if (name := self._fragment_name(p.rows))]
                moved = [p.contract.name for p in late]
                self.wait(0, list(dict.fromkeys([*moved, *operands])))
                self.release(late)
                self._moves(loop)
                for product in late:
                    self.pack(product)
                self._spoil(loop)
                self._next(loop, first)
            self._block(f"while {first} < {stop}:", scope.lines)
            self.release_whole(loop.statement)
            self.await_operands(late)
            for product in late:
                self.issue(product)
            self.wait(0, list(dict.fromkeys(p.contract.name for p in late)))
            self.release(late)
        self._block(f"if {first} < {stop}:", outer.lines)
        with frame.scope([]) as nothing:
            self.release_whole(loop.statement)
        if nothing.lines:
            self._block("else:", nothing.lines)

    def _take_turn(self) -> None:
        """Wait until the group before this one has issued its products."""
        if self.matrix.turns:
            self.frame.line("w.named_barrier(own_turn, u32(256))")

    def _pass_turn(self) -> None:
        """Let the next group issue its products."""
        if self.matrix.turns:
            self.frame.line("w.named_arrive(next_turn, u32(256))")

    def first_turn(self) -> list[str]:
        """Return lines that number the turns and let the first group begin."""
        if not self.matrix.turns:
            return []
        groups = self.matrix.groups
        return [
            f"own_turn = u32(group + i32({_TURNS}))",
            f"next_turn = u32((group + i32(1)) % i32({groups}) + i32({_TURNS}))",
            "if group == i32(0):",
            "    w.named_arrive(own_turn, u32(256))",
        ]

    def release_whole(self, statement: Loop) -> None:
        """Give tiles back that a unit reads in no later loop."""
        for operand, last in self.last_reads.items():
            if last is statement:
                ring = self.shared.rings[operand]
                self.frame.line(f"w.barrier_arrive({ring.empty_barrier()}, leads)")
                for line in ring.advance():
                    self.frame.line(line)

    def _spoil(self, loop: LoopText) -> None:
        """Make accumulators NaN where an element of a partly absent tile is and takes part."""
        frame = self.frame
        for product in loop.work.late:
            condition = product.contract.condition
            if condition is None:
                continue
            ring = self.shared.rings[product.right]
            # Of the block's tile, as for checkers: what they took out is put back here.
            whole = self.block_whole(condition) or "False"
            value = frame.lookup(product.contract.name)
            assert value is not None
            noted = frame.module.declare("noted", f"w.noted({self.matrix.checkers})")
            with frame.scope([]) as scope:
                axes = frame.tile_axes(product.rows.type.axes)
                visible = self._chosen(loop.axis, axes, condition, ("i32(1)", "i32(0)"), "i32")
                frame.line(spoil(frame, product, self.matrix, value, visible))
            self._block(
                f"if not {whole}:",
                [
                    f"w.barrier_wait({ring.ready_barrier()}, {ring.parity})",
                    f"if {noted}({ring.note()}):",
                    *(f"    {line}" for line in scope.lines),
                ],
            )

    def _moves(self, loop: LoopText) -> None:
        """Move accumulators to the new values of what they were computed under."""
        for tail in loop.work.tails:
            if not isinstance(tail, Multiply):
                self.statement(tail)

    def _block(self, head: str, lines: Sequence[str]) -> None:
        self.frame.line(head)
        for line in lines:
            self.frame.line(f"    {line}")

    def _fragment_name(self, expr: Expr) -> str | None:
        return expr.name if isinstance(expr, Ref) else None

    def _prepared(self, statement: Loop, work: LoopWork) -> LoopText:
        elements = with_powers(work.elements, self.builder, self.is_fragment)
        uses: list[Use] = [s for s in elements if isinstance(s, Fold) and statement.axis in s.over]
        uses += [t.contract for t in work.tails if isinstance(t, Multiply) and t.left is None]

        def varies(expr: Expr) -> bool:
            return statement.axis in expr.type.axes

        sources = [p.contract.name for p in work.heads if varies_type(p.contract, statement.axis)]
        counted = tuple(use for use in uses if not _is_plain(use))
        found = filling(elements, counted, sources, varies)
        return LoopText(statement, work, elements, found, counted)

    def _heads(self, loop: LoopText) -> None:
        self.await_operands(loop.work.heads)
        for product in loop.work.heads:
            self.issue(product)

    def _next(self, loop: LoopText, first: str) -> None:
        self.frame.line(f"{first} = {first} + {loop.statement.tile}")

    # Element work -----------------------------------------------------------------------------

    def _elements(self, loop: LoopText) -> None:
        self._fill(loop)
        for statement in loop.elements:
            if isinstance(statement, Power):
                value = self._over(statement.exponent, statement.type)
                frame = self.frame
                power = self.values.assign(
                    statement.name, f"w.power_of_two({value.text})", value.axes, "f32", frame.depth
                )
                frame.define(statement.name, self._named(statement.name, power))
            else:
                self.statement(statement)
        self._test_operands(loop)

    def _fill(self, loop: LoopText) -> None:
        """Overwrite what is absent, in tiles that have absent elements."""
        condition = loop.filling.condition
        whole = self._whole(loop.axis, condition)
        if whole is None or not loop.filling.fills:
            return
        with self.frame.scope([]) as scope:
            for fill in loop.filling.fills:
                self._overwrite(loop.axis, fill.name, fill.value, condition)
        self._block(f"if not {whole}:", scope.lines)

    def _test_operands(self, loop: LoopText) -> None:
        """Put zeros into computed operands of products where no fill does."""
        for place, use in enumerate(loop.uses):
            if not isinstance(use, Contract) or place not in loop.filling.tested:
                continue
            product = next(p for p in loop.work.products if p.contract is use)
            whole = self._whole(loop.axis, use.condition)
            if whole is None:
                continue
            if not isinstance(product.rows, Ref):
                raise unsuited("a masked product of an expression")
            with self.frame.scope([]) as scope:
                self._overwrite(loop.axis, product.rows.name, 0.0, use.condition)
            self._block(f"if not {whole}:", scope.lines)

    def _whole(self, axis: str, condition: Expr | None) -> str | None:
        """Return the variable that says whether all elements of the tile take part.

        None stands for "always".
        """
        frame = self.frame
        tests = []
        if condition is not None:
            test = certain(condition, self.builder)
            tests.append("False" if test is None else self.values.value(test).text)
        if not frame.is_whole(axis):
            size = frame.parameter(Extent(axis))
            tests.append(f"{frame.first(axis)} + {self.matrix.width(axis)} <= {size}")
        if not tests:
            return None
        name = frame.module.names.fresh(f"{axis}_whole")
        frame.line(f"{name} = {conjunction(tests)}")
        return name

    def _overwrite(self, axis: str, name: str, fill: float, condition: Expr | None) -> None:
        frame = self.frame
        value = frame.lookup(name)
        assert value is not None
        texts = value, constant(fill, "f32")
        filled = self._chosen(axis, value.axes, condition, texts, "f32")
        frame.line(f"{value.text} = {filled.text}")

    def _chosen(
        self,
        axis: str,
        axes: tuple[str, ...],
        condition: Expr | None,
        choices: tuple[Value | str, str],
        code: str,
    ) -> Value:
        """Return the first choice where an element takes part, else the second one."""
        frame = self.frame
        bounds = Bounds() if condition is None else index_bounds(condition, axis, self.builder)
        operands = Operands()
        tests = []
        columns = self._columns(axis, operands)
        highs = [*bounds.high]
        if not frame.is_whole(axis):
            highs.append(self.builder.sub(self.builder.size(axis), 1))
        if highs:
            limit = self._relative(least(highs, self.builder), axis)
            tests.append(f"{columns} <= {operands.name(limit)}")
        if bounds.low:
            limit = self._relative(greatest(bounds.low, self.builder), axis)
            tests.append(f"{columns} >= {operands.name(limit)}")
        lines: list[str] = []
        if bounds.rest is not None:
            bare = self.values.operand_form(bounds.rest, axes, operands)
            (text,), setting = self.values.spelled([bare], operands)
            lines += setting.lines
            tests.append(text)
        first, second = choices
        given = first if isinstance(first, str) else operands.name(first)
        chosen = f"select({conjunction(tests)}, {given}, {second})"
        (found,) = self.values.mapped(
            "masked", [code], lines, [chosen], operands, axes, frame.depth
        )
        return found

    def _columns(self, axis: str, operands: Operands) -> str:
        """Return the operand that counts a thread's columns from its first one on (i32)."""
        frame = self.frame
        reaches = frame.spread(axis).reaches
        make = frame.module.declare(f"{axis}_places", f't.indices("i32", {reaches})')
        name = frame.variable("places", axis, 0, lambda: f"{make}(i32(0))")
        return operands.name(Value(name, frame.tile_axes([axis]), "i32"))

    def _relative(self, bound: Expr, axis: str) -> Value:
        """Return a bound of indices, counted from the thread's first column (i32)."""
        frame = self.frame
        place = Value(frame.place(axis), (), "i64")
        value = self._over(bound, Type(I64, bound.type.axes))
        operands = Operands()
        text = f"t.clamped({operands.name(value)} - {operands.name(place)})"
        (limit,) = self.values.mapped(
            "limit", ["i32"], [], [text], operands, value.axes, frame.depth
        )
        return limit

    # Folds ------------------------------------------------------------------------------------

    def fold(self, statement: Fold) -> None:
        """Write a fold; over a loop's axis in a few chains a row, then over the quad."""
        loop = self.current
        if loop is None or loop.axis not in statement.over:
            super().fold(statement)
            return
        if _is_plain(statement):
            self._existence(loop, statement)
            return
        place = next(i for i, use in enumerate(loop.uses) if use is statement)
        if place in loop.filling.tested or statement.op not in _JOINS:
            super().fold(statement)
            return
        frame = self.frame
        folded, factor = self._without_factor(statement)
        value = self.values.value(folded)
        counts = frame.counts(value.axes)
        joined = frame.module.function(
            f"join_{statement.op}",
            ["f32"],
            [("a", "f32"), ("b", "f32")],
            [],
            [_JOINS[statement.op]],
        )
        make = frame.module.declare("chains", f'w.fold({joined}, {counts}, "{loop.axis}")')
        kept = tuple(axis for axis in value.axes if axis != loop.axis)
        (name,) = statement.names
        found = self.values.assign(name, f"{make}({value.text})", kept, "f32", frame.depth)
        state = self._lane_state(loop, statement)
        if state is None:
            found = self._over_quad(joined, found)
        else:
            loop.partial[state] = joined
        if factor is not None:
            operands = Operands()
            bare = self.values.operand_form(factor, found.axes, operands)
            (text,), setting = self.values.spelled([bare], operands)
            product = f"{operands.name(found)} * {text}"
            (found,) = self.values.mapped(
                "times", ["f32"], setting.lines, [product], operands, found.axes, frame.depth
            )
        self._results(statement, [found])

    def _without_factor(self, statement: Fold) -> tuple[Expr, Expr | None]:
        """Return x, k for an extreme of x * k with a positive k that elements share.

        Rounding is monotone: the extreme of rounded products is the rounded product of the extreme.
        """
        (value,) = statement.values
        if statement.op in ("max", "min") and isinstance(value, Apply) and value.op == "mul":
            for factor, rest in (value.arguments, value.arguments[::-1]):
                if not self.is_fragment(factor) and kind_of(factor, {}) == POSITIVE:
                    return rest, factor
        return value, None

    def _over_quad(self, joined: str, value: Value) -> Value:
        frame = self.frame
        count = frame.size(value.axes)
        make = frame.module.declare("quad", f"t.lanes({joined}, {count}, {_QUAD})")
        return self.values.assign("all", f"{make}({value.text})", value.axes, "f32", frame.depth)

    def _lane_state(self, loop: LoopText, statement: Fold) -> str | None:
        """Return the state that adds up a fold's results, if lanes may keep their own parts.

            t = sum(...); s' = s * factor; s = s' + t

        A factor that all lanes of a quad share distributes over their parts, so that these are
        joined once, after the loop.
        """
        if statement.op != "sum":
            return None
        (name,) = statement.names
        readers = [s for s in loop.statement.body if name in tidy.reads(s)]
        if len(readers) != 1 or not isinstance(readers[0], Combine):
            return None
        combine = readers[0]
        if combine.op != "sum" or combine.right != (name,):
            return None
        (total,), (moved,) = combine.names, combine.left
        state = total
        others = [s for s in loop.statement.body if s is not combine]
        makers = [s for s in others if moved in tidy.writes(s)]
        if moved != state:
            if len(makers) != 1 or not _is_moved(makers[0], state):
                return None
            others.remove(makers[0])
        if any({state, moved} & tidy.reads(s) for s in others):
            return None
        return state if self._starts_at_zero(state) else None

    def _starts_at_zero(self, state: str) -> bool:
        writers = [s for s in self.kernel.body if state in tidy.writes(s)]
        made = [s for s in writers if isinstance(s, Compute)]
        return (
            len(writers) == 2
            and len(made) == 1
            and isinstance(made[0].value, Literal)
            and made[0].value.value == 0
        )

    def _whole_states(self, loop: LoopText) -> None:
        """Join what the lanes of a quad kept of states."""
        for state, joined in loop.partial.items():
            value = self.frame.lookup(state)
            assert value is not None
            found = self._over_quad(joined, value)
            self.frame.line(f"{value.text} = {found.text}")

    def _existence(self, loop: LoopText, statement: Fold) -> None:
        """Write whether a row has an element in the tile that takes part."""
        frame = self.frame
        b = self.builder
        axis = loop.axis
        condition = statement.condition
        if statement.op != "any" or condition is None:
            super().fold(statement)
            return
        bounds = index_bounds(condition, axis, b)
        if bounds.rest is not None:
            super().fold(statement)
            return
        first = Ref(f"{axis}.first", Type(I64))
        last = Ref(f"{axis}.last", Type(I64))
        low = greatest([*bounds.low, first], b)
        high = least([*bounds.high, last], b)
        found = self._over(b.apply("le", low, high), statement.types[0])
        self._results(statement, [found])

    def contract(self, statement: Contract) -> None:
        """Refuse a product outside of loops."""
        raise unsuited("a product outside of a loop")


def varies_type(contract: Contract, axis: str) -> bool:
    """Say whether a product's result has the loop's axis."""
    return axis in contract.type.axes


def _is_plain(use: Use) -> bool:
    """Say whether a fold counts elements whatever their value."""
    return isinstance(use, Fold) and all(isinstance(value, Literal) for value in use.values)


def _is_moved(statement: Statement, state: str) -> bool:
    """Say whether a statement is `state` times factors that do not read it."""
    if not isinstance(statement, Compute):
        return False
    reading = [f for f in _factors(statement.value) if state in walk.refs(f)]
    return len(reading) == 1 and isinstance(reading[0], Ref)


def _factors(expr: Expr) -> list[Expr]:
    if isinstance(expr, Apply) and expr.op == "mul":
        return [factor for argument in expr.arguments for factor in _factors(argument)]
    return [expr]


def tile_text(tile: SharedTile) -> str:
    """Return text of a shared tile."""
    span = "" if tile.span == 128 else f", {tile.span}"
    return f"w.SharedTile({tile.rows}, {tile.inner}, {tile.contracted}{span})"
