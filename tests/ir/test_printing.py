import ast

from hypothesis import given
from hypothesis import strategies as st

from redlang.ir.build import Builder, literal, ref
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, State, Sweep
from redlang.ir.printing import number_text, to_text, type_text
from redlang.ir.program import (
    ArrayParam,
    Axis,
    Definition,
    Dim,
    Program,
    Ref,
    Result,
    Scalar,
    ScalarParam,
)
from redlang.ir.types import BOOL, F16, F32, F64, I64, Type

B = Builder(("m", "n"))
M, N = B.index("m"), B.index("n")
X = B.load("x", F32, [M, N])
A, C = ref("a", Type(F32)), ref("c", Type(F32))
P, Q = ref("p", Type(BOOL)), ref("q", Type(BOOL))


def dims(*names):
    return tuple(Dim((name,)) for name in names)


def test_precedence_is_pythons():
    assert to_text(B.mul(B.sub(A, C), A)) == "(a - c) * a"
    assert to_text(B.sub(A, B.sub(A, C))) == "a - (a - c)"
    assert to_text(B.sub(B.sub(A, C), A)) == "a - c - a"
    assert to_text(B.neg(B.apply("pow", A, C))) == "-a ** c"
    assert to_text(B.apply("pow", B.neg(A), C)) == "(-a) ** c"
    assert to_text(B.apply("pow", A, B.apply("pow", A, C))) == "a ** a ** c"
    assert to_text(B.apply("pow", B.apply("pow", A, C), A)) == "(a ** c) ** a"
    less = B.apply("lt", A, C)
    assert to_text(B.apply("and", less, P)) == "(a < c) & p"
    assert to_text(B.apply("not", less)) == "~(a < c)"
    assert to_text(B.apply("or", B.apply("and", P, Q), P)) == "p & q | p"


_UNARY = {"neg": ast.USub, "not": ast.Invert}
_BINARY = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "floordiv": ast.FloorDiv,
    "mod": ast.Mod,
    "pow": ast.Pow,
    "and": ast.BitAnd,
    "or": ast.BitOr,
    "xor": ast.BitXor,
}


@st.composite
def arithmetic(draw, depth=5):
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([A, C, ref("i", Type(I64)), literal(2), literal(0.5)]))
    op = draw(st.sampled_from(["neg", *_BINARY]))
    parts = [draw(arithmetic(depth - 1)) for _ in range(1 if op == "neg" else 2)]
    if op in ("and", "or", "xor"):
        parts = [B.apply("lt", part, 0) for part in parts]
    return B.apply(op, *parts)


def shape(node):
    """Return the tree that Python sees in the text."""
    match node:
        case ast.Expression():
            return shape(node.body)
        case ast.Name():
            return node.id
        case ast.Constant():
            return float(str(node.value))
        case ast.UnaryOp():
            return (type(node.op), shape(node.operand))
        case ast.BinOp():
            return (type(node.op), shape(node.left), shape(node.right))
        case ast.Compare():
            return ("lt", shape(node.left), shape(node.comparators[0]))
        case ast.Call():
            return shape(node.args[0])


def tree(expr):
    """Return the same tree of the expression itself, conversions left out."""
    if isinstance(expr, Ref):
        return expr.name
    if hasattr(expr, "value"):
        return float(expr.value)
    if hasattr(expr, "operand"):
        return tree(expr.operand)
    if expr.op == "lt":
        return ("lt", *map(tree, expr.arguments))
    return ((_UNARY | _BINARY)[expr.op], *map(tree, expr.arguments))


@given(arithmetic())
def test_python_reads_the_text_as_the_same_tree(expr):
    assert shape(ast.parse(to_text(expr), mode="eval")) == tree(expr)


def test_numbers_read_as_in_the_language():
    assert [number_text(v) for v in (True, 3, 0.5, 1e-5)] == ["True", "3", "0.5", "1e-05"]
    assert number_text(float("-inf")) == "-inf"
    assert number_text(float("nan")) == "nan"
    assert to_text(B.sub(A, literal(-1.0))) == "a - -1.0"
    assert to_text(B.apply("pow", literal(-1.0), A)) == "(-1.0) ** a"


def test_casts_conversions_masks_and_guards_can_be_told_apart():
    assert to_text(B.cast(X, F16)) == "f16(x[m, n])"
    assert to_text(B.apply("rsqrt", B.size("n"))) == "rsqrt(float(size(n)))"
    assert to_text(B.mask(B.apply("le", N, M), X)) == "where(n <= m, x[m, n])"
    assert to_text(B.fill(X, 0)) == "fill(x[m, n], 0.0)"
    gather = B.load("x", F32, [B.sub(M, 1), N], guarded=[True, False])
    assert to_text(gather) == "x[m - 1?, n]"
    assert to_text(Scalar("scale", Type(F32, weak=True))) == "scale"


def test_types():
    assert type_text(Type(F32, ("m", "n"), absent=True)) == "f32[m n] absent"


def test_a_program():
    total = B.reduce("sum", ("n",), X, condition=B.apply("le", N, M))
    program = Program(
        "prefix",
        (
            ArrayParam("x", (Dim(("m",)), Dim(("n",))), F16),
            ScalarParam("scale", F64, weak=True, default=2.0),
            ScalarParam("cfg.eps", F64, weak=True, captured=True),
        ),
        (Axis("m"), Axis("n"), Axis("g", 4), Axis("8", 8), Axis("h", B.mul(B.size("n"), 2))),
        (Definition(("total",), total),),
        (Result(ref("total", total.types[0]), dims("m"), F16),),
    )
    assert to_text(program) == (
        "program prefix\n"
        "  param x: f16[m n]\n"
        "  param scale: float = 2.0\n"
        "  param cfg.eps: float captured\n"
        "  axes m, n, g=4, 8, h=size(n) * 2\n"
        "  total: f32[m] = sum[n](x[m, n]) if n <= m\n"
        "  return f16[m] total\n"
    )
    topk = B.reduce("topk", ("n",), X, k=3, new_axis="m")
    assert to_text(topk) == "topk[n:m](x[m, n], 3)"


def test_a_sweep():
    f32 = Type(F32, ("m",))
    best, here, new = (ref(name, f32) for name in ("best", "here", "new"))
    sweep = Sweep(
        ("n",),
        ("top",),
        (State("best", f32, literal(float("-inf"), F32)),),
        (
            Each("e", B.mul(X, 2)),
            Partial(("here",), "max", (ref("e", X.type),), None, (f32,)),
            Combine(("new",), "max", ("best",), ("here",), (f32,)),
            Let("spare", B.add(new, here)),
        ),
        (Commit("best", "new"),),
        (Combine(("new",), "max", ("a.best",), ("b.best",), (f32,)),),
        (Commit("best", "new"),),
        (Let("top", best),),
    )
    assert to_text(sweep) == (
        "sweep n: top\n"
        "  state best: f32[m] = -inf\n"
        "  update\n"
        "    each e: f32[m n] = x[m, n] * 2.0\n"
        "    partial here: f32[m] = max(e)\n"
        "    combine new: f32[m] = max(best, here)\n"
        "    let spare: f32[m] = new + here\n"
        "    commit best = new\n"
        "  merge\n"
        "    combine new: f32[m] = max(a.best, b.best)\n"
        "    commit best = new\n"
        "  finish\n"
        "    let top: f32[m] = best\n"
    )
