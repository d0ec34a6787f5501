"""Expressions over tiles: where each part is computed, and the text that computes it.

A part of an expression that a thread holds fewer registers of than of the whole is computed on its
own, once for each of its registers, in the outermost scope that knows its operands. What is left is
one scalar function, applied to every element of the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.frame import CODES, Frame, Value
from redlang.codegen.cuda.kernel_text import Number
from redlang.codegen.scalars import number, spell
from redlang.errors import InternalError
from redlang.ir import walk
from redlang.ir.build import literal
from redlang.ir.program import (
    Apply,
    Cast,
    Expr,
    Fill,
    Index,
    Literal,
    Load,
    Mask,
    Ref,
    Scalar,
    Size,
)
from redlang.ir.shifts import end_test
from redlang.ir.types import DTYPES, F32, I64, DType, Type

Loader = Callable[[Load | Ref, int], Value]
"""Emits the load of an array or workspace element in the scope of a depth."""

# A shared divisor costs a division and two products; below this many elements divide.
SHARED_DIVISOR = 3


@dataclass(slots=True)
class Operands:
    """The arguments of a scalar function while its expression is taken apart.

    Attributes:
        values: What each argument is, by its name.
    """

    values: dict[str, Value] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def name(self, value: Value) -> str:
        """Return the argument that stands for a value."""
        if value.text not in self.names:
            name = f"x{len(self.names)}"
            self.names[value.text] = name
            self.values[name] = value
        return self.names[value.text]


@dataclass(slots=True)
class Setting:
    """How `codegen.scalars` spells an expression whose operands are all `Ref`s."""

    text: Callable[[str], str]
    fresh: Callable[[], str]
    lines: list[str] = field(default_factory=list)

    def ref(self, ref: Ref) -> str:
        """Return an operand."""
        return self.text(ref.name)

    def keep(self, text: str) -> str:
        """Name a value that is used more than once."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def index(self, axis: str) -> str:
        """Indices are operands."""
        raise InternalError(f"the index of {axis} is no operand")

    def size(self, axis: str) -> str:
        """Sizes are operands."""
        raise InternalError(f"the size of {axis} is no operand")

    def scalar(self, name: str, dtype: DType) -> str:
        """Scalars are operands."""
        raise InternalError(f"the scalar {name} is no operand")

    def load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        """Loads are operands."""
        raise InternalError(f"the load of {load.array} is no operand")


