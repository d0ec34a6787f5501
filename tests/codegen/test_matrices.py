"""Matrix tiles: what plans compute, what is known of absent elements, which tiles are looked at."""

import math
import re
from typing import Any

import numpy as np
import pytest

from redlang.algebra.fuse import fuse
from redlang.codegen.cuda.kernel_text import ArrayClass, Classes
from redlang.codegen.cuda.matrices import emit
from redlang.codegen.cuda.matrix_factors import Factored, factored
from redlang.codegen.cuda.matrix_fills import Fill, filling, kind_of
from redlang.codegen.cuda.matrix_masks import apart, index_bounds
from redlang.codegen.cuda.matrix_outer import with_outer_factors
from redlang.codegen.cuda.matrix_shares import (
    first_values,
    with_common_factors,
    with_shares,
    without_scalings,
)
from redlang.ir.build import Builder, literal, ref
from redlang.ir.interpret import bind, interpret
from redlang.ir.loops import Combine, Compute, Contract, Fold, Loop
from redlang.ir.normalise import normalise
from redlang.ir.program import Literal
from redlang.ir.run_loops import run_loops
from redlang.ir.types import BF16, BOOL, F32, Type
from redlang.schedule.device import DEFAULT_DEVICE
from redlang.schedule.lower import lower
from redlang.schedule.matrix_plans import matrix_candidates
from redlang.schedule.nests import find_nests
from redlang.schedule.plan import Plan
from tests.cubin.test_matrix_calls import CAUSAL, FULL, STRANDS, VARIANTS
from tests.kernels import resolve_text

B = Builder(("m", "n"))
TEXTS = {"full": FULL, "causal": CAUSAL, **VARIANTS}
DTYPES = dict.fromkeys("qkrlv", BF16)
EXTENTS = {"b": 1, "h": 2, "m": 70, "n": 90, "d": 16, "e": 16}


def planned(text, extents=EXTENTS):
    """Return a program with its nests and candidates on matrix tiles."""
    program = normalise(resolve_text(text.strip(), dtypes=DTYPES))
    fusion = fuse(program, mode="auto")
    nests = find_nests(fusion.program, fusion.sweeps)
    (nest,) = nests
    return fusion.program, nests, matrix_candidates(fusion.program, nest, extents, DEFAULT_DEVICE)


def lowered(text, number=0, extents=EXTENTS):
    program, nests, found = planned(text, extents)
    (part,) = found[number].parts
    return program, lower(program, nests, Plan((part.plan,))), part.matrix


def inputs(program):
    rng = np.random.default_rng(3)
    made: dict[str, Any] = {}
    for p in program.params:
        shape = [EXTENTS[a] for a in p.axes]
        if p.dtype.kind == "int":
            top = 40 if p.name == "w" else 4
            made[p.name] = np.sort(rng.integers(0, top, shape).astype(np.int32))
        else:
            made[p.name] = rng.standard_normal(shape)
    return made


@pytest.mark.parametrize("name", [n for n in TEXTS if n not in ("entropy", "scale inside")])
def test_plans_give_the_programs_results(name):
    program, nests, found = planned(TEXTS[name])
    given = inputs(program)
    scope = bind(program, given)
    expected = interpret(program, given, store=False)
    for candidate in found[:: max(1, len(found) - 1)]:
        (part,) = candidate.parts
        got = run_loops(lower(program, nests, Plan((part.plan,))), scope, {})
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(np.isnan(one), np.isnan(other.reshape(one.shape)))
            np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-10, atol=1e-11)


LONG = {"b": 4, "h": 16, "m": 8192, "n": 8192, "d": 128, "e": 128}


