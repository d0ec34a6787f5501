"""What a user may ask of a kernel besides what it computes."""

from __future__ import annotations

from typing import Literal, get_args

from redlang.errors import ArgumentError
from redlang.values import dataclass

Fuse = Literal["auto", "always", "never", "require"]
Contract = Literal["auto", "f32", "tf32"]
Rounding = Literal["exact", "running"]
Instructions = Literal["auto", "portable"]

_CHOICES: dict[str, tuple[object, ...]] = {
    "fuse": get_args(Fuse),
    "contract": get_args(Contract),
    "rounding": get_args(Rounding),
    "tune": (False, True),
    "instructions": get_args(Instructions),
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `redlang.kernel`.

    Attributes:
        fuse: Whether stages share sweeps: `auto` where that is proved and stable, `always` where
            it is proved, `never`, or `require`, which makes a stage left out an error.
        contract: `f32` forbids that a computed operand of a matrix product is rounded to the
            16-bit type of the other operand; `auto` allows it where its range is proved to fit, and
            `tf32` that tensor cores round f32 operands to ten bits too.
        rounding: `exact` gives casts to 8 bits of a value scaled by a maximum their two-pass
            result; `running` allows the scale known so far. It is a permission that no plan uses
            yet, and `explain` says so.
        tune: Whether the first call for a class of extents measures a few plans and keeps the
            fastest, instead of trusting the model.
        instructions: `portable` keeps matrix products to instructions that every GPU from 8.0 on
            has; `auto` takes the fastest that the device has.
    """

    fuse: Fuse = "auto"
    contract: Contract = "auto"
    rounding: Rounding = "exact"
    tune: bool = False
    instructions: Instructions = "auto"

    def __post_init__(self) -> None:
        """Check every option.

        Raises:
            ArgumentError: One has a value that it does not take.
        """
        for name in _CHOICES:
            problem = fault(name, getattr(self, name))
            if problem:
                raise ArgumentError(problem)


def fault(name: str, value: object) -> str:
    """Return what is wrong with an option; empty if nothing is.

    >>> fault("tune", 1), fault("fuse", "auto")
    ('tune=1: choose one of False, True', '')
    """
    if name not in _CHOICES:
        return f"there is no option {name!r}: choose one of {', '.join(_CHOICES)}"
    choices = _CHOICES[name]
    # By type too: 1 equals True, and is no answer to whether.
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return ""
    return f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}"
