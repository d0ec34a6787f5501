"""Generated text as LLVM: on the processor it computes what Python says, or it is refused."""

import ctypes
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding, ir

from redlang.targets.expressions import TextError
from redlang.targets.kinds import SCALARS, tuple_of
from redlang.targets.translate import device_function, execute

C_TYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64}
C_TYPES |= {"f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool}
HEADER = "from redlang.targets.vocabulary import f32, i32, i64, inf, u32, u64\n"


class Function:
    """A text's function `f`, compiled for this processor."""

    def __init__(self, text, result, *arguments):
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        python = execute(HEADER + text, "<text>")["f"]
        module = ir.Module("text")
        kinds = [SCALARS[code] for code in arguments]
        function = device_function(module, python, SCALARS[result], kinds)
        function.linkage, function.attributes = "", ir.values.FunctionAttributes()
        machine = binding.Target.from_default_triple().create_target_machine()
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
        self.engine.finalize_object()
        shape = ctypes.CFUNCTYPE(C_TYPES[result], *(C_TYPES[code] for code in arguments))
        self.call = shape(self.engine.get_function_address(function.name))


def integers(bits):
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


EXPRESSIONS = ["x // y", "x % y", "x & y", "x | y", "x ^ y", "-x - y * 3", "(x << 2) + (y >> 3)"]
EXPRESSIONS += ["x if x < y else y", "i64(x == y) * 5 + i64(not x >= y)", "x - 1 if y else 7"]
WHOLE = Function(
    "def f(which, x, y):\n"
    + "".join(f"    if which == {i}:\n        return {e}\n" for i, e in enumerate(EXPRESSIONS))
    + "    return i64(0)\n",
    *("i64", "i64", "i32", "i32"),
)


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
@given(x=integers(32), y=integers(32).filter(bool))
def test_integers_compute_in_64_bits(number, x, y):
    expected = eval(EXPRESSIONS[number], {"x": x, "y": y, "i64": int})
    assert WHOLE.call(number, x, y) == expected


def test_the_least_int64_is_a_constant():
    least = Function("def f(x):\n    return x if x > -9223372036854775808 else -1\n", "i64", "i64")
    assert [least.call(-(2**63)), least.call(1 - 2**63)] == [-1, 1 - 2**63]


def test_a_loop_carries_its_variables():
    collatz = Function(
        "def f(n):\n"
        "    steps = 0\n"
        "    while n != 1:\n"
        "        if n % 2 == 0:\n"
        "            n = n // 2\n"
        "        else:\n"
        "            n = 3 * n + 1\n"
        "        steps = steps + 1\n"
        "    return steps\n",
        *("i64", "i64"),
    )
    assert collatz.call(27) == 111


def test_a_loop_may_be_left_early():
    first = Function(
        "def f(n, stop):\n"
        "    i = 2\n"
        "    while i < stop and i < n or i == n:\n"
        "        rest = n % i\n"
        "        if rest == 0:\n"
        "            break\n"
        "        i = i + 1\n"
        "    return i\n",
        *("i64", "i64", "i64"),
    )
    assert [first.call(35, 100), first.call(37, 100), first.call(37, 10)] == [5, 37, 10]


def test_a_loop_may_use_a_name_for_something_else():
    count = Function(
        "def f(n):\n"
        "    x = n, n + 1\n"
        "    last = x[1]\n"
        "    i = 0\n"
        "    while i < last:\n"
        "        x = i * 2\n"
        "        i = x + 1\n"
        "    return i\n",
        *("i64", "i64"),
    )
    assert count.call(9) == 15


def test_floats_stay_in_their_type():
    third = Function("def f(x, y):\n    return -(x + y) / f32(3)\n", "f32", "f32", "f32")
    assert third.call(1.0, 2.0**-24) == ctypes.c_float(-1 / 3).value
    assert math.copysign(1.0, Function("def f(x):\n    return -x\n", "f32", "f32").call(0.0)) == -1


@pytest.mark.parametrize(("sign", "holds"), [("==", False), ("!=", True), ("<", False)])
def test_of_comparisons_with_nan_only_unequal_is_true(sign, holds):
    compare = Function(f"def f(x):\n    return x {sign} x\n", "bool", "f64")
    assert compare.call(math.nan) is holds


def test_numbers_are_cast_to_what_a_word_takes():
    cut = Function("def f(x):\n    return i32(x)\n", "i64", "i64")
    assert cut.call((5 << 32) | 0xFFFFFFFF) == -1
    above = Function("def f(x):\n    return x + u32(1)\n", "u64", "u64")
    assert above.call(2**64 - 2) == 2**64 - 1


REFUSED = {
    "x changes its type": "    while x < 9:\n        x = f32(x)\n    return 1",
    "a variable of several types": "    y = 1\n    if x > 1:\n        y = f32(2.0)\n    return y",
    "u64 beside i64": "    return u64(x) + x",
    "does not return": "    y = x",
    "an unknown name": "    return nothing",
    "an element of (i64, i64)": "    y = x, x\n    return y[2]",
    "this statement": "    for i in x:\n        pass",
    "calling this": "    return inf(x)",
    "i32 of ()": "    return i32()",
    "this comparison": "    return x in x",
    "2 values for 3 names": "    a, b, c = x, x\n    return a",
    "(i64, i64) as i64": "    return x, x",
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_is_not_known_is_refused(problem):
    with pytest.raises(TextError) as caught:
        Function(f"def f(x):\n{REFUSED[problem]}\n", "i64", "i64")
    assert problem in str(caught.value)


def test_tuples_are_cast_element_by_element():
    python = execute(HEADER + "def f(x):\n    return x + 1, x < 2\n", "<text>")["f"]
    kinds = tuple_of([SCALARS["i32"], SCALARS["bool"]])
    written = str(device_function(ir.Module("text"), python, kinds, [SCALARS["i64"]]))
    assert "{i32, i1}" in written
    assert "trunc i64" in written
