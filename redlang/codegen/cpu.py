"""Loops → Numba text for the CPU.

Each kernel becomes a function over a range of units. Loops over elements are written so that LLVM
vectorises them: the innermost axis is the one along which memory is adjacent, with the literal stride
1; accumulators are local variables; nothing branches except where most elements do nothing. A matrix
product is a call. Every buffer has its own alias scope.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from redlang.codegen import reductions, storage
from redlang.codegen.arguments import (
    Arguments,
    Buffer,
    Extent,
    Stride,
    Whole,
    arrange,
    row_major,
)
from redlang.codegen.kernels import Tree, build_tree
from redlang.codegen.products import product_axes
from redlang.codegen.nesting import For, If, Leaf, Multiply, Node, Tiles
from redlang.codegen.scalars import converted, number, spell
from redlang.codegen.steps import Assign, Begin, Step
from redlang.codegen.writer import Names, Writer
from redlang.ir import loops
from redlang.ir.program import ArrayParam, Expr, Index, Literal, Load, Ref
from redlang.ir.types import I64, DType, compute_type
from redlang.source import SourceText

VOCABULARY = frozenset(
    (
        *("addresses", "ints", "floats", "lo", "hi", "scratch", "unit", "rest", "space"),
        *("range", "min", "max", "pass", "inf", "nan", "pointer", "load", "store", "offset"),
        *("bool", "i64", "u64", "f32", "f64", "gemm", "exp", "exp2", "log", "log2", "tanh"),
        *("sigmoid", "erf", "rsqrt", "sin", "cos", "sqrt", "power", "ldexp", "absolute", "sign"),
        *("floor", "ceil", "round_even", "minimum", "maximum", "clip", "floor_divide", "modulo"),
        *("is_nan", "is_finite", "select", "logical_and", "logical_or", "logical_xor"),
        *("logical_not", "sum_add", "sum_multiply_add", "product_multiply", "address_of"),
        *("fraction", "exponent", "ranks_above", "ranks_below"),
    )
)
# A chain of additions in one accumulator of a vectorised loop has a 32nd of this length.
SUM_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class KernelText:
    """Generated text and what running it takes.

    Attributes:
        text: Functions for the CPU target, one a kernel.
        entries: Their names, in the order of the kernels.
        arguments: What they are given.
        buffers: Scratch memory of each entry.
        products: Whether any of them multiplies matrices, which takes scratch memory too.
    """

    text: str
    entries: tuple[str, ...]
    arguments: Arguments
    buffers: tuple[tuple[Buffer, ...], ...]
    products: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The current range of an axis, as text; `capacity` bounds its length."""

    first: str
    stop: str
    length: str
    capacity: int | str


def emit(
    program_loops: loops.Loops,
    unit: Mapping[str, str | None] | None = None,
    source: SourceText | None = None,
) -> KernelText:
    """Return the text of all kernels of a lowered program.

    Args:
        program_loops: The lowered program.
        unit: The axis along which each parameter and `result.<i>` has stride 1, None for none;
            left out, all arrays are row-major.
        source: The kernel's text, for comments that name source lines.
    """
    arguments = arrange(program_loops, row_major(program_loops) if unit is None else unit)
    writer = Writer(source)
    entries, buffers, products = [], [], []
    for kernel in program_loops.kernels:
        tree = build_tree(program_loops, kernel, dict(arguments.unit))
        emitter = KernelEmitter(program_loops, kernel, tree, arguments, writer)
        entries.append(emitter.entry)
        emitter.emit()
        buffers.append(tuple(emitter.buffers))
        products.append(emitter.multiplies)
        writer.line("")
    return KernelText(*(writer.text(), tuple(entries), arguments, tuple(buffers), tuple(products)))


