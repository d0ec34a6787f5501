"""Quantisation and routing."""

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn

import redlang
from redlang import std
from tests.cases.judge import agrees, gives

inf, nan = np.inf, np.nan
f32 = np.float32


@redlang.kernel
def blocks(x: "r (b l=128)") -> ("f8e4m3[r (b l)]", "f32[r b]"):
    return std.quantize[l](x)


@redlang.kernel
def codes_of(x: "n") -> "f8e4m3[n]":
    return f8e4m3(x)


def dequantised(x):
    """Codes times scales, from the compiled kernel; the reference must agree."""
    codes, scales = agrees(blocks, (x,), precision="declared")
    wide = np.repeat(scales, 128, axis=1)[:, : x.shape[1]]
    return codes.astype(f32) * wide, codes, scales


def test_a_block_of_zeros_stays_zero():  # C082
    x = np.zeros((1, 256), f32)
    x[0, 128:] = np.linspace(-3, 3, 128)
    values, codes, scales = dequantised(x)
    assert (codes[0, :128].astype(f32) == 0).all()
    assert np.isfinite(scales).all()
    np.testing.assert_allclose(values[0, 128:], x[0, 128:], rtol=0.07, atol=1e-2)


def test_a_tiny_block_has_a_finite_scale():  # C083
    x = np.zeros((1, 128), f32)
    x[0, 5] = 1e-44
    values, _, scales = dequantised(x)
    assert np.isfinite(scales).all()
    assert np.isfinite(values).all()
    assert np.abs(values - x).max() <= 1e-44


def test_casts_to_eight_bits_saturate():  # C084
    x = np.array([1000, -1e9, inf, nan, 448, 464, 0.1], f32)
    codes = codes_of(x)
    assert codes.dtype == float8_e4m3fn
    gives(codes_of, (x,), [448, -448, 448, nan, 448, 448, float8_e4m3fn(0.1)])


def test_a_nan_spoils_its_own_block_only():  # C086
    x = np.ones((1, 384), f32)
    x[0, 130] = nan
    values, _, scales = dequantised(x)
    assert np.isnan(scales[0]).tolist() == [False, True, False]
    assert np.isnan(values[0, 128:256]).all()
    np.testing.assert_allclose(np.delete(values[0], np.s_[128:256]), 1)


def test_routing_survives_nan():  # C087
    logits = np.zeros((3, 16), f32)
    logits[0] = nan
    logits[1, 7] = nan
    logits[2, 3] = 5
    weights, experts = std.moe_route(logits, 4)
    for row in experts:
        assert len(set(row.tolist())) == 4
        assert ((row >= 0) & (row < 16)).all()
    np.testing.assert_allclose(weights[:2], 0.25)
    assert experts[1, 0] == 7
    assert experts[2].tolist() == [3, 0, 1, 2]
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("experts", [8, 16, 32, 48, 64, 96, 128, 192, 256])
def test_routing_at_many_sizes(experts):  # C088
    logits = np.random.default_rng(experts).normal(size=(5, experts)).astype(f32)
    p = np.exp(logits.astype(float))
    p /= p.sum(axis=1, keepdims=True)
    order = np.argsort(-p, axis=1, kind="stable")
    for k in (1, 2, 4, 8):
        weights, chosen = std.moe_route(logits, k)
        best = np.take_along_axis(p, order[:, :k], axis=1)
        np.testing.assert_array_equal(chosen, order[:, :k])
        np.testing.assert_allclose(weights, best / best.sum(axis=1, keepdims=True), rtol=1e-5)


def test_renormalising_makes_the_order_of_operations_equal():  # C089
    logits = np.array([[1, 1, 0]], f32)
    weights, _ = std.moe_route(logits, 2)
    np.testing.assert_allclose(weights, [[0.5, 0.5]], rtol=1e-6)
    weights, _ = std.moe_route(logits, 2, renormalize=False)
    np.testing.assert_allclose(weights, [[0.4223, 0.4223]], atol=5e-5)


def test_softmax_then_topk_selects_on_the_logits():  # C089
    @redlang.kernel
    def chosen(x: "m e") -> ("m 2", "m 2"):
        values, index = topk[e](std.softmax[e](x), 2)
        return values, index

    # The two smaller probabilities underflow to 0 in f32; their logits still have an order.
    gives(chosen, (np.array([[0, -300, -200]], f32),), ([[1, 0]], [[0, 2]]), atol=1e-30)


def test_one_expert_has_all_the_weight():  # C090
    logits = np.random.default_rng(90).normal(size=(7, 8)).astype(f32)
    weights, experts = std.moe_route(logits, 1)
    assert (weights == 1).all()
    np.testing.assert_array_equal(experts[:, 0], logits.argmax(axis=1))


def test_a_ragged_last_block_has_its_own_scale():  # C091
    codes, scales = blocks(np.zeros((0, 128), f32))
    assert codes.shape == (0, 128)
    assert scales.shape == (0, 1)
    x = np.ones((1, 130), f32)
    x[0, 128:] = 1000
    values, codes, scales = dequantised(x)
    assert codes.shape == (1, 130)
    assert scales.shape == (1, 2)
    np.testing.assert_allclose(values, x)
