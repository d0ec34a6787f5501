"""From code and a call's extents and strides to its course: what a launch does, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from redlang.codegen.arguments import Extent, Stride
from redlang.codegen.cuda.kernel_text import Address, Counters, KernelText, Number, Pointer
from redlang.codegen.cuda.matrix_text import MatrixParameter, MatrixText, TensorMap
from redlang.runtime.cuda_code import CudaCode
from redlang.runtime.cuda_course import Arrays, Course
from redlang.runtime.launcher import Stored
from redlang.runtime.matrix_calls import map_shape
from redlang.runtime.tensor_maps import MapShape
from redlang.schedule.plan import segment_axis
from redlang.schedule.views import (
    all_extents,
    all_strides,
    base_of,
    element_type,
    stored_operands,
)

_SPACE_ALIGNMENT = 256


def plot(
    code: CudaCode,
    stored: Sequence[Stored],
    scalars: Sequence[str],
    extents: Mapping[str, int],
    arrays: Arrays,
    cuts: Mapping[str, int],
    sms: int,
) -> Course:
    """Return what a call launches.

    Args:
        code: What was compiled for it.
        stored: Its arrays, inputs first.
        scalars: The names of its numbers.
        extents: Extents of all axes.
        arrays: Strides of all arrays.
        cuts: Segments of each cut sweep, by the number of its part.
        sms: SMs of the device.
    """
    program = code.loops.program
    extents = all_extents(program, extents)
    arrays = replace(arrays, strides=all_strides(program, arrays.strides, extents))
    every = dict(extents)
    for number, part in enumerate(code.parts):
        if part.plan.segmented is not None:
            index = segment_axis(part.plan.segmented)
            every[index] = max(every.get(index, 1), cuts[str(number)])
    spaces, size = _spaces(code, every, arrays)
    places = {x.name: place for place, x in enumerate(stored)}
    constants: dict[int, str] = {}
    maps: dict[str, MapShape] = {}
    lines: list[str] = []
    counted = 0

    def constant(value: int) -> str:
        return constants.setdefault(value, f"c{len(constants)}")

    for number, kernel in enumerate(code.kernels):
        text = kernel.text
        cut = cuts[str(kernel.part)]
        count = blocks(text, extents, cut, sms)
        if count == 0:
            continue
        own = dict(every)
        segmented = code.parts[kernel.part].plan.segmented
        if segmented is not None:
            # Parts that cut one axis may cut it into different numbers.
            own[segment_axis(segmented)] = cut
        if text.segments and Counters() in text.parameters:
            posted = text.posted if isinstance(text, KernelText) else 0
            counted = max(counted, 2 * count * posted if posted else count // cut)
        if isinstance(text, MatrixText) and text.queued:
            counted = max(counted, 1)
        values = []
        for p in text.parameters:
            if isinstance(p, TensorMap):
                name, dtype = f"map{len(maps)}", element_type(program, p.array)
                maps[name] = map_shape(p, dtype, extents, arrays.strides[p.array])
                address = _value(Address(p.array), places, scalars, own, arrays, spaces, constant)
                values.append(f"{name}({address})")
            else:
                values.append(_value(p, places, scalars, own, arrays, spaces, constant))
        call = f"launch{number}({', '.join(['stream', constant(count), *values])})"
        lines += [f"status = {call}", "if status:", "    fail(status)"]
    return Course(
        code.loops.name,
        len(stored),
        len(scalars),
        tuple(lines),
        {name: value for value, name in constants.items()},
        maps,
        size if spaces else None,
        counted,
    )


def blocks(text: KernelText | MatrixText, extents: Mapping[str, int], cuts: int, sms: int) -> int:
    """Return the blocks of a launch on a device of `sms` SMs."""
    units = prod(-(-extents[axis] // tile) for axis, tile in text.grid)
    if isinstance(text, MatrixText) and text.persistent:
        return min(units, sms * text.min_blocks)
    cluster = text.cluster if isinstance(text, KernelText) else 1
    return -(-units // text.units) * cluster * (cuts if text.segments else 1)


def _spaces(
    code: CudaCode, extents: Mapping[str, int], arrays: Arrays
) -> tuple[dict[str, int], int]:
    """Return where each stored operand and used workspace begins, and the bytes of all."""
    program = code.loops.program
    used = {p.name for k in code.kernels for p in k.text.parameters if isinstance(p, Address)}
    sizes = {}
    for name in stored_operands(program):
        steps = [extents[axis] * step for axis, step in arrays.strides[name].items()]
        sizes[name] = max(steps, default=1) * element_type(program, name).bytes
    for space in code.loops.workspaces:
        if space.name in used:
            tiles = dict(space.tiles)
            elements = prod(-(-extents[axis] // tiles.get(axis, 1)) for axis in space.axes)
            sizes[space.name] = elements * space.dtype.bytes
    places, total = {}, 0
    for name, size in sizes.items():
        places[name] = total
        total += -(-size // _SPACE_ALIGNMENT) * _SPACE_ALIGNMENT
    return places, total


def _value(
    parameter: MatrixParameter,
    places: Mapping[str, int],
    scalars: Sequence[str],
    extents: Mapping[str, int],
    arrays: Arrays,
    spaces: Mapping[str, int],
    constant: Callable[[int], str],
) -> str:
    match parameter:
        case Address(name) if base_of(name) in spaces:
            return f"q + {constant(spaces[base_of(name)])}"
        case Address(name):
            return f"a{places[base_of(name)]}"
        case Extent(axis):
            return constant(extents[axis])
        case Stride(array, axis):
            return constant(arrays.strides[array][axis])
        case Number(name) | Pointer(name):
            return f"s{scalars.index(name)}"
        case Counters():
            return "counter"
        case TensorMap():
            raise AssertionError(parameter)
