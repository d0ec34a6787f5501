import ast
import concurrent.futures
import dataclasses
import io
import math
import tokenize
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.errors import KernelSyntaxError
from redlang.frontend import parser, syntax
from redlang.frontend.build import MAX_DEPTH, Builder
from redlang.frontend.capture import from_text
from redlang.frontend.parser import parse, read
from redlang.frontend.words import number_of, string_of
from redlang.source import SourceText, Span

ATTENTION = '''
@redlang.kernel(fuse="require", tile=-1)
@traced
def attention(
    q: "b (g r) m d",  # grouped queries
    k: "f16[b g n=128 d]",
    v: "b g n e", *,
    scale: float = -1e-3, cap: float = math.inf, causal: bool = True,
) -> ("b (g r) m e", "f32[b g r m]"):
    """Attention.

    With a log-sum-exp.
    """

    # A comment.
    s = scale * sum[d](q * k)
        # at an odd place
    s = where((n <= m) & causal, s); t = s
    values, indices = topk[e:j](t, 8)
    p = exp(s - \\
            max[n](s))
    z = sum[n](p)

    return sum[n](p * v) / z, k[table[b, n // 16],
  n % 16, d]
'''


def parsed(source):
    return parse(source)


def kernel(body, signature='x: "m n"'):
    return parse(from_text(f"def f({signature}):\n{body}"))


def expression(text):
    """Parse one expression, mistakes aside."""
    source = f"def f(): return ({text}\n)"
    builder = Builder(source, read)
    function = builder.definition(read("definition", source))
    assert isinstance(function, syntax.Function)
    (returned,) = function.body
    assert isinstance(returned, syntax.Return)
    return source, returned.values[0]


# Python's own tree, as redlang's nodes.

# fmt: off
OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.And: "and",
    ast.Or: "or", ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}
# fmt: on


def converted(node):
    match node:
        case ast.Constant(value):
            assert isinstance(value, int | float)
            return syntax.Number(value)
        case ast.Name() | ast.Attribute():
            return syntax.Name(ast.unparse(node))
        case ast.UnaryOp(op, operand):
            return syntax.Unary(OPERATORS[type(op)], converted(operand))
        case ast.BinOp(left, op, right):
            return syntax.Binary(OPERATORS[type(op)], converted(left), converted(right))
        case ast.BoolOp(op, [*front, last]):
            left = front[0] if len(front) == 1 else ast.BoolOp(op, front)
            return syntax.Binary(OPERATORS[type(op)], converted(left), converted(last))
        case ast.Compare(left, ops, operands):
            names = tuple(OPERATORS[type(op)] for op in ops)
            return syntax.Compare(names, tuple(map(converted, [left, *operands])))
        case ast.IfExp(test, body, orelse):
            return syntax.IfElse(converted(test), converted(body), converted(orelse))
        case ast.Call(ast.Subscript(function, axes), arguments, keywords):
            call = converted(ast.Call(function, arguments, keywords))
            bindings = tuple(map(binding, axes.elts if isinstance(axes, ast.Tuple) else [axes]))
            return dataclasses.replace(call, axes=bindings)
        case ast.Call(function, arguments, keywords):
            named = tuple(syntax.Keyword(str(k.arg), converted(k.value)) for k in keywords)
            return syntax.Call(converted(function), (), tuple(map(converted, arguments)), named)
        case ast.Subscript(array, index):
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            return syntax.Subscript(converted(array), tuple(map(converted, parts)))
    raise AssertionError(ast.dump(node))


def binding(node):
    if isinstance(node, ast.Slice):
        assert node.lower is not None
        assert node.upper is not None
        return syntax.AxisBinding(ast.unparse(node.lower), ast.unparse(node.upper))
    return syntax.AxisBinding(ast.unparse(node))


names = st.sampled_from(["x", "y", "n", "cfg.eps", "rl.std.pi", "μ"])
numbers = st.sampled_from(
    ["0", "1", "16", "1_000", "0.5", ".5", "2.", "1e-3", "1E5", "0x1F", "0b101", "0o17", "True"]
)
# fmt: off
BINARY = [
    "+", "-", "*", "/", "//", "%", "**", "&", "|", "^",
    "and", "or", "<", "<=", ">", ">=", "==", "!=",
]
# fmt: on


