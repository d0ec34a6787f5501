"""One warp of a portable matrix kernel: its rows, its products, and its loops.

copies of the first tiles
for each tile j:
    wait for its copies; barrier; start the copies of tile j + stages - 1
    products of copied operands; element work; products of computed ones
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_checks import spoil
from redlang.codegen.cuda.matrix_consumer import Consumer
from redlang.codegen.cuda.matrix_copies import Operand
from redlang.codegen.cuda.matrix_memory import Ring
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_strands import LoopText
from redlang.codegen.cuda.matrix_text import tile_text, unsuited
from redlang.codegen.cuda.portable_copies import copy_line, next_source, source_line
from redlang.codegen.cuda.portable_pairs import reduce_pairs
from redlang.ir.loops import Kernel, Loop, Loops
from redlang.ir.types import Type
from redlang.schedule.fragments import LINE_ALIGNMENT, STEP, SharedTile
from redlang.schedule.matrices import MatrixPlan


def scratch_tile(plan: MatrixPlan, product: Multiply) -> SharedTile:
    """Return where a warp puts a computed left operand, for plain multiply-adds."""
    width = -(-plan.width(product.over) // plan.line) * plan.line
    return SharedTile(plan.warp_rows, width, True, LINE_ALIGNMENT, plan.dtype.bytes)


class PortableUnit(Consumer):
    """Writes the statements of a block as one warp runs them."""

    def first_row(self) -> str:
        """Return text of this warp's first row in the block's tile."""
        return f"warp * {self.matrix.warp_rows}"

    def __init__(self, loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> None:
        super().__init__(loops, kernel, plan, classes)
        self.last_loop: Loop | None = None
        self.after_loops: Sequence[str] = ()
        self.checked: dict[Operand, Multiply] = {}
        self.held: dict[Operand, str] = {}

    # Loops ------------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        """Write a loop over tiles whose copies are some tiles ahead."""
        work = self.works[id(statement)]
        strands = self._prepared(statement, work)
        frame, stages = self.frame, self.matrix.stages
        first, (start, stop) = frame.first(statement.axis), self.ends[id(statement)]
        written = self._written(strands)
        frame.line(f"{first} = {start}")
        frame.line("stage = i32(0)")
        for operand in self._copied(work):
            ring = self.shared.rings[operand]
            frame.line(source_line(frame, ring, self._source(operand), first))
        for ahead in range(stages - 1):
            self._start_copies(statement, first, stop, ahead, f"i32({ahead})")
        self._hold_rows(work)
        self.ask_rows(strands)
        with frame.scope([statement.axis], written) as scope:
            frame.line(f"{self._arrived(stages - 2)}()")
            frame.line("t.barrier()")
            self._clean(work)
            frame.line(f"slot = i32(stage + i32({stages - 1}))")
            frame.line(f"slot = i32(slot - i32({stages})) if slot >= i32({stages}) else slot")
            self._start_copies(statement, first, stop, stages - 1, "slot")
            for strand in strands:
                self._strand_work(strand)
            frame.line("stage = i32(stage + i32(1))")
            frame.line(f"stage = i32(0) if stage == i32({stages}) else stage")
            self._next(statement, first)
        self.block(f"while {first} < {stop}:", scope.lines)
        if statement is not self.last_loop or self.matrix.persistent:
            # What comes next fills the same slots.
            frame.line("t.barrier()")
        for strand in strands:
            self.whole_states(strand)
        if statement is self.last_loop:
            for line in self.after_loops:
                frame.line(line)

    def _strand_work(self, strand: LoopText) -> None:
        """Write one strand's work on a tile."""
        self.current = strand
        for product in strand.work.heads:
            self.issue(product)
        for pairs in strand.work.paired:
            reduce_pairs(self, pairs)
        self.elements(strand)
        for tail in strand.work.tails:
            if isinstance(tail, Multiply):
                if tail.left is None:
                    self.pack(tail)
                self.issue(tail)
                self._spoil_product(strand, tail)
            else:
                self.statement(tail)
        self.current = None

    def _copied(self, work: LoopWork) -> list[Operand]:
        """Return the operands that are copied for each tile of a loop."""
        return [operand for operand in dict.fromkeys(work.operands) if operand.loop is not None]

    def _hold_rows(self, work: LoopWork) -> None:
        """Load this warp's rows of operands of the whole unit, where the plan keeps them."""
        frame = self.frame
        found = [p.left for p in work.heads if self._is_held(p) and p.left not in self.held]
        if not found:
            return
        frame.line(f"{self._arrived(self.matrix.stages - 1)}()")
        frame.line("t.barrier()")
        for product in work.heads:
            operand = product.left
            if operand is None or not self._is_held(product) or operand in self.held:
                continue
            contracted = -(-self.matrix.width(product.over) // STEP) * STEP
            text = f"{tile_text(operand.tile)}, {contracted}, {self.matrix.halves}"
            make = frame.module.declare("held_rows", f"w.held_rows({text})")
            self.held[operand] = frame.module.names.fresh(f"{operand.name}_rows")
            given = ", ".join([*self.left_place(operand), "lane"])
            frame.line(f"{self.held[operand]} = {make}({given})")

    def _is_held(self, product: Multiply) -> bool:
        return self.matrix.held and product.left is not None and product.left.loop is None

    def _arrived(self, pending: int) -> str:
        return self.frame.module.declare("arrived", f"w.pieces_arrived({pending})")

    def _start_copies(self, loop: Loop, first: str, stop: str, ahead: int, slot: str) -> None:
        frame = self.frame
        lines: list[str] = []
        for operand in self._copied(self.works[id(loop)]):
            ring, source = self.shared.rings[operand], self._source(operand)
            place = _slot(ring, slot)
            lines.append(copy_line(frame, ring, self.matrix, place, source, "ahead"))
            lines.append(next_source(frame, ring, source, loop.tile))
        frame.line(f"ahead = {first} + {ahead * loop.tile}")
        self.block(f"if ahead < {stop}:", lines)
        frame.line("w.pieces_commit()")

    def _source(self, operand: Operand) -> str:
        """Return the variable of where the next tile's pieces come from."""
        return self._variable(operand, "from")

    def _clean(self, work: LoopWork) -> None:
        """Take what is not finite out of tiles that meet absent elements; remember that it was."""
        frame = self.frame
        for operand in self.looped(work.products):
            if operand not in self.checked:
                continue
            condition = self.checked[operand].contract.condition
            assert condition is not None
            whole = self.block_whole(str(operand.loop), condition) or "False"
            dtype = frame.memories[operand.map.array].dtype
            text = f'w.cleaned("{dtype}", {operand.tile.bytes}, {self.matrix.threads})'
            make = frame.module.declare("cleaned", text)
            found = self._found(operand)
            frame.line(f"{found} = i32(0)")
            place = self.place(operand)
            self.block(f"if not {whole}:", [f"{found} = w.any_thread({make}({place}, thread))"])

    def _found(self, operand: Operand) -> str:
        return self._variable(operand, "found")

    def _variable(self, operand: Operand, purpose: str) -> str:
        """Return a variable of an operand's tiles: an array may be two operands."""
        name = f"{self.shared.rings[operand].name}_{purpose}"
        return self.frame.module.names.of(purpose, name)

    def _spoil_product(self, loop: LoopText, product: Multiply) -> None:
        """Add what was taken out where it takes part."""
        if product.contract.condition is None:
            return
        frame = self.frame
        value = frame.lookup(product.contract.name)
        assert value is not None
        with frame.scope([]) as scope:
            signs = self.signs(loop, product)
            frame.line(spoil(frame, product, self.matrix, value, signs))
        self.block(f"if {self._found(product.right)} != i32(0):", scope.lines)

    # Products ---------------------------------------------------------------------------------

    def issue(self, product: Multiply) -> None:
        """Write a product."""
        frame = self.frame
        contract = product.contract
        width = self.matrix.width(product.column)
        contracted = -(-self.matrix.width(product.over) // STEP) * STEP
        plain = self.matrix.unit == "fma"
        if plain and product.right.tile.contracted == (product.column in self.matrix.wide):
            raise unsuited(f"{product.right.name} lies across what lanes hold of it")
        if self.matrix.unit == "tf32" and product.right.tile.contracted == (product.left is None):
            raise unsuited(f"{product.right.name} lies across the instruction's order")
        parts = [] if plain else [f'"{product.dtype}"']
        parts += [str(width), str(contracted), tile_text(product.right.tile)]
        given: list[str] = []
        if contract.accumulate:
            parts.append("accumulate=True")
            value = frame.lookup(contract.name)
            assert value is not None
            given.append(value.text)
        if product.left is not None and product.left in self.held:
            given.append(self.held[product.left])
        elif product.left is not None:
            parts.append(f"left={tile_text(product.left.tile)}")
            given += self.left_place(product.left)
        elif plain:
            parts.append(f"left={tile_text(scratch_tile(self.matrix, product))}")
            given += ["scratch"]
        else:
            given.append(self.packed_name(product))
        if not self.rows_first(product.column):
            parts.append("rows_first=False")
        parts.append(f"halves={self.matrix.halves}")
        given += [f"w.opaque({self.place(product.right)})", "lane"]
        kind = ("Plain", "plain") if plain else ("Warp", "warp")
        text = f"w.{kind[1]}_product(w.{kind[0]}Product({', '.join(parts)}))"
        make = frame.module.declare("product", text)
        variable = frame.module.names.of("value", contract.name)
        self.variables.add(variable)
        frame.line(f"{variable} = {make}({', '.join(given)})")
        axes = frame.tile_axes(contract.type.axes)
        frame.define(contract.name, Value(variable, axes, contract.type.dtype.name))

    def left_place(self, operand: Operand) -> list[str]:
        """Return text of where this warp's rows of a copied operand begin."""
        tile, rows = operand.tile, self.matrix.warp_rows
        start = self.place(operand)
        if tile.contracted:
            found = [f"w.opaque({start} + warp * {rows * tile.span})"]
            return found if self.matrix.unit == "fma" else [*found, "u32(0)"]
        if tile.size > 2:
            raise unsuited(f"{operand.name} has its rows along its lines")
        width = tile.width
        block = f"warp * {rows} // {width} * {tile.block_bytes}"
        return [f"w.opaque({start} + {block})", f"u32(warp * {rows} % {width} * {tile.size})"]

    def place(self, operand: Operand) -> str:
        """Return text of the address of an operand's current tile."""
        return _slot(self.shared.rings[operand], "stage")

    def pack(self, product: Multiply) -> None:
        """Round a computed left operand and pack it for its product, or put it where all see it."""
        frame = self.frame
        value = self._over(product.rows, Type(self.matrix.dtype, product.rows.type.axes))
        width = self.matrix.width(product.over)
        rows_first = "" if self.rows_first(product.over) else ", rows_first=False"
        halves = f", halves={self.matrix.halves}"
        if self.matrix.unit == "fma":
            tile = tile_text(scratch_tile(self.matrix, product))
            make = frame.module.declare(
                "scratch", f"w.plain_operand({width}, {tile}{rows_first}{halves})"
            )
            frame.line("w.warp_barrier()")
            frame.line(f"{make}(scratch, {value.text}, lane)")
            frame.line("w.warp_barrier()")
            return
        text = f'w.warp_operand("{product.dtype}", {width}{rows_first}{halves})'
        make = frame.module.declare("pack", text)
        frame.line(f"{self.packed_name(product)} = {make}({value.text})")

    def rows_first(self, column: str) -> bool:
        """Say whether rows come before a column axis in fragments.

        Raises:
            UnsuitedError: Rows that a thread holds lie on both sides of it, or out of order.
        """
        order = self.frame.order
        held = [axis for axis in self.rows if self.frame.spread(axis).count > 1]
        places = [order.index(axis) for axis in held]
        sides = {place < order.index(column) for place in places}
        if len(sides) > 1 or places != sorted(places):
            raise unsuited("rows of several axes, in another order than the result's")
        return sides != {False}


def _slot(ring: Ring, slot: str) -> str:
    """Return text of the address of one slot of a ring."""
    if ring.stages == 1:
        return f"shared + {ring.start}"
    return f"shared + {ring.start} + {slot} * {ring.operand.tile.bytes}"
