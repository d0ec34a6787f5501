import functools
import linecache
import sys
import textwrap
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.errors import SourceUnavailableError
from redlang.frontend.capture import capture, from_text
from redlang.frontend.parser import parse
from redlang.frontend.syntax import Function


def identity(function):
    return function


def option(*arguments, **keywords):
    return identity


def wrapper(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)

    return inner


class Wrapped:
    """Stands for a kernel object."""

    def __init__(self, function):
        self.__wrapped__ = function


def run(text, file, register=True):
    """Execute `text` as if it stood in `file`; return what it defines."""
    scope = {"identity": identity, "option": option, "__name__": "generated"}
    text = textwrap.dedent(text)
    if register:
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope


@identity
@option(
    lambda x: x,
    key="def f(x):",
)
# between
@option(")")
def decorated(x: "m n") -> "m":
    """Sum (of a row."""
    # A comment ( at the margin
    y = sum[n](x)
    return y  # the end


def after():
    pass


def test_a_function_from_its_first_decorator_to_its_last_line():
    source = capture(decorated)
    lines = source.text.split("\n")
    assert lines[0] == "@identity"
    assert lines[-1] == "    return y  # the end"
    assert source.file == __file__
    assert source.first_line == decorated.__code__.co_firstlineno
    assert source.indent == 0


def test_positions_are_those_of_the_file():
    source = capture(decorated)
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    line, column = source.position(source.text.index("sum["))
    assert lines[line - 1][column - 1 :].startswith("sum[n](")


def test_a_function_in_a_function_is_dedented():
    @identity
    def inner(x: "n"):
        return x

    source = capture(inner)
    assert source.text == '@identity\ndef inner(x: "n"):\n    return x'
    assert source.indent == 4
    assert source.position(0)[1] == 5


def test_columns_stay_exact_where_a_line_is_indented_less():
    # fmt: off
    @identity
    def inner(x: "n",
 y: "n"):
        return x + y
    # fmt: on

    source = capture(inner)
    assert source.position(source.text.index("y:"))[1] == 2
    assert source.indent == 1
    function = parse(source)
    assert isinstance(function, Function)
    assert [parameter.name for parameter in function.parameters] == ["x", "y"]


def test_a_one_line_function():
    def inner(x): return x  # fmt: skip

    assert capture(inner).text == "def inner(x): return x  # fmt: skip"


class Holder:
    @staticmethod
    @identity
    def static(x: "n"):
        return x

    @identity
    @classmethod
    def of_class(cls, x: "n"):
        return x

    def method(self, x: "n"):
        return x

    class Inner:
        def method(self, x):
            return x


def test_methods_of_every_kind():
    kinds = vars(Holder)
    for function in (kinds["static"], kinds["of_class"], kinds["method"], Holder().method):
        source = capture(function)
        assert source.indent == 4
        assert source.text.endswith("    return x")
    assert capture(kinds["static"]).text.startswith("@staticmethod\n@identity\ndef static")


def test_classes():
    source = capture(Holder)
    assert source.text.startswith("class Holder:\n    @staticmethod")
    assert source.text.endswith("            return x")
    inner = capture(Holder.Inner)
    assert inner.text == "class Inner:\n    def method(self, x):\n        return x"
    assert inner.indent == 4


def test_wrappers_are_looked_through():
    def inner(x):
        return x

    text = capture(inner).text
    assert capture(wrapper(wrapper(inner))).text == text
    assert capture(Wrapped(inner)).text == text
    static: object = staticmethod(Wrapped(inner))  # type: ignore[arg-type]  # as a kernel in a class
    assert capture(static).text == text


def test_code_that_registers_its_text():
    scope = run(
        """
        @identity
        def generated(x: "n"):
            return x
        """,
        "<generated 1>",
    )
    source = capture(scope["generated"])
    assert source.text == '@identity\ndef generated(x: "n"):\n    return x'
    assert source.file == "<generated 1>"
    assert source.first_line == 2


def test_postponed_annotations_change_nothing():
    text = 'def generated(x: "n") -> "":\n    return sum[n](x)\n'
    plain = run(text, "<plain>")["generated"]
    postponed = run(f"from __future__ import annotations\n{text}", "<postponed>")["generated"]
    assert plain.__annotations__ != postponed.__annotations__
    assert capture(plain).text == capture(postponed).text


