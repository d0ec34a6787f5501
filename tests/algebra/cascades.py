"""Random cascades as text: stages over one axis whose later ones read earlier results."""

import numpy as np

from tests.algebra.programs import kernel

ELEMENTS = ("x", "y", "x * y", "w", "abs(x)", "x * w", "y + w", "exp(0.3 * x)", "n * 0.125")


class Cascade:
    """Builds one kernel from a source of choices, `choose(options) -> option`."""

    def __init__(self, choose, *, stages, masks=True):
        self.choose = choose
        self.masks = masks
        self.results = []
        self.lines = []
        for i in range(stages):
            self.stage(f"s{i}")

    @property
    def text(self):
        """Return the kernel; it returns every stage."""
        results = ", ".join(f"fill({name}, 0)" for name in self.results)
        return kernel(
            'x: "m n", y: "m n", w: "n", c: "bool[m n]"', *self.lines, f"return {results}"
        )

    def stage(self, name):
        """Append a stage that likely reads earlier ones."""
        op = self.choose(("sum", "sum", "sum", "max", "min", "mean", "prod", "any", "count"))
        value = self.operand(op)
        if op in ("any", "count"):
            value = f"{value} > {self.choose(('0', '0.5', *self.results))}"
        if self.masks and self.choose((True, False, False)):
            conditions = ["c", "n > 2", "x > 0", "not c"]
            conditions += [f"{name} > 0" for name in self.results]
            conditions += [f"x > {name}" for name in self.results]
            value = f"where({self.choose(conditions)}, {value})"
        self.lines.append(f"{name} = {op}[n]({value})")
        self.results.append(name)

    def operand(self, op):
        """Return what a stage reduces."""
        if not self.results:
            return self.choose(ELEMENTS)
        if op == "prod":
            return self.choose(
                ("x / ({u} + 9)", "x * {u}", "x", "y / 2", "(abs(x) + 1) ** {u}")
            ).format(u=self.context())
        return self.mixed(2)

    def context(self):
        """Return an expression of earlier results."""
        u = self.choose(self.results)
        return self.choose(
            (
                u,
                u,
                u,
                f"({u} * 0.5)",
                f"({u} + {self.choose(self.results)})",
                f"rsqrt({u} * {u} + 1)",
            )
        )

    def mixed(self, depth):
        """Return an expression in which elements and earlier results meet."""
        e, u = self.choose(ELEMENTS), self.context()
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


def inputs(rng, *, m=4, n=23, special=0.0):
    """Return arrays for a cascade; `special` of them are inf, -inf or NaN, in some rows."""
    x, y = (rng.standard_normal((m, n)).astype(np.float32) for _ in "xy")
    w = rng.standard_normal(n).astype(np.float32)
    for array in (x, y):
        hit = rng.random(array.shape) < special
        array[hit] = rng.choice(np.array([np.inf, -np.inf, np.nan], np.float32), hit.sum())
    c = rng.random((m, n)) < 0.6
    if m > 1 and n:
        c[0] = False
        c[1, : n // 2] = False
    return {"x": x, "y": y, "w": w, "c": c}
