"""What things are called in a kernel's text, and where they are in memory.

`Places` is the `Setting` in which a kernel's expressions are spelled: it knows the current indices
and ranges, the pointers to arrays and buffers, and which values are local variables. Positions are
split: what the innermost loop does not change goes into a pointer in front of that loop.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from redlang.codegen import storage
from redlang.codegen.arguments import Arguments, Buffer, Extent, Stride, Whole
from redlang.codegen.kernels import Tree
from redlang.codegen.scalars import converted, spell
from redlang.codegen.writer import Names, Writer
from redlang.ir import loops
from redlang.ir.program import ArrayParam, Expr, Index, Literal, Load, Program, Ref
from redlang.ir.types import I64, DType, compute_type

VOCABULARY = frozenset(
    (
        *("addresses", "ints", "floats", "lo", "hi", "scratch", "unit", "rest", "space"),
        *("range", "min", "max", "inf", "nan", "pointer", "load", "store", "offset", "gemm"),
        *("address_of", "bool", "i64", "u64", "f32", "f64"),
        *("to_bool", "to_i64", "to_u64", "to_f32", "to_f64"),
        *("exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "rsqrt", "sin", "cos", "sqrt"),
        *("power", "ldexp", "absolute", "sign", "floor", "ceil", "round_even", "minimum"),
        *("maximum", "clip", "floor_divide", "modulo", "is_nan", "is_finite", "select"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "sum_add"),
        *("sum_multiply_add", "product_multiply", "fraction", "exponent", "ranks_above"),
        "ranks_below",
    )
)
"""Names that stand for themselves in generated text; casts (`cast_f16`) begin like no other."""

# Literal extents up to these are numbers in the text: LLVM writes such loops out, and the loop
# around them becomes the vector's. Where results are stored along the axis, eight fill a vector.
FEW, FEW_STORED = 16, 7


@dataclass(frozen=True, slots=True)
class Range:
    """The current range of an axis, as text; `capacity` bounds its length."""

    first: str
    stop: str
    length: str
    capacity: int | str


class Places:
    """Names, indices, pointers and values of one kernel."""

    def __init__(
        self, program_loops: loops.Loops, tree: Tree, arguments: Arguments, writer: Writer
    ) -> None:
        program = program_loops.program
        self.tree = tree
        self.arguments = arguments
        self.writer = writer
        self.names = Names(set(VOCABULARY))
        self.storage = storage.decide(tree)
        self.ranges: dict[str, Range] = {}
        self.indices: dict[str, str] = {}
        # The variable of the innermost loop over elements, which pointers are kept free of.
        self.innermost: str | None = None
        # Lines that the function begins with, by what they define.
        self.prologue: dict[str, str] = {}
        self.buffers: dict[str, tuple[str, DType, tuple[int | str, ...]]] = {}
        # Variables that stand for a value inside one loop.
        self.standing_in: dict[str, str] = {}
        self._whole: dict[str, frozenset[str]] = {}
        self.spaces = {space.name for space in program_loops.workspaces}
        self.few = _few(program)
        self.dtypes: dict[str, DType] = {}
        self.axes: dict[str, tuple[str, ...]] = {}
        stored = [(f"result.{i}", r.dtype, r.axes) for i, r in enumerate(program.results)]
        stored += [(p.name, p.dtype, p.axes) for p in program.params if isinstance(p, ArrayParam)]
        stored += [(space.name, space.dtype, space.axes) for space in program_loops.workspaces]
        for name, dtype, axes in stored:
            self.dtypes[name], self.axes[name] = dtype, axes

    # Arguments -------------------------------------------------------------------------------

    def _use(self, kind: str, name: str, base: str, line: str) -> str:
        """Return the name of something that the prologue defines, by `line` with `{}` for it."""
        identifier = self.names.of(kind, name, base)
        self.prologue.setdefault(f"{kind} {name}", line.format(identifier))
        return identifier

    def _int(self, argument: Extent | Stride | Whole, base: str) -> str:
        place = self.arguments.ints.index(argument)
        return self._use("int", str(argument), base, f"{{}} = ints[{place}]")

    def size(self, axis: str) -> str:
        """Return the extent of `axis`."""
        if axis in self.tree.slot_counts and Extent(axis) not in self.arguments.ints:
            return str(self.tree.slot_counts[axis])
        if axis in self.few:
            return str(self.few[axis])
        return self._int(Extent(axis), f"size_{axis}")

    def scalar(self, name: str, dtype: DType) -> str:
        """Return a scalar argument in the compute type `dtype`."""
        if name in self.arguments.floats:
            place = self.arguments.floats.index(name)
            text = self._use("float", name, f"scalar_{name}", f"{{}} = floats[{place}]")
            return text if dtype.name == "f64" else f"to_{dtype.name}({text})"
        return converted(self._int(Whole(name), f"scalar_{name}"), I64, dtype)

    def array(self, name: str) -> str:
        """Return the pointer to an array, result or workspace."""
        place = self.arguments.addresses.index(name)
        line = f'{{}} = pointer("{self.dtypes[name].name}", "{name}", addresses[{place}])'
        return self._use("array", name, name, line)

    def stride(self, array: str, axis: str) -> str:
        """Return the elements between neighbours of an array along `axis`."""
        if self.arguments.unit.get(array) == axis:
            return "1"
        if array in self.spaces:
            axes = self.axes[array]
            return " * ".join(map(self.size, axes[axes.index(axis) + 1 :])) or "1"
        known = self.arguments.known.get(Stride(array, axis))
        if known is not None:
            return str(known)
        return self._int(Stride(array, axis), f"stride_{array}_{axis}")

    # Axes ------------------------------------------------------------------------------------

    def index(self, axis: str) -> str:
        """Return the current index along `axis`."""
        return self.indices[axis]

    def range_of(self, axis: str) -> Range:
        """Return the current range of an axis: that of a scope, or all of it."""
        return self.ranges.get(axis) or self._full(axis)

    def _full(self, axis: str) -> Range:
        if axis in self.tree.slot_counts:
            count = self.tree.slot_counts[axis]
            return Range("0", str(count), str(count), count)
        size = self.size(axis)
        return Range("0", size, size, axis)

    def range_in(self, name: str, axis: str) -> Range:
        """Return the range of `axis` that a value covers.

        It is the current one, unless the value was defined where the axis had no range yet.
        """
        return self._full(axis) if axis in self._whole.get(name, ()) else self.range_of(axis)

    def bound(self, axis: str, end: str) -> str:
        """Return the first or last index of the current range of `axis`."""
        current = self.range_of(axis)
        return current.first if end == "first" else f"({current.stop} - 1)"

    @contextmanager
    def inside(self, axis: str, index: str, first: str, stop: str) -> Iterator[None]:
        """Write a loop that gives `axis` one index after the other."""
        before, outer = self.indices.get(axis), self.innermost
        with self.writer.loop(f"for {index} in range({first}, {stop}):"):
            self.indices[axis] = self.innermost = index
            yield
        self.innermost = outer
        if before is None:
            del self.indices[axis]
        else:
            self.indices[axis] = before

    # Elements of arrays ----------------------------------------------------------------------

    def load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        """Return an element of an array parameter."""
        axes = self.axes[load.array]
        parts = zip(axes, load.subscripts, strict=True)
        plain = {axis for axis, part in parts if isinstance(part, Index | Literal)}
        return f"load({self.element(load.array, dict(zip(axes, subscripts, strict=True)), plain)})"

    def element(
        self, array: str, subscripts: Mapping[str, str], plain: Collection[str] | None = None
    ) -> str:
        """Return pointer and position of an element of an array.

        `plain` says which subscripts are indices of loops (or numbers), if not all are.
        """
        terms = self.terms(array, subscripts)
        fixed = [t for axis, t in terms.items() if plain is None or axis in plain]
        return self._split(self.array(array), array, list(terms.values()), fixed)

    def terms(self, array: str, subscripts: Mapping[str, str]) -> dict[str, str]:
        """Return what each axis adds to the position of an element of an array."""
        terms = {}
        for axis in self.axes[array]:
            text, stride = subscripts[axis], self.stride(array, axis)
            if text != "0":
                terms[axis] = text if stride == "1" else f"{text} * {stride}"
        return terms

    def _split(self, pointer: str, name: str, terms: list[str], fixed: Collection[str]) -> str:
        """Return a pointer that the innermost loop does not move, and the position from there.

        `fixed` are the terms that are made of indices of loops only.
        """
        index = self.innermost
        still = [t for t in terms if t in fixed and index is not None and _is_free_of(t, index)]
        if not still:
            return f"{pointer}, {' + '.join(terms) or '0'}"
        moving = [t for t in terms if t not in still]
        row = self.writer.hoist(
            f"offset({pointer}, {' + '.join(still)})", lambda: self.names.fresh(f"{name}_row")
        )
        return f"{row}, {' + '.join(moving) or '0'}"

    # Values ----------------------------------------------------------------------------------

    def ref(self, ref: Ref) -> str:
        """Return a value, a workspace's element, or a bound of a range."""
        if ref.name in self.tree.types:
            return self.read(ref.name)
        if ref.name in self.spaces:
            here = {axis: self.index(axis) for axis in self.axes[ref.name]}
            text = f"load({self.element(ref.name, here)})"
            return converted(text, compute_type(self.dtypes[ref.name]), ref.type.dtype)
        axis, end = ref.name.rsplit(".", 1)
        return self.bound(axis, end)

    def is_local(self, name: str) -> bool:
        """Say whether the current element of a value is a local variable."""
        return self.spot(name) in self.standing_in or not self.storage[name].in_memory

    def variable(self, name: str) -> str:
        """Return the local variable that holds a value."""
        spot = self.spot(name)
        return self.standing_in.get(spot) or self.names.of("value", spot)

    def spot(self, name: str) -> str:
        """Return the name of a value with its indices along axes whose loops are written out."""
        apart = [axis for axis in self.storage[name].dims if axis in self.tree.unrolled]
        return ".".join([name, *(self.indices[axis] for axis in apart if axis in self.indices)])

    @contextmanager
    def placed(self, place: Mapping[str, str]) -> Iterator[None]:
        """Give axes whose loops are written out an index each."""
        self.indices |= place
        yield
        for axis in place:
            del self.indices[axis]

    def read(self, name: str, slot: str | None = None) -> str:
        """Return the current element of a value; `slot` picks one of a list."""
        if self.is_local(name):
            return self.variable(name)
        return f"load({self._spot(name, slot)})"

    def write(self, name: str, text: str, slot: str | None = None) -> None:
        """Write the current element of a value."""
        if self.is_local(name):
            self.writer.line(f"{self.variable(name)} = {text}")
        else:
            self.writer.line(f"store({self._spot(name, slot)}, {text})")

    def _spot(self, name: str, slot: str | None = None) -> str:
        """Return pointer and position of the current element of a value.

        With `slot`, that text is the index along the value's slot axis.
        """
        terms: list[str] = []
        fixed: list[str] = []
        pointer = self.buffer(name)
        for axis, inner in self.layout(name):
            if slot is not None and axis == self.tree.slots.get(name):
                terms.append(_product([slot if slot.isidentifier() else f"({slot})", *inner]))
                continue
            current = self.range_in(name, axis)
            if current.length == "1":
                continue
            fixed.append(_product([self.index(axis), *inner]))
            if current.first != "0":
                fixed.append(_product([f"(-{current.first})", *inner]))
        return self._split(pointer, self.names.of("value", name), [*fixed, *terms], fixed)

    def layout(self, name: str) -> list[tuple[str, list[str]]]:
        """Return each axis of a value's buffer with the lengths of the axes inside it."""
        dims = self.storage[name].dims
        lengths = [self.range_in(name, axis).length for axis in dims]
        return [
            (axis, [length for length in lengths[place + 1 :] if length != "1"])
            for place, axis in enumerate(dims)
        ]

    def buffer(self, name: str) -> str:
        """Return the pointer to a value's buffer, reserving the buffer when it is first used."""
        variable = self.names.of("value", name)
        if name not in self.buffers:
            dims, dtype = self.storage[name].dims, self.tree.types[name].dtype
            self._whole[name] = frozenset(axis for axis in dims if axis not in self.ranges)
            capacity = tuple(self.range_of(axis).capacity for axis in dims)
            self.buffers[name] = (variable, dtype, capacity)
        return variable

    def reserve(self, name: str, dtype: DType, length: int) -> str:
        """Return the pointer to a buffer of `length` elements that is no value's."""
        variable = self.names.of("space", name)
        self.buffers.setdefault(name, (variable, dtype, (length,)))
        return variable

    def reserved(self) -> tuple[Buffer, ...]:
        """Return all buffers, in the order in which they lie in scratch memory."""
        return tuple(Buffer(dtype.bytes, dims) for _, dtype, dims in self.buffers.values())

    def keep(self, text: str) -> str:
        """Name a value that is used more than once."""
        if text.isidentifier():
            return text
        name = self.names.fresh("t")
        self.writer.line(f"{name} = {text}")
        return name

    def typed(self, expr: Expr, dtype: DType) -> str:
        """Return the text of an expression in a compute type."""
        return converted(spell(expr, self), expr.type.dtype, dtype)


def _few(program: Program) -> dict[str, int]:
    """Return the axes whose loops are of few steps, with their extents."""
    stored = {axis for result in program.results for axis in result.axes}
    literal = {a.name: a.extent for a in program.axes if isinstance(a.extent, int)}
    return {a: n for a, n in literal.items() if n <= (FEW_STORED if a in stored else FEW)}


def _product(factors: list[str]) -> str:
    return " * ".join(factors)


def _is_free_of(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is None
