"""Plans: which axes the grid covers, the tile of each axis, how a sweep is cut, what stays on chip.

A plan holds no runtime extents, only tiles and classes that follow from them, so that two calls of
one shape class share a compiled kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from redlang.ir.incremental import Sweep
from redlang.ir.loops import GridAxis

Kind = Literal["map", "on-chip", "single-segment", "multi-segment"]


@dataclass(frozen=True, slots=True)
class NestPlan:
    """How one nest runs.

    Attributes:
        kind: on-chip: the swept axes are resident and stages run one sweep after another over
            them; single-segment: one unit streams the swept axes in the incremental form;
            multi-segment: several units share them and a second kernel merges; map: no sweep.
        grid: Axes that units cover, outermost first, with tiles.
        tiles: Tile of each axis that is looped over inside a unit.
        resident: Axes whose whole extent is one tile.
        segmented: The axis that is cut, for multi-segment.
        blocks: For looped axes so long that joining the sums of their tiles one after another
            would lose digits: extents of blocks, smallest first, within each of which the tiles,
            or the blocks before it in the list, are joined on their own.
        limits: The largest extents of resident axes that the plan serves, where it depends on them.
        integers: Whether sums of products of integers are contractions.
        innermost: The axis along which the states of segments are adjacent; empty for the last.
    """

    kind: Kind
    grid: tuple[GridAxis, ...]
    tiles: tuple[tuple[str, int], ...]
    resident: tuple[str, ...]
    segmented: str | None = None
    limits: tuple[tuple[str, int], ...] = ()
    blocks: tuple[tuple[str, tuple[int, ...]], ...] = ()
    integers: bool = False
    innermost: str = ""

    def tile(self, axis: str) -> int:
        """Return the tile of a looped axis."""
        return dict(self.tiles)[axis]


@dataclass(frozen=True, slots=True)
class Plan:
    """One `NestPlan` for each nest, in order."""

    nests: tuple[NestPlan, ...]


def passes(plan: NestPlan, sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Say what loops over what: passes behind the first read what that has left on the chip."""
    for number, sweep in enumerate(sweeps):
        again = plan.kind == "on-chip" and number > 0 and set(sweep.axes) <= set(plan.resident)
        place = ", on chip" if again else ""
        over = ", ".join(sweep.axes)
        yield f"  pass {number + 1}    over {over}{place}: {', '.join(sweep.stages)}"


def segment_axis(axis: str) -> str:
    """Return the pseudo axis that numbers the segments of `axis`."""
    return f"{axis}.segment"
