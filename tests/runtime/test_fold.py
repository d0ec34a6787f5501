"""Streams: any cut into chunks, in any process, gives what the whole array gives."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redlang
from redlang import std
from redlang.testing import check
from tests.with_torch import torch

f32 = np.float32
RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 97)).astype(f32)


@redlang.kernel
def statistics(x: "m n") -> ("m", "m", "m"):
    return mean[n](x), std.var[n](x), max[n](x)


@redlang.kernel
def entropy(x: "m n") -> "m":
    return std.entropy[n](x)


@redlang.kernel
def attention(q: "m d", k: "n d", v: "n e") -> ("m e", "m"):
    s = sum[d](q * k) * rsqrt(size(d))
    top = max[n](s)
    p = exp(s - top)
    return sum[n](p * v) / sum[n](p), top + log(sum[n](p))


@redlang.kernel
def extremes(x: "m n") -> ("m", "m", "m 2", "m 2"):
    values, places = topk[n](x, 2)
    return argmax[n](x), max[n](x), values, places


@redlang.kernel
def weighted(x: "n", power: float = 1.0) -> "":
    return sum[n](x * n * power)


@redlang.kernel
def relative(x: "n") -> "":
    return sum[n](x * n / size(n))


@redlang.kernel
def softmax(x: "m n") -> "m n":
    return std.softmax[n](x)


@redlang.kernel
def deviation(x: "m n") -> "m":
    return mean[n](abs(x - mean[n](x)))


@redlang.kernel
def looked_up(x: "n", i: "i32[m]") -> "":
    return sum[m](fill(x[i], 0)) + sum[n](x)


@redlang.monoid
class Affine:
    """Composition of maps y -> a * y + b, the earlier map first."""

    def init():
        return 1.0, 0.0

    def lift(a, b):  # noqa: N805  # a state, not an object
        return a, b

    def combine(a, b):  # noqa: N805  # a state, not an object
        return a[0] * b[0], b[0] * a[1] + b[1]

    def finish(a):  # noqa: N805  # a state, not an object
        return a[1]


@redlang.kernel
def recurrence(gate: "m n", x: "m n") -> "m":
    return Affine[n](gate, where(x > -1, x))


@redlang.kernel
def masked(x: "m n", keep: "bool[n]") -> ("m", "m", "m"):
    y = where(keep, x)
    return max[n](y), mean[n](y), std.logsumexp[n](y)


@redlang.kernel
def listed(x: "n m") -> ("m 3", "m 3", "m", "m", "m", "m"):
    values, places = topk[n](where(n != 4, x), 3)
    return values, places, argmin[n](x), argmax[n](where(x < 0.5, x)), count[n](x > 0), prod[n](x)


@redlang.kernel
def of_two(x: "a n", y: "n b") -> ("a b", "a", "b", ""):
    return sum[n](x * y), any[n](x > 2), all[n](y > -2), sum[a, n](x)


@redlang.kernel
def windowed(q: "m d", k: "n d", v: "n e") -> "m e":
    p = std.softmax[n](where(n <= m + 3, sum[d](q * k)))
    return sum[n](fill(p, 0) * v)


@redlang.kernel
def with_constants(x: "m n", w: "k", y: "k n") -> ("m", "", "m"):
    c = max[k](w)
    z = exp((x - max[n](x)) * c)
    r = sum[k](y * w)
    return sum[n](z) + size(n), sum[n](r) / sum[k](w / size(n)), sum[n](x * c) / c


@redlang.kernel
def normed(q: "m d", k: "n d", v: "n e", g: "d") -> "m e":
    # The two means share a sweep, and only one of them waits for elements.
    kn = k * rsqrt(mean[d](k * k)) * g
    qn = q * rsqrt(mean[d](q * q)) * g
    return std.weighted[n](sum[d](qn * kn), v)


@redlang.kernel
def scaled_after(x: "m n", w: "n d", c: "m d") -> "m":
    # The sums over d share a sweep, and one of them is read only behind the stream.
    return sum[n](x * sum[d](w)) / sum[d](c * c)


@redlang.kernel
def dequantised(x: "i (b l=4)", w: "i8[j (b l=4)]", s: "j b") -> "i j":
    return sum[b, l](x * f32(w) * s)


@redlang.kernel
def read_on(x: "m n") -> ("", "m"):
    a = max[n](x)
    b = max[m](a)
    return sum[m](sum[n](x) / b), a - b


@redlang.kernel
def first_place(x: "i j") -> ("", "", ""):
    i_best, j_best = argmax[i, j](x)
    return i_best, j_best, std.var[i, j](x)


@redlang.kernel
def routed(x: "t e") -> ("t j", "t j"):
    weight, expert = std.moe_route[e, j](x, 3)
    return weight, expert


def same(results, expected, **tolerance):
    if not isinstance(results, tuple):
        results, expected = (results,), (expected,)
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, **tolerance)


def chunks(x, cuts):
    return np.split(x, sorted(cuts), axis=-1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 97), max_size=4), st.integers(0, 4))
def test_any_cut_and_any_merge_give_the_whole(cuts, place):
    for kernel in (statistics, entropy):
        pieces = chunks(X, cuts)
        first, second = kernel.fold("n"), kernel.fold("n")
        for piece in pieces[:place]:
            first.update(piece)
        for piece in pieces[place:]:
            second.update(piece)
        joint = first.merge(second)
        assert joint.count == 97
        expected = kernel.reference(X)
        for result, right in zip(
            np.atleast_2d(joint.result()), np.atleast_2d(expected), strict=True
        ):
            np.testing.assert_allclose(result, right, rtol=2e-5)


STREAMS = [
    # The shape of each array, and which of its dimensions arrives in pieces.
    (recurrence, "n", {"gate": ((3, 11), 1), "x": ((3, 11), 1)}),
    (masked, "n", {"x": ((3, 12), 1), "keep": ((12,), 0)}),
    (listed, "n", {"x": ((13, 4), 0)}),
    (of_two, "n", {"x": ((3, 12), 1), "y": ((12, 4), 0)}),
    (windowed, "n", {"q": ((4, 3), None), "k": ((12, 3), 0), "v": ((12, 5), 0)}),
    (with_constants, "n", {"x": ((3, 11), 1), "w": ((2,), None), "y": ((2, 11), 1)}),
    (normed, "n", {"q": ((3, 4), None), "k": ((11, 4), 0), "v": ((11, 2), 0), "g": ((4,), None)}),
    (scaled_after, "n", {"x": ((3, 11), 1), "w": ((11, 4), 0), "c": ((3, 4), None)}),
    (read_on, "n", {"x": ((3, 11), 1)}),
    (first_place, "i", {"x": ((7, 5), 0)}),
    (routed, "e", {"x": ((4, 9), 1)}),
]


@pytest.mark.parametrize(
    ("kernel", "axis", "arrays"), STREAMS, ids=[k.__name__ for k, *_ in STREAMS]
)
def test_any_pieces_in_any_order_give_the_whole(kernel, axis, arrays):
    arguments = {name: RNG.normal(size=shape).astype(f32) for name, (shape, _) in arrays.items()}
    if "keep" in arguments:
        arguments["keep"] = arguments["keep"] > 0.3
    dims = {name: dim for name, (_, dim) in arrays.items() if dim is not None}
    constants = {name: array for name, array in arguments.items() if name not in dims}
    extent = next(arguments[name].shape[dim] for name, dim in dims.items())
    expected = kernel.reference(**arguments)
    same(kernel(**arguments), expected, rtol=2e-5, atol=1e-6)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        bounds = [0, *sorted(rng.integers(0, extent + 1, rng.integers(0, 5))), extent]
        first, second = (kernel.fold(axis, **constants) for _ in range(2))
        for place in rng.permutation(len(bounds) - 1):
            start, stop = int(bounds[place]), int(bounds[place + 1])
            piece = {n: np.take(arguments[n], range(start, stop), axis=d) for n, d in dims.items()}
            (first, second)[rng.integers(2)].update(**piece, offset=start)
        joint = pickle.loads(pickle.dumps(first)).merge(second)
        same(joint.result(), expected, rtol=2e-5, atol=1e-6)


def test_a_list_needs_its_length_at_the_end_only():
    x = np.array([[3, 1, 2]], f32)
    fold = extremes.fold("n").update(x[:, :0]).update(x[:, :1])
    with pytest.raises(redlang.ArgumentError, match=r"axis n has 1 element, and topk\[n\] takes 2"):
        fold.result()
    assert fold.update(x[:, 1:]).result()[3].tolist() == [[0, 2]]


def test_more_may_follow_a_result():
    fold = statistics.fold("n")
    fold.update(X[:, :40])
    np.testing.assert_allclose(fold.result()[0], X[:, :40].mean(axis=1), rtol=1e-5, atol=1e-6)
    fold.update(X[:, 40:])
    np.testing.assert_allclose(fold.result()[0], X.mean(axis=1), rtol=1e-5, atol=1e-6)


def test_what_does_not_vary_is_given_once():
    q, k, v = (RNG.normal(size=s).astype(f32) for s in ((4, 8), (50, 8), (50, 3)))
    fold = attention.fold("n", q=q)
    fold.update(k[:20], v[:20])
    fold.update(k[20:], v[20:])
    out, lse = fold.result()
    expected, expected_lse = attention.reference(q, k, v)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5)
    other = attention.fold("n")
    other.update(k[:20], v[:20], q=q).update(k=k[20:], v=v[20:])
    np.testing.assert_array_equal(other.result()[0], out)


def test_one_value_of_a_constant_serves_all_elements():
    q, k, v = (RNG.normal(size=s).astype(f32) for s in ((2, 8), (50, 8), (50, 3)))
    q[0, 1] = np.nan
    fold = attention.fold("n", q=q).update(k[:20], v[:20])
    with pytest.raises(redlang.ArgumentError, match=r"q differs between this fold and this update"):
        fold.update(k[20:], v[20:], q=-q)
    same(fold.update(k[20:], v[20:], q=q.copy()).result(), attention.reference(q, k, v), rtol=1e-5)
    # A default is a value, too, once it has been used.
    places = weighted.fold("n").update(X[0])
    with pytest.raises(redlang.ArgumentError, match=r"power differs .*: 1\.0 and 2\.0"):
        places.update(X[0], power=2.0)


def test_folds_of_different_constants_are_not_merged():
    q, k, v = (RNG.normal(size=s).astype(f32) for s in ((2, 8), (50, 8), (50, 3)))
    q[0, 1] = np.nan
    other = q.copy()
    other[1, 3] = 7
    fold = attention.fold("n", q=q).update(k, v)
    words = rf"q differs between the two folds: {q[1, 3]} and 7.0 at \(1, 3\)"
    for second in (attention.fold("n", q=other).update(k, v), attention.fold("n", q=other)):
        with pytest.raises(redlang.ArgumentError, match=words):
            fold.merge(second)
    with pytest.raises(redlang.ArgumentError, match=r"q differs .*: f32 \(2, 8\).* f32 \(1, 8\)"):
        fold.merge(attention.fold("n", q=q[:1]).update(k, v))
    with pytest.raises(redlang.ArgumentError, match=r"v: the other fold has e = 2, .* e = 3"):
        fold.merge(attention.fold("n", q=q).update(k, v[:, :2]))
    assert fold.merge(attention.fold("n", q=q.copy()).update(k, v)).count == 100
    with pytest.raises(
        redlang.ArgumentError, match=r"power differs between the two folds: 1\.0 and"
    ):
        weighted.fold("n").update(X[0]).merge(weighted.fold("n", power=2.0))
    with pytest.raises(redlang.ArgumentError, match="size=97, the other one 98"):
        weighted.fold("n", size=97).merge(weighted.fold("n", size=98))


def test_an_empty_fold_hands_its_constants_on():
    q, k, v = (RNG.normal(size=s).astype(f32) for s in ((2, 8), (50, 8), (50, 3)))
    joint = attention.fold("n").merge(attention.fold("n", q=q)).update(k, v)
    same(joint.result(), attention.reference(q, k, v), rtol=1e-5)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda: attention.fold("n", q=X, banana=3), r"no parameter 'banana'\n.*it has q, k, v"),
        (lambda: weighted.fold("n", pover=3), r"no parameter 'pover'\n.*did you mean power"),
        (lambda: attention.fold("n", k=X), r"k varies with n.*\n.*update\(k=...\)"),
        (
            lambda: attention.fold("n", X),  # type: ignore[arg-type]  # what is tested
            r"size is f32 \(3, 97\) of numpy, .* extent of n\n.*name: attention.fold\('n', q=...\)",
        ),
        (
            lambda: attention.fold("n", X, 2.0),  # type: ignore[arg-type]  # what is tested
            r"by position, and no f32 \(3, 97\) of numpy, 2\.0\n.*attention.fold\('n', q=...\)",
        ),
        (
            lambda: weighted.fold("n", 97, 2.0),  # type: ignore[arg-type]  # what is tested
            r"by position, and no 2\.0\n.*by name: weighted.fold\('n'\)",
        ),
        (
            lambda: attention.fold(X),  # type: ignore[arg-type]  # what is tested
            r"axis is f32 \(3, 97\) of numpy, .*\n.*stands first: attention.fold\('n'\)",
        ),
        (lambda: attention.fold("n", size=-1), "size is -1"),
        (lambda: statistics.fold("n").update(X, out=X), "no parameter 'out'"),
        (lambda: statistics.fold("n").update(X, x=X), "x is given twice"),
    ],
)
def test_says_what_is_wrong_with_an_argument(start, words):
    with pytest.raises(redlang.ArgumentError, match=words):
        start()


def test_a_size_that_was_said_is_reached():
    fold = statistics.fold("n", size=97).update(X[:, :10])
    with pytest.raises(redlang.ArgumentError, match=r"10 elements of n .* size= says 97"):
        fold.result()
    same(fold.update(X[:, 10:]).result()[0], X.mean(axis=1), rtol=1e-5, atol=1e-6)
    with pytest.raises(redlang.ArgumentError, match=r"194 elements of n .* size= says 97"):
        fold.merge(fold).result()
    assert statistics.fold("n").merge(fold).result()[0].shape == (3,)


def test_whole_groups_arrive_in_pieces():
    x, s = (RNG.normal(size=n).astype(f32) for n in ((2, 12), (3, 3)))
    w = RNG.integers(-9, 9, (3, 12)).astype(np.int8)
    fold = dequantised.fold("b").update(x[:, :8], w[:, :8], s[:, :2])
    fold.update(x[:, 8:], w[:, 8:], s[:, 2:])
    same(fold.result(), dequantised.reference(x, w, s), rtol=1e-5, atol=1e-5)
    with pytest.raises(redlang.FusionError, match="reads x along b at computed places"):
        dequantised.fold("b").update(x[:, :7], w[:, :7], s[:, :2])


def test_folds_travel():
    fold = pickle.loads(pickle.dumps(entropy.fold("n").update(X[:, :30])))
    fold = pickle.loads(pickle.dumps(fold.update(X[:, 30:])))
    np.testing.assert_allclose(fold.result(), entropy.reference(X), rtol=1e-5)


def test_a_number_from_outside_is_one_for_all_elements():
    outside = {"eps": 0.25, "kept": 2, "width": 3}
    text = """
