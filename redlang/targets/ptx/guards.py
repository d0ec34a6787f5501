"""PTX text of guarded accesses: which elements of a piece are there, and moving only those.

The predicate `p` says that the access to come may happen: first for the piece as a whole, then,
where the end of an axis may fall inside the piece, element by element behind a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redlang.targets.ptx.access import Access, Guard, Piece

Bounds = dict[str, tuple[str, str | None]]
"""Per guarded axis, the operands that hold `left` and, if the head is guarded too, `low`."""


def bounds_from(access: Access, first: int) -> Bounds:
    """Return the operands of the guards' arguments when the first of them is `$first`."""
    names = access.guard_arguments
    operands = {name: f"${number}" for number, name in enumerate(names, first)}
    return {
        guard.axis: (operands[f"left.{guard.axis}"], operands.get(f"low.{guard.axis}"))
        for guard in access.guards
    }


def guarded(
    access: Access,
    piece: Piece,
    bounds: Bounds,
    whole: str,
    single: Callable[[int], Sequence[str]],
    before: Sequence[str] = (),
) -> str:
    """Return the PTX of one guarded access.

    Args:
        access: The tile.
        piece: The piece to move.
        bounds: Operands of the guards.
        whole: The instruction that moves the whole piece.
        single: Instructions, predicated on `p`, that move one element.
        before: Lines to run first.
    """
    lines = ["{ .reg .pred p, q; .reg .b16 h; .reg .b32 t;", *before]
    lines += _conjunction("p", _all_tests(access, piece, bounds))
    lines.append(f"@p {whole}")
    ragged = _ragged_guard(access)
    if ragged is not None:
        # q: not all of the piece, but perhaps some of it.
        lines += _conjunction("q", _some_tests(access, piece, bounds, ragged))
        lines += ["@p bra DONE${:uid};", "@!q bra DONE${:uid};"]
        for number in range(access.width):
            start = piece.reaches[ragged.axis] + number
            lines += _conjunction("p", _tests(access, ragged, bounds, start, 1))
            lines += single(number)
        lines.append("DONE${:uid}:")
    return " ".join([*lines, "}"])


def guarded_start(access: Access, piece: Piece, bounds: Bounds, text: str) -> str:
    """Return the PTX of an instruction that is run if the first element of a piece is there."""
    tests = [t for g in access.guards for t in _tests(access, g, bounds, piece.reaches[g.axis], 1)]
    return " ".join(["{ .reg .pred p;", *_conjunction("p", tests), f"@p {text}", "}"])


def _ragged_guard(access: Access) -> Guard | None:
    if access.width == 1:
        return None
    return next((g for g in access.guards if g.ragged and g.axis == access.axis), None)


def _all_tests(access: Access, piece: Piece, bounds: Bounds) -> list[str]:
    tests: list[str] = []
    for guard in access.guards:
        span = access.width if guard.ragged and guard.axis == access.axis else 1
        tests += _tests(access, guard, bounds, piece.reaches[guard.axis], span)
    return tests


def _some_tests(access: Access, piece: Piece, bounds: Bounds, ragged: Guard) -> list[str]:
    left, _ = bounds[ragged.axis]
    tests = [f"setp.gt.s32 {{}}, {left}, {piece.reaches[ragged.axis]}"]
    for guard in access.guards:
        if guard is not ragged:
            tests += _tests(access, guard, bounds, piece.reaches[guard.axis], 1)
    return tests


def _tests(access: Access, guard: Guard, bounds: Bounds, start: int, span: int) -> list[str]:
    """Return comparisons that hold where elements `start` to `start + span` are there."""
    left, low = bounds[guard.axis]
    tests = [f"setp.ge.s32 {{}}, {left}, {start + span}"]
    # `low` is smaller than a piece, so only the first piece along the axis can hold it.
    if low is not None and start < access.width:
        tests.append(f"setp.le.s32 {{}}, {low}, {start}")
    return tests


def _conjunction(name: str, tests: Sequence[str]) -> list[str]:
    """Return PTX that sets predicate `name` to the conjunction of comparisons."""
    first, *others = tests
    lines = [first.format(name) + ";"]
    for test in others:
        comparison = test.replace(".s32", ".and.s32").format(name)
        lines.append(f"{comparison}, {name};")
    return lines
