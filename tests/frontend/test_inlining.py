import pytest

from redlang.frontend.scope import Callee
from redlang.ir.printing import to_text
from tests.frontend.resolving import Outside, body, mistake, mistakes, program, resolution

SOFTMAX = Outside(
    """
@redlang.function(axes="l")
def softmax(s):
    p = exp(s - max[l](s))
    return p / sum[l](p)
"""
)
SCALED = Outside(
    """
@redlang.function
def scaled(x, factor=2.0, *, shift: float = 0):
    return x * factor + shift
"""
)
ATTENTION = Outside(
    """
@redlang.kernel
def attention(q: "b m d", k: "b n d", v: "b n e", scale: float = 1.0) -> "b m e":
    s = sum[d](q * k) * scale
    return sum[n](softmax[n](s) * v)
""",
    softmax=SOFTMAX,
)


# Macros


def test_a_macro_is_inlined_under_names_of_its_own():
    lines = body("p = exp(x)\nreturn softmax[n](p + 1) * p", names={"softmax": SOFTMAX})
    assert lines == [
        "p: f32[m n] = exp(x[m, n])",
        "softmax.s: f32[m n] = p + 1.0",
        "max.1: f32[m] = max[n](softmax.s)",
        "softmax.p: f32[m n] = exp(softmax.s - max.1)",
        "sum.1: f32[m] = sum[n](softmax.p)",
        "return f32[m n] softmax.p / sum.1 * p",
    ]


def test_two_calls_do_not_share_locals():
    lines = body("return softmax[n](x) + softmax[m](x)", names={"softmax": SOFTMAX})
    assert [line.split(":")[0] for line in lines[:-1]] == [
        "max.1",
        "softmax.p",
        "sum.1",
        "max.2",
        "softmax.p.1",
        "sum.2",
    ]


def test_an_axis_parameter_may_bind_a_set():
    lines = body("return softmax[m, n](x)", names={"softmax": SOFTMAX})
    assert lines[0] == "max.1: f32[] = max[m, n](x[m, n])"


def test_a_set_has_a_row_major_index_and_a_size():
    macro = Outside('@redlang.function(axes="l")\ndef place():\n    return l + size(l)')
    lines = body("return place[m, n]()", names={"place": macro})
    assert lines == ["return i64[m n] m * size(n) + n + size(m) * size(n)"]


def test_axes_may_be_bound_by_name():
    macro = Outside('@redlang.function(axes="a b")\ndef sub():\n    return a - b')
    assert body("return sub[b:m, a:n]()", names={"sub": macro}) == ["return i64[m n] n - m"]
    assert body("return sub[m, n]()", names={"sub": macro}) == ["return i64[m n] m - n"]


def test_names_in_a_macro_are_those_of_its_own_module():
    macro = Outside("@redlang.function\ndef g(x):\n    return x * K", K=2)
    kernel = program(
        'def f(x: "n"):\n    return g(x) * K + h(x)',
        {"K": 3.0, "g": macro, "h": Outside("@redlang.function\ndef h(x):\n    return x", K=1)},
    )
    assert [(p.name, p.dtype.name) for p in kernel.params[1:]] == [("K", "i64"), ("K.1", "f64")]


def test_locals_of_the_caller_are_not_seen_in_a_macro():
    macro = Outside("@redlang.function\ndef g(x):\n    return x * y")
    ((line, column, problem, hint),) = mistakes(
        'def f(x: "n"):\n    y = exp(x)\n    return g(x) * y', {"g": macro}
    )
    assert (line, column) == (3, 16)
    assert problem == "y is no parameter, axis, local, builtin or number from outside"
    assert "g is called at k.py:3:12\n" in hint


def test_a_mistake_in_a_macro_says_where_it_is_called_from():
    ((line, _, problem, hint),) = mistakes(
        'def f(x: "m n", y: "m"):\n    return softmax[n](y)', {"softmax": SOFTMAX}
    )
    assert line == 3
    assert problem == "max reduces axis n, which its operand does not have (it has m)"
    assert hint.splitlines()[-3:] == [
        "      softmax is called at k.py:2:12",
        "    2 |     return softmax[n](y)",
        "                   ^^^^^^^^^^^^^",
    ]