def rms(x: "m n") -> ("m", "m 2", "m w"):
    w = axis(width)
    values, _ = topk[n](x, kept)
    return sqrt(mean[n](x * x) + eps), values, sum[n](where(n % width == w, x))
"""
    kernel = redlang.compile(text, names=outside)
    first = kernel.fold("n").update(X[:, :20]).update(X[:, 20:40])
    last = pickle.loads(pickle.dumps(kernel.fold("n").update(X[:, 40:], offset=40)))
    same(kernel.fold("n").merge(first).merge(last).result(), kernel.reference(X), rtol=1e-5)
    check(kernel, examples=3)
    outside["eps"] = 0.5
    with pytest.raises(redlang.ArgumentError, match=r"eps differs .* chunk .*: 0\.25 and 0\.5"):
        first.update(X[:, 40:])
    with pytest.raises(redlang.ArgumentError, match="eps differs between the two folds"):
        first.merge(kernel.fold("n").update(X[:, 40:], offset=40))


def test_places_count_from_the_offset():
    expected = extremes.reference(X)
    fold = extremes.fold("n")
    for start in (60, 0, 30):
        stop = {60: 97, 0: 30, 30: 60}[start]
        fold.update(X[:, start:stop], offset=start)
    for result, right in zip(fold.result(), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-6)
    first = extremes.fold("n").update(X[:, 50:], offset=50)
    second = extremes.fold("n").update(X[:, :50], offset=0)
    for result, right in zip(first.merge(second).result(), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-6)


def test_ties_go_to_the_first_place_however_chunks_arrive():
    x = np.ones((1, 10), f32)
    fold = extremes.fold("n").update(x[:, 5:], offset=5)
    fold.update(x[:, :5], offset=0)
    places = fold.result()
    assert places[0].tolist() == [0]
    assert places[3].tolist() == [[0, 1]]


def test_the_index_counts_from_the_offset():
    x = np.ones(10, f32)
    assert weighted.fold("n").update(x[:4]).update(x[4:]).result() == 45
    assert weighted.fold("n", power=2.0).update(x[5:], offset=5).result() == 70


def test_both_folds_must_say_their_places():
    first, second = weighted.fold("n"), weighted.fold("n")
    first.update(X[0])
    second.update(X[0])
    with pytest.raises(redlang.ArgumentError, match="offset="):
        first.merge(second)
    with pytest.raises(redlang.ArgumentError, match="elements 90 to 96 of n have been folded"):
        first.update(X[0], offset=90)


def test_a_size_that_elements_need_is_said_beforehand():
    with pytest.raises(redlang.ArgumentError, match=r"uses size\(n\).*") as caught:
        relative.fold("n").update(X[0])
    assert "size=..." in str(caught.value)
    fold = relative.fold("n", size=97)
    fold.update(X[0, :50]).update(X[0, 50:])
    np.testing.assert_allclose(fold.result(), relative.reference(X[0]), rtol=1e-5)
    with pytest.raises(redlang.ArgumentError, match="reaches to 98"):
        fold.update(X[0, :1])


@pytest.mark.parametrize(
    ("kernel", "axis", "kind", "words"),
    [
        (softmax, "n", redlang.FusionError, "needs the elements of n again"),
        (deviation, "n", redlang.FusionError, "needs a second pass over n"),
        (statistics, "m", redlang.FusionError, "does not reduce m"),
        (statistics, "k", redlang.ArgumentError, "has no axis 'k'"),
        (first_place, "j", redlang.FusionError, "in the order of i, j"),
        (looked_up, "n", redlang.FusionError, "reads x along n at computed places"),
    ],
)
def test_says_why_a_kernel_is_no_stream(kernel, axis, kind, words):
    with pytest.raises(kind, match=words):
        kernel.fold(axis)


def test_says_what_is_wrong_with_a_chunk():
    fold = statistics.fold("n")
    with pytest.raises(redlang.ArgumentError, match="nothing has been folded"):
        fold.result()
    fold.update(X)
    with pytest.raises(redlang.ArgumentError, match=r"x: .* m = 2, .* m = 3\n.* only in how long"):
        fold.update(X[:2])
    with pytest.raises(redlang.ArgumentError, match=r"x holds f64 in this chunk, and f32 in"):
        fold.update(X.astype(np.float64))
    with pytest.raises(redlang.ArgumentError, match=r"offset is 1\.5, and must be an int"):
        fold.update(X, offset=1.5)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(redlang.ArgumentError, match="another fold over n, not None"):
        fold.merge(None)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(redlang.ArgumentError, match="takes 1 arrays by position"):
        fold.update(X, X)
    with pytest.raises(redlang.ArgumentError, match="x is a list"):
        fold.update([1])
    with pytest.raises(redlang.ArgumentError, match=r"has no q\n.*fold\('n', q=...\)"):
        attention.fold("n").update(X, X)
    with pytest.raises(redlang.ArgumentError, match=r"missing 1 required .* 'v'"):
        attention.fold("n", q=X).update(X)
    with pytest.raises(redlang.ArgumentError, match="different kernels"):
        fold.merge(entropy.fold("n").update(X))


def test_empty_folds_and_chunks_change_nothing():
    fold = statistics.fold("n").update(X)
    before = fold.result()
    for joint in (
        fold.merge(statistics.fold("n")),
        statistics.fold("n").merge(fold),
        statistics.fold("n").update(X[:, :0]).merge(fold),
        fold.update(X[:, :0]),
    ):
        for result, right in zip(joint.result(), before, strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-6)


def test_results_are_of_the_chunks_kind():
    result = entropy.fold("n").update(torch.from_numpy(X)).result()
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), entropy.reference(X), rtol=1e-5)


def test_an_outlier_in_an_early_chunk_costs_no_digits():
    x = np.concatenate([[1e6], RNG.normal(size=9999)]).astype(f32)[None]
    fold = statistics.fold("n")
    for piece in np.split(x, 20, axis=1):
        fold.update(piece)
    np.testing.assert_allclose(fold.result()[1], x.astype(float).var(axis=1), rtol=1e-5)
