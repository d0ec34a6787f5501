"""The small modules: pools, signs, numbers, symbols, formulas, splits, dependence, steps."""

import pytest
import sympy as sp

from redlang.algebra import numbers
from redlang.algebra.cascade import Dependences, Groups
from redlang.algebra.fuse import fuse
from redlang.algebra.numbers import Sampler, UndefinedError
from redlang.algebra.operators import ANY, NONNEGATIVE, Sign
from redlang.algebra.reading import Reading
from redlang.algebra.sharing import Pool, canonical, conjuncts
from redlang.algebra.signs import Signs
from redlang.algebra.split import split
from redlang.algebra.steps import names_of, reads_of
from redlang.algebra.symbols import NotExpressible, Symbols, to_expr
from redlang.ir.incremental import Combine, Each, Let, Partial
from redlang.ir.printing import to_text
from redlang.ir.program import Literal, Ref
from redlang.ir.types import BOOL, F8E4M3, F16, F32, I64, Type
from tests.algebra.programs import kernel, program_of
from tests.algebra.views import B, c, k, signs, u, v, x, y, z


class TestPool:
    def test_equal_expressions_become_one(self):
        pool = Pool()
        one, other = (B.add(B.mul(x, u), B.exp(B.mul(x, u))) for _ in range(2))
        assert one is not other
        assert pool.intern(one) is pool.intern(other)

    def test_tells_zeros_and_types_apart(self):
        pool = Pool()
        zero, minus = (Literal(value, Type(F32)) for value in (0.0, -0.0))
        assert pool.intern(zero) is not pool.intern(minus)
        nan = float("nan")
        first, second = (Literal(nan, Type(F32)) for _ in range(2))
        assert pool.intern(first) is pool.intern(second)

    def test_conditions_have_one_form(self):
        pool = Pool()
        a, b = (Ref(name, Type(BOOL, ("n",))) for name in "ab")
        first = canonical([B.apply("and", a, b)], B, pool)
        second = canonical([b, None, a, b], B, pool)
        assert first is second
        assert set(conjuncts(first)) == {a, b}
        assert canonical([None], B, pool) is None


class TestSigns:
    @pytest.mark.parametrize(
        ("expr", "sign"),
        [
            (B.exp(x), Sign.POSITIVE),
            (B.mul(x, x), NONNEGATIVE),
            (B.apply("pow", x, 2), NONNEGATIVE),
            (B.add(B.mul(x, x), 1.0), Sign.POSITIVE),
            (B.sub(x, y), ANY),
            (B.neg(B.exp(x)), Sign.NEGATIVE),
            (B.apply("maximum", x, 0.0), NONNEGATIVE),
            (B.apply("clip", x, 0.5, 1.0), Sign.POSITIVE),
            (B.where(k, B.exp(x), 1.0), Sign.POSITIVE),
            (B.size("n"), Sign.POSITIVE),
            (B.index("n"), NONNEGATIVE),
            (B.cast(B.exp(x), F16), NONNEGATIVE),
            (B.div(B.mul(x, x), B.exp(y)), NONNEGATIVE),
        ],
        ids=str,
    )
    def test_follow_from_the_operators(self, expr, sign):
        assert Signs().of(expr) == sign

    def test_follow_from_what_is_reduced(self):
        text = kernel('x: "m n"', "z = sum[n](exp(x))", "a = max[n](abs(x))", "return z, a, z / a")
        found = Signs(program_of(text))
        types = Type(F32, ("m",))
        assert found.of(Ref("z", types)) == Sign.POSITIVE
        assert found.of(Ref("a", types)) == NONNEGATIVE


class TestNumbers:
    def test_rounds_where_the_user_says_so(self):
        value = numbers.evaluate(B.cast(B.convert(0.3, F32), F8E4M3), {})
        assert float(value) == 0.3125

    def test_halves_round_to_even(self):
        rounded = [numbers.evaluate(B.apply("round", i + 0.5), {}) for i in range(4)]
        assert [int(r) for r in rounded] == [0, 2, 2, 4]

    @pytest.mark.parametrize(
        "expr",
        [
            B.apply("log", -1.0),
            B.div(1.0, 0.0),
            B.apply("sqrt", -2.0),
            B.apply("rsqrt", 0.0),
            B.apply("pow", -2.0, 0.5),
        ],
        ids=str,
    )
    def test_says_where_nothing_is_defined(self, expr):
        with pytest.raises(UndefinedError):
            numbers.evaluate(expr, {})

    def test_draws_numbers_of_the_signs_wanted(self):
        sampler = Sampler(1, spread=3)
        assert all(sampler.draw(x, Sign.POSITIVE) > 0 for _ in range(50))
        assert all(sampler.draw(x, Sign.NEGATIVE) < 0 for _ in range(50))
        assert sampler.draw(x, Sign.ZERO) == 0
        assert {sampler.draw(k) for _ in range(50)} == {True, False}
        whole = Ref("i", Type(I64))
        assert all(value == int(value) for value in (sampler.draw(whole) for _ in range(20)))