class KernelEmitter:
    """Writes one kernel; while it does, it is the `Setting` in which expressions are spelled."""

    def __init__(
        self,
        program_loops: loops.Loops,
        kernel: loops.Kernel,
        tree: Tree,
        arguments: Arguments,
        writer: Writer,
    ) -> None:
        self.program = program_loops.program
        self.kernel = kernel
        self.tree = tree
        self.arguments = arguments
        self.writer = writer
        self.names = Names(set(VOCABULARY))
        self.entry = self.names.fresh(kernel.name)
        self.storage = storage.decide(tree)
        self.ranges: dict[str, Range] = {}
        self.indices: dict[str, str] = {}
        # The variable of the innermost loop over elements, which pointers are kept free of.
        self.innermost: str | None = None
        self.buffers: list[Buffer] = []
        self.multiplies = False
        self.spaces = {space.name: space for space in program_loops.workspaces}
        self.arrays = {p.name: p for p in self.program.params if isinstance(p, ArrayParam)}
        self.dtypes: dict[str, DType] = {name: p.dtype for name, p in self.arrays.items()}
        self.dtypes |= {f"result.{i}": r.dtype for i, r in enumerate(self.program.results)}
        self.dtypes |= {name: space.dtype for name, space in self.spaces.items()}
        self.array_axes: dict[str, tuple[str, ...]] = {
            **{name: p.axes for name, p in self.arrays.items()},
            **{f"result.{i}": r.axes for i, r in enumerate(self.program.results)},
            **{name: space.axes for name, space in self.spaces.items()},
        }
        self.reserved: dict[str, tuple[str, DType, tuple[int | str, ...]]] = {}
        self.whole: dict[str, frozenset[str]] = {}
        self.standing_in: dict[str, str] = {}

    # The function ----------------------------------------------------------------------------

    def emit(self) -> None:
        """Write the function: the body first, so that the prologue holds only what it uses."""
        outer = self.writer
        self.writer = Writer(outer.source)
        self.used: dict[str, str] = {}
        with self.writer.block("x"), self.writer.block("x"):
            self._unit_body()
        body = self.writer.text().split("\n")[2:-1]
        self.writer = outer
        with outer.block(f"def {self.entry}(addresses, ints, floats, lo, hi, scratch):"):
            for line in self.used.values():
                outer.line(line)
            self._scratch_lines()
            outer.line("for unit in range(lo, hi):")
        for line in body:
            outer.line(line)

    def _unit_body(self) -> None:
        """Write what one unit does: find its ranges, then run the tree."""
        rest = "unit"
        grid = self.kernel.grid
        for position, axis in reversed(list(enumerate(grid))):
            outermost = position == 0 and self.kernel.segment is None
            tiles = self._tiles(axis)
            place = rest if outermost else f"{rest} % {tiles}"
            self._grid_range(axis, place)
            if not outermost:
                self.writer.line(f"rest = {rest} // {tiles}")
                rest = "rest"
        if self.kernel.segment is not None:
            index = self.names.fresh(self.kernel.segment.index)
            self.writer.line(f"{index} = {rest}")
            self.indices[self.kernel.segment.index] = index
            self.ranges[self.kernel.segment.index] = Range(index, f"{index} + 1", "1", 1)
        self.nodes(self.tree.root)

    def _tiles(self, axis: loops.GridAxis) -> str:
        size = self.size(axis.axis)
        return size if axis.tile == 1 else f"(({size} + {axis.tile - 1}) // {axis.tile})"

    def _grid_range(self, grid: loops.GridAxis, place: str) -> None:
        axis = grid.axis
        if grid.tile == 1:
            index = self.names.fresh(axis)
            self.writer.line(f"{index} = {place}")
            self.indices[axis] = index
            self.ranges[axis] = Range(index, f"{index} + 1", "1", 1)
            return
        place = place if place.isidentifier() else f"({place})"
        self._set_range(axis, grid.tile, f"{place} * {grid.tile}", self.size(axis))

    def _set_range(self, axis: str, tile: int, first: str, limit: str) -> None:
        start, stop = self.names.fresh(f"{axis}_first"), self.names.fresh(f"{axis}_stop")
        length = self.names.fresh(f"{axis}_length")
        self.writer.line(f"{start} = {first}")
        self.writer.line(f"{stop} = min({start} + {tile}, {limit})")
        self.writer.line(f"{length} = {stop} - {start}")
        self.ranges[axis] = Range(start, stop, length, tile)

    def range_of(self, axis: str) -> Range:
        """Return the current range of an axis: that of a scope, or all of it."""
        return self.ranges.get(axis) or self._full(axis)

    def _full(self, axis: str) -> Range:
        if axis in self.tree.slot_counts:
            count = self.tree.slot_counts[axis]
            return Range("0", str(count), str(count), count)
        size = self.size(axis)
        return Range("0", size, size, axis)

    # Names -----------------------------------------------------------------------------------

    def _use(self, kind: str, name: str, base: str, line: str) -> str:
        """Return the name of something that the prologue defines, by `line` with `{}` for it."""
        identifier = self.names.of(kind, base)
        self.used.setdefault(f"{kind}:{name}", line.format(identifier))
        return identifier

    def _int(self, argument: Extent | Stride | Whole, base: str) -> str:
        place = self.arguments.ints.index(argument)
        return self._use("int", str(argument), base, f"{{}} = ints[{place}]")

    def size(self, axis: str) -> str:
        """Return the extent of `axis`."""
        if axis in self.tree.slot_counts and Extent(axis) not in self.arguments.ints:
            return str(self.tree.slot_counts[axis])
        return self._int(Extent(axis), f"size_{axis}")

    def index(self, axis: str) -> str:
        """Return the current index along `axis`."""
        return self.indices[axis]

    def scalar(self, name: str, dtype: DType) -> str:
        """Return a scalar argument in the compute type `dtype`."""
        if name in self.arguments.floats:
            place = self.arguments.floats.index(name)
            text = self._use("float", name, f"scalar_{name}", f"{{}} = floats[{place}]")
            return text if dtype.name == "f64" else f"to_{dtype.name}({text})"
        text = self._int(Whole(name), f"scalar_{name}")
        return converted(text, I64, dtype)

    def array(self, name: str) -> str:
        """Return the pointer to an array, result or workspace."""
        place = self.arguments.addresses.index(name)
        dtype = self.dtypes[name].name
        scope = name.replace('"', "")
        line = f'{{}} = pointer("{dtype}", "{scope}", addresses[{place}])'
        return self._use("array", name, name.replace("result.", "result_"), line)

    def stride(self, array: str, axis: str) -> str:
        """Return the elements between neighbours of an array along `axis`."""
        if self.arguments.unit.get(array) == axis:
            return "1"
        if array in self.spaces:
            axes = self.spaces[array].axes
            inner = [self.size(a) for a in axes[axes.index(axis) + 1 :]]
            return " * ".join(inner) or "1"
        return self._int(Stride(array, axis), f"stride_{array}_{axis}")

    def load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        """Return an element of an array parameter."""
        axes = self.array_axes[load.array]
        plain = {
            axis
            for axis, part in zip(axes, load.subscripts, strict=True)
            if isinstance(part, Index | Literal)
        }
        return f"load({self.element(load.array, dict(zip(axes, subscripts, strict=True)), plain)})"

    def element(
        self, array: str, subscripts: Mapping[str, str], plain: Collection[str] | None = None
    ) -> str:
        """Return pointer and position of an element of an array.

        `plain` says which subscripts are indices of loops (or numbers), if not all are.
        """
        terms = self.terms(array, subscripts)
        fixed = [t for axis, t in terms.items() if plain is None or axis in plain]
        return self.split(self.array(array), array, list(terms.values()), fixed)

    def split(self, pointer: str, name: str, terms: list[str], fixed: Collection[str]) -> str:
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

    def terms(self, array: str, subscripts: Mapping[str, str]) -> dict[str, str]:
        """Return what each axis adds to the position of an element of an array."""
        terms = {}
        for axis in self.array_axes[array]:
            text, stride = subscripts[axis], self.stride(array, axis)
            if text != "0":
                terms[axis] = text if stride == "1" else f"{text} * {stride}"
        return terms

    def ref(self, ref: Ref) -> str:
        """Return a value, a workspace's element, or a bound of a range."""
        if ref.name in self.tree.types:
            return self.read(ref.name)
        if ref.name in self.spaces:
            axes = self.spaces[ref.name].axes
            text = f"load({self.element(ref.name, {axis: self.index(axis) for axis in axes})})"
            return converted(text, compute_type(self.dtypes[ref.name]), ref.type.dtype)
        axis, end = ref.name.rsplit(".", 1)
        return self.bound(axis, end)

    def bound(self, axis: str, end: str) -> str:
        """Return the first or last index of the current range of `axis`."""
        if axis in self.indices and axis not in self.ranges:
            return self.indices[axis]
        current = self.range_of(axis)
        return current.first if end == "first" else f"({current.stop} - 1)"

    def keep(self, text: str) -> str:
        """Name a value that is used more than once."""
        if text.isidentifier():
            return text
        name = self.names.fresh("t")
        self.writer.line(f"{name} = {text}")
        return name

    # Values ----------------------------------------------------------------------------------

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of a value's buffer."""
        return self.storage[name].dims

    def variable(self, name: str) -> str:
        """Return the local variable that holds a value."""
        return self.standing_in.get(name) or self.names.of("value", name)

    def spot(self, name: str, slot: str | None = None) -> str:
        """Return pointer and position of the current element of a value.

        With `slot`, that text is the index along the value's slot axis.
        """
        terms: list[str] = []
        fixed: list[str] = []
        dims = self.dims(name)
        pointer = self.buffer(name)
        for number_, axis in enumerate(dims):
            lengths = [self.range_in(name, a).length for a in dims[number_ + 1 :]]
            inner = [length for length in lengths if length != "1"]
            if slot is not None and axis == self.tree.slots.get(name):
                terms.append(" * ".join([slot if slot.isidentifier() else f"({slot})", *inner]))
                continue
            current = self.range_in(name, axis)
            if current.length == "1":
                continue
            fixed.append(" * ".join([self.index(axis), *inner]))
            if current.first != "0":
                fixed.append(" * ".join([f"(-{current.first})", *inner]))
        return self.split(pointer, self.names.of("value", name), [*fixed, *terms], fixed)

    def read(self, name: str, slot: str | None = None) -> str:
        """Return the current element of a value."""
        if name in self.standing_in or not self.storage[name].in_memory:
            return self.variable(name)
        return f"load({self.spot(name, slot)})"

    def write(self, name: str, text: str, slot: str | None = None) -> None:
        """Write the current element of a value."""
        if name in self.standing_in or not self.storage[name].in_memory:
            self.writer.line(f"{self.variable(name)} = {text}")
        else:
            self.writer.line(f"store({self.spot(name, slot)}, {text})")

    def buffer(self, name: str) -> str:
        """Return the pointer to a value's buffer, reserving the buffer when it is first used."""
        variable = self.names.of("value", name)
        if name not in self.reserved:
            dims, dtype = self.dims(name), self.tree.types[name].dtype
            self.whole[name] = frozenset(axis for axis in dims if axis not in self.ranges)
            capacity = tuple(self.range_of(axis).capacity for axis in dims)
            self.buffers.append(Buffer(dtype.bytes, capacity))
            self.reserved[name] = (variable, dtype, capacity)
        return variable

    def range_in(self, name: str, axis: str) -> Range:
        """Return the range of `axis` that a value covers.

        It is the current one, unless the value was defined where the axis had no range yet.
        """
        return self._full(axis) if axis in self.whole.get(name, ()) else self.range_of(axis)

    def _scratch_lines(self) -> None:
        """Write where each buffer lies in scratch memory."""
        if not self.reserved and not self.multiplies:
            return
        self.writer.line("space = to_i64(scratch)")
        for variable, dtype, capacity in self.reserved.values():
            sizes = [self.size(c) if isinstance(c, str) else str(c) for c in capacity]
            self.writer.line(f'{variable} = pointer("{dtype.name}", "{variable}.buffer", space)')
            elements = " * ".join([str(dtype.bytes), *sizes])
            self.writer.line(f"space += ({elements} + 63) & -64")

    # Nodes -----------------------------------------------------------------------------------

    def nodes(self, nodes: list[Node]) -> None:
        """Write a list of nodes."""
        for node in nodes:
            match node:
                case Leaf(step):
                    self.step(step)
                case For():
                    self.elements(node)
                case Tiles():
                    self.tiles(node)
                case If():
                    self.choice(node)
                case Multiply(contract):
                    self.multiply(contract)

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

    def elements(self, node: For) -> None:
        """Write a loop over the elements of a range.

        What it folds is held in local variables. Sums of floats are cut into blocks, which keeps
        the chains of additions short.
        """
        current = self.range_of(node.axis)
        index = self.names.fresh(node.axis)
        folds = self._folds(node)
        sums = [fold for fold in folds if _adds_floats(fold)]
        unbounded = not isinstance(current.capacity, int) or current.capacity > SUM_BLOCK
        blocked = bool(sums) and unbounded
        parts = [
            fold
            for fold in folds
            if self.storage[fold.names[0]].in_memory
            or (fold in sums and (blocked or self._continues(fold, node.axis)))
        ]
        if not blocked:
            self._partial(node, index, current.first, current.stop, parts)
            return
        block = self.names.fresh(f"{node.axis}_block")
        header = f"for {block} in range({current.first}, {current.stop}, {SUM_BLOCK}):"
        with self.writer.loop(header):
            end = f"min({block} + {SUM_BLOCK}, {current.stop})"
            self._partial(node, index, block, end, parts)

    def _partial(
        self, node: For, index: str, first: str, stop: str, parts: list[loops.Fold]
    ) -> None:
        """Write a loop that folds into variables of its own, and join those with the results."""
        own = {fold.names[0]: self.names.fresh(f"{fold.names[0]}_part") for fold in parts}
        for fold in parts:
            (identity,) = reductions.identities(fold.op, [fold.types[0].dtype])
            self.writer.line(f"{own[fold.names[0]]} = {identity}")
        self.standing_in |= own
        with self.inside(node.axis, index, first, stop):
            self.nodes(node.body)
        for name in own:
            del self.standing_in[name]
        for fold in parts:
            (name,) = fold.names
            joined = reductions.joined(fold.op, self.read(name), own[name], fold.types[0].dtype)
            self.write(name, joined)

    def _folds(self, node: For) -> list[loops.Fold]:
        """Return the folds with one plain result that a loop itself runs."""
        return [
            leaf.step
            for leaf in node.body
            if isinstance(leaf, Leaf)
            and isinstance(leaf.step, loops.Fold)
            and leaf.step.op in reductions.SIMPLE
            and node.axis in leaf.step.over
        ]

    def _continues(self, fold: loops.Fold, axis: str) -> bool:
        """Say whether a loop over another axis of the fold is open."""
        return any(other != axis and other in self.indices for other in fold.over)

    def tiles(self, node: Tiles) -> None:
        """Write a loop over tiles of an axis."""
        loop = node.loop
        first, stop = "0", self.size(loop.axis)
        segment = self.kernel.segment
        if segment is not None and segment.axis == loop.axis:
            first, stop = self._segment_range(segment)
        before = self.ranges.get(loop.axis)
        if loop.tile == 1:
            index = self.names.fresh(loop.axis)
            with self.inside(loop.axis, index, first, stop):
                self.ranges[loop.axis] = Range(index, f"{index} + 1", "1", 1)
                self._tile_body(node)
        else:
            start = self.names.fresh(f"{loop.axis}_first")
            end = self.names.fresh(f"{loop.axis}_stop")
            length = self.names.fresh(f"{loop.axis}_length")
            outer, self.innermost = self.innermost, None
            with self.writer.loop(f"for {start} in range({first}, {stop}, {loop.tile}):"):
                self.writer.line(f"{end} = min({start} + {loop.tile}, {stop})")
                self.writer.line(f"{length} = {end} - {start}")
                self.ranges[loop.axis] = Range(start, end, length, loop.tile)
                self._tile_body(node)
            self.innermost = outer
        if before is None:
            del self.ranges[loop.axis]
        else:
            self.ranges[loop.axis] = before

    def _tile_body(self, node: Tiles) -> None:
        if node.loop.some is None:
            self.nodes(node.body)
            return
        with self.writer.block(f"if {spell(node.loop.some, self)}:"):
            self.nodes(node.body)

    def _segment_range(self, segment: loops.Segment) -> tuple[str, str]:
        """Write the part of the cut axis that the current segment covers."""
        axis = segment.axis
        size, parts = self.size(axis), self.size(segment.index)
        number_ = self.index(segment.index)
        count = f"(({size} + {segment.tile - 1}) // {segment.tile})"
        first, stop = self.names.fresh(f"{axis}_begin"), self.names.fresh(f"{axis}_end")
        for name, place in ((first, number_), (stop, f"({number_} + 1)")):
            tile = f"{place} * {count} // {parts} * {segment.tile}"
            self.writer.line(f"{name} = min({tile}, {size})")
        return first, stop

    def choice(self, node: If) -> None:
        """Write a branch."""
        with self.writer.block(f"if {spell(node.condition, self)}:"):
            self.nodes(node.then)
        if node.otherwise:
            with self.writer.block("else:"):
                self.nodes(node.otherwise)

    # Steps -----------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """Write a step at the current indices."""
        match step:
            case Assign(name, value, type_):
                self.writer.origin(value.span)
                self.write(name, self.typed(value, type_.dtype))
            case loops.Store(target, value, axes):
                self.writer.origin(value.span)
                places = {axis: self.index(axis) for axis in self.array_axes[target]}
                text = spell(value, self)
                self.writer.line(f"store({self.element(target, places)}, {text})")
            case Begin(fold):
                reductions.begin(fold, self)
            case loops.Fold():
                reductions.fold(step, self)
            case loops.Combine():
                reductions.combine(step, self)

    def typed(self, expr: Expr, dtype: DType) -> str:
        """Return the text of an expression in a compute type."""
        return converted(spell(expr, self), expr.type.dtype, dtype)

    # Matrix products -------------------------------------------------------------------------

    def multiply(self, contract: loops.Contract) -> None:
        """Write a matrix product, with loops over all axes but one of rows, columns and depth."""
        self.multiplies = True
        self.writer.origin(contract.left.span)
        groups = product_axes(contract)
        free = {axis: self._is_free(axis) for axis in (*contract.type.axes, *contract.over)}
        rows = [a for a in groups.rows if free[a]]
        columns = [a for a in groups.columns if free[a]]
        depth = [a for a in contract.over if free[a]]
        looped = [a for a in groups.batch if free[a]] + rows[:-1] + columns[:-1] + depth[:-1]
        started = ["True"] if contract.accumulate else []
        self._product_loops(contract, looped, (rows[-1:], columns[-1:], depth[-1:]), started)

    def _is_free(self, axis: str) -> bool:
        return axis not in self.indices

    def _product_loops(
        self,
        contract: loops.Contract,
        looped: list[str],
        matrix: tuple[list[str], list[str], list[str]],
        started: list[str],
    ) -> None:
        if looped:
            axis, *rest = looped
            current = self.range_of(axis)
            index = self.names.fresh(axis)
            if axis in contract.over:
                started = [*started, f"({index} > {current.first})"]
            with self.inside(axis, index, current.first, current.stop):
                self._product_loops(contract, rest, matrix, started)
            return
        lengths = [self.range_of(axes[0]).length if axes else "1" for axes in matrix]
        rows, columns, depth = (axes[0] if axes else None for axes in matrix)
        left = self._operand(contract.left, (rows, depth))
        right = self._operand(contract.right, (depth, columns))
        target = self._operand(Ref(contract.name, contract.type), (rows, columns))
        add = "True" if "True" in started else " or ".join(started) or "False"
        parts = [*lengths, *left, *right, *target[:2], add, "to_u64(space)"]
        self.writer.line(f"gemm({', '.join(parts)})")

    def _operand(self, operand: Expr, axes: tuple[str | None, str | None]) -> list[str]:
        """Return a pointer to an operand's first element and its strides along two axes."""
        matrix = {axis for axis in axes if axis is not None}
        if isinstance(operand, Load):
            places = {
                axis: self.range_of(part.axis).first  # type: ignore[union-attr]  # plain loads
                if part.axis in matrix  # type: ignore[union-attr]
                else self.index(part.axis)  # type: ignore[union-attr]
                for axis, part in zip(
                    self.array_axes[operand.array], operand.subscripts, strict=True
                )
            }
            by_index = {
                part.axis: axis  # type: ignore[union-attr]
                for axis, part in zip(
                    self.array_axes[operand.array], operand.subscripts, strict=True
                )
            }
            terms = self.terms(operand.array, places)
            base = f"offset({self.array(operand.array)}, {' + '.join(terms.values()) or '0'})"
            strides = [
                self.stride(operand.array, by_index[axis]) if axis in by_index else "0"
                for axis in axes
            ]
            return [base, *strides]
        assert isinstance(operand, Ref)
        pointer = self.buffer(operand.name)
        dims = self.dims(operand.name)
        terms = []
        strides = ["0", "0"]
        for number_, axis in enumerate(dims):
            lengths = [self.range_in(operand.name, a).length for a in dims[number_ + 1 :]]
            inner = " * ".join(length for length in lengths if length != "1") or "1"
            if axis in matrix:
                strides[axes.index(axis)] = inner
            else:
                first = self.range_in(operand.name, axis).first
                terms.append(f"({self.index(axis)} - {first}) * {inner}")
        base = f"offset({pointer}, {' + '.join(terms)})" if terms else pointer
        return [base, *strides]


def _is_free_of(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is None


def _adds_floats(fold: loops.Fold) -> bool:
    return fold.op == "sum" and fold.types[0].dtype.kind == "float"
