"""The element work of a loop's tile: what is absent put out of the way, maps, and folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redlang.codegen.arguments import Extent
from redlang.codegen.cuda.frame import Value, conjunction
from redlang.codegen.cuda.matrix_fills import POSITIVE, Fill, Use, kind_of
from redlang.codegen.cuda.matrix_masks import (
    Bounds,
    existence,
    greatest,
    index_bounds,
    least,
)
from redlang.codegen.cuda.matrix_outer import ask_rows, keep_inside, kinds_of
from redlang.codegen.cuda.matrix_presence import maximum_of, shown_by
from redlang.codegen.cuda.matrix_producer import indented
from redlang.codegen.cuda.matrix_roles import Multiply
from redlang.codegen.cuda.matrix_shares import is_moved
from redlang.codegen.cuda.matrix_strands import LoopText
from redlang.codegen.cuda.matrix_unit import MatrixUnit
from redlang.codegen.cuda.matrix_weights import Power, is_exponential
from redlang.codegen.cuda.values import Operands, constant
from redlang.ir import walk
from redlang.ir.build import literal
from redlang.ir.loops import Combine, Compute, Contract, Fold
from redlang.ir.program import Apply, Expr, Literal, Load, Ref
from redlang.ir.types import BOOL, I64, Type
from redlang.schedule import tidy

KEEPS, TURNS = 1, 2
"""Bits of what a factor does to the sign of an infinity."""
_JOINS = {"sum": "a + b", "max": "maximum(a, b)", "min": "minimum(a, b)"}


class MatrixElements(MatrixUnit):
    """Writes the element work between products."""

    current: LoopText | None = None

    # Element work -----------------------------------------------------------------------------

    def elements(self, loop: LoopText, *, begins: bool = False) -> None:
        """Write the element work of one tile.

        Args:
            loop: What is known of it.
            begins: Whether the tile is always a unit's first one.
        """
        for outer in loop.outers:
            if begins:
                ask_rows(self, outer)
            keep_inside(self, outer)
        self.fetch(loop.work.fetches)
        made = {s.name for s in loop.elements if isinstance(s, Compute)}
        whole = self._whole(loop.axis, loop.filling.condition) if loop.filling.fills else None
        self._fill(loop, whole, self._early(loop, lambda name: name not in made))
        for place, statement in enumerate(loop.elements):
            self._fill(loop, whole, [f for f in loop.filling.fills if f.before == place])
            if isinstance(statement, Power):
                value = self._over(statement.exponent, statement.type)
                frame = self.frame
                power = self.values.assign(
                    statement.name, f"w.power_of_two({value.text})", value.axes, "f32", frame.depth
                )
                frame.define(statement.name, self._named(statement.name, power))
            else:
                self.statement(statement)
                names = tidy.writes(statement)
                self._fill(loop, whole, self._early(loop, names.__contains__))
        self.test_operands(loop)
        self.give_back(loop.work.fetches)

    def loads(self, loop: LoopText) -> None:
        """Load what elements need of columns, so that it arrives while products are computed.

        What conditions read is not among it: whole tiles do without.
        """
        for element in loop.elements:
            match element:
                case Power(exponent=expr) | Compute(value=expr):
                    exprs: tuple[Expr, ...] = (expr,)
                case Fold(values=exprs):
                    pass
                case _:
                    continue
            for node in (node for expr in exprs for node in walk.nodes(expr)):
                stored = isinstance(node, Load) and not walk.refs(node)
                handed_on = isinstance(node, Ref) and node.name in self.frame.memories
                if (stored or handed_on) and self.frame.tile_axes(node.type.axes) == (loop.axis,):
                    self.values.value(node)

    def _early(self, loop: LoopText, wanted: Callable[[str], bool]) -> list[Fill]:
        """Return the fills of some values that happen as soon as these are known."""
        return [f for f in loop.filling.fills if f.before is None and wanted(f.name)]

    def _fill(self, loop: LoopText, whole: str | None, fills: Sequence[Fill]) -> None:
        """Overwrite what is absent, in tiles that have absent elements."""
        condition = loop.filling.condition
        # Beyond the end of an array, tensor copies bring zeros.
        zeros = {fetch.name for fetch in loop.work.fetches} if condition is None else set()
        fills = [f for f in fills if f.value != 0 or f.before is not None or f.name not in zeros]
        if whole is None or not fills:
            return
        lines = self._overwritten(loop.axis, fills, condition)
        bounds, rest = (None, None) if condition is None else self.apart(loop.axis, condition)
        test = None if rest is None else self.certain(loop.axis, rest)
        if bounds is not None and test is not None:
            # What arrays hold, or several bounds, often hides nothing where one bound does.
            plain = self._overwritten(loop.axis, fills, bounds)
            head = f"if {self.values.value(test).text}:"
            lines = [head, *indented(plain), "else:", *indented(lines)]
        self.block(f"if not {whole}:", lines)

    def _overwritten(
        self, axis: str, fills: Sequence[Fill], condition: Expr | None
    ) -> Sequence[str]:
        """Return lines that overwrite what is absent.

        What depends on the loop's index is among them: few tiles take them.
        """
        with self.frame.scope([axis]) as scope:
            for fill in fills:
                self._overwrite(axis, fill.name, fill.value, condition)
        return scope.lines

    def test_operands(self, loop: LoopText) -> None:
        """Put zeros into computed operands of products where no fill does."""
        for place, use in enumerate(loop.uses):
            if not isinstance(use, Contract) or place not in loop.filling.tested:
                continue
            product = next(p for p in loop.work.products if p.contract is use)
            whole = self._whole(loop.axis, use.condition)
            if whole is None:
                continue
            assert isinstance(product.rows, Ref), "computed operands have names"
            with self.frame.scope([]) as scope:
                self._overwrite(loop.axis, product.rows.name, 0.0, use.condition)
            self.block(f"if not {whole}:", scope.lines)

    def _whole(self, axis: str, condition: Expr | None) -> str | None:
        """Return the variable that says whether all elements of the tile take part.

        None stands for "always".
        """
        frame = self.frame
        tests = []
        if condition is not None:
            test = self.certain(axis, condition)
            tests.append("False" if test is None else self.values.value(test).text)
        if not frame.is_whole(axis):
            size = frame.parameter(Extent(axis))
            tests.append(f"{frame.first(axis)} + {self.matrix.width(axis)} <= {size}")
        if not tests:
            return None
        name = frame.module.names.fresh(f"{axis}_whole")
        frame.line(f"{name} = {conjunction(tests)}")
        return name

    def _overwrite(self, axis: str, name: str, fill: float, condition: Expr | None) -> None:
        frame = self.frame
        value = frame.lookup(name)
        assert value is not None
        texts = value, constant(fill, value.code)
        filled = self.chosen(axis, value.axes, condition, texts, value.code)
        # What was computed from it before is another value now.
        frame.forget(frozenset({name}))
        frame.line(f"{value.text} = {filled.text}")

    def chosen(
        self,
        axis: str,
        axes: tuple[str, ...],
        condition: Expr | None,
        choices: tuple[Value | str, str],
        code: str,
    ) -> Value:
        """Return the first choice where an element takes part, else the second one."""
        frame = self.frame
        bounds = Bounds() if condition is None else index_bounds(condition, axis, self.builder)
        operands = Operands()
        tests = []
        columns = self._columns(axis, operands)
        highs = [*bounds.high]
        if not frame.is_whole(axis):
            highs.append(self.builder.sub(self.builder.size(axis), 1))
        if highs:
            limit = self._relative(least(highs, self.builder), axis)
            tests.append(f"{columns} <= {operands.name(limit)}")
        if bounds.low:
            limit = self._relative(greatest(bounds.low, self.builder), axis)
            tests.append(f"{columns} >= {operands.name(limit)}")
        lines: list[str] = []
        if bounds.rest is not None:
            tests.append(self._tested(bounds.rest, axis, axes, operands, lines))
        first, second = choices
        given = first if isinstance(first, str) else operands.name(first)
        chosen = f"select({conjunction(tests)}, {given}, {second})"
        (found,) = self.values.mapped(
            "masked", [code], lines, [chosen], operands, axes, frame.depth
        )
        return found

    def signs(self, loop: LoopText, product: Multiply) -> Value:
        """Return what a computed operand does to an infinity that it is multiplied with (i32).

        An element that takes no part has neither bit. One below 0 turns the sign around; 0 and NaN
        make NaN of it, which is both signs at once. An exponential is positive, though it may have
        been rounded to 0.
        """
        frame = self.frame
        axes = frame.tile_axes(product.rows.type.axes)
        found: Value | str = f"i32({KEEPS})"
        if not is_exponential(product.rows, loop.elements):
            operands = Operands()
            given = operands.name(self._over(product.rows, product.rows.type))
            both = f"i32({KEEPS | TURNS})"
            text = f"select({given} > 0, {found}, select({given} < 0, i32({TURNS}), {both}))"
            (found,) = self.values.mapped("signs", ["i32"], [], [text], operands, axes, frame.depth)
        return self.chosen(loop.axis, axes, product.contract.condition, (found, "i32(0)"), "i32")

    def _tested(
        self,
        test: Expr,
        axis: str,
        axes: tuple[str, ...],
        operands: Operands,
        lines: list[str],
    ) -> str:
        """Return text of a test of elements, in which bounds of the column are relative too."""
        if isinstance(test, Apply) and test.op in ("and", "or"):
            word = f"logical_{test.op}"
            parts = [self._tested(a, axis, axes, operands, lines) for a in test.arguments]
            return f"{word}({', '.join(parts)})"
        bounds = index_bounds(test, axis, self.builder)
        if bounds.rest is None:
            sides = (bounds.high, "<="), (bounds.low, ">=")
            (limit, sign), *_ = [(exprs[0], sign) for exprs, sign in sides if exprs]
            relative = operands.name(self._relative(limit, axis))
            return f"({self._columns(axis, operands)} {sign} {relative})"
        bare = self.values.operand_form(test, axes, operands)
        (text,), setting = self.values.spelled([bare], operands)
        lines += setting.lines
        return text

    def _columns(self, axis: str, operands: Operands) -> str:
        """Return the operand that counts a thread's columns from its first one on (i32)."""
        frame = self.frame
        reaches = frame.spread(axis).reaches
        make = frame.module.declare(f"{axis}_places", f't.indices("i32", {reaches})')
        name = frame.variable("places", axis, 0, lambda: f"{make}(i32(0))")
        return operands.name(Value(name, frame.tile_axes([axis]), "i32"))

    def _relative(self, bound: Expr, axis: str) -> Value:
        """Return a bound of indices, counted from the thread's first column (i32)."""
        frame = self.frame
        value = self._over(bound, Type(I64, bound.type.axes))
        place, operands = Value(frame.place(axis), (), "i64"), Operands()
        if axis in frame.classes.limits:
            # Indices are far below 2^30: what is done again for each tile keeps to 32 bits.
            text, depth = f"t.clamped({operands.name(value)})", frame.depth_of(bound)
            (value,) = self.values.mapped("bound", ["i32"], [], [text], operands, value.axes, depth)
            operands = Operands()
            text = f"i32({operands.name(value)} - i32({operands.name(place)}))"
        else:
            text = f"t.clamped({operands.name(value)} - {operands.name(place)})"
        (limit,) = self.values.mapped(
            "limit", ["i32"], [], [text], operands, value.axes, frame.depth
        )
        return limit

    # Folds ------------------------------------------------------------------------------------

    def fold(self, statement: Fold) -> None:
        """Write a fold; over a loop's axis in a few chains a row, then over the quad."""
        loop = self.current
        if loop is None or loop.axis not in statement.over:
            super().fold(statement)
            return
        if is_plain(statement):
            self._existence(loop, statement)
            return
        place = next(i for i, use in enumerate(loop.uses) if use is statement)
        if place in loop.filling.tested or statement.op not in _JOINS:
            super().fold(statement)
            return
        frame = self.frame
        folded, factor = self._without_factor(loop, statement)
        value = self.values.value(folded)
        counts = frame.counts(value.axes)
        joined = frame.module.function(
            f"join_{statement.op}",
            [value.code],
            [("a", value.code), ("b", value.code)],
            [],
            [_JOINS[statement.op]],
        )
        make = frame.module.declare("chains", f'w.fold({joined}, {counts}, "{loop.axis}")')
        kept = tuple(axis for axis in value.axes if axis != loop.axis)
        (name,) = statement.names
        found = self.values.assign(name, f"{make}({value.text})", kept, value.code, frame.depth)
        state = self._lane_state(loop, statement)
        if state is None:
            found = self._over_quad(joined, found)
        else:
            loop.partial[state] = joined
        if factor is not None:
            operands = Operands()
            bare = self.values.operand_form(factor, found.axes, operands)
            (text,), setting = self.values.spelled([bare], operands)
            product = f"{operands.name(found)} * {text}"
            (found,) = self.values.mapped(
                "times", [found.code], setting.lines, [product], operands, found.axes, frame.depth
            )
        self._results(statement, [found])

    def _without_factor(self, loop: LoopText, statement: Fold) -> tuple[Expr, Expr | None]:
        """Return x, k for an extreme of x * k with a positive k that elements share.

        Rounding is monotone: the extreme of rounded products is the rounded product of the extreme.
        """
        (value,) = statement.values
        kinds = kinds_of(loop.outers)
        if statement.op in ("max", "min") and isinstance(value, Apply) and value.op == "mul":
            for factor, rest in (value.arguments, value.arguments[::-1]):
                if not self.is_fragment(factor) and kind_of(factor, kinds) == POSITIVE:
                    return rest, factor
        return value, None

    def _over_quad(self, joined: str, value: Value) -> Value:
        frame = self.frame
        count = frame.size(value.axes)
        masks = tuple(1 << bit for bit in range(self.matrix.lanes.bit_length() - 1))
        make = frame.module.declare("quad", f"t.lanes({joined}, {count}, {masks})")
        return self.values.assign(
            "all", f"{make}({value.text})", value.axes, value.code, frame.depth
        )

    def _lane_state(self, loop: LoopText, statement: Fold) -> str | None:
        """Return the state that adds up a fold's results, if lanes may keep their own parts.

            t = sum(...); s' = s * factor; s = s' + t

        A factor that all lanes of a quad share distributes over their parts, so that these are
        joined once, after the loop.
        """
        if statement.op != "sum":
            return None
        (name,) = statement.names
        readers = [s for s in loop.statement.body if name in tidy.reads(s)]
        if len(readers) != 1 or not isinstance(readers[0], Combine):
            return None
        combine = readers[0]
        if combine.op != "sum" or combine.right != (name,):
            return None
        (total,), (moved,) = combine.names, combine.left
        state = total
        others = [s for s in loop.statement.body if s is not combine]
        makers = [s for s in others if moved in tidy.writes(s)]
        if moved != state:
            if len(makers) != 1 or not is_moved(makers[0], state):
                return None
            others.remove(makers[0])
        if any({state, moved} & tidy.reads(s) for s in others):
            return None
        return state if self._starts_at_zero(state) else None

    def _starts_at_zero(self, state: str) -> bool:
        writers = [s for s in self.kernel.body if state in tidy.writes(s)]
        made = [s for s in writers if isinstance(s, Compute)]
        return (
            len(writers) == 2
            and len(made) == 1
            and isinstance(made[0].value, Literal)
            and made[0].value.value == 0
        )

    def whole_states(self, loop: LoopText) -> None:
        """Join what the lanes of a quad kept of states."""
        for state, joined in loop.partial.items():
            value = self.frame.lookup(state)
            assert value is not None
            found = self._over_quad(joined, value)
            self.frame.line(f"{value.text} = {found.text}")

    def _existence(self, loop: LoopText, statement: Fold) -> None:
        """Write whether a row has an element that takes part, in the tile or in the whole loop."""
        b = self.builder
        axis = loop.axis
        condition = statement.condition
        if statement.op != "any" or condition is None:
            super().fold(statement)
            return
        # Each tile may say so of the loop: tiles that are passed over have none.
        start, stop = (Ref(f"{axis}.{end}", Type(I64)) for end in ("start", "stop"))
        some = existence(condition, axis, start, stop, b)
        if some is None:
            self._seen(loop, statement, condition)
        else:
            self._results(statement, [self._over(some, statement.types[0])])

    def _seen(self, loop: LoopText, statement: Fold, condition: Expr) -> None:
        """Write whether a row has an element that takes part, looking at partly absent tiles."""
        frame = self.frame
        result = Type(BOOL, statement.types[0].axes)
        found = self._over(literal(True), result)
        name = frame.module.names.fresh("seen")
        frame.line(f"{name} = {found.text}")
        whole = self._whole(loop.axis, condition)
        with frame.scope([loop.axis]) as scope:
            axes = frame.tile_axes((*result.axes, loop.axis))
            visible = self.chosen(loop.axis, axes, condition, ("i32(1)", "i32(0)"), "i32")
            pair = [("a", "i32"), ("b", "i32")]
            joined = frame.module.function("join_seen", ["i32"], pair, [], ["i32(a | b)"])
            make = frame.module.declare(
                "chains", f'w.fold({joined}, {frame.counts(axes)}, "{loop.axis}")'
            )
            kept = tuple(axis for axis in axes if axis != loop.axis)
            part = self.values.assign("part", f"{make}({visible.text})", kept, "i32", frame.depth)
            all_of = self._over_quad(joined, part)
            operands = Operands()
            text = f"{operands.name(all_of)} != i32(0)"
            (some,) = self.values.mapped("seen", ["bool"], [], [text], operands, kept, frame.depth)
            frame.line(f"{name} = {some.text}")
        filled = [f for f in loop.elements if isinstance(f, Fold) and self._is_filled(loop, f)]
        top = maximum_of(self, filled, condition, found.axes)
        lines = scope.lines
        if top is not None:
            with frame.scope([loop.axis]) as scope:
                shown, all_shown = shown_by(self, top)
                frame.line(f"{name} = {shown.text}")
                self.block(f"if not ({all_shown}):", lines)
            lines = scope.lines
        self.block(f"if not {whole}:" if whole else "if False:", lines)
        self._results(statement, [Value(name, found.axes, "bool")])

    def _is_filled(self, loop: LoopText, fold: Fold) -> bool:
        """Say whether a fold's absent elements have been overwritten."""
        return any(u is fold and n not in loop.filling.tested for n, u in enumerate(loop.uses))


def is_plain(use: Use) -> bool:
    """Say whether a fold counts elements whatever their value."""
    return isinstance(use, Fold) and all(isinstance(value, Literal) for value in use.values)
