"""Random cascades as text: stages over common axes whose later ones read earlier results."""

import numpy as np

from tests.algebra.programs import kernel

ELEMENTS = ("x", "y", "x * y", "w", "abs(x)", "x * w", "y + w", "exp(0.3 * x)", "n * 0.125")
PLANE_ELEMENTS = ("x", "y", "x * y", "abs(x)", "x * w", "y + w", "exp(0.3 * x)", "x + h * 0.125")


class Cascade:
    """Builds one kernel from a source of choices, `choose(options) -> option`.

    Attributes:
        plane: Whether elements lie in a plane h, n, of which a stage reduces one axis or both;
            else along n.
    """

    def __init__(self, choose, *, stages, plane=False):
        self.choose = choose
        self.plane = plane
        self.elements = PLANE_ELEMENTS if plane else ELEMENTS
        self.results = []
        self.ranks = 0
        self.lines = []
        for i in range(stages):
            self.stage(f"s{i}")

    @property
    def text(self):
        """Return the kernel; it returns every stage."""
        parameters = 'x: "m n", y: "m n", w: "n", c: "bool[m n]"'
        if self.plane:
            parameters = 'x: "m h n", y: "m h n", w: "n", c: "bool[m h n]"'
        results = ", ".join(self.results)
        return kernel(parameters, *self.lines, f"return {results}")

    def stage(self, name):
        """Append a stage that likely reads earlier ones."""
        choose = self.choose
        op = choose(("sum", "sum", "sum", "max", "min", "mean", "prod", "any", "count", "topk"))
        axes = choose(("h, n", "h, n", "n", "h")) if self.plane else "n"
        value = self.operand(op)
        if op in ("any", "count"):
            value = f"{value} > {choose(('0', '0.5', *self.results))}"
        if choose((True, False, False)):
            conditions = ["c", "n > 2", "x > 0", "not c"]
            conditions += [f"{result} > 0" for result in self.results]
            conditions += [f"x > {result}" for result in self.results]
            value = f"where({choose(conditions)}, {value})"
        if op == "topk" and "," not in axes and not self.ranks:
            self.ranks += 1
            self.lines.append(f"{name}, i{name} = topk[{axes}:k](({value}) + 0 * x, 2)")
        else:
            op = "max" if op == "topk" else op
            self.lines.append(f"{name} = {op}[{axes}]({value})")
        self.results.append(name)

    def operand(self, op):
        """Return what a stage reduces."""
        if not self.results:
            return self.choose(self.elements)
        if op == "prod":
            forms = ("x / ({u} + 9)", "x * {u}", "x", "y / 2", "(abs(x) + 1) ** ({u} * 0.125)")
            return self.choose(forms).format(u=self.context())
        value = self.mixed(2)
        # In a plane everything must have both axes; 0 * x only adds them.
        return f"{value} + 0 * x" if self.plane else value

    def context(self):
        """Return an expression of earlier results."""
        u, other = self.choose(self.results), self.choose(self.results)
        more = (f"({u} * 0.5)", f"({u} + {other})", f"rsqrt({u} * {u} + 1)")
        return self.choose((u, u, u, *more))

    def mixed(self, depth):
        """Return an expression in which elements and earlier results meet."""
        e, u = self.choose(self.elements), self.context()
        form = self.choose(
            (
                "({e} - {u})",
                "({e} - {u})",
                "{e} * {u}",
                "{e} / ({u} * {u} + 1)",
                "exp(({e}) - {u} * 0.25)",
                "exp(({e}) - maximum({u}, 1))",
                "exp2({u} * 0.25 - {e})",
                "({e} - {u}) ** 2",
                "({e} + {u}) ** 3",
                "cos({e} + {u})",
                "abs({e} - {u})",
                "maximum({e} - {u}, 0)",
                "where(c, {e} - {u}, {e})",
                "where({u} > 0, {e} * {u}, {e})",
                "{a} * ({b})",
                "{a} * ({b})",
                "{a} - {b}",
                "{a} + {e}",
            )
        )
        if "{a}" in form:
            if depth == 0:
                return f"({e} - {u})"
            return form.format(a=self.mixed(depth - 1), b=self.mixed(depth - 1), e=e, u=u)
        return form.format(e=e, u=u)


def inputs(rng, *, m=4, h=None, n=23, special=0.0):
    """Return arrays for a cascade; `special` of them are inf, -inf or NaN, in some rows.

    Args:
        rng: A generator.
        m: Rows.
        h: Extent of the plane's first axis; None for a line.
        n: Elements of a row, or of a line of the plane.
        special: Share of elements that are no ordinary number.
    """
    shape = (m, n) if h is None else (m, h, n)
    x, y = (rng.standard_normal(shape).astype(np.float32) for _ in "xy")
    w = rng.standard_normal(n).astype(np.float32)
    for array in (x, y):
        hit = rng.random(array.shape) < special
        array[hit] = rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32), hit.sum())
    c = rng.random(shape) < 0.6
    if m > 1 and n:
        c[0] = False
        c[1, ..., : n // 2] = False
    return {"x": x, "y": y, "w": w, "c": c}