def extended(inner):
    space = st.sampled_from([" ", "  ", "\n  ", " # why\n"])
    several = st.lists(inner, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("{0}{3}{1} {2}".format, inner, st.sampled_from(BINARY), inner, space),
        st.builds("{0}{1}".format, st.sampled_from(["-", "+", "~", "not "]), inner),
        st.builds("({0})".format, inner),
        st.builds("{0} if {1} else {2}".format, inner, inner, inner),
        st.builds("{0}({1})".format, names, several),
        st.builds("f({0}, key={1})".format, inner, inner),
        st.builds("sum[n, m]({0})".format, inner),
        st.builds("topk[e:j]({0}, 8,)".format, inner),
        st.builds("x[{0}]".format, several),
    )


expressions = st.recursive(names | numbers, extended, max_leaves=12)


@given(expressions)
@settings(max_examples=400, deadline=None)
def test_an_expression_parses_as_python_parses_it(text):
    try:
        python = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        with pytest.raises(KernelSyntaxError):
            parse(SourceText(f"def f(): return ({text}\n)"))
    else:
        assert repr(expression(text)[1]) == repr(converted(python))


def nodes_of(node):
    if dataclasses.is_dataclass(node) and not isinstance(node, Span):
        yield node
        for part in dataclasses.fields(node):
            yield from nodes_of(getattr(node, part.name))
    elif isinstance(node, tuple):
        for part in node:
            yield from nodes_of(part)


@given(expressions)
@settings(max_examples=100, deadline=None)
def test_the_text_at_a_span_is_the_text_of_its_node(text):
    try:
        ast.parse(f"({text}\n)", mode="eval")
    except SyntaxError:
        return
    source, tree = expression(text)
    for node in nodes_of(tree):
        inside = source[node.span.start : node.span.stop]
        match node:
            case syntax.Keyword(name):
                assert inside.startswith(f"{name}=")
            case syntax.AxisBinding(name, target):
                assert inside == (name if target is None else f"{name}:{target}")
            case _:
                assert repr(expression(inside)[1]) == repr(node)


def test_a_whole_kernel():
    function = parsed(from_text(ATTENTION))
    assert function.name == "attention"
    assert function.docstring == "Attention.\n\n    With a log-sum-exp.\n    "
    assert function.decorators == (
        syntax.Decorator("redlang.kernel", (("fuse", "require"), ("tile", -1))),
        syntax.Decorator("traced"),
    )
    assert [type(statement) for statement in function.body] == [syntax.Assign] * 6 + [syntax.Return]
    assert function.body[3].targets == (syntax.Name("values"), syntax.Name("indices"))
    assert function.body[3].value == syntax.Call(
        syntax.Name("topk"),
        (syntax.AxisBinding("e", "j"),),
        (syntax.Name("t"), syntax.Number(8)),
    )


def test_a_signature():
    function = parsed(from_text(ATTENTION))
    q, k, _, scale, cap, causal = function.parameters
    assert q.annotation.dtype is None
    assert [[axis.name for axis in dim.axes] for dim in q.annotation.dims] == [
        ["b"],
        ["g", "r"],
        ["m"],
        ["d"],
    ]
    assert k.annotation.dtype == "f16"
    assert k.annotation.dims[2].axes == (syntax.AxisSpec("n", 128),)
    assert not q.keyword_only
    assert scale == syntax.Parameter("scale", syntax.ScalarAnnotation("float"), -1e-3, True)
    assert cap.default == math.inf
    assert causal.default is True
    assert [annotation.dtype for annotation in function.returns] == [None, "f32"]


