"""Streams: the incremental form of a kernel as an object that data arrives at in pieces.

A `Fold` holds the states of the sweeps over one axis. Each update makes the states of its chunk
from the empty ones and merges them with what it has, so the order of arrival matters only where an
index, a tie or a monoid that does not commute says so, and there the chunk's offset decides. A
pickled fold takes its sweeps along: where it arrives, nothing is derived again.

The states are NumPy arrays and the sweeps are run by their interpreter, not by compiled kernels:
those keep their states in a layout of the plan's own, know no places in a longer axis, and have no
entry from which states come back. A chunk costs a few NumPy operations an element; what is in
memory already is better handed to the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from redlang.errors import ArgumentError
from redlang.ir.evaluate import Scope
from redlang.ir.extents import check_slots
from redlang.ir.incremental import Each, Partial
from redlang.ir.interpret import bind, results
from redlang.ir.numerics import Array
from redlang.ir.program import Program, Reduce
from redlang.ir.reduce import reduce
from redlang.ir.run_sweep import finish, initial_states, merge, update
from redlang.ir.tiles import Tile
from redlang.runtime.arguments import describe
from redlang.runtime.call import Call
from redlang.runtime.constants import check_extents, check_same, check_types
from redlang.runtime.interop import CUPY, NUMPY, TORCH
from redlang.runtime.memory import AnyArray
from redlang.runtime.stream import Stream, element_expressions, reachable

STEP_ELEMENTS = 1 << 18
"""Elements of the widest value in one step: many enough to hide Python, few enough for a cache."""

ENDLESS = 1 << 62
"""The extent of a streamed axis whose size nobody has said."""

States: TypeAlias = tuple[Mapping[str, Tile], ...]
"""The states of each sweep over the axis."""


class Source(Protocol):
    """What a fold asks of its kernel."""

    def examine(self, arguments: Mapping[str, object], axis: str) -> Call:
        """Return what a call with these arguments, a piece along an axis, would run on."""

    def stream(self, program: Program, axis: str) -> Stream:
        """Return what a stream of a program, as resolved, runs."""

    def varying(self, axis: str) -> tuple[str, ...]:
        """Return the array parameters that vary with an axis, in order."""

    def missing(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Return the parameters that have neither an argument nor a default."""

    def check_known(self, names: Iterable[str]) -> None:
        """Raise ArgumentError unless all names are those of parameters."""


class _Chunk:
    """A chunk under the indices of the whole axis: `chunk[offset]` is its first element."""

    def __init__(self, array: Array, dim: int, offset: int) -> None:
        self.array, self.dim, self.offset = array, dim, offset
        self.shape = tuple(ENDLESS if i == dim else n for i, n in enumerate(array.shape))

    def __getitem__(self, places: tuple[slice, ...]) -> Array:
        own = list(places)
        whole = places[self.dim]
        own[self.dim] = slice(whole.start - self.offset, whole.stop - self.offset)
        return self.array[tuple(own)]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """States of the elements `first` to `last` of the axis."""

    first: int
    last: int
    states: States

    def overlaps(self, other: _Piece) -> bool:
        """Tell whether the two have an element in common."""
        return max(self.first, other.first) < min(self.last, other.last)