def test_defaults_keywords_and_keyword_only_parameters_are_as_in_python():
    names = {"scaled": SCALED}
    assert body("return scaled(x)", names=names) == ["return f32[m n] x[m, n] * 2.0 + 0.0"]
    assert body("return scaled(x, shift=1, factor=m)", names=names) == [
        "return f32[m n] x[m, n] * float(m) + 1.0"
    ]
    for call, problem in (
        ("scaled()", "scaled is called without x"),
        ("scaled(x, 1, 2)", "scaled takes 2 arguments, and 3 are given"),
        ("scaled(x, x=1)", "scaled is given x twice"),
        ("scaled(x, facto=1)", "scaled has no parameter facto"),
        ("scaled(x, shift=x)", "shift of scaled is a scalar, and its argument has axes m n"),
        ("scaled(x, shift=c)", "shift of scaled is a float, and its argument is computed in bool"),
    ):
        assert mistake(f"return {call}", 'x: "m n", c: bool', names)[0] == problem


def test_an_int_parameter_takes_integers():
    macro = Outside("@redlang.function\ndef g(x, k: int, c: bool = False):\n    return x * k")
    problem = mistake("return g(x, 2.5)", names={"g": macro})[0]
    assert problem == "k of g is an integer, and this is a float"
    problem = mistake("return g(x, 2, 1)", names={"g": macro})[0]
    assert problem == "c of g is a bool, and its argument is computed in i64"


@pytest.mark.parametrize(
    ("call", "problem", "hint"),
    [
        ("softmax(x)", "softmax needs its axis l", "softmax[n](x)"),
        ("softmax[m](x, 1)", "softmax takes 1 argument, and 2 are given", "softmax[m](x)"),
        (
            "softmax(x, axis=0)",
            "softmax has no parameter axis",
            "in a kernel the axis is named in brackets: softmax[n](x)",
        ),
        ("softmax(m * x, 1)", "softmax takes 1 argument, and 2 are given", "softmax[l](s)"),
        ("scaled(2 * x, m, 3)", "scaled takes 2 arguments, and 3 are given", "scaled(x, m, shift)"),
        ("softmax[k](x)", "k is no axis of this kernel", "axes are m, n"),
        ("softmax[k:n](x)", "softmax has no axis k", "softmax[l](s)"),
        ("scaled[n](x)", "scaled takes 0 axes, and 1 is given", "scaled(x, factor, shift)"),
        ("softmax[x](x)", "x is a value", "axes are m, n"),
    ],
)
def test_axes_of_a_macro_must_match(call, problem, hint):
    assert mistake(f"return {call}", names={"softmax": SOFTMAX, "scaled": SCALED}) == (
        problem,
        hint,
    )


def test_a_literal_argument_stays_a_literal():
    macro = Outside('@redlang.function(axes="e j")\ndef route(p, k=2):\n    return topk[e:j](p, k)')
    lines = body("w, i = route[n, j](x, 3)\nreturn w / sum[j](w), i", names={"route": macro})
    assert lines[0] == "topk.1.0: f32[m j], topk.1.1: i64[m j] = topk[n:j](x[m, n], 3)"
    assert lines[-1] == "return i64[m j] topk.1.1"


def test_a_macro_may_make_the_axis_that_it_is_given_through_another():
    inner = Outside('@redlang.function(axes="e j")\ndef top(p):\n    return topk[e:j](p, 2)')
    outer = Outside(
        '@redlang.function(axes="a b")\ndef best(p):\n    v, i = top[a, b](p)\n    return v',
        top=inner,
    )
    assert body("return sum[j](best[n, j](x))", names={"best": outer})[-1] == (
        "return f32[m] sum.1"
    )


def test_a_macro_may_make_an_axis_deep_inside_an_expression():
    inner = Outside(
        '@redlang.function(axes="e j")\ndef top(p):\n    v, i = topk[e:j](p, 2)\n    return v'
    )
    for expression in ("-top[a, b](p)", "where(1 < top[a, b](p), 1, 0)", "exp(1 + top[a, b](p))"):
        outer = Outside(
            f'@redlang.function(axes="a b")\ndef best(p):\n    return {expression}', top=inner
        )
        lines = body("return any[j](best[n, j](x) > 0)", names={"best": outer})
        assert lines[0].startswith("top.v: f32[m j], top.i: i64[m j] = topk[n:j](x[m, n], 2)")


def test_an_axis_must_be_made_before_it_is_used():
    early = Outside(
        '@redlang.function(axes="e j")\ndef early(p):\n    a = sum[j](p)\n'
        "    v, i = topk[e:j](p, 2)\n    return v"
    )
    ((line, _, problem, _),) = mistakes(
        'def f(x: "m n"):\n    return early[n, j](x)', {"early": early}
    )
    assert (line, problem) == (3, "j is no axis yet where early uses it as j")


