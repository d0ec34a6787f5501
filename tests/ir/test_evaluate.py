import math

import numpy as np
import pytest

from redlang.ir.build import Builder, literal, ref
from redlang.ir.evaluate import Scope, evaluate, evaluate_full
from redlang.ir.program import Expr, Literal, Scalar
from redlang.ir.tiles import Tile
from redlang.ir.types import BOOL, F16, F32, F64, I32, I64, Type

B = Builder(("m", "n"))
M, N = B.index("m"), B.index("n")
X = B.load("x", F32, [M, N])
LABEL = B.load("label", I32, [M])
DATA = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
BELOW = B.apply("le", N, M)


def scope(precision="double", **changes):
    defaults = {
        "arrays": {"x": DATA, "label": np.array([2, -1, 4], np.int32)},
        "array_axes": {"x": ("m", "n"), "label": ("m",)},
        "scalars": {"scale": 0.1, "big": 2**40},
    }
    return Scope(precision, B.order, {"m": 3, "n": 4}, **{**defaults, **changes})


def value(expr, **changes):
    return evaluate_full(expr, scope(**changes)).data


def test_operands_broadcast_by_name():
    total = B.add(B.load("x", F32, [M, N]), B.index("m"))
    assert value(total).tolist() == (DATA + np.arange(3)[:, None]).tolist()
    outer = evaluate(B.mul(N, M), scope())
    assert outer.axes == ("m", "n")
    assert outer.data.tolist() == np.outer(np.arange(3), np.arange(4)).tolist()


def test_double_computes_in_float64_and_declared_in_the_declared_type():
    third = B.div(literal(1.0), 3)
    assert evaluate(third, scope()).data == 1 / 3
    assert evaluate(third, scope("declared")).data == np.float32(1) / np.float32(3)
    assert evaluate(Scalar("scale", Type(F32, weak=True)), scope()).data == 0.1
    declared = evaluate(Scalar("scale", Type(F32, weak=True)), scope("declared")).data
    assert declared == np.float32(0.1)
    wide = evaluate(Scalar("scale", Type(F64, weak=True)), scope("declared")).data
    assert wide == 0.1


def test_only_declared_overflows_where_f32_does():
    square = B.mul(literal(1e30), literal(1e30))
    assert evaluate(square, scope()).data == pytest.approx(1e60, rel=1e-15)
    assert evaluate(square, scope("declared")).data == math.inf


def test_casts_of_the_user_round_in_both_precisions_and_conversions_in_none():
    tenth = literal(0.1)
    for precision in ("double", "declared"):
        assert evaluate(B.cast(tenth, F16), scope(precision)).data == np.float16(0.1)
    assert evaluate(B.convert(B.size("n"), F32), scope()).data == 4
    assert evaluate(B.cast(literal(1e9), F16), scope()).data == math.inf


def test_integers_stay_integers():
    big = Scalar("big", Type(I64, weak=True))
    assert evaluate(B.mul(big, big), scope()).data == 0
    assert evaluate(B.add(big, 1), scope()).data == 2**40 + 1
    assert evaluate(B.apply("floordiv", LABEL, 0), scope()).data.tolist() == [0, 0, 0]


def test_absence_comes_from_operands_and_conditions():
    hidden = B.mask(BELOW, X)
    tile = evaluate(B.exp(hidden), scope())
    assert tile.visible.tolist() == np.tri(3, 4, dtype=bool).tolist()
    # An absent condition or branch makes the result absent, chosen or not.
    chosen = evaluate(B.where(True, 0.0, hidden), scope())
    assert chosen.visible.tolist() == tile.visible.tolist()
    condition = evaluate(B.where(B.apply("gt", hidden, 0), 1, 2), scope())
    assert condition.visible.tolist() == tile.visible.tolist()
    twice = evaluate(B.mask(B.apply("gt", N, 0), hidden), scope())
    assert twice.visible.tolist() == (np.tri(3, 4, dtype=bool) & (np.arange(4) > 0)).tolist()


def test_fill_gives_absent_elements_a_value():
    filled = value(B.fill(B.mask(BELOW, X), -1))
    assert filled.tolist() == np.where(np.tri(3, 4, dtype=bool), DATA, -1).tolist()
    assert evaluate(B.fill(X, -1), scope()).present is None
    partly = evaluate(B.fill(B.mask(BELOW, X), B.mask(B.apply("eq", N, 3), X)), scope())
    assert partly.visible.tolist() == (np.tri(3, 4, dtype=bool) | (np.arange(4) == 3)).tolist()


