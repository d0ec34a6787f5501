import ast
import importlib.util
import re
import sys
import warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import redlang
from redlang.errors import InternalError, KernelSyntaxError, PlanError, RedlangError
from redlang.frontend.advice import EXPRESSIONS, OPERATORS, STATEMENTS
from redlang.frontend.capture import from_text
from redlang.frontend.parser import parse
from redlang.frontend.unparse import unparse
from redlang.source import SourceText

PAIRS = sorted((Path(__file__).parents[1] / "mistakes").glob("*.py"))


def provoke(path):
    """Return what importing a file, or looking at one of its kernels, says."""
    name = f"mistakes_{path.stem}"
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
        for value in vars(module).values():
            if isinstance(value, redlang.Kernel):
                value.explain("program")
    except RedlangError as error:
        return str(error).replace(str(path), path.name)
    finally:
        del sys.modules[name]
    raise AssertionError(f"{path.name} has no mistake")


@pytest.mark.parametrize("path", PAIRS, ids=[path.stem for path in PAIRS])
def test_a_wrong_kernel_and_what_it_prints(path, request):
    expected = path.with_suffix(".txt")
    printed = provoke(path)
    if request.config.getoption("--renew-golden", default=False):
        expected.write_text(f"{printed}\n", encoding="utf-8")
    assert f"{printed}\n" == expected.read_text(encoding="utf-8")


def test_every_kind_of_error_has_its_wrong_kernel():
    printed = "\n".join(path.with_suffix(".txt").read_text(encoding="utf-8") for path in PAIRS)
    # No kernel makes redlang contradict itself, and none holds a plan that is written by hand.
    public = {kind for kind in RedlangError.__subclasses__() if kind.__module__ == "redlang.errors"}
    kinds = public - {InternalError, PlanError}
    silent = {kind for kind in kinds if not re.search(rf"(^|: ){kind.stage}: ", printed, re.M)}
    assert not silent


def mistakes(text):
    """Return all mistakes of a text, in order."""
    with pytest.raises(KernelSyntaxError) as caught:
        parse(from_text(text))
    return [caught.value, *caught.value.others]


def mistakes_in(statement):
    """Return the mistakes of a kernel with this statement in its body."""
    lines = "".join(f"    {line}\n" for line in statement.split("\n"))
    return mistakes(f'def f(x: "m n", y: "m n", n: int):\n    a = x\n{lines}    return a\n')


def test_all_mistakes_are_reported_together_and_in_order():
    found = mistakes(
        """
        @redlang.kernel
        def f(x: np.ndarray, y: "b, n") -> "b":
            s = x.sum()
            for i in range(8):
                s += x[i]
            t = a < b & c < d
            u = sum[n + 1](x) + f"{t}"
            return u
        """
    )
    places = [error.with_source(error.source).source.position(error.span.start) for error in found]
    assert places == [(3, 18), (3, 35), (4, 17), (5, 13), (7, 21), (8, 21), (8, 33)]


def test_a_mistake_shows_place_line_caret_and_hint():
    (found,) = mistakes("def f(x):\n  y = x @ x\n  return y")
    assert str(found) == (
        "<string>:2:7: syntax: '@' has no meaning in a kernel\n"
        "    2 |   y = x @ x\n"
        "              ^^^^^\n"
        "hint: sum the product over the axis that both have"
    )


STATEMENT_EXAMPLES = {
    ast.For: "for i in range(3):\n    a += i\nelse:\n    pass",
    ast.While: "while a:\n    a = 1",
    ast.If: "if n:\n    a = 1\nelif n > 2:\n    a = 2\nelse:\n    a = 3",
    ast.With: "with n as m:\n    a = m",
    ast.Try: "try:\n    a = 1\nexcept E:\n    a = 2\nfinally:\n    a = 3",
    ast.Match: "match n:\n    case 1:\n        a = 1",
    ast.FunctionDef: "def g():\n    return 1",
    ast.AsyncFunctionDef: "async def g():\n    return 1",
    ast.ClassDef: "class G:\n    pass",
    ast.Import: "import math",
    ast.ImportFrom: "from math import *",
    ast.Global: "global a",
    ast.Nonlocal: "nonlocal a",
    ast.Delete: "del a, x",
    ast.Assert: "assert x, 'why'",
    ast.Raise: "raise ValueError('no')",
    ast.Pass: "pass",
    ast.Break: "break",
    ast.Continue: "continue",
}