def test_an_axis_that_no_macro_makes_is_none():
    inner = Outside('@redlang.function(axes="e j")\ndef top(p):\n    return sum[e](p)')
    outer = Outside(
        '@redlang.function(axes="a b")\ndef best(p):\n    return top[a, b](p)', top=inner
    )
    problem, hint = mistake("return best[n, j](x)", names={"best": outer})
    assert (problem, hint) == ("j is no axis of this kernel", "axes are m, n")


def test_a_set_of_axes_cannot_be_made():
    macro = Outside(
        '@redlang.function(axes="j")\ndef top(p):\n    v, i = topk[k:j](p, 2)\n    return v'
    )
    found = mistakes('def f(x: "m n"):\n    return top[m, n](x)', {"top": macro})
    assert "j stands for several axes here" in [problem for _, _, problem, _ in found]


def test_an_axis_that_a_macro_declares_is_its_own():
    macro = Outside("@redlang.function\ndef spread(x):\n    k = axis(3)\n    return sum[k](x * k)")
    kernel = program('def f(x: "k"):\n    return spread(x) + spread(sum[k](x))', {"spread": macro})
    assert [axis.name for axis in kernel.axes] == ["k", "spread.k", "spread.k.1"]


def test_arrays_can_be_indexed_in_a_macro():
    macro = Outside("@redlang.function\ndef at(x, i):\n    return fill(x[i, 0], 0)")
    lines = body("return at(x, i + 1)", 'x: "n 4", i: "i32[m]"', {"at": macro})
    assert lines == [
        "at.i: i64[m] = i[m] + 1",
        "return f32[m] fill(x[at.i?, 0], 0.0)",
    ]
    problem, _ = mistake("return at(exp(x), i)", 'x: "n 4", i: "i32[m]"', {"at": macro})
    assert problem == "x is no array parameter, and only those take subscripts"


def test_a_macro_does_not_recurse():
    loop = Outside("@redlang.function\ndef loop(s):\n    return loop(s)")
    loop.names["loop"] = loop
    problem, hint = mistake("return loop(x)", names={"loop": loop})
    assert problem == "loop calls itself"
    assert "\n      loop is called at k.py:2:12\n" in hint


def test_macros_that_call_each_other_do_not_recurse():
    one = Outside("@redlang.function\ndef one(s):\n    return two(s)")
    two = Outside("@redlang.function\ndef two(s):\n    return one(s)", one=one)
    one.names["two"] = two
    problem, hint = mistake("return one(x)", names={"one": one})
    assert problem == "one calls itself"
    calls = "two is called at other.py:3:12, one is called at k.py:2:12"
    assert hint.endswith(f"{calls}\n    2 |     return one(x)\n                   ^^^^^^")


def test_what_is_inlined_is_listed():
    resolved = resolution(
        'def f(x: "n"):\n    return softmax[n](x) + scaled(x)',
        {"softmax": SOFTMAX, "scaled": SCALED},
    )
    assert [(used.path, used.entity) for used in resolved.used] == [
        ("softmax", SOFTMAX.entity),
        ("scaled", SCALED.entity),
    ]


def test_nested_macros_are_listed_with_their_own_scope():
    resolved = resolution(
        'def f(q: "b m d", k: "b n d", v: "b n e"):\n    return attention(q, k, v)',
        {"attention": ATTENTION},
    )
    assert [used.path for used in resolved.used] == ["attention", "softmax"]
    assert isinstance(ATTENTION.entity, Callee)
    assert resolved.used[1].scope is ATTENTION.entity.scope


# Kernels


def test_a_kernels_axes_match_by_name():
    text = """
def f(q: "b m d", k: "b n d", v: "b n e") -> "b m e":
    return attention(q, k, v, scale=0.5) * 2
"""
    assert to_text(program(text, {"attention": ATTENTION})).splitlines()[5:] == [
        "  sum.1: f32[b m n] = sum[d](q[b, m, d] * k[b, n, d])",
        "  attention.s: f32[b m n] = sum.1 * 0.5",
        "  max.1: f32[b m] = max[n](attention.s)",
        "  softmax.p: f32[b m n] = exp(attention.s - max.1)",
        "  sum.2: f32[b m] = sum[n](softmax.p)",
        "  sum.3: f32[b m e] = sum[n](softmax.p / sum.2 * v[b, n, e])",
        "  return f32[b m e] sum.3 * 2.0",
    ]


