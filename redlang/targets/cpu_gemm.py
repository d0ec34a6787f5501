"""A matrix product on one core: c (+)= a b for any strides of a and b, in f32 or f64.

Blocked as usual (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008),
for blocks that already lie in a core's caches: a panel of b, `depth` rows of a few vectors, stays
in the first level while all rows of a pass by it, a few rows at a time, with every element of the
result tile in a register. Elements of a are broadcast from where they are, whatever their strides;
a panel of b is copied to scratch first, transposed on the way where b's rows are not contiguous.

Rows and columns beyond the edge are computed on copies of the last row and on zeros, and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from redlang.targets.cpu_memory import Pointer
from redlang.targets.cpu_registers import RegisterTile, register_tile
from redlang.targets.llvm import (
    F32,
    F64,
    I1,
    I32,
    I64,
    Context,
    NumbaType,
    Raw,
    Signature,
    Typed,
    Value,
)

_VOID = ir.VoidType()


@intrinsic
def gemm(
    context: Context,
    m: NumbaType,
    n: NumbaType,
    k: NumbaType,
    a: NumbaType,
    a_row: NumbaType,
    a_column: NumbaType,
    b: NumbaType,
    b_row: NumbaType,
    b_column: NumbaType,
    c: NumbaType,
    c_row: NumbaType,
    accumulate: NumbaType,
    scratch: NumbaType,
) -> Typed:
    """Set or add to c the product of a (m by k) and b (k by n).

    a, b and c are pointers of one type, f32 or f64, followed by the distances, in elements, between
    their rows and columns; the columns of c are adjacent. `accumulate` is a truth value, `scratch`
    the address of `product_bytes()` bytes, 64-byte aligned.
    """
    pointers = (a, b, c)
    if not all(isinstance(p, Pointer) and p.dtype == a.dtype for p in pointers):
        return None
    if a.dtype not in ("f32", "f64"):
        return None
    size, flag = types.int64, types.boolean
    signature = types.void(
        *(size, size, size, a, size, size, b, size, size, c, size, flag, types.uint64)
    )

    def generate(
        context: Context, builder: ir.IRBuilder, signature: Signature, arguments: Raw
    ) -> Raw:
        builder.call(_function(builder.module, a.dtype), arguments)
        return context.get_dummy_value()

    return signature, generate


def _function(module: ir.Module, dtype: str) -> ir.Function:
    """Return the product as a function of `module`."""
    name = f"redlang.gemm.{dtype}"
    known = module.globals.get(name)
    if known is not None:
        return known
    function = ir.Function(module, ir.FunctionType(_VOID, [*[I64] * 11, I1, I64]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _Product(builder, register_tile(dtype), [Value(builder, a) for a in function.args]).emit()
    builder.ret_void()
    return function


class _Product:
    """Emits the body of the product; methods are named after what their code does."""

    def __init__(self, builder: ir.IRBuilder, form: RegisterTile, arguments: list[Value]) -> None:
        self.builder = builder
        self.form = form
        self.element = F32 if form.bytes == 4 else F64
        self.vector = ir.VectorType(self.element, form.lanes)
        self.m, self.n, self.k, *rest = arguments
        self.a, self.a_row, self.a_column, *rest = rest
        self.b, self.b_row, self.b_column, *rest = rest
        self.c, self.c_row, self.accumulate, self.scratch = rest
        self.sums = [
            [self._variable(self.vector) for _ in range(form.vectors)] for _ in range(form.rows)
        ]
        self.edge = self._variable(ir.ArrayType(self.element, form.rows * form.columns))

    # Small words -----------------------------------------------------------------------------

    def _variable(self, kind: ir.Type) -> ir.Value:
        variable = self.builder.alloca(kind)
        variable.align = 64
        return variable

    def _int(self, number: int) -> Value:
        return Value(self.builder, ir.Constant(I64, number))

    def _pointer(self, base: Value, index: Value, kind: ir.Type) -> ir.Value:
        """Return where element `index` from address `base` lies, as a pointer to `kind`."""
        element = self.builder.inttoptr(base.raw, self.element.as_pointer())
        moved = self.builder.gep(element, [index.raw], inbounds=True)
        return self.builder.bitcast(moved, kind.as_pointer())

    def _read(self, base: Value, index: Value, kind: ir.Type) -> ir.Value:
        return self.builder.load(self._pointer(base, index, kind), align=self.form.bytes)

    def _write(self, value: ir.Value, base: Value, index: Value) -> None:
        pointer = self._pointer(base, index, value.type)
        self.builder.store(value, pointer, align=self.form.bytes)

    def _splat(self, value: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        lanes = ir.Constant(ir.VectorType(I32, self.form.lanes), [0] * self.form.lanes)
        return self.builder.shuffle_vector(first, undefined, lanes)

    @contextmanager
    def _range(self, start: Value | int, stop: Value, step: int = 1) -> Iterator[Value]:
        begin = start if isinstance(start, Value) else self._int(start)
        with cgutils.for_range_slice(
            self.builder, begin.raw, stop.raw, ir.Constant(I64, step), I64
        ) as (index, _):
            yield Value(self.builder, index)

    def _smaller(self, left: Value, right: int) -> Value:
        return left.call("smin", right)

    # The product -----------------------------------------------------------------------------

    def emit(self) -> None:
        """Emit the loops over depth, panels and rows."""
        form = self.form
        # One round even for k = 0: the result is then zero.
        depth = self.k.call("smax", 1)
        with self._range(0, depth, form.depth) as p0:
            kc = self._smaller(self.k - p0, form.depth)
            add = (p0 > 0) | self.accumulate
            with self._range(0, self.n, form.columns) as j0:
                columns = self._smaller(self.n - j0, form.columns)
                self._pack(p0, j0, kc, columns)
                with self._range(0, self.m, form.rows) as i0:
                    rows = self._smaller(self.m - i0, form.rows)
                    self._multiply(i0, p0, kc, rows)
                    target = self.c_row * i0 + j0
                    whole = rows.equals(form.rows) & columns.equals(form.columns)
                    with self.builder.if_else(whole.raw) as (inside, at_edge):
                        with inside:
                            self._store_whole(target, add)
                        with at_edge:
                            self._store_part(target, rows, columns, add)

    def _multiply(self, i0: Value, p0: Value, kc: Value, rows: Value) -> None:
        """Leave the products of a few rows of a with the panel in `sums`."""
        form, build = self.form, self.builder
        starts = [
            (i0 + self._int(r).call("smin", rows - 1)) * self.a_row + p0 * self.a_column
            for r in range(form.rows)
        ]
        zero = ir.Constant(self.vector, None)
        for row in self.sums:
            for variable in row:
                build.store(zero, variable)
        with self._range(0, kc) as p:
            panel = [
                self._read(self.scratch, p * form.columns + v * form.lanes, self.vector)
                for v in range(form.vectors)
            ]
            across = p * self.a_column
            for start, row in zip(starts, self.sums, strict=True):
                factor = Value(build, self._splat(self._read(self.a, start + across, self.element)))
                for part, variable in zip(panel, row, strict=True):
                    total = factor.times_plus(
                        Value(build, part), Value(build, build.load(variable))
                    )
                    build.store(total.raw, variable)

    def _store_whole(self, target: Value, add: Value) -> None:
        """Write a whole tile of c, or add to it."""
        with self.builder.if_else(add.raw) as (adding, setting):
            with adding:
                self._store_rows(target, add=True)
            with setting:
                self._store_rows(target, add=False)

    def _store_rows(self, target: Value, *, add: bool) -> None:
        build = self.builder
        for r, row in enumerate(self.sums):
            for v, variable in enumerate(row):
                where = target + self.c_row * r + v * self.form.lanes
                total = build.load(variable)
                if add:
                    total = build.fadd(self._read(self.c, where, self.vector), total)
                self._write(total, self.c, where)

    def _store_part(self, target: Value, rows: Value, columns: Value, add: Value) -> None:
        """Write the part of a tile that lies within c, by way of memory."""
        form, build = self.form, self.builder
        buffer = Value(build, build.ptrtoint(self.edge, I64))
        for r, row in enumerate(self.sums):
            for v, variable in enumerate(row):
                self._write(
                    build.load(variable), buffer, self._int(r * form.columns + v * form.lanes)
                )
        with self._range(0, rows) as i, self._range(0, columns) as j:
            where = target + self.c_row * i + j
            total = Value(build, self._read(buffer, i * form.columns + j, self.element))
            # Not `add * old`: what lies in c may be NaN.
            with build.if_else(add.raw) as (adding, setting):
                with adding:
                    old = Value(build, self._read(self.c, where, self.element))
                    self._write((old + total).raw, self.c, where)
                with setting:
                    self._write(total.raw, self.c, where)

    # Packing ---------------------------------------------------------------------------------

    def _pack(self, p0: Value, j0: Value, kc: Value, columns: Value) -> None:
        """Copy rows [p0, p0 + kc) and `columns` columns from j0 on to scratch, then zeros."""
        build = self.builder
        source = p0 * self.b_row + j0 * self.b_column
        whole = columns.equals(self.form.columns)
        with build.if_else((whole & self.b_column.equals(1)).raw) as (by_rows, otherwise):
            with by_rows:
                self._pack_rows(source, kc)
            with otherwise, build.if_else((whole & self.b_row.equals(1)).raw) as (across, slow):
                with across:
                    done = kc & -self.form.lanes
                    self._pack_transposed(source, done)
                    self._pack_elements(source, done, kc, columns)
                with slow:
                    self._pack_elements(source, self._int(0), kc, columns)

    def _pack_rows(self, source: Value, kc: Value) -> None:
        form = self.form
        with self._range(0, kc) as p:
            for v in range(form.vectors):
                part = self._read(self.b, source + p * self.b_row + v * form.lanes, self.vector)
                self._write(part, self.scratch, p * form.columns + v * form.lanes)

    def _pack_transposed(self, source: Value, kc: Value) -> None:
        """Copy by square blocks that are transposed in registers; columns are contiguous."""
        form = self.form
        with self._range(0, kc, form.lanes) as p:
            for v in range(form.vectors):
                lanes = range(form.lanes)
                block = [
                    self._read(
                        self.b, source + self.b_column * (v * form.lanes + j) + p, self.vector
                    )
                    for j in lanes
                ]
                for r, row in enumerate(self._transpose(block)):
                    self._write(row, self.scratch, (p + r) * form.columns + v * form.lanes)

    def _transpose(self, block: list[ir.Value]) -> list[ir.Value]:
        """Transpose a square of vectors, swapping quadrants of doubling size."""
        size = len(block)
        half = 1
        while half < size:
            block = self._swap_quadrants(block, half)
            half *= 2
        return block

    def _swap_quadrants(self, block: list[ir.Value], half: int) -> list[ir.Value]:
        """Exchange the off-diagonal `half` by `half` squares of each square twice as large."""
        size = len(block)
        result = list(block)
        lanes = ir.VectorType(I32, size)
        upper = [c if not c & half else size + c - half for c in range(size)]
        lower = [c + half if not c & half else size + c for c in range(size)]
        for r in range(size):
            if not r & half:
                pair = block[r], block[r + half]
                result[r] = self.builder.shuffle_vector(*pair, ir.Constant(lanes, upper))
                result[r + half] = self.builder.shuffle_vector(*pair, ir.Constant(lanes, lower))
        return result

    def _pack_elements(self, source: Value, first: Value, kc: Value, columns: Value) -> None:
        form = self.form
        zero = ir.Constant(self.element, 0.0)
        with self._range(first, kc) as p:
            with self._range(0, columns) as j:
                element = self._read(
                    self.b, source + p * self.b_row + j * self.b_column, self.element
                )
                self._write(element, self.scratch, p * form.columns + j)
            with self._range(columns, self._int(form.columns)) as j:
                self._write(zero, self.scratch, p * form.columns + j)