EXPRESSION_EXAMPLES = {
    ast.Lambda: "lambda x: x",
    ast.ListComp: "[i for i in x]",
    ast.SetComp: "{i for i in x}",
    ast.DictComp: "{i: i for i in x}",
    ast.GeneratorExp: "(i for i in x)",
    ast.JoinedStr: "f'{x}'",
    ast.NamedExpr: "(b := x)",
    ast.Await: "(await x)",
    ast.Yield: "(yield)",
    ast.YieldFrom: "(yield from x)",
    ast.Starred: "exp(*x)",
    ast.List: "[x, y]",
    ast.Set: "{x, y}",
    ast.Dict: "{}",
    ast.Tuple: "exp((x, y))",
    ast.Slice: "a[1:2]",
}

OPERATOR_EXAMPLES = {
    ast.MatMult: "x @ y",
    ast.LShift: "x << 2",
    ast.RShift: "x >> 2",
    ast.Is: "x is y",
    ast.IsNot: "x is not y",
    ast.In: "x in y",
    ast.NotIn: "x not in y",
}


def test_every_table_has_its_examples():
    assert set(STATEMENTS) == set(STATEMENT_EXAMPLES)
    assert set(EXPRESSIONS) == set(EXPRESSION_EXAMPLES)
    assert set(OPERATORS) == set(OPERATOR_EXAMPLES)


@pytest.mark.parametrize(("kind", "statement"), STATEMENT_EXAMPLES.items())
def test_statements_that_a_kernel_lacks(kind, statement):
    (found,) = mistakes_in(statement)
    assert (found.problem, found.hint) == STATEMENTS[kind]


@pytest.mark.parametrize(("kind", "text"), (EXPRESSION_EXAMPLES | OPERATOR_EXAMPLES).items())
@pytest.mark.parametrize("frame", ["a = {}", "a = 1 + exp({}) * 2", "a = where(n < 3, {}, x)"])
def test_expressions_that_a_kernel_lacks(kind, text, frame):
    (found,) = mistakes_in(frame.format(text if text.startswith("(") else f"({text})"))
    assert (found.problem, found.hint) == (EXPRESSIONS | OPERATORS)[kind]


@pytest.mark.parametrize(
    ("statement", "problem", "hint"),
    [
        ("a += x * 2", "'+=' changes a value in place", "a = a + x * 2"),
        ("a **= 2", "'**=' changes", "a = a ** 2"),
        ("a: float = 1", "'a' has an annotation", "f32"),
        ("a = b = x", "two assignments", "below"),
        ("a, b = x, y", "several values stand behind '='", "one assignment a line"),
        ("a, = x", "the comma unpacks one value", "a = x"),
        ("a, (b, c) = f(x)", "not nested", "a, b, c"),
        ("[a, b] = f(x)", "plain names", "a, b"),
        ("a, *b = f(x)", "does not collect", "name each"),
        ("x[3] = 1", "elements of x cannot be assigned", "where"),
        ("x.y = 1", "an attribute cannot be assigned", "name"),
        ("print(x, y)", "print has no meaning", "explain"),
        ("exp(x)", "nothing is done with this value", "return it"),
        ("'text'", "a string stands where", "comment"),
        ("a = 'text'", "no strings", "numbers"),
        ("a = b'text'", "no strings", "numbers"),
        ("a = None", "None is no value", "nan"),
        ("a = x[...]", "'...' stands for no axis", "by its name: x"),
        ("a = 2j", "no complex numbers", "real"),
        ("a = x.sum(1)", "x has no attribute 'sum'", "sum[n](x)"),
        ("a = a.T", "a has no attribute 'T'", "names"),
        ("a = x.shape[0]", "x has no attribute 'shape'", "size(n)"),
        ("a = (x + 1).mean()", "an expression has no attribute 'mean'", "mean[n](x)"),
        ("a = exp(x).frob", "an expression has no attribute 'frob'", "f(x)"),
        ("a = exp(x)(y)", "only a function with a name", "macro"),
        ("a = exp(**x)", "'**' does not unpack", "one by one"),
        ("a = sum[2](x)", "'2' is not the name of an axis", "sum[n](...)"),
        ("a = sum[cfg.n](x)", "'cfg.n' is not the name of an axis", "sum[n](...)"),
        ("a = sum[1:2](x)", "'1:2' is not the name of an axis", "sum[n](...)"),
        ("a = x[0][1]", "brackets follow brackets", "x[i, j]"),
        ("a = exp(x)[0]", "an expression has subscripts", "parameter"),
        ("a = x[n:m]", "no ranges", "where"),
        ("a = x[:, 0]", "no ranges", "by its name: x[m, 0]"),
        ("a = x[:, :3]", "no ranges", "where(n < 3, x)"),
        ("a = x[1:5, 0]", "no ranges", "where(1 <= m < 5, x[m, 0])"),
        ("a = x[2:]", "no ranges", "where(m >= 2, x)"),
        ("a = x[::2]", "no ranges", "where(n < 4, x)"),
        ("a = x[..., 0]", "'...' stands for no axis", "by its name: x[m, 0]"),
        ("x -= 1", "in place", "write x2 = x - 1, and x2 below"),
        ("a[0] += 1", "elements of a cannot", "y = where(n == 0, 1, a)"),
        ("a = f(b=1, b=2)", "'b' is given twice", "remove"),
        ("b, b = f(x)", "'b' is assigned twice", "rename"),
        ("return", "nothing is returned", "return"),
        ("return None", "nothing is returned", "return"),
        ("return x,", "a tuple of one", "return x"),
    ],
)
def test_python_that_is_not_redlang(statement, problem, hint):
    found = mistakes_in(statement)[0]
    assert problem in found.problem
    assert hint in found.hint


