"""What the documentation's tables say of the code is what the code says."""

import re
from pathlib import Path

import redlang
from redlang import std
from redlang.ir.operators import OPERATORS, REDUCTIONS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def rows(page):
    """Return the cells of every table row of a page."""
    text = (REFERENCE / page).read_text()
    lines = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    return [re.split(r" (?<!\\)\| ", line + " ") for line in lines]


def test_every_operator_of_the_language_is_described():
    described = {row[0]: row for row in rows("operators.md")}
    for operator in OPERATORS.values():
        if not operator.symbol and not operator.public:
            continue
        row = described[operator.name]
        assert int(row[2]) == operator.arity, operator.name
        assert row[3] == operator.rule, operator.name
        written = row[1].replace("\\", "")
        assert (operator.symbol or f"{operator.name}(") in written


def test_every_reduction_is_described():
    described = {row[0].strip("`") for row in rows("operators.md")}
    assert {*REDUCTIONS, "mean"} <= described


def test_every_error_has_its_section():
    text = (REFERENCE / "errors.md").read_text()
    sections = set(re.findall(r"^## (\w+)", text, re.MULTILINE))
    public = {name for name in redlang.__all__ if name.endswith("Error")}
    assert sections == public - {"RedlangError"}


def test_every_library_function_is_described():
    text = (REFERENCE / "std.md").read_text()
    for name in std.__all__:
        assert f"`{name}[" in text, name
