"""What the matrix emitter gives back: text, and the tensor maps that a launch must make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redlang.codegen.cuda.kernel_text import Parameter, parameter_code
from redlang.errors import RedlangError
from redlang.ir.loops import Workspace
from redlang.schedule.fragments import SharedTile


class UnsuitedError(RedlangError):
    """A kernel that this path cannot compute; another one does."""


def unsuited(reason: str) -> UnsuitedError:
    """Return the error that says why a kernel takes another path."""
    return UnsuitedError(f"no matrix tiles: {reason}")


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map, passed by value.

    Encoded anew for each launch as tiled, without interleaving, with elements outside the array
    read as zero. Every stride but the first dimension's and the address must be multiples of 16
    bytes; the first dimension's stride is one element.

    Attributes:
        array: The parameter or result.
        dims: Its axes, innermost first; extents and strides are the array's own.
        box: The elements of one copy along each dimension.
        span: The swizzle in bytes: 128, 64 or 32; 0 for none.
    """

    array: str
    dims: tuple[str, ...]
    box: tuple[int, ...]
    span: int


MatrixParameter: TypeAlias = Parameter | TensorMap


@dataclass(frozen=True, slots=True)
class MatrixText:
    """A generated kernel, as `kernel_text.KernelText`.

    Attributes:
        entry: The name of its function.
        source: A module's text.
        parameters: Its parameters in order.
        threads: Threads a block.
        min_blocks: Blocks to leave registers for on one SM.
        shared_bytes: Dynamic shared memory of a block.
        grid: Axes that units cover and the tile of each, outermost first.
        path: What computes the products: a unit of `schedule.matrices`.
        units: Units a block.
        segments: The pseudo axis that numbers the blocks which share a unit, or empty.
        persistent: Whether a block runs through several units: then no more blocks are launched
            than the device holds at once.
        queued: Whether blocks fetch units from a queue: a counter that is 0 before and after.
        before: A kernel that must have run before.
        spaces: Workspaces through which it hands results on.
        follows: Whether it waits for the kernel before it itself, and may be launched early.
    """

    entry: str
    source: str
    parameters: tuple[MatrixParameter, ...]
    threads: int
    min_blocks: int
    shared_bytes: int
    grid: tuple[tuple[str, int], ...]
    path: str
    units: int = 1
    segments: str = ""
    persistent: bool = False
    queued: bool = False
    before: MatrixText | None = None
    spaces: tuple[Workspace, ...] = ()
    follows: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the type code of each parameter."""
        return tuple(
            "map" if isinstance(parameter, TensorMap) else parameter_code(parameter)
            for parameter in self.parameters
        )


def tile_text(tile: SharedTile) -> str:
    """Return text of a shared tile."""
    span = "" if tile.span == 128 else f", {tile.span}"
    size = "" if tile.size == 2 else f", size={tile.size}"
    return f"w.SharedTile({tile.rows}, {tile.inner}, {tile.contracted}{span}{size})"


def with_words(source: str) -> str:
    """Return a module's text with the words of matrix tiles."""
    line = "from redlang.targets import tiles as t\n"
    return source.replace(line, "from redlang.targets import matrices as w\n" + line, 1)
