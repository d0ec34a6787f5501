"""What became of a kernel, in words: the text of `Kernel.explain`.

A section for each stage. The default leaves out the syntax, which the reader wrote, and the loops,
which are long.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, assert_never

from redlang.algebra.verdicts import Fused, Refuted, StageVerdict, Undecided
from redlang.codegen.arguments import unit_count
from redlang.ir.extents import extent_value
from redlang.ir.loops import Loops
from redlang.ir.loops_printing import loops_text
from redlang.ir.printing import to_text
from redlang.ir.program import Program, ScalarParam
from redlang.runtime.call import UnitAxes
from redlang.runtime.work import CACHED_BYTES, NANOSECONDS, kept_bytes, predict, unit_work
from redlang.schedule.plan import NestPlan, passes

if TYPE_CHECKING:
    from redlang.runtime.compiler import Compiler
    from redlang.schedule.choose import Choice
    from redlang.schedule.nests import Nest

ShownPlan: TypeAlias = Callable[[Mapping[str, int]], tuple[str, Loops]]
"""A plan in words, and its loops, for some extents."""

TYPICAL = 1024
"""The extent of an axis that no call has given one."""

READABLE = ("program", "fuse", "plan")


class Explanation(str):
    """Text with sections; notebooks show them under headings.

    Attributes:
        sections: Title and text of each.
    """

    sections: tuple[tuple[str, str], ...]

    def __new__(cls, sections: tuple[tuple[str, str], ...]) -> Explanation:
        """Join `sections` into one text."""
        if len(sections) == 1:
            text = sections[0][1]
        else:
            text = "\n".join(f"{title}\n{'-' * len(title)}\n{body}" for title, body in sections)
        self = super().__new__(cls, text)
        self.sections = sections
        return self

    def __repr__(self) -> str:
        # What a prompt shows is meant to be read.
        return str(self)

    def __reduce__(self) -> tuple[object, ...]:
        return (Explanation, (self.sections,))

    def _repr_html_(self) -> str:
        parts = [f"<h4>{html.escape(t)}</h4><pre>{html.escape(b)}</pre>" for t, b in self.sections]
        return f"<div class='redlang'>{''.join(parts)}</div>"


def explain(
    syntax: str,
    program: Program,
    compiler: Compiler,
    extents: Mapping[str, int] | None,
    stage: str | None,
    gpu: ShownPlan | None = None,
    unit: UnitAxes | None = None,
) -> Explanation:
    """Return the explanation of one stage, or of those that a reader needs.

    Args:
        syntax: The kernel as it was parsed.
        program: Its program, as resolved.
        compiler: What compiles it.
        extents: Those of the last call.
        stage: One of `pipeline.STAGES`, or None.
        gpu: Plan and loops on a GPU, where the last call ran on one.
        unit: The axis along which each array of the last call had stride 1.
    """
    known = extents if extents is not None else typical_extents(compiler.program)
    writers = {
        "syntax": lambda: syntax,
        "program": lambda: to_text(program),
        "fuse": lambda: fuse_text(compiler, known),
        "plan": lambda: plan_text(compiler, known, unit, supposed=extents is None),
        "loops": lambda: loops_text(compiler.planner.loops(compiler.choice(known, unit))),
    }
    if gpu is not None:
        writers["plan"] = lambda: gpu(known)[0]
        writers["loops"] = lambda: loops_text(gpu(known)[1])
    chosen = READABLE if stage is None else (stage,)
    return Explanation(tuple((name, writers[name]().rstrip() + "\n") for name in chosen))


def typical_extents(program: Program) -> dict[str, int]:
    """Return extents for a program that has not been called: large where arrays decide."""
    extents = {a.name: a.extent for a in program.axes if isinstance(a.extent, int)}
    extents |= {a.name: TYPICAL for a in program.axes if a.extent is None}
    for axis in program.axes:
        if axis.extent is not None and not isinstance(axis.extent, int):
            scalars = {p.name: 8 for p in program.params if isinstance(p, ScalarParam)}
            extents[axis.name] = max(0, extent_value(axis.extent, extents, scalars))
    return extents


def fuse_text(compiler: Compiler, extents: Mapping[str, int]) -> str:
    """Return the verdict on each stage, with its proof, and the sweeps that follow."""
    lines = []
    for verdict in compiler.derived.verdicts:
        lines += [*_verdict(verdict), ""]
    number = 0
    for nest in compiler.nests(extents)[0]:
        for sweep in (*nest.inner, *nest.sweeps):
            axes, stages = ", ".join(sweep.axes), ", ".join(sweep.stages)
            if sweep in nest.inner:
                lines.append(f"sweep over {axes} (inside another): {stages}")
                continue
            number += 1
            lines.append(f"sweep {number} over {axes}: {stages}")
    return "\n".join(lines) or "no reductions: every element is computed by itself"


def _verdict(verdict: StageVerdict) -> Iterator[str]:
    match verdict:
        case Fused(stage, axes, state, transport, merge, finish, proof):
            yield f"{stage}: fused over {', '.join(axes)}"
            yield from _named("state", state)
            yield from _named("moves by", transport)
            yield from _named("merge", (merge,))
            yield from _named("finish", (finish,))
            yield from _named("shown", (proof.obligation,))
            yield from _named("assuming", proof.assumptions)
            yield from _named("identity", proof.identities)
            how = [proof.method] if proof.method else []
            if proof.samples:
                checked = f"checked on {proof.samples} points at {proof.digits} digits"
                how.append(f"{checked}, seed {proof.seed}")
            yield from _named("by", tuple(how))
        case Refuted(stage, obligation, witness):
            yield f"{stage}: refuted, another sweep"
            yield from _named("broken", (obligation,))
            yield from _named("by", (str(witness),))
        case Undecided(stage, obligation):
            yield f"{stage}: undecided, another sweep"
            yield from _named("open", (obligation,))
        case _:
            assert_never(verdict)


def _named(name: str, lines: tuple[str, ...]) -> Iterator[str]:
    for i, line in enumerate(lines):
        yield f"  {name if i == 0 else '':<9} {line}"


def plan_text(
    compiler: Compiler,
    extents: Mapping[str, int],
    unit: UnitAxes | None = None,
    *,
    supposed: bool = False,
) -> str:
    """Return the plan for some extents and a layout, nest by nest; maybe before any call."""
    choice = compiler.choice(extents, unit)
    sizes = ", ".join(f"{axis} = {extent}" for axis, extent in extents.items())
    lines = [f"plan of {compiler.program.name}" + (f" for {sizes}" if sizes else "")]
    if supposed:
        lines.append(
            f"  supposed  before any call: {TYPICAL} for each open extent, f32 for each open type"
        )
    segments = compiler.planner.segments(choice, extents)
    for number, (nest, plan) in enumerate(zip(choice.nests, choice.plan.nests, strict=True)):
        lines += _nest(number, nest, plan, segments)
    loops = compiler.planner.loops(choice)
    lines += _prediction(loops, {**extents, **segments})
    lines += _rounding(compiler)
    for other, seconds in compiler.tried(extents, unit):
        won = "fastest" if other == choice else "lost"
        lines.append(f"measured {1e6 * seconds:9.1f} µs  {won:<8} {_tiles(other)}")
    return "\n".join(lines)


def _prediction(loops: Loops, extents: Mapping[str, int]) -> Iterator[str]:
    units = [unit_count(kernel, extents) for kernel in loops.kernels]
    for kernel, count in zip(loops.kernels, units, strict=True):
        each = unit_work(kernel, extents) * NANOSECONDS / 1e3
        yield f"{kernel.name}: {count} unit{'' if count == 1 else 's'} of about {_duration(each)}"
    for space in loops.workspaces:
        if (size := kept_bytes(space, extents)) >= CACHED_BYTES:
            what = f"{space.name}: {space.dtype}[{' '.join(space.axes)}]"
            yield f"keeps {what}, {size / 1e6:.3g} MB, in memory between kernels"
    time = predict(loops, units, extents)
    yield (
        f"predicted about {_duration(time.time_us)} on one core, limited by "
        f"{time.limiter} (arithmetic {_duration(time.arithmetic_us)}, "
        f"memory {_duration(time.memory_us)})"
    )


def _duration(time_us: float) -> str:
    """Return a time in the unit that suits it.

    >>> _duration(0.25), _duration(1500), _duration(2e6)
    ('0.25 µs', '1.5 ms', '2 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3g} {unit}"
    return f"{time_us:.3g} µs"


def _rounding(compiler: Compiler) -> Iterator[str]:
    """Say what becomes of casts by a running scale, where they are allowed."""
    if compiler.options.rounding == "running":
        yield "rounding  running is allowed; casts to 8 bits keep their two-pass result here"


def _tiles(choice: Choice) -> str:
    """Return the tiles of a plan in a line."""
    nests = []
    for plan in choice.plan.nests:
        grid = ", ".join(f"{g.axis} {g.tile}" for g in plan.grid) or "one unit"
        looped = ", ".join(f"{axis} {tile}" for axis, tile in plan.tiles)
        nests.append(f"grid {grid}" + (f"; loop {looped}" if looped else ""))
    return " | ".join(nests)


def _nest(number: int, nest: Nest, plan: NestPlan, segments: Mapping[str, int]) -> Iterator[str]:
    grid = ", ".join(f"{g.axis} by {g.tile}" for g in plan.grid) or "one unit"
    yield f"kernel {number}: {plan.kind}"
    yield f"  grid      {grid}"
    for axis, tile in plan.tiles:
        yield f"  loop      {axis} by {tile}"
    for axis, sizes in plan.blocks:
        yield f"  blocks    {axis} in {', '.join(map(str, sizes))}, each summed on its own"
    if plan.resident:
        yield f"  resident  {', '.join(plan.resident)}"
    if plan.segmented is not None:
        count = ", ".join(map(str, segments.values()))
        yield f"  segments  {plan.segmented} in {count}, merged in order"
    yield from passes(plan, nest.sweeps)
    for i in nest.results:
        yield f"  stores    result {i}"