@pytest.mark.parametrize("depth", [32, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_plans_fit_a_block(text, depth):
    extents = {**LONG, "d": depth, "e": depth}
    _, _, found = planned(text, extents)
    for candidate in found:
        (part,) = candidate.parts
        plan = part.matrix
        limit = DEFAULT_DEVICE.sm.shared_bytes_per_block
        tile = plan.width("n")
        operands = plan.tile_rows * depth * 2 + plan.stages * tile * 2 * depth * 2
        assert operands <= limit // plan.min_blocks
        taken = tile // 2 + tile // 4 + depth // 2
        assert taken <= plan.consumer_registers(checks=text is CAUSAL)


def written(text, extents=LONG, number=0):
    """Return the text of a plan, by default the first one."""
    program, loops, plan = lowered(text, number, extents)
    arrays = {p.name: ArrayClass({p.axes[-1]: 1} if p.axes else {}, 16) for p in program.params}
    arrays["result.0"] = ArrayClass({"e": 1}, 16)
    limits = dict.fromkeys(extents, 1 << 21) | {a: extents[a] for a in ("d", "e")}
    classes = Classes(arrays, {a: extents[a] for a in ("d", "e")}, limits)
    return emit(loops, loops.kernels[0], plan, classes)


def test_units_of_unequal_length_are_fetched():
    causal, full = written(CAUSAL), written(FULL)
    assert causal.queued
    assert "w.fetched(" in causal.source
    assert not full.queued
    assert "w.fetched(" not in full.source


def test_indices_become_floats_by_one_addition():
    text = written(VARIANTS["sloped window"]).source
    (steps,) = re.findall(r"t.constants\(\[(.*)\]\)", text)
    numbers = [int(step) for step in steps.split(", ")]
    assert numbers[:4] == [0, -1, -8, -9]
    # The thread's second row, eight further, shares all but its first two differences.
    assert numbers[32:36] == [8, 7, 0, -1]
    assert len(set(numbers)) == 34
    assert 't.indices("i64", (0, 1, 8' not in text


def test_a_score_is_computed_once():
    text = written(VARIANTS["capped window"]).source
    body = text[text.index("def f_0(") :]
    # Once for the first tile, once in the loop.
    assert text.count("tanh(((") == 1
    assert body.count("each_s_1_core(") == 2


def test_one_score_at_a_time_has_elements():
    extents = {**LONG, "d": 64, "e": 64}
    text = written(STRANDS["difference"], extents, 3).source
    *_, loop = text.split("while n_first < n_stop")
    # The weights of the first are done when the second is issued.
    assert loop.index("= pack(") < loop.index("sum_2_sum_tile = product")
    assert loop.index("sum_1_sum_tile = product") < loop.index("= pack(")


def test_tiles_in_the_middle_are_skipped():
    assert "w.next_tile(" in written(VARIANTS["sinks"]).source
    assert "w.next_tile(" not in written(CAUSAL).source


@pytest.mark.parametrize("name", ["documents", "causal documents"])
def test_documents_are_told_apart_by_the_producer(name):
    text = written(VARIANTS[name])
    assert text.queued
    assert [space.name for space in text.spaces] == ["doc.n.128.least", "doc.n.128.greatest"]
    assert text.before is not None
    # Rows and columns, of which one warp asks all tiles: whether anything is seen, whether all is,
    # and whether all documents are the same where the diagonal hides something.
    assert text.source.count("w.range_of(") == 2
    assert text.source.count("w.put_word(") == (3 if name == "causal documents" else 2)


@pytest.mark.parametrize(
    ("name", "meet"),
    [
        ("causal", True),
        ("documents", True),
        ("window", True),
        ("capped window", False),
        ("quotient", True),
    ],
)
def test_units_meet_where_elements_take_one_special_function(name, meet):
    quotient = CAUSAL.replace("* rsqrt(size(d))", "/ sqrt(size(d))")
    text = {**TEXTS, "quotient": quotient}[name]
    assert lowered(text, extents=LONG)[2].ahead == meet
    assert ("ended_place" in written(text).source) == meet


def test_a_quotient_by_what_all_elements_share_takes_no_operation_of_its_own():
    text = written(CAUSAL.replace("* rsqrt(size(d))", "/ sqrt(size(d))")).source
    # As of a product: one multiply-add before the power of two.
    assert "return ((x0 * x1) - x2)" in text


def test_a_result_leaves_beside_the_next_units_first_product():
    text = written(CAUSAL).source
    joint = text[text.index("if number < i32(0):") :]
    steps = ["sum_2_sum_2 = product", "sum_1_sum_tile = product", "sum_2_sum_2 = wait", "copy_out("]
    steps.append("sum_1_sum_tile = wait")
    places = [joint.index(step) for step in steps]
    assert places == sorted(places)


def test_keys_are_copied_a_tile_ahead_of_values():
    text = written(CAUSAL).source
    loop = text[text.index("while n_first < n_stop:") :]
    assert loop.index("k_map") < loop.index("v_map")
    assert "d_block, n, h_block" in loop[: loop.index("v_map")]
    assert "e_block, n_first, h_block" in loop


def test_a_condition_comes_apart_into_bounds_and_the_rest():
    m, n = B.index("m"), B.index("n")
    causal, sinks = B.apply("le", n, m), B.apply("or", B.apply("gt", n, m), B.apply("lt", n, m))
    assert apart(B.apply("and", causal, sinks), "n", B) == (causal, sinks)
    assert apart(causal, "n", B) == (causal, None)


def test_a_result_is_one_product_with_a_factor_of_its_row():
    total, once = (ref(name, Type(F32, ("m",))) for name in ("total", "once"))
    some, tile = ref("some", Type(BOOL, ("m",))), ref("tile", Type(F32, ("m", "n")))

    def taken(expr):
        return factored(expr, lambda name: None, lambda e: "n" in e.type.axes)

    result = B.div(B.where(some, B.mul(once, tile), literal(0.0)), total)
    assert taken(result) == Factored(tile, (once,), total, (some,))
    assert taken(B.mul(tile, tile)) is None
    assert taken(B.div(result, total)) is None
    assert taken(B.where(some, tile, literal(1.0))) is None


def test_a_prefix_of_each_ends_the_loop():
    text = written(VARIANTS["prefix of each"]).source
    assert "n_stop = t.smaller(" in text


# Bounds ---------------------------------------------------------------------------------------


def test_a_disjunction_of_upper_bounds_is_one():
    m, n = B.index("m"), B.index("n")
    either = B.apply("or", B.apply("le", n, m), B.apply("lt", n, literal(10)))
    bounds = index_bounds(either, "n", B)
    assert len(bounds.high) == 1
    assert bounds.rest is None
    mixed = B.apply("or", B.apply("le", n, m), B.apply("gt", n, literal(10)))
    assert index_bounds(mixed, "n", B).rest is not None


# Fills ----------------------------------------------------------------------------------------

ROW, TILE = Type(F32, ("m",)), Type(F32, ("m", "n"))
S, C = ref("s", TILE), ref("c", ROW)


def fold(op, value):
    return Fold((f"{op}.tile",), op, ("n",), (value,), None, (ROW,))


def fills_of(elements, uses, rows):
    def varies(expr):
        return "n" in expr.type.axes

    return filling(elements, uses, [["s"]], varies, rows)


def test_a_weight_times_a_finite_number_needs_a_second_fill():
    weight = Compute("p", B.apply("exp", B.apply("sub", S, C)), TILE)
    p = ref("p", TILE)
    first = fold("max", S)
    last = fold("sum", B.mul(p, B.apply("sub", S, C)))
    elements = (first, weight, last)
    found = fills_of(elements, (first, last), {"c": "finite"})
    assert found.fills == (Fill("s", -math.inf), Fill("s", 0.0, 2))
    assert not found.tested
    # Of c nothing is known: the product is tested element by element.
    assert fills_of(elements, (first, last), {}).tested == {1}


@pytest.mark.parametrize(
    ("a", "b", "sum_of"),
    [(0.0, "finite", "finite"), (0.0, "positive", "positive"), (-math.inf, "finite", -math.inf)],
)
def test_kinds_of_sums(a, b, sum_of):
    kinds = {"s": a, "c": b}
    assert kind_of(B.add(S, C), kinds) == sum_of
    assert kind_of(B.add(C, S), kinds) == sum_of
    assert kind_of(B.add(S, S), {"s": "finite"}) is None


# Shares ---------------------------------------------------------------------------------------


def is_fragment(expr):
    return "n" in expr.type.axes


def test_shared_values_leave_factors_outside():
    score = B.mul(B.apply("tanh", S), 30.0)
    body = (fold("max", score), Compute("p", B.apply("exp", B.apply("sub", score, C)), TILE))
    share, first, _ = with_shares(body, is_fragment)
    assert isinstance(share, Compute)
    assert share.value == B.apply("tanh", S)
    assert isinstance(first, Fold)
    assert first.values == (B.mul(ref(share.name, TILE), 30.0),)


def outer(body, *others, known=()):
    product = Contract("s", ("d",), ref("q", ROW), ref("k", ROW), None, TILE)
    loop = Loop("n", 8, (product, *body, *others))
    return with_outer_factors(body, loop, loop.body, B, is_fragment, known.__contains__)


def weight(exponent):
    return Compute("p", B.apply("exp", B.apply("sub", exponent, ref("t", ROW))), TILE)


@pytest.mark.parametrize("op", ["mul", "div"])
def test_a_factor_of_rows_leaves_maxima_and_exponents(op):
    d = ref("d", Type(F32, ("n",)))
    inside = B.apply(op, S, C)
    named = Compute("y", B.mul(inside, d), TILE)
    kept, (found,) = outer((named, fold("max", ref("y", TILE)), weight(ref("y", TILE))))
    assert found.inside == inside
    y = B.mul(ref("y", TILE), found.outside)
    bare = Compute("y", B.mul(S, d), TILE)
    assert kept == (bare, fold("max", y), weight(y))
    # What is known to be positive and tame stands outside as it is.
    known = C if op == "mul" else B.div(1.0, C)
    kept, asked = outer((fold("max", B.div(inside, d)),), known=[known])
    rest = B.mul(B.div(S, d), known)
    assert (kept, len(asked)) == ((fold("max", rest),), 0) if op == "mul" else len(asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        (fold("sum", B.mul(S, C)),),
        (fold("max", B.apply("tanh", B.mul(S, C))),),
        (fold("max", B.mul(S, C)), fold("max", S)),
        (fold("max", B.add(B.mul(S, C), B.mul(S, C))),),
        (fold("max", B.div(C, S)),),
        (fold("max", B.mul(S, ref("d", Type(F32, ("n",))))),),
    ],
    ids=["sum", "function", "two factors", "elements", "divisor", "column"],
)
def test_a_factor_that_elements_need_stays(body):
    assert outer(body) == (body, ())


def test_a_factor_stays_where_its_values_are_read_or_it_changes():
    body = (Compute("y", B.mul(S, C), TILE), fold("max", ref("y", TILE)))
    assert outer(body)[1]
    assert outer(body, Combine(("z",), "sum", ("z",), ("y",), (TILE,))) == (body, ())
    assert outer(body, Compute("c", C, ROW)) == (body, ())


@pytest.mark.parametrize("op", ["add", "sub"])
def test_sums_of_products_leave_one_factor_outside(op):
    place = B.apply("tanh", B.mul(S, S))
    score = Compute("t", B.apply(op, B.mul(S, 0.25), B.mul(C, place)), TILE)
    (moved,) = with_common_factors((score,), B, is_fragment, lambda e: isinstance(e, Literal))
    assert isinstance(moved, Compute)
    inner = B.apply(op, S, B.mul(B.apply("div", C, 0.25), place))
    assert moved.value == B.mul(inner, 0.25)
    assert with_common_factors((score,), B, is_fragment, lambda e: False) == (score,)


def test_shared_values_follow_what_they_are_made_of():
    capped = Compute("y", B.apply("tanh", S), TILE)
    moved = B.sub(ref("y", TILE), B.mul(B.index("n"), C))
    weight = Compute("p", B.apply("exp", B.apply("sub", moved, C)), TILE)
    found = with_shares((capped, fold("max", moved), weight), is_fragment)
    assert found[0] == capped
    share, first = found[1:3]
    assert isinstance(share, Compute)
    assert share.value == moved
    assert isinstance(first, Fold)
    assert first.values == (ref(share.name, TILE),)


def test_differences_from_values_of_rows_are_written_where_they_are_read():
    apart = Compute("t", B.sub(B.mul(S, ref("k", Type(F32))), C), TILE)
    weight = Compute("p", B.mul(B.apply("exp", ref("t", TILE)), ref("t", TILE)), TILE)
    (only,) = without_scalings((apart, weight), (apart, weight), is_fragment)
    assert isinstance(only, Compute)
    assert only.value == B.mul(B.apply("exp", apart.value), apart.value)


def test_scalings_are_written_where_they_are_read():
    k = ref("k", Type(F32))
    twice = Compute("t", B.add(B.mul(S, k), B.mul(S, k)), TILE)
    body = (twice, fold("max", ref("t", TILE)))
    (only,) = without_scalings(body, body, is_fragment)
    assert isinstance(only, Fold)
    (value,) = only.values
    assert value == B.mul(S, B.mul(k, Literal(2.0, Type(F32, weak=True))))


def test_scalings_keep_a_name_that_states_and_products_read():
    scaled = Compute("t", B.mul(S, ref("k", Type(F32))), TILE)
    joined = Combine(("s",), "sum", ("s",), ("t",), (TILE,))
    assert without_scalings((scaled, joined), (scaled, joined), is_fragment) == (scaled, joined)
    assert without_scalings((scaled,), (scaled, joined), is_fragment) == (scaled,)
    assert without_scalings((scaled,), (scaled,), is_fragment) == ()


def test_first_values_read_no_fold():
    early = Compute("a", B.apply("tanh", S), TILE)
    late = Compute("b", B.apply("sub", S, ref("max.tile", ROW)), TILE)
    assert first_values((early, fold("max", S), late), is_fragment) == [early]


def test_loops_have_one_product_over_each_axis():
    _, loops, _ = lowered(CAUSAL)
    (loop,) = [s for s in loops.kernels[0].body if isinstance(s, Loop)]
    assert loop.some is not None
