"""Who multiplies what: products of a kernel with their operands, and the order of a loop's work.

A product's left operand holds the rows of the block. Operands that are parts of 16-bit arrays are
copied into shared memory by the producer; a left operand that is computed goes through registers,
and a right one of 8 bits is converted in shared memory.
In a loop body, products whose operands are all copied come first (`heads`). Products of computed
operands are deferred (`tails`): their tensor-core work overlaps the next tile's element work.
Reductions over pairs that are no products (`paired`) are made of arrays as they are, by a warp's
plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from redlang.codegen.cuda.kernel_text import Classes
from redlang.codegen.cuda.matrix_bodies import is_counted, without_unread
from redlang.codegen.cuda.matrix_copies import STORED, Copies, Operand, is_fetchable
from redlang.codegen.cuda.matrix_pairs import Paired, paired
from redlang.codegen.cuda.matrix_ranges import fits
from redlang.codegen.cuda.matrix_text import UnsuitedError, unsuited
from redlang.ir import walk
from redlang.ir.loops import (
    Compute,
    Contract,
    Fold,
    Kernel,
    Loop,
    Loops,
    Statement,
    Store,
)
from redlang.ir.program import Cast, Expr, Load, Ref
from redlang.ir.types import BF16, F32, Type
from redlang.schedule import tidy
from redlang.schedule.matrices import MatrixPlan
from redlang.schedule.narrow import EIGHT_BITS, narrow_part
from redlang.schedule.pairings import PAIRED
from redlang.schedule.product_plans import BYTES, DEPTH


@dataclass(frozen=True, slots=True)
class Multiply:
    """A contraction as a product of warp groups.

    Attributes:
        contract: The statement.
        rows: The expression of the operand that holds the rows.
        left: That operand, if it is copied.
        right: The other one.
        column: The axis of the result's columns.
        over: The contracted axis.
        dtype: Type of both operands, as the tensor core reads them; of integers both types, the
            rows' first.
    """

    contract: Contract
    rows: Expr
    left: Operand | None
    right: Operand
    column: str
    over: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """An array's tile that is read from shared memory into a fragment, to be computed with.

    Attributes:
        name: What the fragment is called.
        operand: How the tile is copied.
        type: The fragment's type.
    """

    name: str
    operand: Operand
    type: Type


@dataclass(frozen=True, slots=True)
class LoopWork:
    """The body of a loop in the order of its work.

    Attributes:
        heads: Products whose operands are copied.
        elements: What is computed element by element.
        tails: Products of computed operands, and what moves their accumulators before.
        fetches: What elements are computed from.
        paired: Reductions over pairs, which come first too.
    """

    heads: tuple[Multiply, ...]
    elements: tuple[Statement, ...]
    tails: tuple[Multiply | Statement, ...]
    fetches: tuple[Fetch, ...] = ()
    paired: tuple[Paired, ...] = ()

    @property
    def operands(self) -> Iterator[Operand]:
        """Yield all copied operands, each time that one is read."""
        for product in self.products:
            if product.left is not None:
                yield product.left
            yield product.right
        for pairs in self.paired:
            yield from (*pairs.lefts, *pairs.rights)
        for fetch in self.fetches:
            yield fetch.operand

    @property
    def products(self) -> tuple[Multiply, ...]:
        """Return all products, in order."""
        return (*self.heads, *self.late)

    @property
    def late(self) -> tuple[Multiply, ...]:
        """Return the products of computed operands."""
        return tuple(t for t in self.tails if isinstance(t, Multiply))


class Roles(Copies):
    """Finds the products of one kernel."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> None:
        super().__init__(loops, plan, classes)
        self.kernel = kernel
        self.program = loops.program

    def loop(self, loop: Loop) -> LoopWork:
        """Return the work of a loop's body.

        Raises:
            UnsuitedError: It holds what matrix tiles do not do.
        """
        if any(isinstance(s, Store) for s in loop.body):
            raise unsuited("a loop that stores")
        body = without_unread(self.kernel, loop.body)
        if any(isinstance(s, Loop) for s in body):
            raise unsuited("a loop in a loop")
        heads = [
            self.multiply(s, loop.axis)
            for s in body
            if isinstance(s, Contract) and self._is_copied(s)
        ]
        body, pairs = self._paired(body, loop.axis)
        first = {h.contract.name for h in heads}
        rest = [s for s in body if not (isinstance(s, Contract) and s.name in first)]
        late = [s for s in rest if isinstance(s, Contract)]
        moved = {s.name for s in late}
        if not all(s.accumulate for s in late):
            raise unsuited("a product of computed operands that is read in the same tile")
        tails: list[Multiply | Statement] = []
        elements: list[Statement] = []
        for statement in rest:
            if isinstance(statement, Contract):
                product = self.multiply(statement, loop.axis)
                if product.left is None and not fits(
                    statement, product.rows, product.dtype, body, self.arrays
                ):
                    raise unsuited(f"a computed operand may leave the range of {product.dtype}")
                tails.append(product if product.left else _named(product, body, elements))
            elif tidy.writes(statement) & moved:
                if not isinstance(statement, Compute):
                    raise unsuited("an accumulator that is more than moved")
                tails.append(statement)
            elif tidy.reads(statement) & moved:
                raise unsuited("an accumulator that is read in its loop")
            elif isinstance(statement, Fold) and self._is_pairwise(statement, loop.axis):
                raise unsuited("a reduction at every element that is no product")
            else:
                elements.append(statement)
        work = LoopWork(tuple(heads), tuple(elements), tuple(tails), paired=pairs)
        return self._fetching(work, loop.axis) if self.plan.fetched else work

    def _paired(
        self, body: Sequence[Statement], loop: str
    ) -> tuple[tuple[Statement, ...], tuple[Paired, ...]]:
        """Return a loop's body without its reductions over pairs, and those."""
        if self.tensor_copies:
            return tuple(body), ()

        def operand(load: Load, over: str, column: str | None) -> Operand:
            return self.operand(load, over, column, loop, PAIRED)

        values = {s.name: s.value for s in body if isinstance(s, Compute)}
        found = [paired(s, self.plan, values.get, operand) for s in body if isinstance(s, Fold)]
        pairs = tuple(made for made in found if made is not None)
        folds = [made.fold for made in pairs]
        # What they alone read has been written out in them.
        left = tuple(s for s in body if s not in folds)
        return without_unread(self.kernel, left) if pairs else left, pairs

    def _is_pairwise(self, fold: Fold, loop: str) -> bool:
        """Say whether a reduction's results have rows and the loop's axis, as products have."""
        axes = {axis for type_ in fold.types for axis in type_.axes}
        return loop in axes and bool(axes & set(self.rows))

    def _fetching(self, work: LoopWork, loop: str) -> LoopWork:
        """Return a loop's work with arrays of rows fetched."""
        fetches: dict[Load, Fetch] = {}

        def rule(node: Expr) -> Expr:
            # Integers come as the floats that they become.
            load = node.operand if isinstance(node, Cast) and node.to is F32 else node
            if not isinstance(load, Load) or node.type.dtype is not F32:
                return node
            if loop not in load.type.axes:
                return node
            if load not in fetches:
                operand = self._fetched(load, loop)
                if operand is None:
                    return node
                type_ = Type(F32, load.type.axes)
                fetches[load] = Fetch(f"{load.array}.fetched", operand, type_)
            return Ref(fetches[load].name, fetches[load].type)

        computed = tuple(
            tidy.map_expressions(s, lambda e: walk.rewrite(e, rule)) for s in work.elements
        )
        return replace(work, elements=computed, fetches=tuple(fetches.values()))

    def _fetched(self, load: Load, loop: str) -> Operand | None:
        """Return how warps get a part of an array that they compute with; None if they load it."""
        try:
            if set(self.rows) <= set(load.type.axes):
                stored = (*STORED[self.plan.unit], *EIGHT_BITS)
                operand = self.operand(load, loop, None, loop, stored)
                return replace(operand, fetched=True) if is_fetchable(operand.tile) else None
            return self.line(load, loop)
        except UnsuitedError:
            return None

    def _is_copied(self, contract: Contract) -> bool:
        sides = contract.left, contract.right
        return contract.condition is None and all(
            self._is_part(side, contract) or self._narrow(side, contract) for side in sides
        )

    def _narrow(self, side: Expr, contract: Contract) -> Load | None:
        """Return the part of an array of 8 bits that a side without rows is, if it is one."""
        if not self.tensor_copies or is_counted(contract) or set(self.rows) & set(side.type.axes):
            return None
        return narrow_part(side, self.program)

    def _is_part(self, side: Expr, contract: Contract) -> bool:
        """Say whether a side is a part of an array that a product reads, not what is computed."""
        if not isinstance(side, Load):
            return False
        return is_counted(contract) or self.arrays[side.array].dtype not in EIGHT_BITS

    def multiply(self, contract: Contract, loop: str | None) -> Multiply:
        """Return the roles of a contraction's operands."""
        if len(contract.over) != 1:
            raise unsuited(f"a contraction over {', '.join(contract.over)} at once")
        (over,) = contract.over
        sides = contract.left, contract.right
        with_rows = [side for side in sides if set(self.rows) & set(side.type.axes)]
        if len(with_rows) != 1:
            raise unsuited("a product without rows of this block on one side")
        rows = with_rows[0]
        other = sides[1] if rows is sides[0] else sides[0]
        columns = [
            axis
            for axis in contract.type.axes
            if axis not in self.rows and self.plan.width(axis) > 1
        ]
        integers = is_counted(contract)
        if len(columns) != 1 or not (integers or contract.type.dtype is self.plan.dtype):
            raise unsuited(f"a product that is not two-dimensional {self.plan.dtype}")
        (column,) = columns
        stored = BYTES if integers else None
        left = None
        if self._is_part(rows, contract):
            left = self.operand(rows, over, None, loop, stored)
        narrow = self._narrow(other, contract)
        if narrow is not None:
            # Both types of 16 bits hold it; what is computed has the range of f32.
            dtype = BF16 if left is None else self.arrays[left.map.array].dtype
            right = self.widened(narrow, over, column, loop, dtype.name)
            return Multiply(contract, rows, left, right, column, over, dtype.name)
        right = self.operand(other, over, column, loop, stored)
        dtype = self.arrays[right.map.array].dtype
        if left is not None:
            if integers:
                return self._integers(Multiply(contract, rows, left, right, column, over, ""))
            if self.arrays[left.map.array].dtype is not dtype:
                raise unsuited("operands of two types")
        return Multiply(contract, rows, left, right, column, over, dtype.name)

    def _integers(self, product: Multiply) -> Multiply:
        """Return a product of integers, which tensor cores read along the contracted axis."""
        assert product.left is not None
        operands = product.left, product.right
        if not all(operand.tile.contracted for operand in operands):
            raise unsuited("integers that are not adjacent along what is contracted")
        if self.classes.limits.get(product.over, DEPTH + 1) > DEPTH:
            raise unsuited("sums of integers that 32 bits may not hold")
        return replace(
            product, dtype=" ".join(self.arrays[o.map.array].dtype.name for o in operands)
        )


def _named(product: Multiply, body: Sequence[Statement], elements: list[Statement]) -> Multiply:
    """Return a product of a computed operand under a name that the loop gives it.

    What lies in memory or is known before the loop gets one of its own: a tile's absent elements
    are overwritten.
    """
    contract, rows = product.contract, product.rows
    if isinstance(rows, Ref) and any(rows.name in tidy.writes(s) for s in body):
        return product
    name = Ref(f"{contract.name}.rows", Type(contract.type.dtype, rows.type.axes))
    elements.append(Compute(name.name, rows, name.type))
    if contract.left is rows:
        return replace(product, rows=name, contract=replace(contract, left=name))
    return replace(product, rows=name, contract=replace(contract, right=name))
