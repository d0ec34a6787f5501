from redlang.codegen.cuda.text_flow import needed, reads, without

UNIT = [
    "part, rest = divided(unit, section)",
    "tile = rest + part",
    "first = tile * 128",
    "last = smaller(first + 128, size) - 1",
    "if last < 0:",
    "    first = 0",
]


def test_what_is_read_and_never_written_is_read_too():
    assert {"unit", "section", "part", "rest", "size"} <= reads(UNIT)
    assert "first" not in reads(["first = 1"])


def test_what_others_say_is_left_out_and_so_is_what_only_it_needs():
    left = without(UNIT[:4], frozenset({"first"}))
    assert needed(left, frozenset({"last"})) == ["last = smaller(first + 128, size) - 1"]


def test_what_a_value_is_made_of_is_kept():
    assert needed(UNIT, frozenset({"first"})) == UNIT
    assert needed(UNIT, frozenset({"tile"})) == UNIT[:2]
