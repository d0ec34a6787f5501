"""A user's monoid as a folding: its own init, lift and combine as scalar text."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.codegen.cuda.folds import Folding, Lines
from redlang.codegen.cuda.frame import CODES
from redlang.codegen.cuda.values import Setting
from redlang.codegen.scalars import spell
from redlang.ir.program import Expr, Monoid


def monoid_folding(monoid: Monoid) -> Folding:
    """Return how a monoid works; order matters, since commutativity is not required."""
    codes = tuple(CODES[expr.type.dtype.name] for expr in monoid.init)

    def lift(*values: str) -> tuple[Lines, list[str]]:
        return _spelled(monoid.lift, {f"x.{i}": text for i, text in enumerate(values)})

    def combine(*values: str) -> tuple[Lines, list[str]]:
        half = len(values) // 2
        names = {f"a.{i}": text for i, text in enumerate(values[:half])}
        names |= {f"b.{i}": text for i, text in enumerate(values[half:])}
        return _spelled(monoid.combine, names)

    _, neutral = _spelled(monoid.init, {})
    return Folding(
        codes=codes,
        neutral=tuple(neutral),
        lift=lift,
        combine=combine,
        finish=lambda *values: ([], list(values)),
        results=codes,
        ordered=True,
    )


def _spelled(exprs: Sequence[Expr], names: dict[str, str]) -> tuple[Lines, list[str]]:
    counter = iter(range(1000))
    setting = Setting(names.__getitem__, lambda: f"m{next(counter)}")
    texts = [spell(expr, setting) for expr in exprs]
    return setting.lines, texts