class Values:
    """Computes expressions in a frame.

    Attributes:
        shared_divisor: How many elements share a divisor that is inverted once.
    """

    shared_divisor: int = SHARED_DIVISOR

    def __init__(self, frame: Frame, loader: Loader) -> None:
        self.frame = frame
        self.loader = loader

    def value(self, expr: Expr, base: str = "value") -> Value:
        """Return the value of `expr`, computed where it belongs and only once.

        Args:
            expr: What is computed.
            base: What its variable is called after, if it is computed now.
        """
        leaf = self._leaf(expr)
        if leaf is not None:
            return leaf
        depth = self.frame.depth_of(expr)
        known = self.frame.scopes[depth].known
        if expr not in known:
            if isinstance(expr, Load | Ref):
                value = self.loader(expr, depth)
            elif isinstance(expr, Index):
                value = self._indices(expr.axis, depth)
            elif (test := self.end_test(expr)) is not None:
                value = self._inside(*test, depth)
            else:
                value = self._computed(expr, depth, base)
            known[expr] = value
        return known[expr]

    def _leaf(self, expr: Expr) -> Value | None:
        """Return the value of what has a variable already."""
        frame = self.frame
        match expr:
            case Ref(name):
                found = frame.lookup(name)
                if found is not None or name in frame.memories:
                    return found
                axis, _, end = name.rpartition(".")
                return Value(frame.first(axis) if end == "first" else frame.last(axis), (), "i64")
            case Scalar(name, type_):
                code = CODES[type_.dtype.name]
                return Value(frame.parameter(Number(name, code)), (), code)
            case Size(axis):
                return Value(frame.parameter(Extent(axis)), (), "i64")
            case Index(axis) if frame.spread(axis).count == 1:
                return Value(frame.place(axis), (), "i64")
            case _:
                return None

    def _indices(self, axis: str, depth: int) -> Value:
        frame = self.frame
        reaches = frame.spread(axis).reaches
        make = frame.module.declare(f"{axis}_indices", f't.indices("i64", {reaches})')
        return self.assign(f"{axis}_index", f"{make}({frame.place(axis)})", (axis,), "i64", depth)

    @staticmethod
    def end_test(expr: Expr) -> tuple[str, int, bool] | None:
        """Return what is asked of a place near an index, as `ir.shifts` does."""
        return end_test(expr)

    def _inside(self, axis: str, distance: int, ends: bool, depth: int) -> Value:
        """Tell of which elements places further on lie before the end, or behind the beginning."""
        frame = self.frame
        reaches = [reach + distance for reach in frame.spread(axis).reaches]
        if ends:
            test, room = f"t.inside({(*reaches,)})", frame.left(axis)
        else:
            test = f"t.inside({(*(-1 - reach for reach in reaches),)})"
            room = f"t.clamped({frame.place(axis)})"
        make = frame.module.declare(f"{axis}_test", test)
        return self.assign(
            f"{axis}_there", f"{make}({room})", frame.tile_axes([axis]), "bool", depth
        )

    def assign(self, base: str, text: str, axes: tuple[str, ...], code: str, depth: int) -> Value:
        """Write `fresh variable = text` in the scope of a depth and return the variable."""
        name = self.frame.module.names.fresh(base)
        self.frame.at(depth).append(f"{name} = {text}")
        return Value(name, axes, code)

    def _computed(self, expr: Expr, depth: int, base: str) -> Value:
        (value,) = self.apply(base, [expr], expr.type.axes, depth)
        return value

    def apply(
        self, base: str, exprs: Sequence[Expr], axes: Sequence[str], depth: int
    ) -> list[Value]:
        """Return several expressions as tiles over `axes`, by one scalar function."""
        tile = self.frame.tile_axes(axes)
        operands = Operands()
        bare = [self.operand_form(expr, tile, operands) for expr in exprs]
        codes = [CODES[expr.type.dtype.name] for expr in exprs]
        if not tile:
            return [
                self.assign(base, self.inline(expr, operands, depth), (), code, depth)
                for expr, code in zip(bare, codes, strict=True)
            ]
        text, setting = self.spelled(bare, operands)
        return self.mapped(base, codes, setting.lines, text, operands, tile, depth)

    def spelled(self, bare: Sequence[Expr], operands: Operands) -> tuple[list[str], Setting]:
        """Return the text of expressions over operands inside a scalar function."""
        counter = iter(range(1000))
        setting = Setting(lambda name: name, lambda: f"k{next(counter)}")
        return [spell(expr, setting) for expr in bare], setting

    def inline(self, bare: Expr, operands: Operands, depth: int) -> str:
        """Return the text of an expression over scalars inside the kernel."""

        def fresh() -> str:
            return self.frame.module.names.fresh("part")

        setting = Setting(lambda name: operands.values[name].text, fresh)
        text = spell(bare, setting)
        self.frame.at(depth).extend(setting.lines)
        return text

    def mapped(
        self,
        base: str,
        codes: Sequence[str],
        lines: Sequence[str],
        returned: Sequence[str],
        operands: Operands,
        tile: tuple[str, ...],
        depth: int,
    ) -> list[Value]:
        """Apply a scalar function to tiles; return its results over `tile`."""
        frame = self.frame
        whole = [operands.values.get(text) for text in returned]
        if not lines and all(value is not None and value.axes == tile for value in whole):
            return [value for value in whole if value is not None]
        arguments = [(name, value.code) for name, value in operands.values.items()]
        scalar = frame.module.function(base, codes, arguments, lines, returned)
        given = ", ".join(value.text for value in operands.values.values())
        if not tile:
            call = f"{scalar}({given})"
        else:
            held = "".join(f', "{" ".join(v.axes)}"' for v in operands.values.values())
            each = frame.module.declare(
                f"each_{scalar}", f"t.elementwise({scalar}, {frame.counts(tile)}{held})"
            )
            call = f"{each}({given})"
        names = [frame.module.names.fresh(base) for _ in codes]
        frame.at(depth).append(f"{', '.join(names)} = {call}")
        return [Value(name, tile, code) for name, code in zip(names, codes, strict=True)]

    def flat_index(self, over: Sequence[str], operands: Operands) -> str:
        """Return text of an element's row-major index over the whole extents of `over`."""
        text = ""
        for axis in over:
            index = operands.name(self.value(Index(axis, Type(I64, (axis,)))))
            if not text:
                text = index
                continue
            extent = Value(self.frame.parameter(Extent(axis)), (), "i64")
            text = f"({text} * {operands.name(extent)} + {index})"
        return text

    # Taking expressions apart -------------------------------------------------------------------

    def operand_form(self, expr: Expr, tile: tuple[str, ...], operands: Operands) -> Expr:
        """Return `expr` over `Ref`s to operands: leaves, and parts with fewer registers."""
        done: dict[int, Expr] = {}
        # Children come first, but a part that becomes an operand needs none of its own.
        return self._form(expr, expr, tile, operands, done)

    def _form(
        self,
        expr: Expr,
        root: Expr,
        tile: tuple[str, ...],
        operands: Operands,
        done: dict[int, Expr],
    ) -> Expr:
        key = id(expr)
        if key not in done:
            done[key] = self._formed(expr, root, tile, operands, done)
        return done[key]

    def _formed(
        self,
        expr: Expr,
        root: Expr,
        tile: tuple[str, ...],
        operands: Operands,
        done: dict[int, Expr],
    ) -> Expr:
        match expr:
            case Literal():
                return expr
            case Load() | Ref() | Index() | Size() | Scalar():
                return self.as_operand(expr, operands)
            case Mask() | Fill():
                raise InternalError("a mask in a normalised program")
            case Apply() | Cast():
                alone = expr is not root and self._stands_alone(expr, tile)
                if alone or self.end_test(expr) is not None:
                    return self.as_operand(expr, operands)
                shared = self._shared_divisor(expr, root, tile, operands, done)
                if shared is not None:
                    return shared
                parts = [
                    self._form(part, root, tile, operands, done) for part in walk.children(expr)
                ]
                return walk.rebuild(expr, parts)
            case _:
                assert_never(expr)

    def as_operand(self, expr: Expr, operands: Operands) -> Ref:
        """Return a reference to the value of `expr` as an operand."""
        value = self.value(expr)
        return Ref(operands.name(value), Type(_dtype(value.code, expr.type.dtype)))

    def _stands_alone(self, expr: Expr, tile: tuple[str, ...]) -> bool:
        """Say whether a part has fewer registers than the whole, and reads anything at all."""
        own = self.frame.tile_axes(expr.type.axes)
        if self.frame.size(own) >= self.frame.size(tile):
            # Even then it may be known in an outer scope.
            return bool(tile) and self.frame.depth_of(expr) < self.frame.depth and bool(own)
        return any(isinstance(n, Load | Ref | Index | Size | Scalar) for n in walk.nodes(expr))

    def _shared_divisor(
        self,
        expr: Expr,
        root: Expr,
        tile: tuple[str, ...],
        operands: Operands,
        done: dict[int, Expr],
    ) -> Expr | None:
        """Divide by what many elements share: multiply by its reciprocal, scaled to be safe."""
        if not isinstance(expr, Apply) or expr.op != "div" or expr.type.dtype is not F32:
            return None
        dividend, divisor = expr.arguments
        if isinstance(divisor, Literal):
            if self.frame.size(tile) < SHARED_DIVISOR or not _is_invertible(divisor.value):
                return None
            product = self._form(dividend, root, tile, operands, done)
            return Apply("mul", (product, literal(1 / divisor.value, F32)), expr.type)
        own = self.frame.tile_axes(divisor.type.axes)
        if self.frame.size(tile) < self.shared_divisor * self.frame.size(own):
            return None
        value = self.value(divisor)
        depth = self.frame.depth_of(divisor)
        product = self._form(dividend, root, tile, operands, done)
        for word in ("reciprocal", "scale_of"):
            argument = Operands()
            factor = f"{word}({argument.name(value)})"
            (part,) = self.mapped(word, ["f32"], [], [factor], argument, value.axes, depth)
            ref = Ref(operands.name(part), Type(F32))
            product = Apply("mul", (product, ref), expr.type)
        return product


def _dtype(code: str, dtype: DType) -> DType:
    """Return the compute type of an operand; it must be what the expression has.

    Integers of 32 bits are computed with as 64, wherever they meet anything.
    """
    if CODES[dtype.name] != code and (code, dtype) != ("i32", I64):
        raise InternalError(f"an operand of type {code} where {dtype} is read")
    return dtype


def _is_invertible(number: float) -> bool:
    """Say whether the reciprocal is a normal f32: then a product divides within an ulp."""
    return 2.0**-126 <= abs(number) <= 2.0**126


def constant(value: bool | int | float, code: str) -> str:
    """Return a constant of a type code, `i32` included."""
    return f"i32({int(value)})" if code == "i32" else number(value, DTYPES[code])
