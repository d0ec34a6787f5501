"""Hypothesis strategies for plans: every way to cut a nest that is valid, sensible or not."""

from hypothesis import strategies as st

from redlang.testing.plans import draw_plan


@st.composite
def plans(draw, program, nests):
    """Draw a plan and the numbers of segments."""
    return draw_plan(lambda options: draw(st.sampled_from(options)), program, nests)
