from redlang.codegen.writer import Names, Writer
from redlang.source import SourceText, Span


def test_names_are_identifiers_and_differ():
    names = Names({"load"})
    given = [names.of("value", name) for name in ("a.b", "a_b", "a b", "load", "class", "4", "a.b")]
    assert given[0] == given[-1] == "a_b"
    assert len(set(given)) == 6
    assert all(name.isidentifier() for name in given)
    assert "load" not in given
    assert "class" not in given


def test_a_hoisted_line_stands_before_the_innermost_loop_once():
    names, writer = Names(set()), Writer()
    with writer.loop("for i in range(2):"), writer.loop("for j in range(3):"):
        for _ in range(2):
            row = writer.hoist("offset(x, i)", lambda: names.fresh("row"))
            writer.line(f"load({row}, j)")
    assert writer.lines() == [
        "for i in range(2):",
        "    row = offset(x, i)",
        "    for j in range(3):",
        "        load(row, j)",
        "        load(row, j)",
    ]


def test_an_empty_block_passes():
    writer = Writer()
    with writer.block("if x:"):
        pass
    assert writer.lines() == ["if x:", "    pass"]


def test_each_source_line_is_named_when_it_begins():
    source = SourceText("def f(x):\n    y = x + 1\n    return y\n", first_line=5)
    writer = Writer(source)
    for start in (14, 18, 28):
        writer.origin(Span(start, start + 1))
        writer.line("code")
    assert writer.lines() == ["# 6: y = x + 1", "code", "code", "# 7: return y", "code"]


def test_a_place_outside_of_the_text_is_passed_over():
    writer = Writer(SourceText("def f(x):\n    return x\n"))
    writer.origin(Span(500, 510))
    assert writer.lines() == []
