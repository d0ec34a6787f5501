"""Every function of the library under `redlang.testing.check`: reference, masks, folding."""

import pytest
from hypothesis import strategies as st

import redlang
from redlang import std
from redlang.testing import check

ROWS = {"mean": "n >= m", "var": "n != 2", "logsumexp": "n <= m", "entropy": "n < 7"}
MAPS = {
    "normalize": "n >= m",
    "softmax": "n <= m",
    "log_softmax": "n != 1",
    "rms_norm": "n != 0",
    "layer_norm": "n <= m + 2",
}


def masked(name):
    """Return the kernel of a library function on elements that a mask leaves."""
    call = f"std.{name}[n](where({ROWS.get(name) or MAPS[name]}, x))"
    value, axes = (call, "m") if name in ROWS else (f"fill({call}, 0)", "m n")
    text = f'def {name}(x: "m n") -> "{axes}":\n    return {value}\n'
    return redlang.compile(text, names={"std": std})


@pytest.mark.parametrize("name", [*ROWS, *MAPS])
def test_with_masks(name):
    check(masked(name), examples=12)


@redlang.kernel
def covariance(x: "m n", y: "n") -> "m":
    return std.covariance[n](x, y)


@redlang.kernel
def cross_entropy(x: "m v", label: "i32[m]") -> "m":
    return std.cross_entropy[v](x, label)


@redlang.kernel
def attention(q: "m d", k: "n d", v: "n e") -> ("m e", "m"):
    o, lse = std.attention_with_lse[m, n, d](q, k, v, causal=True, left=5)
    return o, lse


@redlang.kernel
def route(logits: "t e") -> ("t j", "t j"):
    weight, expert = std.moe_route[e, j](logits, 2)
    return weight, expert


@redlang.kernel
def quantize(x: "r (b l=8)") -> ("f8e4m3[r (b l)]", "f32[r b]"):
    return std.quantize[l](x)


EXTENTS = {
    "attention": {"d": st.sampled_from((1, 3, 16)), "e": st.sampled_from((1, 5))},
    "route": {"e": st.integers(2, 9)},
}


@pytest.mark.parametrize(
    "kernel",
    [covariance, cross_entropy, attention, quantize, route],
    ids=lambda kernel: kernel.__name__,
)
def test_of_several_arrays(kernel):
    check(kernel, examples=12, extents=EXTENTS.get(kernel.__name__))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_in_other_element_types(dtype):
    check(masked("softmax"), examples=8, dtype=dtype)
    check(masked("layer_norm"), examples=8, dtype=dtype)