def test_a_class_that_is_defined_twice():
    text = """
    class Twice:
        def first(): return 1

    Before = Twice

    @identity
    class Twice:
        def second(): return 2
    """
    scope = run(text, "<twice>")
    assert capture(scope["Before"]).text == "class Twice:\n    def first(): return 1"
    assert capture(scope["Twice"]).text == "@identity\nclass Twice:\n    def second(): return 2"


def test_the_last_definition_of_a_file_without_a_final_line_end(tmp_path):
    file = tmp_path / "last.py"
    file.write_text('def last(x: "n"):\n    return x', encoding="utf-8")
    scope = run(file.read_text(encoding="utf-8"), str(file), register=False)
    assert capture(scope["last"]).text == 'def last(x: "n"):\n    return x'


def test_code_without_text_says_what_to_do():
    function = run("def hidden(x): return x", "<hidden>", register=False)["hidden"]
    with pytest.raises(SourceUnavailableError, match="'hidden' from '<hidden>'") as caught:
        capture(function)
    for way in ("redlang.compile(text)", "linecache", "file", "notebook"):
        assert way in caught.value.hint


def test_a_file_that_has_changed(tmp_path):
    file = tmp_path / "changed.py"
    text = "def changed(x):\n    y = x\n    return y\n"
    for new in ("# a new line\n" + text, "def changed(x):\n    return x\n", ""):
        file.write_text(text, encoding="utf-8")
        function = run(text, str(file), register=False)["changed"]
        file.write_text(new, encoding="utf-8")
        linecache.clearcache()
        with pytest.raises(SourceUnavailableError) as caught:
            capture(function)
        assert "changed.py" in caught.value.problem


@pytest.mark.parametrize("thing", [len, 3, "text", functools.partial(identity), object])
def test_what_is_no_function(thing):
    with pytest.raises(SourceUnavailableError):
        capture(thing)


def test_lambdas_are_refused():
    with pytest.raises(SourceUnavailableError, match="lambda"):
        capture(lambda x: x)


def test_a_class_without_functions():
    class Empty:
        pass

    with pytest.raises(SourceUnavailableError, match="Empty"):
        capture(Empty)


def test_cells_of_a_notebook():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.run_cell("def deco(f): return f")
    shell.run_cell('@deco\ndef cell(x: "n"):\n    return x\n\n1 + 1')
    shell.run_cell('class Holder:\n    @staticmethod\n    def inside(x: "n"):\n        return x')
    space = shell.user_ns
    assert capture(space["cell"]).text == '@deco\ndef cell(x: "n"):\n    return x'
    assert capture(space["Holder"].inside).text.endswith("    return x")
    assert capture(space["Holder"]).text.startswith("class Holder:")
    shell.run_cell('def cell(x: "m"):\n    return x + 1')
    assert capture(space["cell"]).text == 'def cell(x: "m"):\n    return x + 1'


@pytest.mark.skipif(sys.version_info < (3, 13), reason="the prompt keeps text since 3.13")
def test_the_prompt_keeps_its_text():
    text = "def typed(x):\n    return x\n"
    scope: dict[str, object] = {}
    code = compile(text, "<python-input-0>", "exec")
    by_code = hasattr(linecache, "_getlines_from_code")  # else by name, as 3.13.0 does
    register = vars(linecache)["_register_code"]
    register(code if by_code else "<python-input-0>", text, "<python-input-0>")
    exec(code, scope)
    assert capture(scope["typed"]).text == text.rstrip()


def test_text_is_placed():
    source = from_text("\r\n   \n    @k\r\n    def f(x):\r\n        return x\r\n\r\n", "cell", 7)
    assert source.text == "@k\ndef f(x):\n    return x"
    assert (source.file, source.first_line, source.indent) == ("cell", 9, 4)
    assert from_text("").text == from_text("\n  \n").text == ""


@given(
    st.lists(
        st.sampled_from(
            ["y = 1", "y = (", "  1,", ")", '"""', "'''", "# (", "return x", "", "\\", "if x:", "'"]
        ),
        max_size=8,
    )
)
def test_the_end_is_where_python_sees_it(lines):
    body = "\n".join(f"    {line}" for line in lines)
    text = f"def f(x):\n{body}\n    return x\n\nafter = 1\n"
    try:
        scope = run(text, "<end>")
    except SyntaxError:
        return
    if "after" in scope:
        source = capture(scope["f"])
        again: dict[str, FunctionType] = {}
        exec(source.text, again)
        assert again["f"].__code__.co_code == scope["f"].__code__.co_code
        assert "after" not in source.text