def test_a_kernels_axes_may_be_renamed():
    text = """
def f(q: "b i d", k: "b j d", v: "b j e") -> "b i e":
    return attention[m:i, n:j](q, k, v)
"""
    lines = to_text(program(text, {"attention": ATTENTION})).splitlines()
    assert lines[5] == "  sum.1: f32[b i j] = sum[d](q[b, i, d] * k[b, j, d])"
    found = mistakes(text.replace("[m:i, n:j]", ""), {"attention": ATTENTION})
    assert found[0][2] == "q of attention has axis m, and its argument does not (it has b i d)"
    assert found[0][3] == "rename the kernel's axis: attention[m:i](...)"
    found = mistakes(text.replace("m:i", "o:i"), {"attention": ATTENTION})
    assert found[0][2] == "kernel attention has no axis o"


def test_one_axis_of_a_kernel_is_one_axis():
    macro = Outside(
        '@redlang.function(axes="l")\ndef g(x):\n    return norm[n:l](x)',
        norm=Outside('@redlang.kernel\ndef norm(x: "n"):\n    return x / sum[n](x)'),
    )
    assert mistake("return g[m, n](x)", names={"g": macro})[0] == (
        "l stands for several axes, and n is one"
    )


def test_a_called_kernel_has_annotations():
    bare = Outside("@redlang.kernel\ndef bare(x):\n    return x")
    assert mistake("return bare(x)", names={"bare": bare})[0] == (
        "parameter x of kernel bare has no annotation"
    )


def test_a_kernels_arguments_may_be_computed():
    lines = body(
        "return attention(q * 2, exp(k), k)",
        'q: "b m d", k: "b n d"',
        {
            "attention": Outside(
                ATTENTION.source.text.replace('"b n e"', '"b n d"'), softmax=SOFTMAX
            )
        },
    )
    assert lines[:2] == [
        "attention.q: f32[b m d] = q[b, m, d] * 2.0",
        "attention.k: f32[b d n] = exp(k[b, n, d])",
    ]


def test_an_array_keeps_its_dimensions_in_a_kernel_that_indexes_it():
    paged = Outside(
        '@redlang.kernel\ndef at(k: "p page=4 d", i: "i32[b]") -> "b d":\n'
        "    return fill(k[i, 0, d], 0)"
    )
    text = 'def f(k: "d p page", i: "i32[c]") -> "c d":\n    return at[b:c](k, i)'
    kernel = program(text, {"at": paged})
    assert to_text(kernel.results[0].value) == "fill(k[d, i[c]?, 0], 0.0)"
    assert [axis.extent for axis in kernel.axes] == [None, None, 4, None]


def test_an_element_type_in_a_callees_result_is_a_cast():
    half = Outside('@redlang.kernel\ndef half(x: "n") -> "f16[n]":\n    return x / 2')
    assert body("return half(x) * x", 'x: "n"', {"half": half})[-1] == (
        "return f32[n] f16(x[n] / 2.0) * x[n]"
    )


def test_arguments_are_of_the_parameters_kind():
    rows = Outside('@redlang.kernel\ndef rows(i: "i32[n]", s: "f16[]") -> "n":\n    return i * s')
    problem, hint = mistake("return rows(x, 2)", 'x: "n"', {"rows": rows})
    assert problem == "i of rows is i32, and its argument is computed in f32"
    assert hint == "cast it: i32(...)"
    assert body("return rows(i, 2.5)", 'i: "i64[n]"', {"rows": rows}) == [
        "rows.s: f32[] = f16(2.5)",
        "return f32[n] float(i[n]) * rows.s",
    ]
    assert mistake("return rows(n, x)", 'x: "n"', {"rows": rows})[0] == (
        "s of rows is a scalar, and its argument has axes n"
    )


def test_anonymous_axes_of_a_kernel_match_by_extent():
    pair = Outside('@redlang.kernel\ndef pair(x: "n 2") -> "n 2":\n    return x * 2')
    assert body("return pair(x)", 'x: "n k=2"', {"pair": pair}) == ["return f32[n k] x[n, k] * 2.0"]
    assert mistake("return pair(x)", 'x: "n k=3"', {"pair": pair})[0] == (
        "x of pair has axis 2, and its argument does not (it has n k)"
    )


def test_a_mistake_in_an_argument_is_reported_once():
    typed = Outside(
        '@redlang.kernel\ndef typed(x: "n", s: "f32[]", r: float):\n    return x * s * r'
    )
    for call in ("typed(x, foo, 1)", "typed(x, 1, foo)", "scaled(x, shift=foo)"):
        names = {"typed": typed, "scaled": SCALED}
        assert mistake(f"return {call}", 'x: "n"', names)[0].startswith("foo is no parameter")
    problem, _ = mistake(
        "return attention(foo, k, v)", 'k: "b n d", v: "b n e"', {"attention": ATTENTION}
    )
    assert problem.startswith("foo is no parameter")
