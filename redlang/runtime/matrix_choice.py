"""Where plans on matrix tiles stand among all plans of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redlang.options import Options
from redlang.runtime.planner import Form
from redlang.schedule import matrix_model
from redlang.schedule.device import Device
from redlang.schedule.facts import Facts, Layout
from redlang.schedule.matrix_plans import matrix_candidates
from redlang.schedule.parts import Part
from redlang.schedule.search import Choice, Ranked


def with_matrices(
    form: Form, options: Options, choice: Choice, extents: Mapping[str, int], device: Device
) -> Choice:
    """Put plans on matrix tiles first: where a product suits them, nothing else comes near."""
    program = form.program
    ranked = []
    for nest, others in zip(form.nests, choice.ranked, strict=True):
        found = matrix_candidates(program, nest, extents, device, options)
        facts = Facts(program, nest, extents, Layout({}, {})) if found else None
        own = [matrix_model.ranked(c, facts, device) for c in found if facts]
        ranked.append((*own, *others))
    return replace(choice, ranked=tuple(ranked))


def is_last_matrix(options: tuple[Ranked, ...], number: int) -> bool:
    """Say whether a plan is the last one of its nest on matrix tiles."""
    own, *after = (_on_matrices(r) for r in options[number : number + 2])
    return own and not any(after)


def _on_matrices(ranked: Ranked) -> bool:
    return any(part.matrix is not None for part in ranked.candidate.parts)


def likely(choice: Choice) -> tuple[Part, ...]:
    """Return the parts that a call may run: those on matrix tiles, and the best others."""
    parts: list[Part] = []
    for options in choice.ranked:
        for ranked in options:
            parts += ranked.candidate.parts
            if all(part.matrix is None for part in ranked.candidate.parts):
                break
    return tuple(parts)
