"""What shares a loop, what needs memory: seen in the text of small kernels."""

import re

import numpy as np

from redlang.codegen.arguments import Buffer, scratch_bytes, unit_count
from redlang.codegen.cpu import emit
from redlang.ir.loops import GridAxis, Kernel, Segment
from tests.codegen.running import lowered
from tests.kernels import resolve_text


def text_of(text, **shapes):
    inputs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    loops, _ = lowered(resolve_text(text), inputs)
    return emit(loops)


def loops_in(text):
    return re.findall(r"for (\w+) in range", text)


SOFTMAX = """
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""


def test_a_row_is_read_three_times_and_only_its_exponentials_kept():
    made = text_of(SOFTMAX, x=(64, 1000))
    assert len([name for name in loops_in(made.text) if re.fullmatch(r"n(_\d)?", name)]) == 3
    assert made.buffers == ((Buffer(4, ("n",)),),)


def test_a_reduction_keeps_everything_in_variables():
    made = text_of('def f(x: "m n") -> "m":\n    return sum[n](x * x) + max[n](x)\n', x=(64, 5000))
    assert made.buffers == ((),)
    inner = [line for line in made.text.splitlines() if "sum_multiply_add" in line]
    assert len(inner) == 1


def test_columns_are_added_up_row_by_row():
    made = text_of('def f(x: "n j") -> "j":\n    return sum[n](x)\n', x=(500, 3000))
    rows = made.text.index("for n")
    assert rows < made.text.index("for j", rows) < made.text.index("sum_add", rows)


def test_attention_calls_two_products_and_keeps_one_tile_of_scores():
    made = text_of(
        """
def attention(q: "h m d", k: "h n d", v: "h n e") -> "h m e":
    s = sum[d](q * k) * rsqrt(size(d))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
""",
        q=(2, 300, 64),
        k=(2, 300, 64),
        v=(2, 300, 64),
    )
    assert made.text.count("gemm(") == 2
    assert made.products == (True,)
    extents = {"h": 2, "m": 300, "n": 300, "d": 64, "e": 64}
    # Nothing in scratch grows with the length of the sequence.
    longer = {**extents, "m": 30_000, "n": 30_000}
    assert scratch_bytes(made.buffers[0], 0, extents) == scratch_bytes(made.buffers[0], 0, longer)


def test_a_causal_mask_shortens_loops_instead_of_being_tested():
    made = text_of(
        """
def attention(q: "m d", k: "n d", v: "n e") -> "m e":
    s = where(n <= m, sum[d](q * k))
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
""",
        q=(300, 64),
        k=(300, 64),
        v=(300, 64),
    )
    assert "(n <= m)" not in made.text
    assert re.search(r"min\(n_stop, \(m(_\d)? \+ 1\)\)", made.text)


def test_an_element_picked_by_its_index_is_read_alone():
    made = text_of('def pick(x: "m n") -> "m":\n    return sum[n](where(n == m, x))\n', x=(9, 5000))
    assert re.search(r"max\(n_first, m", made.text)


def test_equal_sub_expressions_are_written_once():
    made = text_of(
        'def f(x: "m n") -> "m":\n    y = exp(x) + 1\n    return sum[n](y * y * y)\n', x=(9, 500)
    )
    assert made.text.count("exp(") == 1


def test_units_are_tiles_of_the_grid_times_segments():
    grid = (GridAxis("a", 4), GridAxis("b", 1))
    kernel = Kernel("k", grid, Segment("n", 8, "n.segment"), (), (), "multi-segment")
    assert unit_count(kernel, {"a": 9, "b": 5, "n.segment": 3}) == 3 * 5 * 3


def test_the_same_program_is_the_same_text():
    shapes = {"x": (64, 1000)}
    assert text_of(SOFTMAX, **shapes).text == text_of(SOFTMAX, **shapes).text