@pytest.mark.parametrize(
    ("text", "dtype", "dims"),
    [
        ("", None, []),
        ("f32[]", "f32", []),
        ("b h", None, [[("b", None)], [("h", None)]]),
        ("  b\n  h ", None, [[("b", None)], [("h", None)]]),
        ("t 8", None, [[("t", None)], [(None, 8)]]),
        ("n=128 (g r = 4)", None, [[("n", 128)], [("g", None), ("r", 4)]]),
        ("bf16 [ (b h)m ]", "bf16", [[("b", None), ("h", None)], [("m", None)]]),
    ],
)
def test_an_array_annotation(text, dtype, dims):
    for quoted in (f'"""{text}"""', f"r'''{text}'''"):
        (parameter,) = kernel("  return x", f"x: {quoted}").parameters
        assert parameter.annotation == syntax.ArrayAnnotation(
            dtype,
            tuple(syntax.DimSpec(tuple(syntax.AxisSpec(*axis) for axis in dim)) for dim in dims),
        )


def test_spans_of_an_annotation_lie_inside_the_quotes():
    text = 'def f(x: r"f16[b (g  rr) n=12]") -> "b":\n  return x'
    function = parsed(from_text(text))
    annotation = function.parameters[0].annotation
    found = [text[node.span.start : node.span.stop] for node in nodes_of(annotation)]
    assert found[0] == "f16[b (g  rr) n=12]"
    assert found[1:] == ["b", "b", "(g  rr)", "g", "rr", "n=12", "n=12"]
    assert text[function.returns[0].span.start - 1 :].startswith('"b"')


def test_definitions_point_at_their_names():
    text = '@k\ndef f(x: "n", *, y: int = 2) -> "n":\n  return x'
    function = parsed(from_text(text))
    for node in (function, *function.parameters):
        assert text[node.span.start : node.span.stop] == node.name
    assert text[function.decorators[0].span.start : function.decorators[0].span.stop] == "@k"


@pytest.mark.parametrize(
    "default", ["1", "-1", "+2.5", "1e-5", "inf", "-math.inf", "np.nan", "pi", "True", "False"]
)
def test_defaults_are_numbers(default):
    (parameter,) = kernel("  return x", f"x={default}").parameters
    scope = {"math": math, "np": math, "inf": math.inf, "pi": math.pi}
    expected = eval(default, scope)  # the text stands above
    assert repr(parameter.default) == repr(expected)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return x",
        "def f(x):return x",
        "def f(x): y = x; return y;",
        "def f(x):\n\ty = x\n\treturn y",
        "def f(x):\r\n  y = x\r\n  return y\r\n",
        "\n\n# first\ndef f(x):\n\n  # then\n\n  return (\nx\n)\n  # last",
        "def f(x): # why\n  return x # so\n# end\n",
        "    def f(x):\n      return x\n",
        "    # odd\n    @k\n    def f(x):\n      return x\n\n",
        "def f(\n x\n):\n  return \\\n    x",
    ],
)
def test_lines_and_blocks_are_pythons(text):
    function = parsed(SourceText(text))
    assert isinstance(function, syntax.Function)
    assert isinstance(function.body[-1], syntax.Return)


def test_docstrings_are_pythons():
    function = kernel('  """a \\"b\\" \\x41""" r\'\\s\' "\\d"\n  return x')
    assert function.docstring == 'a "b" A\\s\\d'


def test_a_monoid():
    found = parsed(
        from_text(
            '''
            @redlang.monoid
            class LogSumExp:
                """Maximum and sum."""

                @staticmethod
                def init():
                    return -inf, 0.0

                def lift(x): return x, 1.0
            '''
        )
    )
    assert isinstance(found, syntax.MonoidClass)
    assert found.name == "LogSumExp"
    assert found.docstring == "Maximum and sum."
    assert [method.name for method in found.methods] == ["init", "lift"]
    assert found.methods[0].decorators == (syntax.Decorator("staticmethod"),)


def test_arguments_of_decorators_that_only_python_evaluates_are_kept_as_text():
    text = '@redlang.kernel("a", size(n), fuse=MODE, *rest, tune=True, **more, doc="d")\n'
    (decorator,) = parse(from_text(f"{text}def f(x):\n  return x")).decorators
    assert decorator.options == (("tune", True), ("doc", "d"))
    assert decorator.computed == ('"a"', "size(n)", "fuse=MODE", "*rest", "**more")