@pytest.mark.parametrize(
    ("statement", "problem", "where"),
    [
        ("a = x +", "the line ends behind '+', where a value is needed", "+"),
        ("a = ", "the line ends behind '='", "="),
        ("a = x y", "'y' follows 'x'", "y"),
        ("a = 2 x", "'x' follows '2'", "x"),
        ("a = (x + y", "'(' is never closed", "("),
        ("a = x[n, (m + 1)", "'[' is never closed", "["),
        ("a = x)", "')' closes nothing", ")"),
        ("a = (x]", "']' closes '('", "]"),
        ("a = exp(x,, y)", "',' follows ','", ","),
        ("a = x ≤ y", "'≤' is no sign of the language", "≤"),
        ("a = x²", "'²' is no sign of the language", "²"),
        ("a = x && y", "'&&' is no operator", "&"),
        ("a = x || y", "'||' is no operator", "|"),
        ("a = !x", "'!' is no operator", "!"),
        ("a = x ? y", "'?' is no sign of the language", "?"),
        ("a = $x", "'$' is no sign of the language", "$"),
        ("a = 'x", "the string is never closed", "'"),
        ("a = 'x\\'", "the string is never closed", "'"),
        ('a = "x\\"', "the string is never closed", '"'),
        ("a = x if y", "the line is not complete", "y"),
        ("a = 1 = x", "'=' stands inside an expression", "="),
        ("a = x \\ y", "'\\' joins lines only at the end", "\\"),
        ("a = for", "'for' follows '='", "for"),
        ("a = 12abc", "'abc' follows '12'", "abc"),
        ("   b = x", "indented too far", "b = x"),
    ],
)
def test_what_is_no_python_either(statement, problem, where):
    found = mistakes_in(statement)[0]
    assert problem in found.problem
    assert found.hint
    assert found.source.text[found.span.start : found.span.stop] == where


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "the text is empty", 1),
        ("# only a comment", "the text is empty", 1),
        ("x = 3", "a definition starts with def", 1),
        ("import redlang\ndef f(x): return x", "a definition starts with def", 1),
        ("@k", "a decorator stands above no function", 1),
        ("@k\nx = 3", "a decorator stands above no function", 2),
        ("@k([1])\ndef f(x): return x", "the options of a decorator", 1),
        ("def f(x): return x\ndef g(x): return x", "a text holds one definition", 2),
        ("def f(x):", "the function has no body", 1),
        ("def f(x)", "the line ends without ':'", 1),
        ("def f(x)\n  return x", "the line ends without ':'", 1),
        ("def f(x):\n  '''only a docstring'''", "f returns nothing", 1),
        ("def f(x):\n  y = x", "f returns nothing", 1),
        ("def f(x):\n  return x\n  y = x", "stands behind the return", 3),
        ("def f(x):\n  return x\n  return x", "stands behind the return", 3),
        ("def f(x):\n    y = x\n  return y", "the indentation matches no line above", 3),
        ("async def f(x): return x", "a kernel cannot be async", 1),
        ("def f(x, /): return x", "'/' has no meaning", 1),
        ("def f(*x): return x", "'*x' takes any number of arguments", 1),
        ("def f(**x): return x", "'**x' takes any number of arguments", 1),
        ("def f(x, *): return x", "no parameter follows '*'", 1),
        ("def f(*, x, *, y): return x", "'*' appears twice", 1),
        ("def f(x, x): return x", "parameter 'x' appears twice", 1),
        ("def f(x=1, y): return x", "parameter 'y' has no default but follows 'x'", 1),
        ("def f(x=None): return x", "the default None is not a number", 1),
        ("def f(x=EPS): return x", "the default EPS is not a number", 1),
        ("def f(x='a'): return x", "the default 'a' is not a number", 1),
        ("def f(x: torch.Tensor): return x", "torch.Tensor does not say which axes x has", 1),
        ("def f(x: complex): return x", "complex does not say which axes x has", 1),
        ("def f(x: 'a' 'b'): return x", "one plain string", 1),
        ("def f(x: f'a'): return x", "f'a' does not say", 1),
        ("def f(x) -> float: return x", "float does not say which axes the result has", 1),
        ("def f(x) -> (): return x", "() does not say which axes the result has", 1),
        ("def f(x): x = '''", "the string is never closed", 1),
        ("class M:", "the class has no body", 1),
        ("class M: pass", "the class has no body", 1),
        ("class M(Base):\n  def init(): return 0", "the class has a base class", 1),
        ("class M:\n  x = 3\n  def init(): return 0", "a monoid holds only functions", 2),
    ],
)
def test_definitions_that_are_none(text, problem, line):
    found = mistakes(text)[0]
    assert problem in found.problem
    assert found.hint
    assert found.source.position(found.span.start)[0] == line


