"""The text that binds extents says what `ir.extents` says, call by call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redlang.errors import ArgumentError
from redlang.ir.extents import bind_extents
from redlang.ir.program import ArrayParam, Axis, Dim, Program, Scalar
from redlang.ir.types import F32, I64, Type
from redlang.runtime.extents import MISFIT, NAMES, ExtentText
from tests.kernels import resolve_text

AXES = ("a", "b", "c", "d")


class MisfitError(Exception):
    pass


def run(program, shapes, scalars):
    """Return the extents that the generated text binds."""
    text = ExtentText(program, {name: f"s_{name}" for name in scalars})
    lines = text.bind({name: f"shape_{name}" for name in shapes})
    body = [f"    {line.replace(MISFIT, 'raise MisfitError')}" for line in lines]
    source = "\n".join(["def bind():", *body, f"    return {text.extents()}"])
    names: dict[str, Any] = {**NAMES, "MisfitError": MisfitError}
    names |= {f"shape_{name}": shape for name, shape in shapes.items()}
    names |= {f"s_{name}": value for name, value in scalars.items()}
    exec(source, names)
    values = names["bind"]()
    return dict(zip((axis.name for axis in program.axes), values, strict=True))


@st.composite
def calls(draw):
    """Draw a program's parameters and shapes that mostly, but not always, fit them."""
    extents = {axis: draw(st.integers(0, 4)) for axis in AXES}
    fixed = draw(st.sets(st.sampled_from(AXES), max_size=1))
    dims = st.lists(st.sampled_from(AXES), min_size=0, max_size=2, unique=True).map(tuple)
    arrays = {f"x{i}": draw(st.lists(dims, max_size=3)) for i in range(draw(st.integers(1, 3)))}
    shapes = {}
    for name, array in arrays.items():
        shape = []
        for dim in array:
            size = 1
            for axis in dim:
                size *= extents[axis]
            shape.append(draw(st.sampled_from([size, size, size, size, size + 1])))
        shapes[name] = tuple(shape)
    seen = {axis for array in arrays.values() for dim in array for axis in dim}
    program = Program(
        "f",
        tuple(ArrayParam(n, tuple(Dim(dim) for dim in array), F32) for n, array in arrays.items()),
        tuple(Axis(a, extents[a] if a in fixed else None) for a in AXES if a in seen),
        (),
        (),
    )
    return program, shapes


@given(calls())
def test_agrees_with_the_slow_rules(call):
    program, shapes = call
    try:
        expected = bind_extents(program, shapes, {})
    except ArgumentError:
        # AssertionError: no launcher is made where nothing decides how a dimension splits.
        with pytest.raises((MisfitError, AssertionError)):
            run(program, shapes, {})
        return
    assert run(program, shapes, {}) == expected


@pytest.mark.parametrize("count", [3, -1])
def test_declared_axes_and_ragged_dimensions_agree(count):
    text = (
        'def f(x: "(t g=128)", k: int) -> "n t":\n'
        "    n = axis(clip(abs(-k) * 16 // size(t) % 7, 1, maximum(minimum(k, 5), 2)))\n"
        "    return n + sum[g](x)\n"
    )
    program = resolve_text(text)
    shapes, scalars = {"x": (300,)}, {"k": count}
    assert run(program, shapes, scalars) == bind_extents(program, shapes, scalars)


def test_a_top_k_list_longer_than_its_axis_does_not_fit():
    program = resolve_text('def f(x: "t e") -> "t 4":\n    v, i = topk[e](x, 4)\n    return v\n')
    with pytest.raises(MisfitError):
        run(program, {"x": (2, 3)}, {})
    assert run(program, {"x": (2, 4)}, {})["e"] == 4


def test_literal_extents_stand_in_the_text():
    dims = (Dim(("a", "b")), Dim(()))
    axes = (Axis("a", 3), Axis("b", None))
    program = Program("f", (ArrayParam("x", dims, F32),), axes, (), ())
    text = ExtentText(program, {})
    text.bind({"x": "s"})
    assert text.product(("a", "b")) == "e_b * 3"
    assert text.product(("a",)) == "3"
    assert text.size(Dim(())) == "1"


def test_scalars_are_read_by_the_text_they_are_given():
    axis = Axis("n", Scalar("k", Type(I64, weak=True)))
    text = ExtentText(Program("f", (), (axis,), (), ()), {"k": "v7"})
    assert text.bind({})[0] == "e_n = v7"