class Fold:
    """A stream of chunks along one axis of a kernel.

    Not for several threads at once: give each a fold of its own and merge them.

    Attributes:
        axis: The axis that arrives in pieces.
        count: Elements seen so far.
    """

    def __init__(
        self, kernel: Source, axis: str, size: int | None, constants: Mapping[str, object]
    ) -> None:
        """Start empty; users write `kernel.fold(axis)`.

        Raises:
            ArgumentError: The size is none, or a constant is no parameter or varies with the axis.
        """
        _check_size(size, axis)
        kernel.check_known(constants)
        for name in kernel.varying(axis):
            if name in constants:
                raise ArgumentError(
                    f"{name} varies with {axis}, and is no constant of the fold",
                    hint=f"give it in pieces: update({name}=...)",
                )
        self.axis = axis
        self.count = 0
        self._kernel = kernel
        self._size = size
        self._constants = dict(constants)
        self._captured: dict[str, object] = {}
        self._resolved: Program | None = None
        self._stream: Stream | None = None
        self._scope: Scope | None = None
        self._pieces: list[_Piece] = []
        self._next = 0
        self._home = "numpy"

    def update(self, *arrays: AnyArray, offset: int | None = None, **named: object) -> Fold:
        """Fold a chunk in.

        Args:
            arrays: The parameters that vary with the axis, in order.
            offset: Index of the chunk's first element along the axis; by default it follows the
                last one.
            named: Further parameters by name. Those that do not vary with the axis are kept for
                later updates, and stay as they are.

        Returns:
            This fold.

        Raises:
            ArgumentError: The arrays do not fit each other, the kernel, or earlier chunks.
        """
        call = self._examine(arrays, named)
        made = self._stream
        assert made is not None
        chunk = bind(made.program, self._values(call), "declared", streamed=self.axis)
        length = chunk.extents[self.axis]
        first = self._next if offset is None else offset
        if not isinstance(first, int | np.integer):
            raise ArgumentError(f"offset is {describe(offset)}, and must be an int")
        self._check_place(first, length)
        windows = {self.axis: (first, first + length)}
        scope = self._fixed(chunk, made)
        self._check_extents(scope, "this chunk", "earlier ones")
        check_same(self._captured, call.captured, "this chunk and earlier ones")
        shifted: dict[str, Any] = dict(scope.arrays)
        for name in made.varying:
            dim = made.program.array(name).axes.index(self.axis)
            shifted[name] = _Chunk(chunk.arrays[name], dim, first)
        self._scope = scope
        self._constants, self._captured = self._unvarying(call, made), call.captured
        states = self._run(made, replace(scope, arrays=shifted, windows=windows), first, length)
        self._add(_Piece(first, first + length, states))
        self._next = first + length
        self.count += length
        return self

    def merge(self, other: Fold) -> Fold:
        """Return the fold of this one's elements followed by those of `other`.

        Where the kernel depends on places (an index, arg-reductions, top-k), both must have been
        given the offsets of their chunks.

        Raises:
            ArgumentError: The two belong to different kernels, axes, element types, extents or
                constants, or both hold the same places.
        """
        if not isinstance(other, Fold):
            raise ArgumentError(
                f"merge takes another fold over {self.axis}, not {describe(other)}",
                hint="hand what arrives in pieces to update",
            )
        if self.axis != other.axis or (
            self._stream is not None and other._stream is not None and self._stream != other._stream
        ):
            raise ArgumentError(
                "two folds of different kernels, axes or element types cannot be merged"
            )
        if None not in (self._size, other._size) and self._size != other._size:
            raise ArgumentError(f"this fold has size={self._size}, the other one {other._size}")
        check_same(self._constants, other._constants, "the two folds")
        check_same(self._captured, other._captured, "the two folds")
        self._check_extents(other._scope, "the other fold", "this one")
        joint = self._copy()
        joint._size = other._size if self._size is None else self._size
        joint._constants = {**other._constants, **joint._constants}
        joint._captured = {**other._captured, **joint._captured}
        if other._stream is None:
            return joint
        joint._resolved = joint._resolved or other._resolved
        joint._stream = joint._stream or other._stream
        if joint._scope is None:
            joint._scope, joint._home = other._scope, other._home
        for piece in other._pieces:
            if joint._stream.placed and any(map(piece.overlaps, joint._pieces)):
                raise ArgumentError(
                    f"both folds hold elements {piece.first} to {piece.last - 1} of {self.axis}",
                    hint="give update the offset= of each chunk",
                )
            joint._add(piece)
        joint.count += other.count
        joint._next = max(joint._next, other._next)
        return joint

    def result(self) -> Any:  # noqa: ANN401  # arrays of the caller's kind
        """Return the kernel's results for all elements seen; more may follow.

        Raises:
            ArgumentError: Nothing has been folded yet, fewer elements than a top-k list takes, or
                another number of them than `size=` says.
        """
        if self._scope is None or self._stream is None:
            raise ArgumentError(
                "nothing has been folded yet",
                hint="call update first, with an empty chunk at least",
            )
        if self._size is not None and self.count != self._size:
            raise ArgumentError(
                f"{self.count} elements of {self.axis} have been folded, and size= says "
                f"{self._size}",
                hint="size= is the whole extent; most kernels do not need it",
            )
        made = self._stream
        extents = {**self._scope.extents, self.axis: self.count}
        check_slots(made.program, extents)
        scope = self._define(
            made, replace(self._scope, extents=extents, values={}), made.constants()
        )
        for sweep, states in zip(made.own, self._joined(scope), strict=True):
            reads = reachable(made.program, [let.value for let in sweep.finish], made.stages)
            scope = self._define(made, scope, reads)
            scope = scope.with_values(finish(sweep, states, scope))
        roots = [r.value for r in made.program.results]
        scope = self._define(made, scope, reachable(made.program, roots, made.stages))
        arrays = tuple(self._at_home(x) for x in results(made.program, scope))
        return arrays[0] if len(arrays) == 1 else arrays

    # What happens inside

    def _examine(self, arrays: Sequence[AnyArray], named: Mapping[str, object]) -> Call:
        """Bind and check the arguments of an update."""
        varying = self._kernel.varying(self.axis)
        if len(arrays) > len(varying):
            wanted = ", ".join(varying)
            raise ArgumentError(
                f"update takes {len(varying)} arrays by position, {wanted}, not {len(arrays)}",
                hint=f"what does not vary with {self.axis} is given by name",
            )
        self._kernel.check_known(named)
        check_same(self._constants, named, "this fold and this update")
        placed = dict(zip(varying, arrays, strict=False))
        for name in placed.keys() & named.keys():
            raise ArgumentError(f"{name} is given twice, by position and by name")
        given = {**placed, **named}
        missing = [
            name
            for name in self._kernel.missing({**self._constants, **given})
            if name not in varying
        ]
        if missing:
            values = ", ".join(f"{name}=..." for name in missing)
            raise ArgumentError(
                f"the fold of {self._kernel!r} has no {', '.join(missing)}",
                hint=f"what does not vary with {self.axis} is said beforehand: "
                f"fold({self.axis!r}, {values})",
            )
        call = self._kernel.examine({**self._constants, **given}, self.axis)
        if self._resolved is None:
            self._resolved = call.program
            self._stream = self._kernel.stream(call.program, self.axis)
            first = next(iter(call.arguments.values()))
            self._home = first.library.name
        check_types(call.program, self._resolved)
        if self._stream is not None and self._size is None and self._stream.needs_size():
            raise ArgumentError(
                f"{call.program.name} uses size({self.axis}) in its elements",
                hint=f"say it beforehand: fold({self.axis!r}, size=...)",
            )
        return call

    @staticmethod
    def _values(call: Call) -> dict[str, Any]:
        arrays = {n: a.library.to_numpy(a.value) for n, a in call.arguments.items()}
        return {**call.scalars, **arrays}

    def _check_place(self, first: int, length: int) -> None:
        made = self._stream
        assert made is not None
        if first < 0:
            raise ArgumentError(f"offset is {first}, and must not be negative")
        if self._size is not None and first + length > self._size:
            raise ArgumentError(
                f"this chunk reaches to {first + length}, and size= says {self._size}"
            )
        chunk = _Piece(first, first + length, ())
        for piece in self._pieces if made.placed else ():
            if chunk.overlaps(piece):
                raise ArgumentError(
                    f"elements {max(first, piece.first)} to {min(first + length, piece.last) - 1} "
                    f"of {self.axis} have been folded already"
                )

    def _fixed(self, chunk: Scope, made: Stream) -> Scope:
        """Return the scope of everything that does not vary with the axis, reductions too."""
        arrays = {n: a for n, a in chunk.arrays.items() if n not in made.varying}
        extent = ENDLESS if self._size is None else self._size
        pointwise = {
            d.names[0]: d.value for d in made.program.definitions if not isinstance(d.value, Reduce)
        }
        extents = {**chunk.extents, self.axis: extent}
        scope = replace(chunk, arrays=arrays, extents=extents, pointwise=pointwise)
        return self._define(made, scope, made.constants())

    @staticmethod
    def _unvarying(call: Call, made: Stream) -> dict[str, object]:
        """Return the arguments of a call that are the same for all chunks, defaults too."""
        arrays = {n: a.value for n, a in call.arguments.items() if n not in made.varying}
        scalars = {n: value for n, value in call.scalars.items() if n not in call.captured}
        return {**scalars, **arrays}

    def _check_extents(self, scope: Scope | None, new: str, old: str) -> None:
        """Raise ArgumentError unless all axes but the streamed one are as long as before."""
        if scope is not None and self._scope is not None:
            assert self._resolved is not None
            old_extents = self._scope.extents
            check_extents(self._resolved, scope.extents, old_extents, self.axis, (new, old))

    def _run(self, made: Stream, scope: Scope, first: int, length: int) -> States:
        """Return the states of a chunk, step by step along the axis."""
        roots = [e for sweep in made.own for e in element_expressions(sweep)]
        needed = reachable(made.program, roots, made.stages)
        states: States = tuple(initial_states(sweep, scope) for sweep in made.own)
        step = self._step(made, scope)
        for start in range(first, first + length, step):
            stop = min(start + step, first + length)
            inner = self._define(made, scope.with_windows({self.axis: (start, stop)}), needed)
            states = tuple(
                update(sweep, part, inner) for sweep, part in zip(made.own, states, strict=True)
            )
        return states

    def _step(self, made: Stream, scope: Scope) -> int:
        steps = [step for sweep in made.own for step in sweep.update]
        types = [s.value.type.axes for s in steps if isinstance(s, Each)]
        types += [v.type.axes for s in steps if isinstance(s, Partial) for v in s.values]
        widths = [prod(scope.extents[a] for a in axes if a != self.axis) for axes in types]
        return max(1, STEP_ELEMENTS // max([1, *widths]))

    def _define(self, made: Stream, scope: Scope, needed: set[str]) -> Scope:
        """Evaluate the needed reductions that are not of the streamed sweeps, in order.

        Each for itself: a sweep of theirs may have a stage that is not needed, or that waits for
        elements.
        """
        for definition in made.program.definitions:
            value = definition.value
            if not isinstance(value, Reduce) or not needed & set(definition.names):
                continue
            if definition.names[0] not in scope.values:
                parts = reduce(value, scope)
                scope = scope.with_values(dict(zip(definition.names, parts, strict=True)))
        return scope

    def _add(self, piece: _Piece) -> None:
        """File a piece, merging neighbours."""
        assert self._stream is not None
        assert self._scope is not None
        if not self._stream.placed and self._pieces:
            (mine,) = self._pieces
            joined = self._merged(mine.states, piece.states, self._scope)
            self._pieces = [_Piece(0, 0, joined)]
            return
        # A piece without elements has no place; one is kept where there is no other.
        filled = [p for p in (*self._pieces, piece) if p.first < p.last]
        pieces = sorted(filled or [piece], key=lambda p: p.first)
        done: list[_Piece] = []
        for item in pieces:
            if done and done[-1].last == item.first:
                last = done.pop()
                states = self._merged(last.states, item.states, self._scope)
                done.append(_Piece(last.first, item.last, states))
            else:
                done.append(item)
        self._pieces = done

    def _joined(self, scope: Scope) -> States:
        first, *rest = self._pieces
        states = first.states
        for piece in rest:
            states = self._merged(states, piece.states, scope)
        return states

    def _merged(self, left: States, right: States, scope: Scope) -> States:
        assert self._stream is not None
        sides = zip(self._stream.own, left, right, strict=True)
        return tuple(merge(sweep, a, b, scope) for sweep, a, b in sides)

    def _at_home(self, array: Array) -> AnyArray:
        """Return a result as the kind of array that the first chunk was."""
        library = {"torch": TORCH, "cupy": CUPY}.get(self._home, NUMPY)
        if library is NUMPY or self._home not in sys.modules:
            return np.asarray(array)
        assert self._stream is not None
        dtype = NUMPY.memory(array).dtype
        assert not isinstance(dtype, str)
        made = library.empty(array.shape, dtype, "cpu")
        library.to_numpy(made)[...] = array
        return made

    def _copy(self) -> Fold:
        copy = object.__new__(Fold)
        copy.__dict__.update(self.__dict__)
        copy._pieces = list(self._pieces)
        return copy

    def __repr__(self) -> str:
        return f"<redlang fold of {self._kernel!r} over {self.axis}: {self.count} elements>"


def _check_size(size: object, axis: str) -> None:
    if size is None or (isinstance(size, int | np.integer) and size >= 0):
        return
    raise ArgumentError(
        f"size is {describe(size)}, and must be the extent of {axis}",
        hint=f"what does not vary with {axis} is given by name",
    )