@pytest.mark.parametrize(
    ("annotation", "problem", "where"),
    [
        ("b, h", "separated by spaces", ","),
        ("... h", "stands for no axis", "..."),
        ("* h", "stands for no axis", "*"),
        ("b:h", "no ranges", ":"),
        ("b ((g r) m)", "not further parentheses", "("),
        ("b () m", "hold no axis", ")"),
        ("b (g r", "ends before '(' is closed", ""),
        ("f16[b h", "ends before '[' is closed", ""),
        ("f16[b] h", "'h' has no place", "h"),
        ("b ]", "']' has no place", "]"),
        ("b n=m", "the extent of axis n is a number in an annotation, and not m", "m"),
        ("b in", "'in' has no place", "in"),
        ("b a²", "'²' has no place", "²"),
        ("b 1.5", "no integer of at most 64 bits", "1.5"),
        ("b n=99999999999999999999", "no integer of at most 64 bits", "n=99999999999999999999"),
        ("float", "in quotes is an axis named float", "float"),
        ("f32", "an element type, not an axis", "f32"),
        ("bf16 n", "an element type, not an axis", "bf16"),
    ],
)
def test_annotations_that_are_none(annotation, problem, where):
    (found,) = mistakes(f'def f(x: "{annotation}") -> "":\n    return x')
    assert problem in found.problem
    assert found.hint
    assert found.source.text[found.span.start : found.span.stop] == where
    assert 10 <= found.span.start <= 10 + len(annotation)


def test_an_annotation_in_another_notation_is_offered_as_redlang_writes_it():
    notations = {
        "f16[m n]": ("f16(m n)", "[m n] f16", "m f16[n]", "m n:f16", "f16[m, n", "float16{m n}"),
        "m n": ("[m n]", "m, n", "[m][n]"),
        "f32[m n]": ("float[m n]", "m n: float", "float(m n)"),
        "i64[m n=8]": ("int[m n=8]", "long[m n=8]"),
        "f16[(m n) k]": ("f16 (m n) k",),
    }
    for meant, written in notations.items():
        for annotation in written:
            kernel = f'def f(x: "{annotation}") -> "":\n    return 1'
            with pytest.raises(RedlangError) as caught:
                redlang.compile(kernel)(1)
            assert f'"{meant}"' in caught.value.hint, annotation
    for annotation in ("b:h", "b ((g r) m)", "... h", "f16[(m n]", "[]"):
        (found,) = mistakes(f'def f(x: "{annotation}") -> "":\n    return x')
        assert 'write "' not in found.hint


