import pickle

import pytest

from redlang.ir.build import Builder, convert, literal, promote, ref
from redlang.ir.operators import OPERATORS
from redlang.ir.program import Apply, Cast, Literal, Scalar
from redlang.ir.types import BOOL, F16, F32, F64, I8, I64, U64, Type, compute_type

B = Builder(("m", "n", "j"))
M, N = B.index("m"), B.index("n")
X = B.load("x", F16, [M, N])
Y = B.load("y", F64, [N])
COUNT = B.load("count", I8, [M])
FLAG = B.apply("gt", X, 0)
SCALE = Scalar("scale", Type(F64, weak=True))


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([Type(F32), Type(F64)], (F64, False)),
        ([Type(F32), Type(F64, weak=True)], (F32, False)),
        ([Type(I64), Type(F32)], (F32, False)),
        ([Type(I64), Type(F32, weak=True)], (F32, True)),
        ([Type(I64), Type(I64, weak=True)], (I64, False)),
        ([Type(U64), Type(I64, weak=True)], (U64, False)),
        ([Type(U64), Type(I64)], (I64, False)),
        ([Type(BOOL), Type(BOOL)], (I64, False)),
        ([Type(I64, weak=True), Type(I64, weak=True)], (I64, True)),
    ],
)
def test_promotion(types, expected):
    assert promote(types) == expected
    assert promote(types[::-1]) == expected


def test_axes_follow_the_kernels_order_and_not_the_operands():
    assert B.add(N, M).type.axes == ("m", "n")
    assert B.add(M, N).type.axes == ("m", "n")


def test_a_foreign_axis_is_refused():
    with pytest.raises(ValueError, match="'k'"):
        B.index("k")


def test_storage_types_are_computed_in_their_compute_type():
    assert X.type == Type(F32, ("m", "n"))
    assert COUNT.type == Type(I64, ("m",))


def test_a_weak_expression_takes_the_strong_type_on_down_to_its_leaves():
    product = B.mul(B.mul(SCALE, 0.1), Y)
    weak = product.arguments[0]
    assert isinstance(weak, Apply)
    assert weak.type.dtype is F64
    assert {part.type.dtype for part in weak.arguments} == {F64}
    narrow = B.mul(B.mul(SCALE, 0.1), X).arguments[0]
    assert isinstance(narrow, Apply)
    assert {part.type.dtype for part in narrow.arguments} == {F32}


def test_integers_never_widen_a_float():
    total = B.add(X, COUNT)
    assert total.type.dtype is F32
    cast = total.arguments[1]
    assert isinstance(cast, Cast)
    assert not cast.explicit


def test_a_strong_float_is_widened_by_an_implicit_cast():
    total = B.add(X, Y)
    assert total.type == Type(F64, ("m", "n"))
    assert isinstance(total.arguments[0], Cast)
    assert total.arguments[1] is Y


def test_real_functions_of_integers_are_floats():
    assert B.div(COUNT, 2).type.dtype is F32
    assert B.apply("rsqrt", B.size("n")).type == Type(F32, weak=True)
    # What is made of integers yields to f64, and is then computed there.
    assert B.mul(B.apply("rsqrt", B.size("n")), Y).arguments[0].type.dtype is F64


def test_powers_of_integers_by_literals_stay_integers():
    assert B.apply("pow", COUNT, 2).type.dtype is I64
    assert B.apply("pow", COUNT, -1).type.dtype is F32
    assert B.apply("pow", X, 2).arguments[1] == Literal(2.0, Type(F32, weak=True))


def test_comparisons_and_logic_are_bool():
    assert FLAG.type == Type(BOOL, ("m", "n"))
    assert B.apply("and", FLAG, FLAG).type.dtype is BOOL
    assert B.apply("and", COUNT, 1).type.dtype is I64
    assert B.where(FLAG, True, False).type.dtype is BOOL
    assert B.where(FLAG, X, 0).type.dtype is F32


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda o: o.name)
def test_every_operator_has_a_type(operator):
    arguments = [FLAG if operator.rule in ("logic", "where") else X, *[X] * (operator.arity - 1)]
    if operator.rule == "logic":
        arguments = [FLAG] * operator.arity
    type_ = B.apply(operator.name, *arguments).type
    assert type_.dtype is (BOOL if operator.rule in ("logic", "compare", "test") else F32)
    assert type_.axes == ("m", "n")


def test_an_unknown_operator_or_a_wrong_number_of_arguments_is_refused():
    with pytest.raises(ValueError, match="'sqr'"):
        B.apply("sqr", X)
    with pytest.raises(ValueError, match="1 arguments"):
        B.apply("add", X)


def test_absence_spreads_and_ends():
    hidden = B.mask(B.apply("le", N, M), Y)
    assert hidden.type == Type(F64, ("m", "n"), absent=True)
    assert B.exp(hidden).type.absent
    assert not B.fill(hidden, 0).type.absent
    assert B.fill(X, hidden).type.absent
    gathered = B.load("x", F16, [COUNT, N], guarded=[True, False])
    assert gathered.type == Type(F32, ("m", "n"), absent=True)


def test_casts_continue_in_the_compute_type():
    cast = B.cast(Y, F16)
    assert cast.explicit
    assert cast.type == Type(compute_type(F16), ("n",))


def test_converting_to_the_same_type_changes_nothing():
    assert convert(X, F32) is X
    assert convert(literal(2), F32) == literal(2.0)


@pytest.mark.parametrize(
    ("op", "options", "expected"),
    [
        ("sum", {}, [Type(F32, ("m",))]),
        ("count", {}, [Type(I64, ("m",))]),
        ("argmax", {}, [Type(I64, ("m",))]),
        ("topk", {"k": 4, "new_axis": "j"}, [Type(F32, ("m", "j")), Type(I64, ("m", "j"))]),
    ],
)
def test_types_of_reductions(op, options, expected):
    operand = FLAG if op == "count" else X
    assert list(B.reduce(op, ("n",), operand, **options).types) == expected


def test_arg_reductions_over_several_axes_have_an_index_for_each():
    assert B.reduce("argmin", ("n", "m"), X).types == (Type(I64),) * 2


def test_sums_of_truth_values_count_in_int64():
    node = B.reduce("sum", ("n",), FLAG)
    assert node.types == (Type(I64, ("m",)),)
    assert B.reduce("all", ("n",), FLAG).types == (Type(BOOL, ("m",)),)


def test_a_condition_adds_its_axes():
    below = B.apply("le", N, M)
    assert B.reduce("sum", ("n",), Y, condition=below).types == (Type(F64, ("m",)),)


def test_conjunctions_name_each_condition_once():
    below = B.apply("le", N, M)
    assert B.conjunction([None, None]) is None
    assert B.conjunction([None, below, below]) is below
    assert B.conjunction([below, FLAG]) == B.apply("and", below, FLAG)


def test_references_are_strong():
    assert not ref("s", Type(F32, weak=True)).type.weak


def test_programs_with_a_nan_equal_their_pickled_copies():
    value = literal(float("nan"))
    assert pickle.loads(pickle.dumps(value)) == value == literal(float("inf") - float("inf"))
    assert len({value, pickle.loads(pickle.dumps(value))}) == 1
