"""The consumers' text: products, and the element work between them, of one warp group.

A loop's tiles are software-pipelined. While the tensor core multiplies the last tile's computed
operands, the next tile's first products are already issued and its element work begins:

    issue heads of tile j; issue tails of tile j - 1; wait for heads; element work of tile j;
    wait for tails; move accumulators; pack computed operands

The first tile has no tails before it and the last one has its own after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.cuda.matrix_checks import spoil
from redlang.codegen.cuda.matrix_demand import RESERVE, demand
from redlang.codegen.cuda.matrix_elements import LoopText, MatrixElements, is_plain
from redlang.codegen.cuda.matrix_fills import Use, filling, finite_states
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_shares import (
    first_values,
    with_shares,
    without_scalings,
)
from redlang.codegen.cuda.matrix_text import unsuited
from redlang.codegen.cuda.matrix_weights import Power, with_powers
from redlang.ir.loops import Compute, Contract, Fold, Loop, Statement
from redlang.ir.program import Expr, Ref
from redlang.schedule import tidy

SMALLEST = 32
"""Columns of a tile that no plan goes below."""
_TURNS = 1
"""The named barrier of the first group's turn; the others follow, 0 is the block's."""


class Consumer(MatrixElements):
    """Writes the statements of a block as one warp group runs them."""

    # Loops ------------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        """Write a loop over tiles, pipelined."""
        work = self.works[id(statement)]
        loop = self._prepared(statement, work)
        self.current = loop
        frame = self.frame
        first, (start, stop) = frame.first(loop.axis), self.ends[id(statement)]
        written = frozenset().union(*map(tidy.writes, statement.body))
        written |= frozenset(s.name for s in loop.elements if isinstance(s, Compute | Power))
        frame.line(f"{first} = {start}")
        for line in self.skipped(statement):
            frame.line(line)
        if loop.work.tails:
            self._pipelined(loop, written, first, stop)
        else:
            with frame.scope([loop.axis], written) as scope:
                self._heads(loop)
                self.wait(0, [p.contract.name for p in loop.work.heads])
                self.release(loop.work.heads)
                self.elements(loop)
                self._next(loop, first)
            self.block(f"while {first} < {stop}:", scope.lines)
            self.release_whole(statement)
        self.whole_states(loop)
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
                self.elements(loop)
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
                self.loads(loop)
                if heads:
                    self.wait(len(late), heads)
                self.release(loop.work.heads)
                moved = [p.contract.name for p in late]
                if loop.early:
                    self.wait(0, list(dict.fromkeys(moved)))
                    self.release(late)
                self.elements(loop)
                if not loop.early:
                    operands = [name for p in late if (name := self.fragment_name(p.rows))]
                    self.wait(0, list(dict.fromkeys([*moved, *operands])))
                    self.release(late)
                self._moves(loop)
                for product in late:
                    self.pack(product)
                self._spoil(loop)
                self._next(loop, first)
            self.block(f"while {first} < {stop}:", scope.lines)
            self.release_whole(loop.statement)
            self.await_operands(late)
            for product in late:
                self.issue(product)
            self.wait(0, list(dict.fromkeys(p.contract.name for p in late)))
            self.release(late)
        self.block(f"if {first} < {stop}:", outer.lines)
        with frame.scope([]) as nothing:
            self.release_whole(loop.statement)
        if nothing.lines:
            self.block("else:", nothing.lines)

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
        """Add what is not finite in a partly absent tile where it takes part."""
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
                signs = self.signs(loop, product)
                frame.line(spoil(frame, product, self.matrix, value, signs))
            self.block(
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

    def fragment_name(self, expr: Expr) -> str | None:
        """Return the name of a fragment."""
        return expr.name if isinstance(expr, Ref) else None

    def _prepared(self, statement: Loop, work: LoopWork) -> LoopText:
        readers = (*statement.body, *(product.contract for product in work.late))
        body = with_shares(
            without_scalings(work.elements, readers, self.is_fragment), self.is_fragment
        )
        elements = with_powers(body, self.builder, self.is_fragment)
        uses: list[Use] = [s for s in elements if isinstance(s, Fold) and statement.axis in s.over]
        uses += [t.contract for t in work.tails if isinstance(t, Multiply) and t.left is None]

        def varies(expr: Expr) -> bool:
            return statement.axis in expr.type.axes

        sources = [p.contract.name for p in work.heads if varies_type(p.contract, statement.axis)]
        sources += [fetch.name for fetch in work.fetches]
        counted = tuple(use for use in uses if not is_plain(use))
        names = [value.name for value in first_values(body, self.is_fragment)]
        groups = [g for g in (sources, names, [*sources, *names]) if g]
        place = self.kernel.body.index(statement)
        rows = finite_states(statement.body, self.kernel.body[:place])
        found = filling(elements, counted, groups, varies, rows)
        early = self._waits_early(statement, work, elements)
        return LoopText(statement, work, elements, found, counted, early)

    def _waits_early(
        self, statement: Loop, work: LoopWork, elements: Sequence[Statement | Power]
    ) -> bool:
        """Say whether a group waits for its last tile's products before its element work.

        Else they run beside it, and their packed operands take registers. Where two groups fill
        each other's gaps, wider tiles are worth more than that.

        Raises:
            UnsuitedError: Registers have no room for tiles either way, and smaller ones remain.
        """
        if self.matrix.unit != "wgmma" or self.matrix.width(statement.axis) <= SMALLEST:
            return False

        def taken(*, early: bool) -> int:
            return demand(
                work,
                elements,
                lambda t: self.frame.size(self.frame.tile_axes(t.axes)),
                early=early,
            )

        room = self.matrix.consumer_registers(bool(self.checked)) - RESERVE
        if taken(early=False) <= room:
            return False
        if self.matrix.groups == 2 and not self.matrix.turns and taken(early=True) <= room:
            return True
        least = taken(early=True)
        raise unsuited(f"tiles of {least} registers where there is room for {room}")

    def _heads(self, loop: LoopText) -> None:
        self.await_operands(loop.work.heads)
        for product in loop.work.heads:
            self.issue(product)

    def _next(self, loop: LoopText, first: str) -> None:
        self.frame.line(f"{first} = {first} + {loop.statement.tile}")
        for line in self.skipped(loop.statement):
            self.frame.line(line)


def varies_type(contract: Contract, axis: str) -> bool:
    """Say whether a product's result has the loop's axis."""
    return axis in contract.type.axes
