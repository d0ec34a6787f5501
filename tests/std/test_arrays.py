"""The library on arrays: values, shapes, axes, edge cases."""

import inspect
import pydoc

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn

import redlang
from redlang import std
from redlang.errors import ArgumentError, DTypeError
from redlang.testing.compare import assert_close

inf, nan = np.inf, np.nan
f32 = np.float32
X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(f32)
Y = np.random.default_rng(1).normal(size=(3, 4, 5)).astype(f32)


def softmax(x, axis):
    p = np.exp(x - x.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def entropy(x, axis):
    p = softmax(x, axis)
    return -(p * np.log(p)).sum(axis=axis)


def layer_norm(x, axis):
    centred = x - x.mean(axis=axis, keepdims=True)
    return centred / np.sqrt(x.var(axis=axis, keepdims=True) + 1e-5)


RIGHT = {
    "mean": lambda x, axis: x.mean(axis=axis),
    "var": lambda x, axis: x.var(axis=axis),
    "std": lambda x, axis: x.std(axis=axis),
    "normalize": lambda x, axis: x / np.sqrt((x * x).sum(axis=axis, keepdims=True)),
    "softmax": softmax,
    "log_softmax": lambda x, axis: np.log(softmax(x, axis)),
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis=axis)),
    "entropy": entropy,
    "rms_norm": lambda x, axis: x / np.sqrt((x * x).mean(axis=axis, keepdims=True) + 1e-6),
    "layer_norm": layer_norm,
}
# What a row without elements, and a row of -inf, gives. None: the same shape, all of it NaN.
NOTHING = {"mean": nan, "var": nan, "std": nan, "logsumexp": -inf, "entropy": 0.0}
MINUS_INFINITY = {"softmax": 0.0, "log_softmax": -inf, "logsumexp": -inf, "entropy": 0.0}


@pytest.mark.parametrize("name", RIGHT)
def test_values_of_rows(name):
    expected = RIGHT[name](X[0].astype(float), 1)
    assert_close(getattr(std, name)(X[0]), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "var"])
@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2)])
def test_any_axis_will_do(name, axis):
    expected = RIGHT[name](X.astype(float), axis)
    assert_close(getattr(std, name)(X, axis=axis), expected, rtol=2e-5, atol=1e-6)


def test_a_vector_is_enough():
    x = X[0, 0]
    assert_close(std.softmax(x), softmax(x.astype(float), 0), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["var", "softmax", "logsumexp", "rms_norm", "layer_norm"])