def test_mistakes_behind_an_open_bracket_are_still_found():
    found = mistakes("def f(x):\n  y = (x + 1\n  z = x @ x\n  for i in z: pass\n  return [y")
    assert [error.problem for error in found] == [
        "'(' is never closed",
        "'@' has no meaning in a kernel",
        "a kernel has no for loops",
        "'[' is never closed",
    ]


def test_every_sign_that_only_looks_right_is_named():
    statement = "a = x × 2 − √(y²) ≠ ∞ # ≤ in a comment"
    assert [error.hint for error in mistakes_in(statement)] == [
        "write *",
        "write -",
        "write sqrt(x)",
        "write **2",
        "write !=",
        "write inf",
    ]
    assert [error.hint for error in mistakes_in("a = x ≤ (y]")] == [
        "write <=",
        "every bracket needs its partner",
    ]


def test_what_stands_in_a_block_is_no_mistake_of_its_own():
    text = "def f(x):\n  for i in x:\n    y += 1\n    if y: break\n  else:\n    pass\n  return x"
    (found,) = mistakes(text)
    assert found.problem == "a kernel has no for loops"


def test_terminal_names_never_show():
    words = re.compile(r"\b(NAME|NUMBER|STRING|_?NEWLINE|_?DEDENT|_?INDENT|LPAR|RPAR|SIGN|Token)\b")
    for text in (
        "def f(x): return +",
        "def f(x)) return",
        "def (x): return x",
        "@ def f(x): 3",
        "@",
    ):
        for error in mistakes(text):
            assert not words.search(str(error))


KERNELS = [
    '''@redlang.kernel(fuse="require")
def attention(q: "b (g r) m d", k: "f16[b g n d]", *, scale: float = -1.5) -> ("b m", ""):
    """Docstring."""
    s = scale * sum[d](q * k)  # comment
    p = exp(where((n <= m) & ~(n < 3), s) - max[n](s))
    v, i = topk[e:j](p, 8)
    return sum[n](p) if not x else k[table[b, n // 16], -1], a < b <= c ** -2
''',
    """class M:
    @staticmethod
    def init(): return 0, -inf

    def combine(a, b):
        m = maximum(a, b); n = m
        return (m, n)
""",
]
PIECE = re.compile(r"\w+|\s+|[^\w\s]")


@st.composite
def damaged(draw):
    """Draw a kernel with words removed, doubled, exchanged or replaced, or cut off."""
    words = PIECE.findall(draw(st.sampled_from(KERNELS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(words) - 1))
        other = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["remove", "double", "exchange", "replace", "cut"])):
            case "remove":
                words[place] = ""
            case "double":
                words[place] += words[place]
            case "exchange":
                words[place], words[other] = words[other], words[place]
            case "replace":
                new = st.sampled_from(
                    ["\n", "'", '"', "for", "=", "\\", "\t", "²", "{", "\0", "1e"]
                )
                words[place] = draw(new | st.text(max_size=2))
            case _:
                words = words[: place + 1]
    return "".join(words)


def check(text):
    """Parse; what is accepted is Python and survives a round trip, what is not has a message."""
    syntax = None
    found: tuple[RedlangError, ...] = ()
    try:
        syntax = parse(SourceText(text))
    except RedlangError as error:
        found = (error, *error.others)
    for each in found:
        assert each.problem
        assert each.span is not None
        assert 0 <= each.span.start <= each.span.stop <= len(text) + 1
        assert str(each)
    if syntax is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(from_text(text).text)
        assert repr(parse(SourceText(unparse(syntax)))) == repr(syntax)


@given(damaged())
@settings(max_examples=300, deadline=None)
def test_damaged_kernels_give_mistakes_and_nothing_else(text):
    check(text)


@given(st.text(max_size=60))
@example("0\r0")
@example("0#\r0")
@example("x # \0")
@example("x + '\ud800")
@settings(max_examples=100, deadline=None)
def test_any_text_gives_mistakes_and_nothing_else(text):
    check(text)
    check(f"def f(x):\n    y = {text}\n    return y")


@given(st.text(alphabet=st.sampled_from("ab (n=8)[],.:f16\n\t'\"\\²"), max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_annotation_gives_mistakes_and_nothing_else(text):
    check(f'def f(x: """{text}"""):\n    return x')
