"""The consumers' text: products, and the element work between them, of one warp group.

A loop's tiles are software-pipelined. While the tensor core multiplies the last tile's computed
operands, the next tile's first products are already issued and its element work begins:

    issue heads of tile j; issue tails of tile j - 1; wait for heads; element work of tile j;
    wait for tails; move accumulators; pack computed operands

The first tile has no tails before it and the last one has its own after the loop. Work that falls
into several strands does so strand by strand: each one's tails run beside the next one's elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.matrix_checks import spoil
from redlang.codegen.cuda.matrix_demand import RESERVE, demand
from redlang.codegen.cuda.matrix_elements import MatrixElements, is_plain
from redlang.codegen.cuda.matrix_fills import (
    POSITIVE,
    Kind,
    Use,
    filling,
    finite_states,
    kind_of,
)
from redlang.codegen.cuda.matrix_outer import Outer, ask_rows, kinds_of, with_outer_factors
from redlang.codegen.cuda.matrix_pairs import Paired
from redlang.codegen.cuda.matrix_producer import indented
from redlang.codegen.cuda.matrix_roles import LoopWork, Multiply
from redlang.codegen.cuda.matrix_shares import (
    first_values,
    with_common_factors,
    with_joined_factors,
    with_shares,
    without_scalings,
)
from redlang.codegen.cuda.matrix_strands import LoopText, Strand, strands
from redlang.codegen.cuda.matrix_stream import Stream
from redlang.codegen.cuda.matrix_text import unsuited
from redlang.codegen.cuda.matrix_weights import Power, with_powers
from redlang.ir.loops import Compute, Contract, Fold, Loop
from redlang.ir.program import Expr, Ref
from redlang.ir.types import Type
from redlang.schedule import tidy
from redlang.schedule.contract import is_tame

SMALLEST = 32
"""Columns of a tile that no plan goes below."""
_TURNS = 1
"""The named barrier of the first group's turn; the others follow, 0 is the block's."""


class Consumer(MatrixElements):
    """Writes the statements of a block as one warp group runs them.

    Attributes:
        needed: The registers that its loops' tiles cannot do without.
        stream: The parts of its loop's text, where tiles of all units make one stream.
    """

    needed: int = 0
    stream: Stream | None = None

    # Loops ------------------------------------------------------------------------------------

    def loop(self, statement: Loop) -> None:
        """Write a loop over tiles, pipelined."""
        strands = self._prepared(statement, self.works[id(statement)])
        frame = self.frame
        first, (_, stop) = frame.first(statement.axis), self.ends[id(statement)]
        written = self._written(strands)
        for line in self.entered(statement):
            frame.line(line)
        if any(strand.work.tails for strand in strands):
            self._pipelined(strands, written, first, stop)
        else:
            self.ask_rows(strands)
            with frame.scope([statement.axis], written) as scope:
                for place in range(len(strands)):
                    self._step(strands, place, None)
                self._next(statement, first)
            self.block(f"while {first} < {stop}:", scope.lines)
            for line in self.released_whole(statement):
                frame.line(line)
        for strand in strands:
            self.whole_states(strand)

    def _written(self, strands: Sequence[LoopText]) -> frozenset[str]:
        """Return the names that have other values in every tile."""
        made = [s.name for t in strands for s in t.elements if isinstance(s, Compute | Power)]
        return frozenset(made).union(*map(tidy.writes, strands[0].statement.body))

    def _pipelined(
        self, strands: Sequence[LoopText], written: frozenset[str], first: str, stop: str
    ) -> None:
        frame, statement, last = self.frame, strands[0].statement, strands[-1]
        places = range(len(strands))
        with frame.scope([]) as outer:
            with frame.scope([statement.axis], written) as scope:
                for place in places:
                    self._step(strands, place, place - 1 if place else None, begins=True)
                self._next(statement, first)
            for line in scope.lines:
                frame.line(line)
            with frame.scope([statement.axis], written) as scope:
                for place in places:
                    self._step(strands, place, (place or len(strands)) - 1, turns=True)
                self._next(statement, first)
            with frame.scope([]) as issued:
                before = [product for strand in strands[:-1] for product in strand.work.late]
                self.await_operands(last.work.late, before)
                for product in last.work.late:
                    self.issue(product)
            with frame.scope([]) as ending:
                self._complete(last)
        more, left = f"{first} < {stop}", self.released_whole(statement)
        if self.streams:
            with frame.scope([statement.axis], written) as both:
                complete = self._joint(strands)
                for place in places[1:]:
                    self._step(strands, place, place - 1, turns=True, begins=True)
                self._next(statement, first)
            late = [product.contract.name for s in strands for product in s.work.late]
            self.stream = Stream(
                more=more,
                begun=len(frame.at(frame.depth)),
                first=outer.lines,
                tile=scope.lines,
                issued=issued.lines,
                joint=both.lines[:complete],
                rest=both.lines[complete:],
                last=ending.lines,
                left=left,
                accumulators=frozenset(map(self._variable_of, late)),
            )
            return
        ending.lines[:0] = issued.lines
        lines = [*outer.lines, f"while {more}:", *indented(scope.lines), *left, *ending.lines]
        self.block(f"if {more}:", lines)
        if left:
            self.block("else:", left)

    def _variable_of(self, name: str) -> str:
        value = self.frame.lookup(name)
        assert value is not None
        return value.text

    def _complete(self, strand: LoopText, pending: int = 0) -> None:
        """Wait for a unit's last products while `pending` others run; give their tiles back."""
        self.wait(pending, list(dict.fromkeys(p.contract.name for p in strand.work.late)))
        self.release(strand.work.late)

    def _joint(self, strands: Sequence[LoopText]) -> int:
        """Write a unit's first strand beside the last products of the unit before.

        Return how many lines it takes until those are complete.
        """
        strand = self.current = strands[0]
        heads = strand.work.heads
        self.await_operands(heads)
        for product in heads:
            self.issue(product)
        self.loads(strand)
        self._look_ahead(strand)
        self._complete(strands[-1], len(heads))
        complete = len(self.frame.at(self.frame.depth))
        self.wait(0, [p.contract.name for p in heads])
        self.release(heads, _around(strands, 0, lambda work: work.heads)[1])
        self.elements(strand, begins=True)
        self._packed(strand)
        return complete

    def _packed(self, strand: LoopText) -> None:
        """Write what makes a strand's last products ready to be issued."""
        self._moves(strand)
        for product in strand.work.late:
            self.pack(product)
        self._spoil(strand)
        self.current = None

    def _step(
        self,
        strands: Sequence[LoopText],
        place: int,
        flying: int | None,
        *,
        turns: bool = False,
        begins: bool = False,
    ) -> None:
        """Write one strand's work on a tile, beside the last products of the one before.

        Args:
            strands: All of the loop's.
            place: Which one.
            flying: The one whose products of computed operands run meanwhile, if any do.
            turns: Whether groups issue their products in turn.
            begins: Whether the tile is a unit's first one.
        """
        strand = self.current = strands[place]
        heads, late = strand.work.heads, () if flying is None else strands[flying].work.late
        names = [p.contract.name for p in heads]
        moved = [p.contract.name for p in late]
        earlier, later = _around(strands, place, lambda work: work.heads)
        before, after = _around(strands, flying or 0, lambda work: work.late)
        self.await_operands(heads, earlier)
        self.await_operands(late, before)
        if turns:
            self._take_turn()
        for product in (*heads, *late):
            self.issue(product)
        if turns:
            self._pass_turn()
        if flying is not None:
            self.loads(strand)
        if not place:
            self._look_ahead(strand)
        if heads:
            self.wait(len(late), names)
        self.release(heads, later)
        if late and strand.early:
            self.wait(0, list(dict.fromkeys(moved)))
            self.release(late, after)
        self.elements(strand, begins=begins)
        if late and not strand.early:
            made = [self.fragment_name(product.rows) for product in strand.work.late]
            self.wait(0, list(dict.fromkeys([*moved, *filter(None, made)])))
            self.release(late, after)
        self._packed(strand)

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

    def released_whole(self, statement: Loop) -> list[str]:
        """Return lines that give tiles back which a unit reads in no later loop."""
        rings = [self.shared.rings[o] for o, last in self.last_reads.items() if last is statement]
        return [
            line
            for ring in rings
            for line in (f"w.barrier_arrive({ring.empty_barrier()}, leads)", *ring.advance())
        ]

    def _spoil(self, loop: LoopText) -> None:
        """Add what is not finite in a partly absent tile where it takes part."""
        frame = self.frame
        for product in loop.work.late:
            condition = product.contract.condition
            if condition is None or product.right not in self.checked:
                continue
            ring = self.shared.rings[product.right]
            # Of the block's tile, as for checkers: what they took out is put back here.
            whole = self.block_whole(loop.axis, condition) or "False"
            value = frame.lookup(product.contract.name)
            assert value is not None
            noted = frame.module.declare("noted", f"w.noted({self.matrix.checkers})")
            with frame.scope([loop.axis]) as scope:
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

    def _prepared(self, statement: Loop, work: LoopWork) -> list[LoopText]:
        """Return a loop's strands, ready to be written."""
        for name, end in zip(("start", "stop"), self.ends[id(statement)], strict=True):
            self.frame.define(f"{statement.axis}.{name}", Value(end, (), "i64"))
        readers = (*statement.body, *(product.contract for product in work.late))
        body = without_scalings(work.elements, readers, self.is_fragment)
        body = with_joined_factors(body, self.builder, self.is_fragment, self._may_move)
        body, outers = with_outer_factors(
            body, statement, readers, self.builder, self.is_fragment, self._may_divide
        )
        body = with_joined_factors(body, self.builder, self.is_fragment, self._may_move)
        body = with_common_factors(body, self.builder, self.is_fragment, self._may_divide)
        body = with_shares(body, self.is_fragment)
        elements = with_powers(body, self.builder, self.is_fragment)
        names = [value.name for value in first_values(body, self.is_fragment)]
        place = self.kernel.body.index(statement)
        rows = finite_states(statement.body, self.kernel.body[:place]) | kinds_of(outers)
        found = strands(work, elements)
        flying = [strand.work.late for strand in (found[-1], *found[:-1])]
        return [
            self._strand(statement, strand, names, rows, beside, outers)
            for strand, beside in zip(found, flying, strict=True)
        ]

    def ask_rows(self, strands: Sequence[LoopText]) -> None:
        """Ask the rows of a unit about factors before its loop."""
        for outer in (outer for strand in strands for outer in strand.outers):
            ask_rows(self, outer)

    def _may_move(self, factor: Expr) -> bool:
        """Say whether a factor of rows is known to be far from the ends of the range."""
        return is_tame(factor, self.program)

    def _may_divide(self, factor: Expr) -> bool:
        """Say whether a value of rows is positive, and far from the ends of the range."""
        return kind_of(factor, {}) == POSITIVE and is_tame(factor, self.program)

    def _strand(
        self,
        statement: Loop,
        strand: Strand,
        first: Sequence[str],
        rows: Mapping[str, Kind],
        flying: Sequence[Multiply],
        outers: Sequence[Outer],
    ) -> LoopText:
        """Return how the absent elements of a strand are kept out, and how its products overlap.

        Args:
            statement: The loop.
            strand: One of its strands.
            first: Element values that read no result of a fold.
            rows: What is known of values of rows.
            flying: What runs beside the strand's element work.
            outers: The loop's factors that rows are asked about.
        """
        work, elements = strand.work, strand.elements
        uses: list[Use] = [s for s in elements if isinstance(s, Fold) and statement.axis in s.over]
        uses += [product.contract for product in work.late if product.left is None]

        def varies(expr: Expr) -> bool:
            return statement.axis in expr.type.axes

        sources = [p.contract.name for p in work.heads if varies_type(p.contract, statement.axis)]
        sources += [pairs.name for pairs in work.paired if varies_type(pairs, statement.axis)]
        sources += [fetch.name for fetch in work.fetches]
        made = {element.name for element in elements if isinstance(element, Compute)}
        names = [name for name in first if name in made]
        counted = tuple(use for use in uses if not is_plain(use))
        groups = [g for g in (sources, names, [*sources, *names]) if g]
        found = filling(elements, counted, groups, varies, rows)
        early = self._waits_early(statement, strand, flying)
        products = {p.contract.name for p in work.heads}
        own = tuple(outer for outer in outers if outer.product in products)
        return LoopText(statement, work, elements, found, counted, own, early)

    def _waits_early(self, statement: Loop, strand: Strand, flying: Sequence[Multiply]) -> bool:
        """Say whether a group waits for its last products before its element work.

        Else they run beside it, and their packed operands take registers. Where two groups fill
        each other's gaps, wider tiles are worth more than that.

        Raises:
            UnsuitedError: Registers have no room for tiles either way, and smaller ones remain.
        """
        if self.matrix.unit != "wgmma" or self.matrix.width(statement.axis) <= SMALLEST:
            return False

        def size(type_: Type) -> int:
            return self.frame.size(self.frame.tile_axes(type_.axes))

        held = sum(size(p.contract.type) for p in self.works[id(statement)].late)
        late = held + demand(strand.work, strand.elements, flying, size, early=False)
        early = held + demand(strand.work, strand.elements, flying, size, early=True)
        room = self.matrix.consumer_registers(bool(self.checked)) - RESERVE
        calm = self.matrix.groups == 2 and not self.matrix.turns
        if late > room and not (calm and early <= room):
            raise unsuited(f"tiles of {early} registers where there is room for {room}")
        self.needed = max(self.needed, RESERVE + (late if late <= room else early))
        return late > room

    def _look_ahead(self, strand: LoopText) -> None:
        """Find out while products run what is known of the current tile, and which is the next."""
        statement = strand.statement
        conditions = [product.contract.condition for product in strand.work.late]
        self.answers(strand.axis, [strand.filling.condition, *conditions])
        upcoming = self.frame.module.names.of("upcoming", statement.axis)
        skipped = self.skipped(statement, upcoming)
        if skipped:
            self.frame.line(f"{upcoming} = {self.frame.first(statement.axis)} + {statement.tile}")
            for line in skipped:
                self.frame.line(line)

    def _next(self, statement: Loop, first: str) -> None:
        following = f"{first} + {statement.tile}"
        if id(statement) in self.wanted:
            # It has been looked for.
            following = self.frame.module.names.of("upcoming", statement.axis)
        self.frame.line(f"{first} = {following}")


def _around(
    strands: Sequence[LoopText], place: int, products: Callable[[LoopWork], Sequence[Multiply]]
) -> tuple[list[Multiply], list[Multiply]]:
    """Return products of the strands before one, and of those after it."""
    sides = strands[:place], strands[place + 1 :]
    before, after = ([p for strand in side for p in products(strand.work)] for side in sides)
    return before, after


def varies_type(made: Contract | Paired, axis: str) -> bool:
    """Say whether a result has the loop's axis."""
    return axis in made.type.axes