def test_halves_come_back_as_halves(name):
    result = getattr(std, name)(X[0].astype(np.float16))
    assert result.dtype == np.float16
    assert_close(result, RIGHT[name](X[0].astype(float), -1), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("name", RIGHT)
def test_a_row_of_nothing(name):
    result = getattr(std, name)(np.zeros((2, 0), f32))
    expected = np.full(2, NOTHING[name]) if name in NOTHING else np.zeros((2, 0))
    assert_close(result, expected)


@pytest.mark.parametrize("name", MINUS_INFINITY)
def test_a_row_of_minus_infinities(name):
    result = getattr(std, name)(np.full((2, 3), -inf, f32))
    assert_close(result, np.full(result.shape, MINUS_INFINITY[name]))


@pytest.mark.parametrize("name", RIGHT)
def test_a_nan_spoils_its_row_only(name):
    x = X[0].copy()
    x[1, 2] = nan
    result = getattr(std, name)(x)
    assert np.isnan(result[1]).all()
    assert np.isfinite(result[[0, 2, 3]]).all()


def test_the_log_sum_exp_of_plus_infinity_is_plus_infinity():
    # As scipy.special.logsumexp; nothing but -inf gives -inf, and a NaN wins.
    rows = [[0, inf, 1], [inf, inf, inf], [-inf, inf, 0], [inf, nan, 0], [-inf, -inf, -inf]]
    x = np.array(rows, f32)
    right = [inf, inf, inf, nan, -inf]
    assert_close(std.logsumexp(x), right)
    kernel = redlang.compile(
        'def f(x: "m n") -> "m": return std.logsumexp[n](x)', names={"std": std}
    )
    assert_close(kernel.reference(x), right)
    assert [axes for kernel in kernel.sweeps for axes, _ in kernel] == ["n"]
    assert np.isnan(std.softmax(x)[:4]).all()


@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_queries_may_share_those_of_keys(causal):
    rng = np.random.default_rng(7)
    q = rng.normal(size=(2, 6, 5, 4)).astype(f32)
    k, v = rng.normal(size=(2, 2, 2, 7, 4)).astype(f32)
    right = std.attention_with_lse(q, k.repeat(3, 1), v.repeat(3, 1), causal=causal)
    shared = std.attention_with_lse(q, k, v, causal=causal)
    assert [r.shape for r in shared] == [(2, 6, 5, 4), (2, 6, 5)]
    assert_close(shared, right, rtol=1e-5, atol=1e-6)
    assert_close(std.attention(q, k, v, causal=causal), right[0], rtol=1e-5, atol=1e-6)


def test_masked_exponentials_weigh_nothing_among_others():
    x = np.array([[0, -inf, 1]], f32)
    right = softmax(np.array([0, 1.0]), 0)
    assert_close(std.softmax(x), [[right[0], 0, right[1]]])
    assert_close(std.entropy(x), [-(right * np.log(right)).sum()])


def test_norms_take_gain_and_bias():
    gain, bias = np.arange(5, dtype=f32), np.ones(5, f32)
    x, plain = X[0], layer_norm(X[0].astype(float), -1)
    assert_close(std.layer_norm(x, gain, bias), plain * gain + bias, rtol=2e-5, atol=1e-5)
    assert_close(std.layer_norm(x, bias=2.0), plain + 2, rtol=2e-5, atol=1e-5)
    assert_close(std.rms_norm(x, gain), RIGHT["rms_norm"](x.astype(float), -1) * gain, rtol=2e-5)


def test_zeros_stay_zeros():
    zeros = np.zeros((2, 4), f32)
    for function in (std.normalize, std.rms_norm, std.layer_norm):
        assert_close(function(zeros), zeros)


def test_covariance():
    x, y = X.reshape(3, 20).astype(float), Y.reshape(3, 20).astype(float)
    right = ((x - x.mean(1, keepdims=True)) * (y - y.mean(1, keepdims=True))).mean(1)
    assert_close(std.covariance(X, Y, axis=(1, 2)), right, rtol=1e-4, atol=1e-6)
    assert_close(std.covariance(X, X), std.var(X), rtol=1e-6)


def test_cross_entropy_and_its_labels():
    logits = np.array([[1, 2, 3], [3, 2, 1], [0, 0, 0], [0, -inf, 0]], f32)
    log_p = np.log(softmax(logits.astype(float)[:3], 1))
    label = np.array([2, 1, 0, 1])
    right = [-log_p[0, 2], -log_p[1, 1], -log_p[2, 0], inf]
    assert_close(std.cross_entropy(logits, label), right, rtol=1e-6)
    assert_close(std.cross_entropy(logits, np.array([-100, 3, -1, 0])), [0, nan, nan, np.log(2)])
    assert_close(std.cross_entropy(logits, label, ignore_index=2), [0, *right[1:]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_labels_are_integers_of_any_type(dtype):
    logits = np.array([[1, 2, 3], [3, 2, 1]], f32)
    right = -np.log(softmax(logits.astype(float), 1))[[0, 1], [2, 1]]
    assert_close(std.cross_entropy(logits, np.array([2, 1], dtype)), right, rtol=1e-6)
    assert_close(std.cross_entropy(logits[0], dtype(2)), right[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: std.cross_entropy(X[0], np.full(4, 0.5)), "label of .* is of type float64"),
        (lambda: std.cross_entropy(X[0], np.arange(4, dtype=f32)), "label of .* type float32"),
        (lambda: std.cross_entropy(X[0], np.ones(4, bool)), "label of .* type bool"),
        (lambda: std.cross_entropy(X[0, 0], 0.5), "label .*0.5"),
        (lambda: std.cross_entropy(X[0], np.arange(4), 0.5), "ignore_index .*0.5"),
        (lambda: std.moe_route(X, 2.5), "k of moe_route is an integer, and its argument is 2.5"),
        (lambda: std.moe_route(X, True), "k of moe_route is an integer, and its argument is True"),
    ],
)
def test_labels_that_are_no_integers_are_refused(call, message):
    with pytest.raises((redlang.DTypeError, redlang.ArgumentError), match=message):
        call()


@pytest.mark.parametrize("label", ["y", "y + n", "y / 2", "y > 0"])
def test_labels_of_a_kernel_are_integers(label):
    kernel = redlang.compile(
        f'def f(x: "m n", y: "m") -> "": return sum[m](std.cross_entropy[n](x, {label}))',
        names={"std": std},
    )
    with pytest.raises(redlang.DTypeError, match="label of cross_entropy is an integer"):
        kernel(X[0], np.ones(4, f32))


def test_a_mistake_shows_nothing_of_the_text_that_the_library_makes():
    with pytest.raises(redlang.ArgumentError, match=r"topk\[e\] takes 9 of them") as caught:
        std.moe_route(X, 9)
    assert "library" not in str(caught.value)
    assert std.moe_route(X, np.int32(2))[0].shape == (3, 4, 2)


def attention(q, k, v, scale, seen):
    s = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    lse = s.max(axis=-1) + np.log(p.sum(axis=-1))
    return p @ v / p.sum(axis=-1, keepdims=True), lse


@pytest.mark.parametrize(("causal", "scale"), [(False, 0.3), (True, None)])
def test_attention(causal, scale):
    rng = np.random.default_rng(2)
    q = rng.normal(size=(2, 3, 6, 8)).astype(f32)
    k, v = rng.normal(size=(2, 2, 3, 9, 8)).astype(f32)
    seen = np.arange(9) <= np.arange(6)[:, None] + 3 if causal else np.ones((6, 9), bool)
    wide = [array.astype(float) for array in (q, k, v)]
    right = attention(wide[0], wide[1], wide[2], scale or 8**-0.5, seen)
    o, lse = std.attention_with_lse(q, k, v, scale=scale, causal=causal)
    assert_close((o, lse), right, rtol=1e-4, atol=1e-5)
    if causal and scale is None:
        assert_close(std.attention(q, k, v, causal=True), right[0], rtol=1e-4, atol=1e-5)


def test_attention_keeps_its_log_sum_exp_wide():
    q = np.ones((4, 8), np.float16)
    o, lse = std.attention_with_lse(q, q, q)
    assert (o.dtype, lse.dtype) == (np.float16, f32)
    assert std.attention_with_lse(*[q.astype(float)] * 3)[1].dtype == np.float64


def test_attention_without_keys_is_zero():
    q, nothing = np.ones((4, 8), f32), np.ones((0, 8), f32)
    assert_close(std.attention_with_lse(q, nothing, nothing), (np.zeros((4, 8)), np.full(4, -inf)))


def test_routing_leaves_slots_empty_where_experts_are_masked():
    @redlang.kernel
    def routed(logits: "t e", alive: "bool[e]") -> ("t j", "t j"):
        weight, expert = std.moe_route[e, j](where(alive, logits), 3)
        return weight, expert

    logits, alive = np.zeros((1, 4), f32), np.array([False, True, False, True])
    weights, experts = routed(logits, alive)
    assert experts.tolist() == [[1, 3, -1]]
    assert weights.tolist() == [[0.5, 0.5, 0]]


def test_quantisation_is_as_close_as_its_format():
    x = np.random.default_rng(3).normal(size=(4, 64)).astype(f32)
    codes, scale = std.quantize(x)
    assert codes.dtype == float8_e4m3fn
    assert_close(
        codes.astype(f32) * scale[:, None], x, rtol=2**-4, atol=np.abs(x).max() / 448 / 512
    )
    codes, scale = std.quantize_int8(x)
    assert codes.dtype == np.int8
    assert_close(codes * scale[:, None], x, rtol=0, atol=np.abs(x).max() / 127 * 0.5001)
    assert np.abs(codes).max() == 127


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: std.softmax(X, axis=3), "axis 3"),
        (lambda: std.softmax(2.0), "a number has no axis"),
        (lambda: std.softmax([1.0, 2.0]), r"pass numpy.asarray\(x\)"),
        (lambda: std.softmax(X, axis=None), r"for all dimensions: axis=\(0, 1, 2\)"),
        (lambda: std.softmax(X, axis=1.5), "axis of softmax is 1.5"),
        (lambda: std.attention(X, X[:2], X[:2]), "q has extent 3 in dimension 0, and k has 2"),
        (
            lambda: std.attention(X, X[:2], X[:2]),
            "the 3 heads of q must be a multiple of the 2 of k",
        ),
        (lambda: std.attention(X, X[:3], X[:2]), "v has extent 2 in dimension 0, and k has 3"),
        (lambda: std.attention(X, X[0], X), "in k: '... n d' the dots stand for what q has"),
        (
            lambda: std.cross_entropy(X, np.zeros((4, 4), int), axis=0),
            r"label has extent 4 in dimension 1, and x has 5 in dimension 2\n  std.cross_entro",
        ),
        (lambda: std.softmax(X, temperature=2.0), "temperature is no parameter"),
        (lambda: std.softmax(X, X, X), "takes 1 argument"),
        (lambda: std.softmax(X, -1), r"axis and out are given by name: std.softmax\(x, axis=-1\)"),
        (lambda: std.softmax(X, dim=-1), r"called axis: std.softmax\(x, axis=-1\)"),
        (lambda: std.attention(X, X, X, dim=-1), r"last 2 dimensions: std.attention\(q, k, v\)"),
        (lambda: std.mean(X, keepdims=True), r"the call is std.mean\(x, axis=-1\)"),
        (lambda: std.var(X, ddof=1), r"n / \(n - 1\); the call is std.var\(x, axis=-1\)"),
        (lambda: std.softmax(X, beta=1), r"it takes x, axis, out: std.softmax\(x, axis=-1\)"),
        (lambda: std.softmax(X, axis=(0, 0)), r"axis of softmax is \(0, 0\), .* twice"),
        (lambda: std.softmax(X, axis=(0, -3)), r"axis of softmax is \(0, -3\), .* twice"),
        (lambda: std.attention(X, X, X, axis=0), "last 2 dimensions"),
        (lambda: std.attention(X[0, 0], X, X), r"q has 1 dim.*must have 2 .*\n.*n\(q, k, v\)"),
        (lambda: std.attention(X, X, X, is_causal=True), r"did you mean causal\?"),
        (lambda: std.attention(X, X, X, attn_mask=X), r"where\(mask, s\)"),
        (lambda: std.attention(X, None, X), r"k is missing: std.attention\(q, k, v\)\Z"),
        (lambda: std.attention(k=X), r"q and v are missing: std.attention\(q, k, v\)\Z"),
        (lambda: std.softmax(axis="z"), r"x is missing: std.softmax\(x, axis=-1\)\Z"),
        (lambda: std.moe_route(X, X), r"k of moe_route is an array of shape \(3, 4, 5\)"),
        (lambda: std.moe_route(X, "two"), "k of moe_route is 'two'"),
        (lambda: std.covariance(X, Y[0]), "y"),
        (lambda: std.moe_route(X), r"k is missing: std.moe_route\(logits, k, axis=-1\)\Z"),
        (lambda: std.softmax(memoryview(X.tobytes())), "x is a memoryview, and must be an array"),
    ],
)
def test_mistakes_name_what_is_wrong(call, message):
    with pytest.raises(redlang.ArgumentError, match=message):
        call()