class TestSymbols:
    def test_float_literals_are_exact(self):
        symbols = Symbols(Pool(), Signs())
        assert symbols.to_sympy(B.convert(0.1, F32)) == sp.Rational(
            3602879701896397, 36028797018963968
        )

    def test_casts_of_the_user_are_opaque_and_others_are_not(self):
        symbols = Symbols(Pool(), Signs())
        assert isinstance(symbols.to_sympy(B.cast(x, F16)), sp.Symbol)
        whole = Ref("i", Type(I64))
        assert symbols.to_sympy(B.convert(whole, F32)) == symbols.symbol(whole)

    def test_go_there_and_back(self):
        symbols = Symbols(Pool(), Signs())
        expr = B.div(B.sub(B.mul(u, v), z), B.mul(v, v))
        formula = sp.expand(symbols.to_sympy(expr))
        back = to_expr(formula, symbols.expr, B)
        assert sp.simplify(symbols.to_sympy(back) - formula) == 0

    def test_what_the_ir_cannot_say_is_refused(self):
        symbols = Symbols(Pool(), Signs())
        with pytest.raises(NotExpressible):
            to_expr(sp.gamma(symbols.symbol(u)), symbols.expr, B)


def test_formulas_leave_out_what_means_nothing():
    reading = Reading(signs(z="ZERO"), {})
    expr = B.sub(B.add(B.mul(1.0, x), B.convert(B.size("n"), F32)), z)
    assert reading.text(expr) == "x + size(n)"
    assert Reading(Signs(), {id(u): "mu"}).text(B.sub(x, u)) == "x - mu"


class TestSplit:
    def test_splits_over_what_is_read(self):
        text = kernel('x: "n k"', "u = mean[n](x)", "return sum[n, k]((x - u) ** 2)")
        program = split(program_of(text))
        printed = to_text(program)
        assert "sum.2.inner: f32[k] = sum[n]" in printed
        assert "sum.2: f32[] = sum[k](sum.2.inner)" in printed

    def test_counts_become_sums_of_counts(self):
        text = kernel('x: "n k"', "u = mean[n](x)", "return count[n, k](x > u)")
        assert "= sum[k](count.1.inner)" in to_text(split(program_of(text)))

    @pytest.mark.parametrize(
        "lines",
        [
            ("return sum[n, k](x)",),
            ("u = mean[n, k](x)", "return sum[n, k](x - u)"),
            ("u = mean[n, k](x)", "return sum[n](x - u)"),
            ("u = mean[n](x)", "return argmax[n, k](x - u)"),
        ],
    )
    def test_leaves_everything_else_alone(self, lines):
        program = program_of(kernel('x: "n k"', *lines))
        assert split(program) is program


def test_dependence_looks_through_names():
    text = kernel('x: "m n"', "t = max[n](x)", "p = exp(x - t)", "q = p * 2", "return sum[n](q)")
    dependences = Dependences(program_of(text))
    assert dependences.reads("sum.1") == {"t"}
    opened = dependences.inlined(Ref("q", Type(F32, ("m", "n"))), ["t"])
    assert to_text(opened) == "exp(x[m, n] - t) * 2.0"


def test_groups_refuse_a_circle():
    text = kernel(
        'x: "m n"', "t = max[n](x)", "s = max[m](t)", "return sum[n](x - t), sum[n](x - s)"
    )
    groups = Groups(Dependences(program_of(text)))
    groups.join("t", ())
    groups.join("s", ())
    (first,) = groups.latest_read("sum.1")
    assert first.stages == ["t"]
    assert groups.latest_read("sum.2") == ()
    assert groups.independent("sum.2") is None


class TestSteps:
    def sweep(self, *lines):
        return fuse(program_of(kernel(*lines))).sweeps[-1]

    def test_each_step_reads_what_stands_before_it(self):
        sweep = self.sweep(
            'x: "m n"',
            "u = mean[n](x)",
            "p = exp(x - max[n](x))",
            "return sum[n](p * (x - u) ** 3)",
        )
        known = {state.name for state in sweep.states}
        for step in sweep.update:
            assert reads_of(step) <= known | {"x"}
            known |= set(names_of(step))

    def test_a_walk_comes_before_what_needs_it(self):
        sweep = self.sweep('x: "m n"', "return mean[n]((x - mean[n](x)) ** 2)")
        kinds = [type(step) for step in sweep.update]
        first = kinds.index(Partial)
        last = len(kinds) - 1 - kinds[::-1].index(Partial)
        assert Let in kinds[first:last]
        assert Combine in kinds[first:last]

    def test_what_does_not_vary_is_computed_once(self):
        sweep = self.sweep(
            'x: "m n", a: float, b: float', "return sum[n](x * rsqrt(a * b + 1)), max[n](x)"
        )
        names = [step.name for step in sweep.update if isinstance(step, Let)]
        assert names == ["once"]
        assert not any(isinstance(step, Each) for step in sweep.update)


def test_a_name_from_a_kernel_is_not_taken_for_a_state():
    assert B.sub(c, u) == B.sub(c, u)
    sweep = fuse(program_of(kernel('x: "m n"', "a = sum[n](x)", "b = max[n](x)", "return a, b")))
    names = [state.name for state in sweep.sweeps[0].states]
    assert names == ["a.sum", "b.max"]
