"""Loads and stores: which accesses a thread makes for a tile, and where they are.

A tile of an array whose subscripts are axes is moved in pieces of up to 16 bytes along the axis of
adjacent elements, at constant offsets from one address; other axes step by their strides. An array
read at computed places is gathered: whole pieces of its rows, single elements along them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.frame import CODES, Frame, Memory, Value
from redlang.codegen.cuda.gathers import inside, near, neighbours, plus
from redlang.codegen.cuda.kernel_text import Address
from redlang.codegen.cuda.values import Operands, Values
from redlang.ir.program import Expr, Index, Literal, Load, Ref
from redlang.ir.shifts import shift
from redlang.ir.types import I64, DType, Type, compute_type
from redlang.schedule.device import WARP

WIDEST = 16
SHORT_PLACES = 1 << 31
"""Extent up to which the places of an axis have 31 bits."""


@dataclass(slots=True)
class _Plan:
    """An access while it is put together: texts for `t.Access`, and run-time arguments."""

    width: int = 1
    place: int = 1
    axis: str = ""
    along: list[str] | None = None
    steps: list[str] | None = None


@dataclass(frozen=True, slots=True)
class _Fused:
    """A run of adjacent elements.

    Attributes:
        axes: Inner axes that a thread holds whole.
        vector: The axis outside of them that goes on, or empty.
        factor: Elements of the inner axes together.
    """

    axes: tuple[str, ...]
    vector: str
    factor: int


class Accesses:
    """Emits the loads and stores of one kernel."""

    def __init__(self, frame: Frame, values: Values) -> None:
        self.frame = frame
        self.values = values
        # While copies are started: the axis along which they run ahead, and by how much.
        self._lead: tuple[str, str] | None = None

    # Loads ------------------------------------------------------------------------------------

    def load(self, expr: Load | Ref, depth: int) -> Value:
        """Load an element of an array parameter or workspace for every element of a tile."""
        frame = self.frame
        if isinstance(expr, Ref):
            memory = frame.memories[expr.name]
            axes: list[str] | None = list(memory.axes)
        else:
            memory = frame.memories[expr.array]
            axes = _plain(expr)
        if axes is None:
            assert isinstance(expr, Load)
            return self._gather(expr, memory, depth)
        access, arguments, _ = self._access(memory, axes, frame.tile_axes(axes))
        hint = self.hint(memory, axes)
        options = f', hint="{hint}"{self._f8(memory.dtype)}'
        make = frame.module.declare(f"load_{memory.name}", f"t.load({access}{options})")
        text = f"{make}({', '.join(arguments)})"
        code = CODES[compute_type(memory.dtype).name]
        return self.values.assign(memory.name, text, frame.tile_axes(axes), code, depth)

    # Loads that run ahead ---------------------------------------------------------------------

    @staticmethod
    def is_plain(load: Load) -> bool:
        """Tell whether a load's subscripts are axes, each of them once."""
        return _plain(load) is not None

    def pieces(self, load: Load) -> tuple[int, int]:
        """Return how many pieces a thread's tile has, and the bytes of a piece."""
        frame = self.frame
        memory = frame.memories[load.array]
        tile = frame.tile_axes(load.type.axes)
        with frame.scope(load.type.axes):
            # What the address is made of does not matter, and is not kept.
            _, _, width = self._access(memory, _plain(load) or [], tile)
        return frame.size(tile) // width, width * memory.dtype.bytes

    def fetch(self, load: Load, lead: tuple[str, str] | None) -> tuple[str, list[str]]:
        """Return the text of an access and its arguments.

        Args:
            load: What is read.
            lead: The axis along which the tile lies further on, and by how many elements.
        """
        memory = self.frame.memories[load.array]
        self._lead = lead
        access, arguments, _ = self._access(memory, _plain(load) or [], self.tile(load)[0])
        self._lead = None
        return access, arguments

    def tile(self, load: Load) -> tuple[tuple[str, ...], str]:
        """Return the axes of a load's tile, and its type code."""
        code = CODES[compute_type(self.frame.memories[load.array].dtype).name]
        return self.frame.tile_axes(load.type.axes), code

    def f8(self, load: Load) -> str:
        """Return the option that says how f8 is converted, if it matters."""
        return self._f8(self.frame.memories[load.array].dtype)

    def hint(self, memory: Memory, axes: Sequence[str]) -> str:
        """Return how an array is loaded."""
        if memory.kind == "stored":
            return "plain"
        if memory.kind == "workspace":
            # States of segments come from blocks of the same launch, perhaps; the rest does not.
            program = {axis.name for axis in self.frame.loops.program.axes}
            return "plain" if set(memory.axes) <= program else "coherent"
        # What every unit reads again is worth its space in L1.
        if not self.is_read_once(memory, axes):
            return "keep"
        return "last" if self.frame.classes.results == "leave" else "stream"

    def is_read_once(self, memory: Memory, axes: Sequence[str]) -> bool:
        """Tell whether only one unit reads what it reads of a parameter, and whole sectors."""
        grid = {grid.axis for grid in self.frame.kernel.grid}
        own = memory.kind in {"parameter", "result"} and grid <= set(axes)
        return own and not self._in_points(memory, axes)

    def _in_points(self, memory: Memory, axes: Sequence[str]) -> bool:
        """Say whether pieces of neighbouring lanes lie apart, so that sectors are read in turns."""
        strides = self._strides(memory)
        for own, axis in zip(memory.axes, axes, strict=True):
            spread = self.frame.spread(axis)
            if strides.get(own) == 1 and spread.threads == 1 and spread.count > 1:
                return True
        return False

    def lies_together(self, load: Load) -> bool:
        """Say whether neighbouring lanes read neighbouring pieces of what only this unit reads."""
        memory, axes = self.frame.memories[load.array], load.type.axes
        strides = self._strides(memory)
        runs = [axis for own, axis in zip(memory.axes, axes, strict=True) if strides.get(own) == 1]
        lanes = max((self.frame.spread(axis).threads for axis in runs), default=1)
        return lanes >= WARP and self.is_read_once(memory, axes)

    def _f8(self, dtype: DType) -> str:
        portable = dtype.name.startswith("f8") and not self.frame.classes.native_f8
        return ", native_f8=False" if portable else ""

    def _gather(self, expr: Load, memory: Memory, depth: int) -> Value:
        """Load at computed places; a place outside its axis reads another element, if any."""
        frame = self.frame
        tile = frame.tile_axes(expr.type.axes)
        widest = min(WIDEST, self._alignment(memory)) // memory.dtype.bytes
        width, apart = neighbours(frame, expr, memory, self._strides(memory), widest, tile)
        operands = Operands()
        offset: Expr = Literal(0, Type(I64))
        # Where places are shifted indices, those of the thread's first element make the address.
        origin: list[str] = []
        for subscript, axis in zip(expr.subscripts, memory.axes, strict=True):
            step = self._stride(memory, axis)
            distance = shift(subscript, axis)
            origin.append("" if distance is None else axis)
            if distance is None:
                extent = operands.name(Value(frame.parameter(Extent(axis)), (), "i64"))
                short = frame.classes.limits.get(axis, SHORT_PLACES + 1) <= SHORT_PLACES
                form = functools.partial(self.values.operand_form, tile=tile, operands=operands)
                place = inside(subscript, axis, Ref(extent, Type(I64)), short, form)
            elif distance or not (frame.is_whole(axis) and frame.spread(axis).count == 1):
                own = width if self._strides(memory).get(axis) == 1 else 1
                place = near(frame, axis, distance, own, operands)
            else:
                continue
            if not step.isdigit():
                step = operands.name(Value(step, (), "i64"))
            offset = plus(offset, place, step)
        text, setting = self.values.spelled([offset], operands)
        (place_value,) = self.values.mapped(
            "offset", ["i64"], setting.lines, text, operands, tile, depth
        )
        count = frame.size(tile)
        # Threads without elements run along, and an empty array may have no memory at all.
        maybe_none = [a for a in memory.axes if frame.classes.multiple(a) == 1]
        guarded = ", guarded=True" if maybe_none else ""
        run = f", width={width}, place={apart}" if width > 1 else ""
        options = f'"{memory.dtype.name}", {count}{run}{guarded}{self._f8(memory.dtype)}'
        make = frame.module.declare(f"gather_{memory.name}", f"t.gather({options})")
        given = [self._address(memory, origin), place_value.text]
        if maybe_none:
            given.append(self._existing(maybe_none))
        text_ = f"{make}({', '.join(given)})"
        code = CODES[compute_type(memory.dtype).name]
        return self.values.assign(memory.name, text_, tile, code, depth)

    def _existing(self, axes: Sequence[str]) -> str:
        """Return a number that is 0 if one of the axes is empty (i32)."""
        first, *others = (self.frame.parameter(Extent(axis)) for axis in axes)
        for other in others:
            first = f"t.smaller({first}, {other})"
        return f"t.clamped({first})"

    # Stores -----------------------------------------------------------------------------------

    def store(self, memory: Memory, axes: Sequence[str], value: Value, lead: str) -> None:
        """Store a tile over `axes`; only threads for which `lead` holds do."""
        frame = self.frame
        tile = frame.tile_axes(axes)
        access, arguments, _ = self._access(memory, list(memory.axes), tile)
        stays = self.frame.classes.results == "stay"
        hint = "stream" if memory.kind == "result" and stays else "plain"
        options = f', hint="{hint}"{self._f8(memory.dtype)}'
        make = frame.module.declare(f"store_{memory.name}", f"t.store({access}{options})")
        frame.line(f"{make}({', '.join([*arguments, lead, value.text])})")

    # Shapes -----------------------------------------------------------------------------------

    def _access(
        self, memory: Memory, axes: list[str], tile: Sequence[str]
    ) -> tuple[str, list[str], int]:
        """Return the text of a `t.Access`, its run-time arguments, and the elements of a piece.

        Args:
            memory: The array.
            axes: The axis at each of its dimensions.
            tile: The axes of the tile, in its order.
        """
        frame = self.frame
        places: dict[str, int] = {}
        place = 1
        for axis in reversed(tile):
            places[axis] = place
            place *= frame.spread(axis).count
        size = memory.dtype.bytes
        fused = self._fused(memory, axes, tile, places)
        plan = _Plan(along=[], steps=[])
        self._vector(memory, axes, places, fused, plan)
        for dim, axis in enumerate(axes):
            if axis not in places or axis in fused.axes:
                continue
            step = self._stride(memory, memory.axes[dim])
            factor = fused.factor if axis == fused.vector else 1
            self._strided(axis, places[axis], step, size, factor, plan)
        ahead = "" if self._lead is None else self._lead[0]
        guards = [a for a in dict.fromkeys(axes) if a == ahead or not frame.is_whole(a)]
        guards = [axis for axis in guards if axis not in fused.axes]
        return *self._text(memory, axes, guards, fused, plan), plan.width

    def _text(
        self,
        memory: Memory,
        axes: list[str],
        guards: list[str],
        fused: _Fused,
        plan: _Plan,
    ) -> tuple[str, list[str]]:
        frame = self.frame
        parts = [f'"{memory.dtype.name}"', str(plan.width)]
        if plan.along:
            parts.append(f"({', '.join(plan.along)},)")
        if plan.place != 1:
            parts.append(f"place={plan.place}")
        if plan.axis and plan.axis in guards:
            parts.append(f'axis="{plan.axis}"')
        if guards:
            texts = []
            for axis in guards:
                unit = plan.width if axis == plan.axis else 1
                span = fused.factor if axis == fused.vector else 1
                ragged = frame.classes.multiple(axis) * span % unit != 0
                texts.append(f'"{axis}"{", ragged=True" if ragged else ""}')
            parts.append(f"guards=({', '.join(f't.Guard({text})' for text in texts)},)")
        left = [
            f"{self._left(axis)} * {fused.factor}"
            if axis == fused.vector and fused.factor > 1
            else self._left(axis)
            for axis in guards
        ]
        assert plan.steps is not None
        arguments = [self._address(memory, axes), *plan.steps, *left]
        return f"t.Access({', '.join(parts)})", arguments

    def _fused(
        self, memory: Memory, axes: list[str], tile: Sequence[str], places: dict[str, int]
    ) -> _Fused:
        """Find the run of adjacent elements: inner axes held whole by a thread, then one more."""
        frame = self.frame
        strides = self._strides(memory)
        factor = 1
        inner: list[str] = []
        for dim in reversed(range(len(axes))):
            axis = axes[dim]
            if strides.get(memory.axes[dim]) != factor:
                return _Fused(tuple(inner), "", factor)
            spread = frame.spread(axis)
            if axis in places and places[axis] != factor:
                # Neighbours in memory may lie apart in the tile: those of one axis do so evenly.
                return _Fused(tuple(inner), "" if inner else axis, factor)
            extent = frame.classes.limits.get(axis)
            exact = frame.classes.multiple(axis) == extent == spread.count
            if not (spread.threads == 1 and exact and axes.count(axis) == 1):
                return _Fused(tuple(inner), axis if axis in places else "", factor)
            inner.append(axis)
            factor *= spread.count
        return _Fused(tuple(inner), "", factor)

    def _vector(
        self,
        memory: Memory,
        axes: list[str],
        places: dict[str, int],
        fused: _Fused,
        plan: _Plan,
    ) -> None:
        """Choose the width of a piece and lay pieces along the run of adjacent elements."""
        frame = self.frame
        run = fused.factor
        if fused.vector:
            run *= frame.spread(fused.vector).width
        size = memory.dtype.bytes
        width = gcd(run, WIDEST // size, self._alignment(memory) // size)
        # The alignment does not count the step from one short run to the next.
        strides = self._strides(memory)
        for own, other in zip(memory.axes, axes, strict=True):
            if own in strides and other not in (*fused.axes, fused.vector):
                width = gcd(width, strides[own])
        axis = fused.vector
        if axis and not frame.is_whole(axis):
            multiple = frame.classes.multiple(axis) * fused.factor
            if width * size < 4 and multiple % width:
                width = 1
        plan.width = width
        if axis and not fused.axes:
            plan.place = places[axis]
        assert plan.along is not None
        plan.axis = axis
        if run > width:
            reach = f', "{axis}", {width}' if axis else ""
            between = width * plan.place
            plan.along.append(f"t.Along({run // width}, {between}, {width * size}{reach})")

    def _strided(
        self, axis: str, place: int, step: str, size: int, factor: int, plan: _Plan
    ) -> None:
        """Lay pieces along an axis that the vector does not cover, or its further groups."""
        spread = self.frame.spread(axis)
        assert plan.along is not None
        assert plan.steps is not None
        groups = [(spread.registers, spread.threads * spread.width, spread.width, spread.start)]
        if axis != plan.axis:
            groups.append((spread.width, 1, 1, 0))
        for count, reach, own, start in groups:
            if count == 1 and not start:
                continue
            if step.isdigit():
                distance = str(int(step) * reach * size)
            else:
                distance = "None"
                plan.steps.append(f"{step} * {reach * size}")
            first = f", {start}" if start else ""
            plan.along.append(
                f't.Along({count}, {place * own}, {distance}, "{axis}", {reach * factor}{first})'
            )

    def _strides(self, memory: Memory) -> dict[str, int]:
        """Return the strides that are known."""
        if memory.kind != "workspace":
            known = self.frame.classes.arrays.get(memory.name)
            return dict(known.strides) if known else {}
        return {memory.axes[-1]: 1} if memory.axes else {}

    def _alignment(self, memory: Memory) -> int:
        if memory.kind == "workspace" and memory.axes:
            # It begins at a multiple of 16 bytes, and every step is a multiple of the last axis.
            return gcd(WIDEST, self.frame.classes.multiple(memory.axes[-1]) * memory.dtype.bytes)
        known = self.frame.classes.arrays.get(memory.name)
        return known.alignment if known else memory.dtype.bytes

    def _stride(self, memory: Memory, axis: str) -> str:
        """Return the text of a stride in elements."""
        known = self._strides(memory)
        if axis in known:
            return str(known[axis])
        if memory.kind != "workspace":
            return self.frame.parameter(Stride(memory.name, axis))
        inner = memory.axes[memory.axes.index(axis) + 1 :]
        return " * ".join(self.frame.parameter(Extent(a)) for a in inner)

    def _address(self, memory: Memory, axes: Sequence[str]) -> str:
        """Return the address of the thread's first element, outer scopes' terms first.

        Along a dimension whose axis is empty, that is the first element of all.
        """
        frame = self.frame
        size = memory.dtype.bytes
        terms = sorted(
            (
                (frame.axis_depth(axis), f"{frame.place(axis)} * {self._scaled(step, size)}")
                for axis, step in zip(
                    axes, (self._stride(memory, axis) for axis in memory.axes), strict=True
                )
                if axis and axis not in frame.slots
            ),
            key=lambda term: term[0],
        )
        text = frame.parameter(Address(memory.name))
        for _, term in terms:
            text = f"{text} + {term}"
        if self._lead is not None:
            axis, lead = self._lead
            step = self._stride(memory, memory.axes[axes.index(axis)])
            text = f"{text} + {lead} * {self._scaled(step, size)}"
        return text

    def _left(self, axis: str) -> str:
        """Return the number of elements of an axis from the thread's first one on."""
        frame = self.frame
        if self._lead is None or axis != self._lead[0]:
            return frame.left(axis)
        return f"t.clamped({frame.parameter(Extent(axis))} - {frame.place(axis)} - {self._lead[1]})"

    @staticmethod
    def _scaled(step: str, size: int) -> str:
        if step.isdigit():
            return str(int(step) * size)
        return step if size == 1 else f"({step} * {size})"


def _plain(expr: Load) -> list[str] | None:
    """Return the axes of subscripts that are all different axes, or None."""
    axes = [part.axis for part in expr.subscripts if isinstance(part, Index)]
    if len(axes) == len(expr.subscripts) == len(set(axes)) and not any(expr.guarded):
        return axes
    return None