def test_names_are_compared_in_normal_form():
    function = kernel("  ﬁ = x\n  return fi")
    assert function.body[0].targets == function.body[1].values == (syntax.Name("fi"),)
    assert all(type(name.text) is str for name in function.body[0].targets)


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("a < b & c < d", "b & c"),
        ("a & b == c", "a & b"),
        ("a == b | c", "b | c"),
        ("a ^ b < c", "a ^ b"),
        ("~a < b", "~a"),
        ("a < b < ~ c", "~ c"),
    ],
)
def test_bitwise_operators_beside_a_comparison_need_parentheses(text, beside):
    source = f"def f(a): return {text}"
    with pytest.raises(KernelSyntaxError, match="binds tighter") as caught:
        parse(SourceText(source))
    span = caught.value.span
    assert span is not None
    assert source[span.start : span.stop] == beside


@pytest.mark.parametrize(
    "text",
    ["(a < b) & (c < d)", "a < (b & c)", "(~a) == b", "~(a < b)", "(a ^ b) < c", "a & b", "not ~a"],
)
def test_bitwise_operators_in_parentheses_are_fine(text):
    assert parse(SourceText(f"def f(a): return {text}"))


def test_deep_nesting_is_a_mistake_and_not_a_crash():
    for text in ("(" * 4000 + "x" + ")" * 4000, " + ".join("x" * 4000), "-" * 4000 + "x"):
        with pytest.raises(KernelSyntaxError, match="nested more than"):
            parse(SourceText(f"def f(x): return {text}"))
    assert parse(SourceText(f"def f(x): return {' + '.join('x' * MAX_DEPTH)}"))


def test_enormous_literals_are_mistakes_and_not_crashes():
    with pytest.raises(KernelSyntaxError, match="5000 digits"):
        parse(SourceText(f"def f(x): return x + {'9' * 5000}"))
    with pytest.raises(KernelSyntaxError, match="64 bits"):
        parse(SourceText(f"def f(x: 'n={'9' * 5000}'): return x"))


@given(
    st.text(st.characters(codec="utf-8") | st.sampled_from("\\nxuUN01{}'\"\n"), max_size=12),
    st.sampled_from(['"', "'", '"""', "'''", 'r"', 'U"""', "R'"]),
)
def test_strings_mean_what_they_mean_in_python(inside, opening):
    word = f"{opening}{inside}{opening.lstrip('rRuU')}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = ast.literal_eval(word)
            tokens = list(tokenize.generate_tokens(io.StringIO(word).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return
    if "\r" not in word and tokens[0].string == word:
        assert string_of(word) == expected


@given(st.from_regex(r"\A[0-9][0-9_.eExXbBoOa]{0,7}\Z"))
def test_numbers_mean_what_they_mean_in_python(word):
    try:
        expected = ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return
    if not isinstance(expected, complex):
        assert repr(number_of(word)) == repr(expected)


def test_threads_share_one_parser():
    source = from_text(ATTENTION)
    expected = parse(source)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(parse, [source] * 32)) == {expected}


class Store(dict[str, bytes]):
    """A store in memory that counts."""

    def __init__(self):
        super().__init__()
        self.loads = 0

    def load(self, key):
        self.loads += 1
        return self.get(key)

    store = dict.__setitem__


def test_tables_are_kept_in_a_store(monkeypatch):
    source = from_text(ATTENTION)
    expected = parse(source)
    store = Store()
    for loads in (1, 2):
        monkeypatch.setattr(parser, "_ready", [])
        parser.warm(store)
        parser.warm(store)
        assert (store.loads, len(store)) == (loads, 1)
        assert parse(source) == expected


def test_a_damaged_store_is_a_miss(monkeypatch):
    store = Store()
    monkeypatch.setattr(parser, "_ready", [])
    parser.warm(store)
    (key,) = store
    whole = store[key]
    for damaged in (b"", whole[: len(whole) // 2], b"nonsense"):
        store[key] = damaged
        monkeypatch.setattr(parser, "_ready", [])
        parser.warm(store)
        assert parse(from_text(ATTENTION)).name == "attention"
        assert store[key] != damaged
