"""The arrays of `out=`: whether they fit the results, and whether storing there is safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redlang.errors import ArgumentError, DTypeError
from redlang.ir.extents import dim_extent
from redlang.runtime.arguments import about
from redlang.runtime.call import Call, Chosen
from redlang.runtime.memory import AnyArray
from redlang.runtime.overlap import overlaps_itself, same_elements, share_memory


def listed(out: object) -> tuple[object, ...]:
    """Return the arrays in `out`."""
    if out is None:
        return ()
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def named_out(out: object) -> dict[str, object]:
    """Return the arrays in `out` by the names that messages give them."""
    if isinstance(out, tuple | list):
        return {f"out[{i}]": array for i, array in enumerate(out)}
    return {} if out is None else {"out": out}


def out_labels(count: int) -> list[str]:
    """Return how messages call the arrays in `out`."""
    return ["out"] if count == 1 else [f"out[{i}]" for i in range(count)]


def check_results(call: Call, extents: Mapping[str, int], several: bool, there: bool) -> None:
    """Check the arrays in `out` against the program's results.

    Args:
        call: The call.
        extents: Its extents.
        several: Whether `out` is a tuple.
        there: Whether there is an `out` at all.

    Raises:
        ArgumentError: Their number or a shape is wrong.
        DTypeError: An element type is.
    """
    program = call.program
    if not there:
        return
    if len(call.results) != len(program.results) or several != (len(program.results) > 1):
        wanted = "one array" if len(program.results) == 1 else f"{len(program.results)} arrays"
        given = f"{len(call.results)} array{'' if len(call.results) == 1 else 's'}"
        each = ", ".join(f"out{i}" for i in range(len(program.results)))
        what, hint = f"has {given}", f"pass out=({each})"
        if len(program.results) == 1:
            what, hint = f"is a tuple or list of {given}", "pass the array itself: out=array"
        raise about("out", f"{what}, and the kernel returns {wanted}", hint)
    labels = out_labels(len(program.results))
    for label, result, argument in zip(labels, program.results, call.results, strict=True):
        shape = tuple(dim_extent(program, dim, extents) for dim in result.dims)
        memory = argument.memory
        if tuple(memory.shape) != shape:
            problem = f"has shape {tuple(memory.shape)}, and the result has {shape}"
            raise about(label, problem, f"pass an array of shape {shape}")
        if memory.dtype != result.dtype:
            raise DTypeError(
                f"{label} holds {memory.dtype}, and the result is {result.dtype}",
                hint=f"pass an array of {result.dtype}, or cast the result in the kernel",
            )


def overlap(
    call: Call,
    chosen: Chosen,
    inputs: Sequence[AnyArray],
    results: Sequence[AnyArray],
    extents: Mapping[str, int],
) -> ArgumentError | None:
    """Return the error if a result's memory overlaps an input, another result, or itself.

    Exact aliasing, element over element, is allowed where the plan reads each element first.
    """
    labels = out_labels(len(results))
    stored = [a.library.memory(x) for a, x in zip(call.results, results, strict=True)]
    sizes = [_item_bytes(memory.dtype) for memory in stored]
    read = [
        (name, argument.library.memory(x))
        for (name, argument), x in zip(call.arguments.items(), inputs, strict=True)
    ]
    for i, memory in enumerate(stored):
        faults = ["has elements that share memory"] if overlaps_itself(memory) else []
        faults += [
            f"shares memory with {labels[j]}"
            for j in range(i)
            if share_memory(memory, stored[j], sizes[i], sizes[j])
        ]
        faults += [
            f"shares memory with {name}, which is read while it is written"
            for name, other in read
            if share_memory(memory, other, sizes[i], _item_bytes(other.dtype))
            and not (same_elements(memory, other) and chosen.may_alias(i, name, extents))
        ]
        if faults:
            return about(labels[i], faults[0], "pass a separate array, or leave out= away")
    return None


def _item_bytes(dtype: object) -> int:
    size = getattr(dtype, "bytes", None)
    assert isinstance(size, int)
    return size
