"""What the operands of a program's products are: arrays, exact copies of them, or computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redlang.ir import walk
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Cast,
    Dim,
    Expr,
    Index,
    Literal,
    Load,
    Program,
    Reduce,
    Ref,
)
from redlang.ir.types import BF16, F16, F32, F64, I64, DType
from redlang.schedule.contract import Product, split_sum
from redlang.schedule.product_plans import BYTES

SHORT = frozenset({F16, BF16})
EXACT_BITS = 8
"""Bits of an integer or a float that both types of 16 bits hold exactly."""
EXPONENTIALS = ("exp", "exp2")
CHOOSING = frozenset({"abs", "neg", "where", "minimum", "maximum"})
"""Functions whose values are among their arguments, signs aside."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a product.

    Attributes:
        expr: Its value; the array's element, where it is one.
        dtype: The type of the array that it is, if it is one that products may read.
        holders: The types of 16 bits that hold it exactly.
        main: The type of an array that has all of its axes; of several, the one of most bits.
        dims: Its dimensions, as that array has them.
        stays: Whether it is computed where it is used: it has an element for each of a product's
            results, or more of them than all that it is made of.
    """

    expr: Expr
    dtype: DType | None
    holders: frozenset[DType]
    main: DType
    dims: tuple[Dim, ...]
    stays: bool


class Operands:
    """Finds the products of a normalised program, and what they multiply.

    Attributes:
        products: The sums that are products, by stage: of floats, or of integers of 8 bits.
    """

    def __init__(self, program: Program, *, chained: bool = False) -> None:
        """Look at a program; if `chained`, results of products are stored where others read them.

        Those are products inside of sweeps, and others unless they multiply exponentials: weights
        of a softmax are computed where they are multiplied.
        """
        self.program = program
        self.chained = chained
        self.definitions = {name: d for d in program.definitions for name in d.names}
        self.products = dict(self._products())

    def _products(self) -> Iterator[tuple[str, Product]]:
        for definition in self.program.definitions:
            value = definition.value
            if not isinstance(value, Reduce) or value.op != "sum":
                continue
            dtype = value.types[0].dtype
            if dtype not in (F32, F64, I64):
                continue
            found = split_sum(
                value.operand,
                value.axes,
                self.program,
                self.pointwise,
                self.pointwise,
                masked=value.condition is not None,
                ordered=False,
            )
            if found is None or (dtype is I64 and (found.outer or not self._bytes(found))):
                continue
            yield definition.names[0], found

    def pointwise(self, name: str) -> Expr | None:
        """Return the expression of a pointwise definition; None for anything else."""
        definition = self.definitions.get(name)
        value = None if definition is None else definition.value
        return None if isinstance(value, Reduce) else value

    def pair(self, product: str) -> tuple[Operand, Operand]:
        """Return the operands of a product."""
        found, inner = self.products[product], self.chained and self.is_read(product)
        left, right = (
            self.operand(side, inner=inner or (self.chained and self._is_chained(side)))
            for side in (found.left, found.right)
        )
        return left, right

    def _is_chained(self, expr: Expr) -> bool:
        """Say whether an operand of a product outside of sweeps may be stored if it reads one."""
        return not any(isinstance(n, Apply) and n.op in EXPONENTIALS for n in self.nodes(expr))

    def _bytes(self, product: Product) -> tuple[Load | Cast, ...]:
        """Return the operands of a product if they are integers of 8 bits, stored or made so."""
        sides = map(self.bare, (product.left, product.right))
        found = [side for side in sides if self.byte(side) is not None]
        return tuple(s for s in found if isinstance(s, Load | Cast)) if len(found) > 1 else ()

    def byte(self, expr: Expr) -> DType | None:
        """Return the type of what is stored or cast as an integer of 8 bits; else None."""
        dtype = None
        if isinstance(expr, Load) and is_plain(expr):
            dtype = self.program.array(expr.array).dtype
        elif isinstance(expr, Cast):
            dtype = expr.to
        return dtype if dtype in BYTES else None

    def integers(self, product: str) -> tuple[Load | Cast, ...]:
        """Return the operands of a product of integers of 8 bits that no other reduction reads."""
        value = self.definitions[product].value
        assert isinstance(value, Reduce)
        sides = self._bytes(self.products[product])
        alone = value.condition is None and not self.is_read(product)
        return sides if alone and not any(self.operand(side).stays for side in sides) else ()

    def is_sum_of_integers(self, stage: str) -> bool:
        """Say whether a product is a sum of integers in the text."""
        value = self.definitions[stage].value
        return isinstance(value, Reduce) and value.types[0].dtype is I64

    def operand(self, expr: Expr, *, inner: bool = False) -> Operand:
        """Return what an operand is; if `inner`, what products left may be stored."""
        own = set(expr.type.axes)
        mains: list[tuple[DType, tuple[Dim, ...]]] = []
        gathered: list[tuple[DType, tuple[Dim, ...]]] = []
        stays = False
        for node in self.nodes(expr):
            if isinstance(node, Ref):
                stays = stays or (not inner and self._reads_product(node.name))
                if own <= set(node.type.axes) and self.pointwise(node.name) is None:
                    mains.append((self._source(node.name), _each_alone(node.type.axes)))
            elif isinstance(node, Load) and own <= set(node.type.axes):
                array = self.program.array(node.array)
                if is_plain(node):
                    mains.append((array.dtype, _dims(node, array)))
                else:
                    gathered.append((array.dtype, _each_alone(_axes(node))))
        mains = mains or gathered
        if not mains:
            # What is made of indices alone is stored like an array; what has arrays with fewer
            # axes is larger than all of them.
            read = [n for n in self.nodes(expr) if isinstance(n, Load | Ref)]
            small = any(
                n.type.axes for n in read if isinstance(n, Load) or self.pointwise(n.name) is None
            )
            dims = _each_alone(self.program.ordered(own))
            return Operand(expr, None, frozenset(), BF16, dims, small or not own)
        main, dims = max(mains, key=lambda pair: pair[0].bits)
        bare, holders = self.bare(expr), self._holders(expr)
        if isinstance(bare, Load) and is_plain(bare) and main in (F16, BF16, F32, F64):
            return Operand(bare, main, holders, main, dims, stays)
        return Operand(expr, None, holders, main, dims, stays)

    def is_read(self, stage: str) -> bool:
        """Say whether another reduction reads a stage."""
        return any(
            isinstance(node, Ref) and node.name == stage
            for d in self.program.definitions
            if isinstance(d.value, Reduce)
            for expr in walk.expressions(d.value)
            for node in self.nodes(expr)
        )

    def bare(self, expr: Expr) -> Expr:
        """Return an expression without names and casts that change no value."""
        while True:
            body = self.pointwise(expr.name) if isinstance(expr, Ref) else None
            if body is not None:
                expr = body
            elif isinstance(expr, Cast) and (not expr.explicit or self._widens(expr)):
                expr = expr.operand
            else:
                return expr

    def _widens(self, cast: Cast) -> bool:
        """Say whether a cast makes f32 of what is no f64, or a wider integer of 8 bits."""
        if cast.to is F32:
            return cast.operand.type.dtype is not F64
        inner = self.bare(cast.operand)
        if not isinstance(inner, Load | Cast) or cast.to.bits <= EXACT_BITS:
            return False
        own = inner.to if isinstance(inner, Cast) else self.program.array(inner.array).dtype
        return own in BYTES and cast.to.kind in ("int", own.kind)

    def nodes(self, expr: Expr) -> Iterator[Expr]:
        """Yield what an expression is made of, pointwise definitions included."""
        todo, seen = [expr], set[str]()
        while todo:
            for node in walk.nodes(todo.pop()):
                yield node
                body = self.pointwise(node.name) if isinstance(node, Ref) else None
                if isinstance(node, Ref) and body is not None and node.name not in seen:
                    seen.add(node.name)
                    todo.append(body)

    def _reads_product(self, stage: str) -> bool:
        """Say whether a reduction is a product, or made of one."""
        value = self.definitions[stage].value
        if stage in self.products or not isinstance(value, Reduce):
            return stage in self.products
        return any(
            isinstance(node, Ref) and self._reads_product(node.name)
            for expr in walk.expressions(value)
            for node in self.nodes(expr)
        )

    def _source(self, stage: str) -> DType:
        """Return the type of most bits of the arrays that a reduction reads."""
        exprs = walk.expressions(self.definitions[stage].value)
        loads = [n for e in exprs for n in self.nodes(e) if isinstance(n, Load)]
        found = [self.program.array(load.array).dtype for load in loads]
        return max(found, key=lambda dtype: dtype.bits, default=F32)

    def _holders(self, expr: Expr) -> frozenset[DType]:
        match self.bare(expr):
            case Load(array=name):
                dtype = self.program.array(name).dtype
                return SHORT if dtype.bits <= EXACT_BITS else SHORT & {dtype}
            case Literal(value) if value in (0, 1, -1):
                return SHORT
            case Apply(op=op, arguments=arguments) if op in CHOOSING:
                values = arguments[1:] if op == "where" else arguments
                return SHORT.intersection(*map(self._holders, values))
            case _:
                return frozenset()


def is_plain(load: Load) -> bool:
    """Say whether subscripts are axes, each of them once."""
    axes = [part.axis for part in load.subscripts if isinstance(part, Index)]
    return len(axes) == len(load.subscripts) == len(set(axes)) and not any(load.guarded)


def _axes(load: Load) -> tuple[str, ...]:
    """Return the axes of an element in the order of the array's memory."""
    return tuple(dict.fromkeys(a for part in load.subscripts for a in part.type.axes))


def _each_alone(axes: tuple[str, ...]) -> tuple[Dim, ...]:
    return tuple(Dim((axis,)) for axis in axes)


def _dims(load: Load, array: ArrayParam) -> tuple[Dim, ...]:
    """Return the dimensions of an array under the axes that it is read at."""
    axes = dict(zip(array.axes, _axes(load), strict=True))
    return tuple(Dim(tuple(axes[axis] for axis in dim.axes)) for dim in array.dims)