def test_mistakes_inside_show_nothing_of_the_library():
    with pytest.raises(
        DTypeError, match=r"\Atypes: topk keeps .*, and k is 0\nhint: k is how many .*\Z"
    ):
        std.moe_route(X, 0)


def test_every_name_has_a_docstring():
    for name in std.__all__:
        assert len(getattr(std, name).__doc__) > 30


def test_help_shows_how_functions_are_called_on_arrays():
    shown = pydoc.plain(pydoc.render_doc(std.layer_norm))
    assert (
        "layer_norm(x: '... l', gain: 'l' = 1.0, bias: 'l' = 0.0, eps=1e-05, *, axis=-1," in shown
    )
    assert "Return x with mean 0" in shown
    assert str(inspect.signature(std.attention)).endswith("right=-1, *, out=None) -> '... m e'")


def test_kinds_of_calls_are_told_apart_and_remembered_in_bounds(monkeypatch):
    monkeypatch.setattr("redlang.std.arrays.KEPT_KINDS", 2)
    grouped = np.ones((2, 3, 4), f32)
    calls = [
        lambda: std.softmax(X),
        lambda: std.softmax(x=X, axis=0),
        lambda: std.softmax(X, axis=[0, 1]),
        lambda: std.softmax(X.astype(np.float64)),
        lambda: std.softmax(X[0]),
        lambda: std.attention(grouped, grouped, grouped),
        lambda: std.attention(k=grouped, q=grouped[:, :, ::-1], v=grouped, scale=None),
        lambda: std.attention(grouped, grouped, grouped, causal=True),
        lambda: std.attention(grouped, grouped[:1], grouped[:1], scale=0.5),
    ]
    first = [call() for call in calls]
    assert_close(first[0], softmax(X, -1))
    assert_close(first[1], softmax(X, 0))
    assert_close(first[2], softmax(X.reshape(12, 5), 0).reshape(X.shape))
    assert first[3].dtype == np.float64
    for again in (calls, calls[::-1]):
        results = [call() for call in again]
        for one, other in zip(results, first if again is calls else first[::-1], strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(std.softmax._ready) <= 2


def test_an_axis_is_known_by_its_number():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for axis in (0, 1):
        one = std.softmax(x, axis=axis)
        for other in (iter((axis,)), [axis], np.int64(axis), np.array([axis]), np.array(axis)):
            np.testing.assert_array_equal(std.softmax(x, axis=other), one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: std.softmax(x, axis=()), "must be an integer or several"),
        (lambda x: std.softmax(x, axis=True), "axis of softmax is True, and must be an integer"),
        (lambda x: std.softmax(x, axis=(0, True)), "must be an integer or several"),
        (lambda x: std.softmax(x, axis={0: 1}), "must be an integer or several"),
        (lambda x: std.softmax(x, axis=(1, -1)), r"names one twice\n.*axis=1$"),
        (lambda x: std.softmax(x, axis=(1, 0, -1)), r"names one twice\n.*axis=\(0, 1\)$"),
        (lambda x: std.rms_norm(x, eps=np.ones(3, np.float32)), "eps of rms_norm is an array"),
    ],
)
def test_what_no_axis_and_no_number_is(call, message):
    with pytest.raises(ArgumentError, match=message):
        call(np.ones((3, 4), np.float32))


def test_equal_options_of_other_types_are_others():
    x = np.ones((1, 1, 3, 4), np.float32)
    with pytest.raises(DTypeError, match="causal of attention is 1, and must be a bool"):
        std.attention(x, x, x, causal=1)
    expected = std.attention(x, x, x, causal=True)
    np.testing.assert_array_equal(std.attention(x, x, x, causal=np.True_), expected)
    rows = x[0, 0]
    values, indices = std.moe_route(rows, 2)
    assert values.shape == indices.shape == (3, 2)
    np.testing.assert_array_equal(std.moe_route(rows, np.array(2))[0], values)