def test_a_gather_out_of_range_is_absent():
    gather = B.load("x", F32, [M, LABEL], guarded=[False, True])
    tile = evaluate(gather, scope())
    assert tile.axes == ("m",)
    assert tile.visible.tolist() == [True, False, False]
    assert tile.data[0] == DATA[0, 2]


def test_a_gather_from_nothing_is_absent():
    empty = scope(arrays={"x": np.zeros((3, 0), np.float32), "label": np.array([2, -1, 4])})
    gather = B.load("x", F32, [M, LABEL], guarded=[False, True])
    assert evaluate(gather, empty).visible.tolist() == [False] * 3
    clamped = B.load("x", F32, [M, B.apply("clip", LABEL, 0, B.sub(B.size("n"), 1))])
    assert evaluate(clamped, empty).data.tolist() == [0] * 3


def test_one_array_read_along_two_axes():
    square = np.arange(9.0).reshape(3, 3)
    builder = Builder(("i", "j", "l"))
    pair = builder.mul(
        builder.load("x", F64, [builder.index("i"), builder.index("l")]),
        builder.load("x", F64, [builder.index("j"), builder.index("l")]),
    )
    inner = Scope(
        "double", builder.order, dict.fromkeys("ijl", 3), {"x": square}, {"x": ("i", "l")}
    )
    expected = square[:, None, :] * square[None, :, :]
    assert evaluate_full(pair, inner).data.tolist() == expected.tolist()
    diagonal = builder.load("x", F64, [builder.index("i"), builder.index("i")])
    assert evaluate(diagonal, inner).data.tolist() == [0, 4, 8]


def test_reading_at_a_longer_axis_is_absent_behind_the_end():
    builder = Builder(("m", "n"))
    document = builder.load("d", I32, [builder.index("m")], guarded=[True])
    inner = Scope("double", ("m", "n"), {"m": 4, "n": 3}, {"d": np.arange(3)}, {"d": ("n",)})
    assert evaluate(document, inner).visible.tolist() == [True, True, True, False]


def test_windows_cut_indices_loads_and_definitions_alike():
    windows = {"m": (1, 3), "n": (2, 3)}
    total = B.add(B.add(X, N), ref("r", Type(F32, ("m",))))
    rows = {"r": Tile(("m",), np.array([10.0, 20.0, 30.0]))}
    part = value(total, windows=windows, values=rows)
    whole = value(total, values=rows)
    assert part.tolist() == whole[1:3, 2:3].tolist()


def test_pointwise_definitions_are_computed_where_they_are_read():
    y = ref("y", Type(F32, ("m", "n")))
    inner = {"y": B.mul(X, 2), "z": B.add(y, y)}
    z = ref("z", Type(F32, ("m", "n")))
    assert value(z, pointwise=inner, windows={"n": (0, 2)}).tolist() == (4 * DATA[:, :2]).tolist()


def test_literals_of_every_type():
    assert evaluate(literal(True), scope()).data.dtype == np.bool_
    assert evaluate(literal(3), scope()).data.dtype == np.int64
    assert evaluate(literal(3), scope()).axes == ()
    assert math.isnan(evaluate(Literal(math.nan, Type(F32)), scope()).data)
    assert evaluate(literal(False, BOOL), scope()).data == np.False_


def test_no_warning_leaves_the_evaluator():
    for op, number in (("log", 0.0), ("rsqrt", 0.0), ("sqrt", -1.0), ("exp", 1e9)):
        evaluate(B.apply(op, literal(number)), scope("declared"))
    evaluate(B.apply("mod", literal(1), literal(0)), scope())


def test_an_unknown_name_is_an_error():
    with pytest.raises(KeyError):
        evaluate(ref("nowhere", Type(F32)), scope())


def test_long_chains_of_definitions_and_operators_need_no_recursion():
    step = {
        f"y{i}": B.add(ref(f"y{i - 1}", Type(F32)) if i else literal(0.0), 1) for i in range(3000)
    }
    assert value(ref("y2999", Type(F32)), pointwise=step) == 3000
    deep: Expr = literal(0.0)
    for _ in range(3000):
        deep = B.neg(deep)
    assert value(deep) == 0


def test_a_value_stands_before_a_pointwise_definition_of_its_name():
    y = ref("y", Type(F32))
    known = {"y": Tile((), np.array(7.0))}
    assert value(B.add(y, 1), values=known, pointwise={"y": literal(0.0)}) == 8
