"""What the algebra says of a stage: fused, refuted or undecided, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Assignment: TypeAlias = tuple[tuple[str, float], ...]
"""Values by the formulas that have them."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Values that break an obligation.

    Attributes:
        elements: For each element the values of what varies along the sweep.
        contexts: For each context the values of the carried results.
        constants: Values of everything else.
        text: The same in words.
    """

    elements: tuple[Assignment, ...]
    contexts: tuple[Assignment, ...]
    constants: Assignment
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Proof:
    """Why a stage may share its sweep.

    Attributes:
        obligation: What had to be shown.
        assumptions: Facts that the proof uses, beyond those of real arithmetic.
        identities: The equations that were proved.
        method: How they were proved symbolically.
        seed: Seed of the numbers on which they were checked as well.
        digits: Decimal digits of that check; 0 where there was nothing to check.
        samples: How many points were checked.
    """

    obligation: str
    assumptions: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    method: str = ""
    seed: int = 0
    digits: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Fused:
    """The stage is carried with the results that it reads.

    Attributes:
        stage: The name of the definition.
        axes: The swept axes.
        state: What is kept, as formulas.
        transport: How each part of the state moves when reference points do.
        merge: How two states join.
        finish: The stage's result from the state.
        proof: Why this is right.
    """

    stage: str
    axes: tuple[str, ...]
    state: tuple[str, ...]
    transport: tuple[str, ...]
    merge: str
    finish: str
    proof: Proof


@dataclass(frozen=True, slots=True)
class Refuted:
    """The stage cannot be carried: `witness` breaks the obligation."""

    stage: str
    obligation: str
    witness: Witness


@dataclass(frozen=True, slots=True)
class Undecided:
    """It is not known whether the stage can be carried: `obligation` is open."""

    stage: str
    obligation: str


StageVerdict: TypeAlias = Fused | Refuted | Undecided
