import ast
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redlang.frontend import syntax
from redlang.frontend.parser import parse
from redlang.frontend.unparse import BINARY_LEVELS, annotation_text, expression_text, unparse
from redlang.source import SourceText

names = st.sampled_from(["x", "y", "n", "μ", "value_2"])
dotted = names | st.just("cfg.eps")
numbers = st.one_of(
    st.booleans(),
    st.integers(0, 10**30),
    st.floats(0, allow_nan=False, allow_infinity=True),
)


def calls(inner):
    bindings = st.builds(syntax.AxisBinding, names, st.none() | names)
    keywords = st.dictionaries(names, inner, max_size=2).map(
        lambda given: tuple(syntax.Keyword(*item) for item in given.items())
    )
    return st.builds(
        syntax.Call,
        dotted.map(lambda name: syntax.Name(f"f.{name}")),
        st.lists(bindings, max_size=2).map(tuple),
        st.lists(inner, max_size=2).map(tuple),
        keywords,
    )


def chains(inner):
    return st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda operands: st.lists(
            st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
            min_size=len(operands) - 1,
            max_size=len(operands) - 1,
        ).map(lambda ops: syntax.Compare(tuple(ops), tuple(operands)))
    )


def extended(inner):
    return st.one_of(
        st.builds(syntax.Unary, st.sampled_from(["-", "+", "~", "not"]), inner),
        st.builds(syntax.Binary, st.sampled_from(list(BINARY_LEVELS)), inner, inner),
        chains(inner),
        st.builds(syntax.IfElse, inner, inner, inner),
        st.builds(syntax.Subscript, names.map(syntax.Name), st.lists(inner, min_size=1).map(tuple)),
        calls(inner),
    )


leaves = st.builds(syntax.Number, numbers) | st.builds(
    syntax.Name, names | dotted.map(lambda name: f"cfg.{name}")
)
expressions = st.recursive(leaves, extended, max_leaves=5)

axes = st.one_of(
    st.builds(syntax.AxisSpec, names, st.none() | st.integers(0, 2**63 - 1)),
    st.builds(syntax.AxisSpec, st.none(), st.integers(0, 9)),
)
dims = st.lists(axes, min_size=1, max_size=2).map(lambda axes: syntax.DimSpec(tuple(axes)))
arrays = st.builds(
    syntax.ArrayAnnotation,
    st.none() | st.sampled_from(["f16", "bf16", "i32"]),
    st.lists(dims, max_size=3).map(tuple),
)
scalars = st.builds(syntax.ScalarAnnotation, st.sampled_from(["float", "int", "bool"]))
defaults = st.booleans() | st.integers() | st.floats()


@st.composite
def parameters(draw):
    """Draw parameters as Python allows them: those with defaults behind those without."""
    chosen = draw(st.lists(names, unique=True))
    positional = draw(st.integers(0, len(chosen)))
    required = draw(st.integers(0, positional))
    return tuple(
        syntax.Parameter(
            name,
            draw(st.none() | arrays | scalars),
            draw(st.none() | defaults)
            if place >= positional
            else None
            if place < required
            else draw(defaults),
            place >= positional,
        )
        for place, name in enumerate(chosen)
    )


assignments = st.builds(
    syntax.Assign,
    st.lists(names.map(syntax.Name), min_size=1, max_size=3, unique=True).map(tuple),
    expressions,
)
returns = st.builds(syntax.Return, st.lists(expressions, min_size=1, max_size=3).map(tuple))
bodies = st.tuples(st.lists(assignments, max_size=3), returns).map(
    lambda parts: (*parts[0], parts[1])
)
options = st.dictionaries(names, st.booleans() | st.integers() | st.text(max_size=5), max_size=2)
decorators = st.builds(
    syntax.Decorator,
    dotted,
    options.map(lambda given: tuple(given.items())),
    st.sampled_from([(), ("x + 1", "fuse=MODE", "**more"), ('"text"',)]),
)
docstrings = st.none() | st.text(max_size=12)
functions = st.builds(
    syntax.Function,
    names,
    parameters(),
    st.none() | st.lists(arrays, min_size=1, max_size=3).map(tuple),
    docstrings,
    bodies,
    st.lists(decorators, max_size=2).map(tuple),
)
monoids = st.builds(
    syntax.MonoidClass,
    names,
    docstrings,
    st.lists(functions, min_size=1, max_size=2).map(tuple),
    st.lists(decorators, max_size=1).map(tuple),
)


def parsed(text):
    return parse(SourceText(text))


@given(functions | monoids)
@settings(max_examples=80, deadline=None)
def test_the_text_parses_to_the_same_tree(tree):
    text = unparse(tree)
    again = parse(SourceText(text))
    # Not only equal: 1, 1.0 and True are, and mean different things.
    assert repr(again) == repr(tree)
    assert unparse(again) == text
    ast.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "-x ** -y ** 2",
        "(-x) ** 2",
        "a - b - c",
        "a - (b - c)",
        "(a ** b) ** c",
        "not a and b or c",
        "not (a and b)",
        "(a < b) & ~(c == d)",
        "(~a) < b",
        "a < b <= c",
        "(a < b) < c",
        "x if a else y if b else z",
        "(x if a else y) + z",
        "topk[e:j](p, 8, k=-1)",
        "k[table[b, n // 16], n % 16]",
        "sum[i, j](x * cfg.eps)",
        "1e999",
        "1e-05 + 0.5",
    ],
)
def test_parentheses_stand_only_where_they_are_needed(text):
    function = parsed(f"def f(a, b): return {text}")
    assert expression_text(function.body[0].values[0]) == text


@pytest.mark.parametrize("text", ['""', '"f32[]"', '"b (g r) n=128 8"', '"f16[b n]"'])
def test_annotations_are_written_as_they_are_read(text):
    function = parsed(f"def f(x: {text}) -> {text}: return x")
    assert annotation_text(function.parameters[0].annotation) == text
    assert annotation_text(function.returns[0]) == text


def test_a_whole_definition():
    text = (
        '@redlang.kernel(mode=MODE, fuse="require")\n'
        'def f(x: "f16[b n]", y, *, eps: float = -1e-05, k=inf) -> ("b", ""):\n'
        '    """Two \\"results\\".\\n"""\n'
        "    a, b = topk[n:j](x, 8)\n"
        "    return a, b"
    )
    assert unparse(parse(SourceText(text))) == text
    monoid = f"class M:\n    {text}".replace("\n", "\n    ").replace("class M:\n    ", "class M:\n")
    tree = parse(SourceText(monoid))
    assert unparse(tree) == monoid
    assert dataclasses.replace(tree, name="N") != tree
