"""The best of what a thread holds, by value first: its place is looked for afterwards.

A key of value and index costs seven instructions an element. Here an element costs a maximum, a
comparison with what was found, and a choice of its number: the least number wins.
"""

from __future__ import annotations

from redlang.codegen.cuda.frame import Frame, Value, conjunction
from redlang.codegen.cuda.keys import Keys
from redlang.codegen.cuda.values import Operands, Values
from redlang.ir.loops import Fold

NONE = "u32(4294967295)"
"""The number of no element."""
FEWEST = 8
"""Elements of a thread from which on it pays."""


def suits(frame: Frame, statement: Fold, keys: Keys) -> bool:
    """Tell whether the best of an f32 is looked for along one axis, which is all of the tile."""
    axes = {a for value in statement.values for a in value.type.axes}
    if statement.condition is not None:
        axes |= set(statement.condition.type.axes)
    tile = frame.tile_axes(axes | {*statement.over})
    single = len(statement.over) == 1 and tile == statement.over
    return keys.mode == "f32" and single and frame.spread(tile[0]).count >= FEWEST


def best_in_thread(
    frame: Frame, values: Values, statement: Fold, keys: Keys, inside: list[str], base: Operands
) -> Value:
    """Write the search; return the key of the best element that takes part, or that of none.

    Args:
        frame: Of the kernel.
        values: Of the kernel.
        statement: A fold over one axis.
        keys: Its keys.
        inside: Tests that an element takes part, over `base`, besides its condition.
        base: The operands of those tests.
    """
    (axis,) = tile = statement.over
    module, depth = frame.module, frame.depth
    exprs = [*statement.values]
    if statement.condition is not None:
        exprs.append(statement.condition)
    texts, setting = values.spelled([values.operand_form(e, tile, base) for e in exprs], base)
    lines, tests = list(setting.lines), [*texts[1:], *inside]
    taken = "True"
    if tests:
        lines.append(f"takes_part = {conjunction(tests)}")
        taken = "takes_part"
    found = [f"select({taken}, {texts[0]}, {keys.worst})" if tests else texts[0]]
    codes = ["f32"]
    if tests:
        found, codes = [*found, taken], ["f32", "bool"]
    ranked = values.mapped("ranked", codes, lines, found, base, tile, depth)
    word = "maximum" if keys.largest else "minimum"
    extreme = _folded(frame, word, "f32", tile, ranked[0])
    # The numbers of a thread's elements are constants; where they begin is added at the end.
    spread = frame.spread(axis)
    make = module.declare("numbers", f't.indices("u32", {spread.reaches})')
    numbers = values.assign("number", f"{make}(u32(0))", tile, "u32", depth)
    given = Operands()
    hit = f"t.same_f32({given.name(ranked[0])}, {given.name(extreme)})"
    if tests:
        hit = f"logical_and({given.name(ranked[1])}, {hit})"
    text = f"select({hit}, {given.name(numbers)}, {NONE})"
    (numbered,) = values.mapped("place_of", ["u32"], [], [text], given, tile, depth)
    first = _folded(frame, "minimum", "u32", tile, numbered)
    own = Operands()
    place = f"(i64({own.name(first)}) + {own.name(Value(frame.place(axis), (), 'i64'))})"
    (key,) = keys.make(own.name(extreme), place)
    text = f"select({own.name(first)} == {NONE}, {keys.neutral[0]}, {key})"
    (result,) = values.mapped("key", list(keys.codes), [], [text], own, (), depth)
    return result


def _folded(frame: Frame, word: str, code: str, tile: tuple[str, ...], value: Value) -> Value:
    module = frame.module
    sides = [("a0", code), ("b0", code)]
    join = module.function(f"join_{word}", [code], sides, [], [f"{word}(a0, b0)"])
    make = module.declare(f"fold_{word}", f't.fold({join}, {frame.counts(tile)}, "{tile[0]}")')
    name = module.names.fresh(word)
    frame.line(f"{name} = {make}({value.text})")
    return Value(name, (), code)
