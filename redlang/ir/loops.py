"""The loop IR: who computes what, when, over which tile.

A `Loops` value is a list of kernels that run one after another. A kernel covers its grid axes with
*units*, one tile of each grid axis a unit; units are independent. Inside a unit every statement
works on whole tiles: in each scope every axis has a current range `[first, stop)`, the tile of a
grid axis, of an enclosing `Loop`, or (a *resident* axis) its whole extent. A named value covers the
current ranges of its type's axes in the scope that defines it; an axis that its type lacks is read
at the first index of the current range.

Statements say *what* happens to tiles; which of them share one pass over the elements, which values
live in registers, scratch or nowhere, and which axis becomes a vector is the emitter's choice.
Expressions are those of `ir.program` (normalised: no `Mask`, no `Fill`); a `Ref` names a value of
an enclosing scope, a workspace (read at the current indices of its axes), or a bound of a current
range: `Ref("n.first")`, `Ref("n.last")` (inclusive), int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from redlang.ir.program import Expr, Monoid, Param, Program, Result
from redlang.ir.types import DType, Type


@dataclass(frozen=True, slots=True)
class Compute:
    """`name = value` at every element of the current ranges of `type.axes`.

    Defines a new value, or, for a name that an enclosing scope defined with `Compute` (a state),
    gives it a new one; right-hand sides are read before anything is written.
    """

    name: str
    value: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Fold:
    """Reduce `values` over the current ranges of the axes `over`, as `ir.incremental.Partial`.

    The results cover the axes of their types. Elements where `condition` is false take no part.
    Indices of argmax, argmin and topk count row-major over the whole extents of `over`, not over
    the tile.
    """

    names: tuple[str, ...]
    op: str
    over: tuple[str, ...]
    values: tuple[Expr, ...]
    condition: Expr | None
    types: tuple[Type, ...]
    k: int | None = None
    monoid: Monoid | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """`name = sum over `over` of left * right`, elements where `condition` is false left out.

    `left` and `right` each hold axes that the other lacks, so that this is a matrix product: the
    axes of `type` that only `left` has are its rows, those that only `right` has its columns, those
    of both its batch. A left-out element must not show even where `right` is NaN or infinite.
    With `accumulate` the product is added to the value that `name` already has.
    """

    name: str
    over: tuple[str, ...]
    left: Expr
    right: Expr
    condition: Expr | None
    type: Type
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Combine:
    """Join two partial results of one reduction, as `ir.incremental.Combine`."""

    names: tuple[str, ...]
    op: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    types: tuple[Type, ...]
    k: int | None = None
    monoid: Monoid | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """`state = value` for all pairs at once; both are names of values of the same type."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` to a result or workspace over the current ranges of `axes`.

    `target` is `result.<i>` or a workspace's name. A store to a result rounds to its element type.
    """

    target: str
    value: Expr
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Run `body` for each tile of `axis` in order, within the kernel's segment if that cuts it.

    Inside another loop over the same axis it covers that loop's current range.

    `some`, where given, is an expression over range bounds and scalars that is false only for
    tiles whose elements take no part in anything: they are skipped.
    """

    axis: str
    tile: int
    body: tuple[Statement, ...]
    some: Expr | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """Run `then` where `condition`, over range bounds and scalars, holds; else `otherwise`.

    The two do the same up to tests that `condition` makes superfluous.
    """

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


Statement: TypeAlias = Compute | Fold | Contract | Combine | Commit | Store | Loop | Branch


@dataclass(frozen=True, slots=True)
class GridAxis:
    """A grid axis and the extent of its tile."""

    axis: str
    tile: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A cut of the swept `axis` among units, in `tile`-aligned pieces.

    `index` is a pseudo axis: the segment's number. The number of segments is the runtime extent
    `extent.<index>`; segment s covers tiles `[s * count / segments, (s + 1) * count / segments)`.
    """

    axis: str
    tile: int
    index: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory between kernels, row-major over `axes` (segment indices included).

    Attributes:
        name: Its name.
        axes: Its axes.
        dtype: Its element type.
        tiles: Axes of which an element stands for so many.
    """

    name: str
    axes: tuple[str, ...]
    dtype: DType
    tiles: tuple[tuple[str, int], ...] = ()


Kind: TypeAlias = Literal["map", "on-chip", "single-segment", "multi-segment", "merge"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch.

    Attributes:
        name: For generated text.
        grid: Grid axes, outermost first; a unit is a row-major number over their tiles, after
            the segment's number if there is one (segments vary slowest).
        segment: How the swept axis is cut among units, or None.
        resident: Axes whose whole extent is one tile.
        body: What a unit does.
        kind: How the plan cuts the work, for `explain` and the emitters' choices.
        joint: In a merge, the same for all segments at once, if it can be said: statements in whose
            scope the segments' index has its whole range, and which give the states new values.
        limits: The largest extent of resident axes that this kernel serves, where the plan says
            so: emitters that keep tiles in registers need to know.
    """

    name: str
    grid: tuple[GridAxis, ...]
    segment: Segment | None
    resident: tuple[str, ...]
    body: tuple[Statement, ...]
    kind: Kind
    limits: tuple[tuple[str, int], ...] = ()
    joint: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Loops:
    """A lowered program.

    Attributes:
        name: The kernel's name.
        program: What is computed; parameters, axes and results are declared there.
        kernels: In order; a later one reads workspaces that earlier ones wrote.
        workspaces: Memory between kernels.
    """

    name: str
    program: Program
    kernels: tuple[Kernel, ...]
    workspaces: tuple[Workspace, ...]

    @property
    def params(self) -> tuple[Param, ...]:
        """Return the program's parameters."""
        return self.program.params

    @property
    def results(self) -> tuple[Result, ...]:
        """Return the program's results."""
        return self.program.results
