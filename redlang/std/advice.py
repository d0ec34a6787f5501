"""What to say where a function of the library is called with another library's option."""

from __future__ import annotations

from collections.abc import Sequence

from redlang.frontend.builtins import nearest


def instead(option: str, names: Sequence[str], width: int, usage: str) -> str:
    """Return how the library says what an option of NumPy's or torch's functions does.

    Args:
        option: What was given by name, and is no parameter.
        names: The parameters.
        width: How many dimensions the function works on.
        usage: How it is called.
    """
    match option:
        case "dim" | "axes" | "dims" if width > 1:
            return f"it works on the last {width} dimensions: {usage}"
        case "dim" | "axes" | "dims":
            return f"the dimension is called axis: {usage}"
        case "keepdim" | "keepdims":
            return f"expand_dims puts the dimension back; the call is {usage}"
        case "ddof" | "correction" | "unbiased":
            return f"ddof is 0: multiply a variance by n / (n - 1); the call is {usage}"
        case "dtype":
            return f"convert the array first; the call is {usage}"
        case "mask" | "attn_mask":
            return f"write a kernel, where a mask is where(mask, s); the call is {usage}"
        case "enable_gqa":
            return f"heads share without an option where their numbers say so; the call is {usage}"
        case "dropout" | "dropout_p":
            return f"nothing is dropped here; the call is {usage}"
    match = nearest(option, [*names, "axis", "out"])
    meant = f"did you mean {match}? " if match else ""
    return f"{meant}it takes {', '.join((*names, 'axis', 'out'))}: {usage}"
