"""Units whose rows lie in registers as they were stored, and are read part by part.

What is loaded beside a row, computed and stored at the end then takes the registers of one part at
a time. A row of 16 bits an element takes half the registers as well, where it is long: elements are
made anew of the stored words for each fold.
"""

from __future__ import annotations

from collections.abc import Iterator

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.frame import Value
from redlang.codegen.cuda.parted import PartedUnit
from redlang.ir import walk
from redlang.ir.loops import Branch, Loop
from redlang.ir.program import Expr, Load
from redlang.schedule import tidy
from redlang.schedule.parts import KEPT, PART, WORD

NEW = 40
"""No extent has so many bits: above them there are zeros that the compiler does not know."""


class StoredUnit(PartedUnit):
    """Writes the statements of a unit that holds its rows as they were stored."""

    def load_ahead(self) -> None:
        """Load what only this unit reads, as it is stored."""
        rows = self._rows()
        self.find_parts(rows, PART)
        if not self.axis:
            self.rows = frozenset()
            super().load_ahead()
            return
        # Which part is read, and how often all of them have been.
        self.part, self.reading = 0, 0
        self.whole = self.frame.spread(self.axis).count
        self.is_kept = self.whole * len(rows) <= KEPT
        self.words = {load: self._loaded(load) for load in rows}

    def _rows(self) -> list[Load]:
        """Return the loads of what only this unit reads, in pieces that are words."""
        own, found = self.own_axes(), dict[Load, None]()
        for statement in self.kernel.body:
            if isinstance(statement, Loop | Branch):
                return []
            for node in (n for e in tidy.expressions(statement) for n in walk.nodes(e)):
                if isinstance(node, Load) and own <= set(node.type.axes):
                    found[node] = None
        return [load for load in found if self._is_words(load)]

    def _is_words(self, load: Load) -> bool:
        if not self.accesses.is_plain(load) or self._bytes(load) > WORD:
            return False
        return self.accesses.pieces(load)[1] % WORD == 0

    def _bytes(self, load: Load) -> int:
        return self.frame.memories[load.array].dtype.bytes

    def _loaded(self, load: Load) -> str:
        """Load a row in 32-bit words; return the variable that holds them."""
        frame = self.frame
        memory = frame.memories[load.array]
        access, arguments = self.accesses.fetch(load, None)
        hint = self.accesses.hint(memory, load.type.axes)
        make = frame.module.declare(
            f"load_{memory.name}", f't.load_stored({access}, hint="{hint}")'
        )
        name = frame.module.names.fresh(f"{memory.name}_stored")
        frame.line(f"{name} = {make}({', '.join(arguments)})")
        return name

    def _load(self, expr: Expr, depth: int) -> Value:
        if not isinstance(expr, Load) or expr not in self.rows:
            return super()._load(expr, depth)
        frame, size = self.frame, self._bytes(expr)
        access, _ = self.accesses.fetch(expr, None)
        tile, code = self.accesses.tile(expr)
        first = self.part * frame.size(tile) * size // WORD
        words = f"{first}, {self.whole * size // WORD}{self.accesses.f8(expr)}"
        make = frame.module.declare(f"made_{expr.array}", f"t.computed({access}, {words})")
        name = frame.module.names.fresh(expr.array)
        frame.line(f"{name} = {make}({self.words[expr]}, {self._zero(size)})")
        return Value(name, tile, code)

    def _zero(self, size: int) -> str:
        """Return a zero: one that makes elements anew where they take more room than stored."""
        if self.is_kept or size == WORD:
            return "i32(0)"
        return f"i32({self.frame.parameter(Extent(self.axis))} >> i64({NEW + self.reading}))"

    def parts(self, reads: frozenset[str]) -> Iterator[None]:
        """Write the parts of rows one after another."""
        frame = self.frame
        whole, needed = frame.plan, self.needed(reads)
        self.reading += 1
        for start in range(0, frame.spread(self.axis).registers, self.groups):
            self._forget_part()
            self.part_plan(start)
            self.part = start // self.groups
            self.write(needed)
            yield
            frame.plan = whole
        self._forget_part()
        self.part = 0

    def _forget_part(self) -> None:
        """Forget what is known of one part only."""
        for scope in self.frame.scopes:
            for expr in [e for e in scope.known if self.axis in e.type.axes]:
                del scope.known[expr]
            scope.variables.discard(self.frame.module.names.of("inside", f"{self.axis}_inside"))
