"""Who multiplies what: products of a kernel with their operands, and the order of a loop's work.

A product's left operand holds the rows of the block. Operands that are parts of 16-bit arrays are
copied into shared memory by the producer; a left operand that is computed goes through registers.
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
from redlang.codegen.cuda.matrix_pairs import Paired, paired
from redlang.codegen.cuda.matrix_ranges import fits
from redlang.codegen.cuda.matrix_text import TensorMap, UnsuitedError, unsuited
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
from redlang.ir.program import ArrayParam, Expr, Index, Load, Ref
from redlang.ir.types import BF16, F16, F32, DType, Type
from redlang.schedule import tidy
from redlang.schedule.fragments import (
    GROUP_ROWS,
    LINE_ALIGNMENT,
    STEP,
    SharedLine,
    SharedTile,
)
from redlang.schedule.matrices import MatrixPlan, MatrixUnitName
from redlang.schedule.pairings import PAIRED
from redlang.schedule.product_plans import BYTES, DEPTH

LARGEST_BOX = 256
LARGEST_RANK = 5
COPY_ALIGNMENT = 16
STORED: dict[MatrixUnitName, tuple[DType, ...]] = {
    "wgmma": (F16, BF16),
    "mma": (F16, BF16),
    "tf32": (F32,),
    "fma": (F32,),
}
"""What the operands of each unit's products hold."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tile of an array that copies bring into shared memory.

    Attributes:
        map: The tensor map.
        tile: How it lies there.
        loop: The axis of the loop that brings a new one each time, or None.
        piece: Bytes to which addresses and strides are aligned, 16 at most.
        fetched: Whether warps read it into registers, each for itself.
    """

    map: TensorMap
    tile: SharedTile
    loop: str | None
    piece: int = 16
    fetched: bool = False

    @property
    def name(self) -> str:
        """Return what its variables are called after."""
        return self.map.array


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


class Roles:
    """Finds the products of one kernel."""

    def __init__(self, loops: Loops, kernel: Kernel, plan: MatrixPlan, classes: Classes) -> None:
        self.kernel = kernel
        self.plan = plan
        self.classes = classes
        self.arrays = {p.name: p for p in loops.program.params if isinstance(p, ArrayParam)}
        self.rows = tuple(axis for axis, _ in plan.rows)
        self.tensor_copies = plan.unit == "wgmma"

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
            if not isinstance(node, Load) or loop not in node.type.axes:
                return node
            if node not in fetches:
                operand = self._fetched(node, loop)
                if operand is None:
                    return node
                type_ = Type(F32, node.type.axes)
                fetches[node] = Fetch(f"{node.array}.fetched", operand, type_)
            return Ref(fetches[node].name, fetches[node].type)

        computed = tuple(
            tidy.map_expressions(s, lambda e: walk.rewrite(e, rule)) for s in work.elements
        )
        return replace(work, elements=computed, fetches=tuple(fetches.values()))

    def _fetched(self, load: Load, loop: str) -> Operand | None:
        """Return how warps get a part of an array that they compute with; None if they load it."""
        try:
            if set(self.rows) <= set(load.type.axes):
                operand = replace(self.operand(load, loop, None, loop), fetched=True)
                return operand if _is_fetchable(operand.tile) else None
            return self._line(load, loop)
        except UnsuitedError:
            return None

    def _line(self, load: Load, loop: str) -> Operand | None:
        """Return how a tile of an array without rows is copied, if it is one line."""
        array = self._plain_array(load)
        known = self.classes.arrays[array.name]
        dims = (loop, *(a for a in reversed(array.axes) if a != loop))
        size = self.plan.width(loop) * array.dtype.bytes
        alone = all(self.plan.width(axis) == 1 for axis in dims[1:])
        if array.dtype not in (F16, BF16, F32) or size % LINE_ALIGNMENT or not alone:
            return None
        if known.strides.get(loop) != 1 or 0 in known.strides.values() or len(dims) > LARGEST_RANK:
            return None
        box = (self.plan.width(loop), *(1 for _ in dims[1:]))
        tile = SharedLine(1, box[0], True, size)
        return Operand(TensorMap(array.name, dims, box, 0), tile, loop, fetched=True)

    def _is_copied(self, contract: Contract) -> bool:
        return contract.condition is None and all(
            isinstance(side, Load) for side in (contract.left, contract.right)
        )

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
        if len(columns) != 1 or not (integers or contract.type.dtype is F32):
            raise unsuited("a product that is not two-dimensional f32")
        (column,) = columns
        stored = BYTES if integers else None
        right = self.operand(other, over, column, loop, stored)
        dtype = self.arrays[right.map.array].dtype
        left = None
        if isinstance(rows, Load):
            left = self.operand(rows, over, None, loop, stored)
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

    def operand(
        self,
        expr: Expr,
        over: str,
        column: str | None,
        loop: str | None,
        stored: Sequence[DType] | None = None,
    ) -> Operand:
        """Return how a part of an array is copied.

        Args:
            expr: The part.
            over: The contracted axis.
            column: The axis of columns; None for the rows' side.
            loop: The axis of the loop that it is in.
            stored: Types that the array may have; those of the unit's products if not given.
        """
        stored = stored or STORED[self.plan.unit]
        array = self._plain_array(expr)
        axes = array.axes
        if array.dtype not in stored:
            raise unsuited(f"{array.name} holds {array.dtype}")
        known = self.classes.arrays[array.name]
        inner = [a for a in axes if known.strides.get(a) == 1]
        if len(inner) != 1:
            raise unsuited(f"{array.name} has no axis of adjacent elements")
        own = self.rows if column is None else (column,)
        if not set(own) <= set(axes) or over not in axes:
            raise unsuited(f"{array.name} lacks an axis of its product")
        return self._copied(array, inner[0], own, over, loop)

    def _plain_array(self, expr: Expr) -> ArrayParam:
        """Return the array that an expression reads as it is, if tensor copies can."""
        if not isinstance(expr, Load) or any(expr.guarded):
            raise unsuited("a computed operand without rows")
        array = self.arrays[expr.array]
        axes = [part.axis for part in expr.subscripts if isinstance(part, Index)]
        if len(axes) != len(expr.subscripts) or len(set(axes)) != len(axes):
            raise unsuited(f"{array.name} is read at computed places")
        if tuple(axes) != array.axes:
            raise unsuited(f"{array.name} is read under other axes")
        known = self.classes.arrays.get(array.name)
        if known is None:
            raise unsuited(f"nothing is known of {array.name}")
        if self.tensor_copies and known.alignment % COPY_ALIGNMENT:
            raise unsuited(f"{array.name} is not laid out for tensor copies")
        return array

    def _copied(
        self, array: ArrayParam, inner: str, own: Sequence[str], over: str, loop: str | None
    ) -> Operand:
        contracted = inner == over
        if contracted:
            lines = tuple(own)
        elif inner == own[-1]:
            if len(own) > 1:
                raise unsuited(f"the rows of {array.name} are not adjacent")
            lines = (over,)
        else:
            raise unsuited(f"{array.name} is adjacent along {inner}")
        inner_width = _rounded_up(self.plan.width(inner), STEP)
        size = array.dtype.bytes
        # Products by plain multiply-adds, which are of f32, know one length of lines.
        spans = (128, 64, 32) if self.plan.unit != "fma" or size == F16.bytes else (128,)
        span = next((span for span in spans if inner_width * size >= span), spans[-1])
        tile_lines = 1
        for axis in lines:
            tile_lines *= self.plan.width(axis)
        if not contracted:
            tile_lines = _rounded_up(tile_lines, STEP)
        width = span // size
        tile = SharedTile(tile_lines, _rounded_up(inner_width, width), contracted, span, size)
        tiled = [inner, *reversed(lines)]
        steps = self.classes.arrays[array.name].strides
        if self.tensor_copies and any(steps.get(axis) == 0 for axis in tiled):
            raise unsuited(f"{array.name} is the same all along an axis of its tiles")
        # An array that is the same all along an axis has no such dimension in memory.
        rest = [a for a in reversed(array.axes) if a not in tiled and steps.get(a) != 0]
        if any(self.plan.width(axis) > 1 for axis in rest):
            raise unsuited(f"{array.name} has more tiled axes than a matrix")
        box = [width, *(self.plan.width(axis) for axis in reversed(lines)), *(1 for _ in rest)]
        if len(lines) == 1:
            box[1] = tile_lines
        dims = (*tiled, *rest)
        if self.tensor_copies and (len(dims) > LARGEST_RANK or max(box) > LARGEST_BOX):
            raise unsuited(f"{array.name} needs copies of rank {len(dims)}, box {tuple(box)}")
        looped = loop if loop in array.axes else None
        piece = min(COPY_ALIGNMENT, self.classes.arrays[array.name].alignment)
        return Operand(TensorMap(array.name, dims, tuple(box), span), tile, looped, piece)


def _named(product: Multiply, body: Sequence[Statement], elements: list[Statement]) -> Multiply:
    """Return a product of a computed operand under a name that the loop gives it.

    What lies in memory or is known before the loop gets one of its own: a tile's absent elements
    are overwritten.
    """
    contract, rows = product.contract, product.rows
    if isinstance(rows, Ref) and any(rows.name in tidy.writes(s) for s in body):
        return product
    name = Ref(f"{contract.name}.rows", Type(F32, rows.type.axes))
    elements.append(Compute(name.name, rows, name.type))
    if contract.left is rows:
        return replace(product, rows=name, contract=replace(contract, left=name))
    return replace(product, rows=name, contract=replace(contract, right=name))


def _is_fetchable(tile: SharedTile) -> bool:
    """Say whether warps can read a tile's rows: each group's lie in blocks of their own."""
    return tile.contracted or tile.width == GROUP_ROWS


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
