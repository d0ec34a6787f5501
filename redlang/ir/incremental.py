"""The incremental form of a sweep: what is kept between tiles, and how it moves.

A sweep carries a few *states* along its axes. For each tile of elements the steps run in order:
`Each` names a value that varies along the swept axes (computed once, shared by all stages),
`Partial` reduces such a value over the tile, `Combine` joins two partial results of one reduction,
`Let` names anything that no longer varies along the swept axes. Then all `commits` happen at once.
`merge` does the same for two sets of states, named `a.<state>` and `b.<state>`, and `finish` turns
states into the results of the stages.

Nothing here says how large a tile is: one element, a cache line or a whole axis give the same
result up to rounding. Expressions are those of `ir.program`; a `Ref` names a state, a step, a
finished definition of the program, or a pointwise definition (read at the current element).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redlang.ir.program import Expr, Monoid
from redlang.ir.types import Type


@dataclass(frozen=True, slots=True)
class State:
    """One value kept between tiles; `initial` is neutral in every `Combine` and commit.

    A state of a top-k list has `k` slots, which are no axis of its type; a `Ref` to it in `finish`
    has the axis of the program that they become.
    """

    name: str
    type: Type
    initial: Expr
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Each:
    """`name = value` at every element of the tile."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Partial:
    """Reduce `values` over the tile, passing over elements where `condition` is false.

    `op` is a reduction of `ir.operators`, or `mantissa` (a product kept as mantissa and exponent,
    two names). argmax and argmin have two names, value and row-major index (int64, -1 for none);
    topk has two names of k slots each, sorted; every other op has one.
    """

    names: tuple[str, ...]
    op: str
    values: tuple[Expr, ...]
    condition: Expr | None
    types: tuple[Type, ...]
    k: int | None = None
    monoid: Monoid | None = None


@dataclass(frozen=True, slots=True)
class Combine:
    """Join two partial results of the same reduction; `left` holds the earlier elements."""

    names: tuple[str, ...]
    op: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    types: tuple[Type, ...]
    k: int | None = None
    monoid: Monoid | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """`name = value`, free of the swept axes."""

    name: str
    value: Expr


Step: TypeAlias = Each | Partial | Combine | Let


@dataclass(frozen=True, slots=True)
class Commit:
    """Give `state` the value of the state or step called `value`."""

    state: str
    value: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """Stages that share one pass over `axes`, in incremental form.

    Attributes:
        axes: The swept axes, row-major.
        stages: Names of the program's definitions that this sweep finishes.
        states: What is kept.
        update: Steps for one tile of elements, then `commits`.
        merge: `Combine` and `Let` steps that join states `a.*` and `b.*`, then `merge_commits`;
            `a` holds the earlier elements.
        finish: `Let` steps over states; together they define every name in `stages`.
        joint: Where it can be said, steps that join any number of parts at once: an `Each` is a
            value of every part, made of its states, a `Partial` reduces such values over the parts,
            a `Let` is common to them. They define all that `merge_commits` needs. Empty otherwise.
    """

    axes: tuple[str, ...]
    stages: tuple[str, ...]
    states: tuple[State, ...]
    update: tuple[Step, ...]
    commits: tuple[Commit, ...]
    merge: tuple[Combine | Let, ...]
    merge_commits: tuple[Commit, ...]
    finish: tuple[Let, ...]
    joint: tuple[Each | Partial | Let, ...] = ()
