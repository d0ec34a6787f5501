"""Operands of products that no matrix unit reads as they are: stored first, in a type for it.

    sum[n](p * v * v)        -->    w = bf16(v * v), an array;   sum[n](p * w)
    sum[d](q * k), k: i8     -->    w = bf16(k), exactly;        sum[d](q * w)

A map stores the operand once, at the speed of memory; every tile of the product then copies it as
it copies any array. What has a row for each row of the other operand, as the weights of an
attention, is computed where it is used and never stored.

The type is that of the product's array of 16 bits, if it has one, and bf16 else: integers and
floats of 8 bits are exact in both. What is computed from arrays of 16 bits or fewer is rounded
once: to bf16, whose range is that of f32, or to f16. Where nothing shows that it stays in the range
of f16, it is divided by the largest of its finite magnitudes, and the product is multiplied by that
again. Where an operand is an f32 array, or two are arrays of different types, all become f32.

Two operands that are integers of 8 bits may stay what they are: their sums are exact as integers.
For that, both lie along what is contracted, or are stored so. Inside a sweep they become bf16,
whose sums in f32 are exact up to 2^24: that bounds what is contracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from redlang.ir import walk
from redlang.ir.build import Builder, convert
from redlang.ir.normalise import needed
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Cast,
    Definition,
    Dim,
    Expr,
    Load,
    Program,
    Reduce,
    Ref,
    Result,
)
from redlang.ir.types import BF16, BOOL, F16, F32, F64, I64, DType, Type
from redlang.schedule.contract import fits_f16
from redlang.schedule.operands import SHORT, Operand, Operands, is_plain
from redlang.schedule.views import view_of
from redlang.schedule.whole_sums import with_whole_sums

EXACT = 1 << 24
LARGEST = 1 << 8
"""Integers up to the first are f32 numbers; integers of 8 bits are less than the second."""
BYTE = 8
"""Types of fewer bits than 16 are exact in bf16 and in f16."""
PREFIX = "operands."
"""Begins the names of what operands are computed from."""


@dataclass(frozen=True, slots=True)
class Staging:
    """A program in two.

    Attributes:
        first: Its results are the operands, which are results of the whole after the program's.
        rest: The program; it has views of those as further array parameters.
        depths: Contracted axes, and the largest product of their extents that is allowed.
    """

    first: Program
    rest: Program
    depths: tuple[tuple[tuple[str, ...], int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Multiplied:
    """A product of new operands: the sum, of floats or of integers, and a factor of it."""

    sum: Reduce
    outer: Expr | None


def staged(
    program: Program,
    *,
    every: bool,
    rounded: bool = True,
    integers: bool = False,
    chained: bool = False,
    results: int = 0,
) -> Staging | None:
    """Return a program whose products read arrays, and what stores them; None if all do.

    Args:
        program: Normalised.
        every: Whether that goes for operands that registers can hold while they are computed.
        rounded: Whether what is computed may be rounded to 16 bits.
        integers: Whether products of integers are multiplied as such; None if there are none.
        chained: Whether what products left is stored where products inside of sweeps read it.
        results: How many results of the whole come before the program's.
    """
    stager = _Stager(with_whole_sums(program), chained=chained, results=results)
    return stager.run(every=every, rounded=rounded, integers=integers)


def joined(first: Program, rest: Program) -> Program:
    """Return the program of both: it stores the operands, and reads them."""
    known = {param.name for param in rest.params}
    return replace(
        rest,
        params=(*rest.params, *(param for param in first.params if param.name not in known)),
        axes=max(first.axes, rest.axes, key=len),
        definitions=(*first.definitions, *rest.definitions),
        results=(*rest.results, *first.results),
    )


class _Stager:
    """Takes the operands out of one program."""

    def __init__(self, program: Program, *, chained: bool, results: int) -> None:
        self.program = program
        self.results = results + len(program.results)
        self.builder = Builder.of(program)
        self.operands = Operands(program, chained=chained)
        self.stored: dict[tuple[Expr, DType], tuple[Result, Load]] = {}
        self.ranges: dict[Expr, Definition] = {}
        self.floats: dict[str, Ref] = {}
        self.depths: dict[tuple[str, ...], int] = {}

    def run(self, *, every: bool, rounded: bool, integers: bool) -> Staging | None:
        """Return the two programs."""
        counted = {name: self.operands.integers(name) for name in self.operands.products}
        counted = {name: sides for name, sides in counted.items() if sides and integers}
        if integers and not counted:
            return None
        new: dict[str, _Multiplied] = {}
        for name, sides in counted.items():
            made = self._counted(name, sides)
            if made is not None:
                new[name] = made
        pairs = {
            name: self.operands.pair(name)
            for name in self.operands.products
            if name not in counted
            if self.operands.is_read(name) or not self.operands.is_sum_of_integers(name)
        }
        doubles = {name for name in pairs if self._sum(name).dtype is F64}
        short = [pair for name, pair in pairs.items() if name not in doubles]
        wide = not rounded or any(map(_is_wide, short))
        for name, pair in pairs.items():
            exact = F64 if name in doubles else F32 if wide else None
            dtype = exact or self._dtype(pair)
            held = None if every or exact else self._held(name, pair)
            found = self._product(name, pair, dtype, held)
            if found is not None:
                new[name] = found
        return self._programs(new) if new else None

    # Products -----------------------------------------------------------------------------------

    def _sum(self, name: str) -> Type:
        """Return the type of a sum."""
        return walk.value_types(self.operands.definitions[name].value)[0]

    def _counted(self, name: str, sides: tuple[Load | Cast, ...]) -> _Multiplied | None:
        """Return a product of integers that lie along what is contracted; None if it is one."""
        reduce = self.operands.definitions[name].value
        assert isinstance(reduce, Reduce)
        values: list[Expr] = []
        for side in sides:
            own = self.operands.operand(side).dims
            dims, dtype = _along(own, reduce.axes), self.operands.byte(side)
            assert dtype is not None
            stored = isinstance(side, Load) and dims == own
            values.append(side if stored else self._array(side, dims, dtype))
        plain = set(walk.factors(reduce.operand)) == set(values)
        if plain and self.operands.is_sum_of_integers(name):
            return None
        types = (replace(reduce.types[0], dtype=I64),)
        whole = replace(reduce, operands=(self.builder.mul(*values),), types=types)
        return _Multiplied(whole, self.operands.products[name].outer)

    def _product(
        self, name: str, pair: tuple[Operand, Operand], dtype: DType, held: Operand | None
    ) -> _Multiplied | None:
        """Return a product of stored operands; None if it stays as it is."""
        product, reduce = self.operands.products[name], self.operands.definitions[name].value
        assert isinstance(reduce, Reduce)
        condition, outer = reduce.condition, product.outer
        # What takes no part is 0 in both where that can be: tiles have no tests then.
        inside = condition is not None and not any(
            operand.stays or not {*condition.type.axes} <= {*operand.expr.type.axes}
            for operand in pair
        )
        if condition is not None and not inside and self.operands.is_read(name):
            return None
        held = None if inside else held
        rows = self._rows(name, pair) if dtype in (F32, F64) else None
        sums = F64 if dtype is F64 else F32
        values: list[Expr] = []
        for operand, other in (pair, pair[::-1]):
            value = operand.expr
            # Plain multiply-adds read rows along what is contracted.
            dims = operand.dims
            across = _lies_across(operand, other, reduce.axes)
            if operand is rows or across:
                dims = _along(dims, reduce.axes)
            if across and _several(operand, other, reduce.axes):
                dims = _joined(dims, {*other.expr.type.axes})
            if operand.stays or operand is held:
                values.append(value)
                continue
            if condition is not None and inside:
                value = self.builder.where(condition, convert(value, sums), 0.0)
            elif operand.dtype is dtype and dims == operand.dims:
                values.append(value)
                continue
            if self.operands.is_sum_of_integers(name):
                value = convert(value, F32)
            batch = [axis for axis in value.type.axes if axis in other.expr.type.axes]
            batch = [axis for axis in batch if axis not in reduce.axes]
            if dtype is F16 and self._leaves_range(operand):
                largest = self._largest(value, batch)
                factor = self._array(largest, tuple(Dim((axis,)) for axis in batch), F32)
                outer = factor if outer is None else self.builder.mul(outer, factor)
                value = self.builder.apply("div", value, largest)
            values.append(self._array(value, dims, dtype))
        if values == [product.left, product.right]:
            return None
        types = (replace(reduce.types[0], dtype=sums),)
        whole = replace(reduce, operands=(self.builder.mul(*values),), types=types)
        if self.operands.is_sum_of_integers(name):
            self.depths[reduce.axes] = EXACT // LARGEST**2
        return _Multiplied(replace(whole, condition=None if inside else condition), outer)

    def _rows(self, name: str, pair: tuple[Operand, Operand]) -> Operand | None:
        """Return the operand whose own axes are rows of a product in a nest of its own."""
        if any(operand.stays for operand in pair) or self.operands.is_read(name):
            return None
        last = {result.axes[-1] for result in self.program.results if result.axes}
        left, right = pair
        own = set(left.expr.type.axes) - set(right.expr.type.axes)
        return right if own & last else left

    def _held(self, name: str, pair: tuple[Operand, Operand]) -> Operand | None:
        """Return the operand that registers may hold while it is computed: of one product alone."""
        if any(operand.stays for operand in pair) or self.operands.is_read(name):
            return None
        computed = [operand for operand in pair if operand.dtype is None]
        # What is only of another type is stored sooner.
        return min(computed, key=lambda operand: len(operand.holders), default=None)

    def _dtype(self, pair: tuple[Operand, Operand]) -> DType:
        """Return the type in which a product's operands are stored."""
        arrays = [operand.dtype for operand in pair if operand.dtype is not None]
        if arrays:
            return arrays[0]
        stored = [operand for operand in pair if not operand.stays]
        holders = SHORT.intersection(*(operand.holders for operand in stored))
        if holders:
            return BF16 if BF16 in holders else F16
        # A weight of f16 must be known to be at most 1.
        weights = [self.operands.bare(operand.expr) for operand in pair if operand.stays]
        small = all(isinstance(weight, Apply) and weight.op == "exp" for weight in weights)
        mains = {operand.main for operand in stored}
        return F16 if small and F16 in mains and BF16 not in mains else BF16

    # Operands -----------------------------------------------------------------------------------

    def _leaves_range(self, operand: Operand) -> bool:
        known = self.operands.pointwise
        return F16 not in operand.holders and not fits_f16(operand.expr, self.program, known)

    def _largest(self, value: Expr, batch: list[str]) -> Expr:
        """Return the largest finite magnitude over all axes but those of batches; 1 for 0."""
        b = self.builder
        if value not in self.ranges:
            name = f"{PREFIX}largest.{len(self.ranges)}"
            magnitude = b.where(b.apply("isfinite", value), b.apply("abs", value), 0.0)
            over = tuple(axis for axis in value.type.axes if axis not in batch)
            type_ = Type(F32, b.union([batch]))
            reduce = Reduce("max", over, (magnitude,), None, (type_,))
            self.ranges[value] = Definition((name,), reduce)
        definition = self.ranges[value]
        largest = Ref(definition.names[0], walk.value_types(definition.value)[0])
        return b.where(b.apply("gt", largest, 0.0), largest, 1.0)

    def _array(self, value: Expr, dims: tuple[Dim, ...], dtype: DType) -> Expr:
        """Return a value as an element of an array of some type."""
        key = value, dtype
        if key not in self.stored:
            name = view_of(f"result.{self.results + len(self.stored)}")
            result = Result(value, dims, dtype)
            load = self.builder.load(name, dtype, [self.builder.index(a) for a in result.axes])
            self.stored[key] = result, load
        return self.stored[key][1]

    # Programs -----------------------------------------------------------------------------------

    def _programs(self, new: dict[str, _Multiplied]) -> Staging | None:
        multiplied = [
            made
            for d in self.program.definitions
            for made in (self._with(d, new[d.names[0]]) if d.names[0] in new else (d,))
        ]
        program = self.program
        asked = walk.map_program(
            replace(program, definitions=tuple(multiplied)),
            lambda expr: walk.rewrite(expr, self._stored_test),
        )
        results = tuple(result for result, _ in self.stored.values())
        definitions = (*program.definitions, *self.ranges.values())
        first = replace(program, definitions=needed(definitions, results), results=results)
        arrays = tuple(
            ArrayParam(load.array, result.dims, result.dtype)
            for result, load in self.stored.values()
        )
        rest = walk.map_program(
            replace(asked, params=(*program.params, *arrays)),
            lambda expr: walk.rewrite(expr, self._as_float),
        )
        rest = replace(rest, definitions=needed(rest.definitions, rest.results))
        first, rest = self._handed_on(first, rest)
        return Staging(_renamed(first), rest, tuple(self.depths.items()))

    def _handed_on(self, first: Program, rest: Program) -> tuple[Program, Program]:
        """Return the programs with what both reduce, such as a row's scale, stored by the first."""
        known = {d.names[0] for d in rest.definitions}
        loads: dict[str, Load] = {}
        results, arrays = list(first.results), list[ArrayParam]()
        for definition in first.definitions:
            (type_, *_), name = walk.value_types(definition.value), definition.names[0]
            if not isinstance(definition.value, Reduce) or name not in known:
                continue
            if type_.dtype is not F32 or name in self.operands.products:
                continue
            array = view_of(f"result.{self.results + len(results)}")
            result = Result(Ref(name, type_), tuple(Dim((a,)) for a in type_.axes), F32)
            axes = [self.builder.index(axis) for axis in type_.axes]
            loads[name] = self.builder.load(array, F32, axes)
            results.append(result)
            arrays.append(ArrayParam(array, result.dims, F32))
        if not loads:
            return first, rest
        found = walk.map_program(
            replace(rest, params=(*rest.params, *arrays)),
            lambda expr: walk.substitute(expr, loads),
        )
        found = replace(found, definitions=needed(found.definitions, found.results))
        return replace(first, results=tuple(results)), found

    def _stored_test(self, node: Expr) -> Expr:
        """Read from memory what a choice asks of numbers at computed places."""
        if not isinstance(node, Apply) or node.op != "where":
            return node
        test, *values = node.arguments
        loads = [n for n in walk.nodes(test) if isinstance(n, Load)]
        if walk.refs(test) or all(map(is_plain, loads)):
            return node
        dims = tuple(Dim((axis,)) for axis in test.type.axes)
        return self.builder.where(self._array(test, dims, BOOL), *values)

    def _as_float(self, node: Expr) -> Expr:
        """Read a sum of integers as the float that it is computed as, where it becomes one."""
        if isinstance(node, Cast) and node.to is F32 and isinstance(node.operand, Ref):
            return self.floats.get(node.operand.name, node)
        return node

    def _with(self, definition: Definition, product: _Multiplied) -> Iterator[Definition]:
        """Yield the definitions of a product of new operands."""
        b, reduce = self.builder, product.sum
        (name,) = definition.names
        (before,) = walk.value_types(definition.value)
        if product.outer is None and reduce.types[0].dtype is before.dtype:
            yield replace(definition, value=reduce)
            return
        axes = b.union([set(reduce.operand.type.axes) - set(reduce.axes)])
        if reduce.condition is not None:
            axes = b.union([axes, set(reduce.condition.type.axes) - set(reduce.axes)])
        inner = Ref(f"{name}.inner", replace(reduce.types[0], axes=axes))
        yield replace(definition, names=(inner.name,), value=replace(reduce, types=(inner.type,)))
        value: Expr = inner
        if before.dtype is not inner.type.dtype:
            value = Cast(inner, before.dtype, replace(inner.type, dtype=before.dtype))
        if before.dtype is I64:
            self.floats[name] = inner
        if product.outer is None:
            yield replace(definition, value=value)
            return
        # A sum over nothing is 0, whatever factor it has.
        some = b.conjunction(b.apply("gt", b.size(axis), 0) for axis in reduce.axes)
        assert some is not None
        outer = b.where(some, convert(product.outer, F64 if before.dtype is F64 else F32), 0.0)
        yield replace(definition, value=b.mul(value, outer))


