"""Every function of the library under `redlang.testing.check`: reference, masks, folding."""

import pytest
from hypothesis import strategies as st

import redlang
from redlang import std
from redlang.testing import check

KERNELS = {
    name: redlang.compile(
        f'def {name}(x: "m n") -> "{axes}":\n    return fill(std.{name}[n](where({mask}, x)), 0)\n',
        names={"std": std},
    )
    for name, axes, mask in (
        ("mean", "m", "n >= m"),
        ("var", "m", "n != 2"),
        ("normalize", "m n", "n >= m"),
        ("softmax", "m n", "n <= m"),
        ("log_softmax", "m n", "n != 1"),
        ("logsumexp", "m", "n <= m"),
        ("entropy", "m", "n < 7"),
        ("rms_norm", "m n", "n != 0"),
        ("layer_norm", "m n", "n <= m + 2"),
    )
}


@pytest.mark.parametrize("name", KERNELS)
def test_with_masks(name):
    check(KERNELS[name], examples=12)


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
    check(KERNELS["softmax"], examples=8, dtype=dtype)
    check(KERNELS["layer_norm"], examples=8, dtype=dtype)