def _along(dims: tuple[Dim, ...], over: tuple[str, ...]) -> tuple[Dim, ...]:
    """Return dimensions of an array whose neighbours lie along what is contracted."""
    axes = [axis for dim in dims for axis in dim.axes]
    if (*axes[-len(over) :],) == over and over in ((axes[-1],), dims[-1].axes):
        return dims
    return (*(Dim((axis,)) for axis in axes if axis not in over), Dim(over))


def _joined(dims: tuple[Dim, ...], others: set[str]) -> tuple[Dim, ...]:
    """Return dimensions with the axes that only one side has as one dimension."""
    own = tuple(axis for dim in dims for axis in dim.axes if axis not in others)
    *batch, last = (dim for dim in dims if not {*dim.axes} <= {*own})
    return (*batch, Dim(own), last)


def _lies_across(operand: Operand, other: Operand, over: tuple[str, ...]) -> bool:
    """Say whether an operand's neighbours lie where tensor copies do not want them.

    That is along a batch, along one of several axes of each side's own, or along one of several
    axes that are contracted and are not neighbours in one dimension.
    """
    axes, others = {*operand.expr.type.axes}, {*other.expr.type.axes}
    last, neighbours = operand.dims[-1].axes, operand.dims[-1].axes[-1]
    if len(over) > 1 and last != over:
        return True
    several = _several(operand, other, over)
    return neighbours in axes & others - {*over} or (neighbours in axes - others and several)


def _several(operand: Operand, other: Operand, over: tuple[str, ...]) -> bool:
    """Say whether both sides of a product have several axes of their own."""
    axes, others = ({*side.expr.type.axes} - {*over} for side in (operand, other))
    return len(axes - others) > 1 and len(others - axes) > 1


def _is_wide(pair: tuple[Operand, Operand]) -> bool:
    """Say whether 16 bits would lose what arrays hold: wider numbers, or two types of 16 bits."""
    arrays = {operand.dtype for operand in pair if operand.dtype is not None}
    return len(arrays) > 1 or any(
        o.main.bits > BYTE and o.main not in SHORT and not o.stays for o in pair
    )


def _renamed(program: Program) -> Program:
    """Return a program with names of its own."""
    names = {
        name: name if name.startswith(PREFIX) else PREFIX + name
        for d in program.definitions
        for name in d.names
    }
    whole = walk.map_program(program, lambda expr: walk.rename(expr, names))
    definitions = tuple(
        replace(d, names=tuple(names[name] for name in d.names)) for d in whole.definitions
    )
    return replace(whole, definitions=definitions)
