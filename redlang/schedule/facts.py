"""What a nest reads, writes and computes: what plans for a GPU are made from and costed with.

Extents are those of a shape class, layouts those of a specialisation; nothing here looks at data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.incremental import Partial, Sweep
from redlang.ir.program import Cast, Expr, Index, Load, Program, Reduce
from redlang.schedule.accesses import Access, reads
from redlang.schedule.contract import Product, split_product
from redlang.schedule.nests import Nest
from redlang.schedule.operations import (
    COSTLY,
    EXTREME,
    ROOT,
    SPECIAL,
    TURNS,
    WHOLE,
    operation,
    operators,
)
from redlang.schedule.roofline import Work
from redlang.schedule.uses import Uses, step_expressions

SHORT = 16
"""Extent up to which a thread holds an axis whole beside another."""
LONGEST_RUN = 64
"""Elements of several short axes that a thread may hold."""

WIDE = 5
"""Instructions of an extreme in 64 bits."""
DOUBLE = 24
"""Multiply-adds of f64 that a logarithm, a division and the like take."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the arrays of a specialisation lie in memory.

    Attributes:
        unit: The axis along which each array (parameters, `result.<i>`) is adjacent, or None.
        alignment: Bytes that divide the address and the other strides of each, 16 at most.
    """

    unit: Mapping[str, str | None]
    alignment: Mapping[str, int]


class Facts:
    """Facts about one nest, at the extents of a shape class.

    Attributes:
        swept, inner: Axes of the nest's sweeps, and of those evaluated inside them.
        extra: Axes that some stages have and others lack.
        mapped: Further axes of the results that are stored here.
        slots: Axes that count the slots of top-k lists made here, and how many there are.
    """

    def __init__(
        self,
        program: Program,
        nest: Nest,
        extents: Mapping[str, int],
        layout: Layout,
        produced: Mapping[str, int] | None = None,
    ) -> None:
        """Collect the facts; `produced` has the bytes of values that earlier nests export."""
        self.program = program
        self.nest = nest
        self.extents = extents
        self.layout = layout
        self.produced = produced or {}
        self.definitions = {name: d for d in program.definitions for name in d.names}
        self.uses = Uses(program, (*nest.sweeps, *nest.inner))
        self.slots = self._slots()
        self.swept = unique(axis for sweep in nest.sweeps for axis in sweep.axes)
        self.inner = unique(
            a for sweep in self.used_inner for a in sweep.axes if a not in self.swept
        )
        every = frozenset[str]().union(*map(self.uses.all_axes, nest.sweeps))
        self.extra = [
            a for a in program.ordered(every) if a not in nest.base and a not in self.slots
        ]
        stored = unique(axis for n in nest.results for axis in program.results[n].axes)
        known = {*nest.base, *self.extra, *self.slots}
        self.mapped = [a for a in stored if a not in known]

    def _slots(self) -> dict[str, int]:
        found = {}
        for sweep in (*self.nest.sweeps, *self.nest.inner):
            for stage in sweep.stages:
                value = self.definitions[stage].value
                if isinstance(value, Reduce) and value.new_axis and value.k is not None:
                    found[value.new_axis] = value.k
        return found

    @cached_property
    def used_inner(self) -> list[Sweep]:
        """The sweeps that are evaluated inside others here."""
        wanted: list[Sweep] = []
        todo = [e for sweep in self.nest.sweeps for e in step_expressions(sweep)]
        todo += [self.program.results[n].value for n in self.nest.results]
        inner = {stage: sweep for sweep in self.nest.inner for stage in sweep.stages}
        while todo:
            for stage in self.uses.stages(todo.pop()):
                sweep = inner.get(stage)
                if sweep is not None and sweep not in wanted:
                    wanted.append(sweep)
                    todo += step_expressions(sweep)
        return wanted

    @property
    def is_ordered(self) -> bool:
        """Whether a sweep joins elements by an operation that need not commute."""
        return any(
            isinstance(step, Partial) and step.monoid is not None
            for sweep in (*self.nest.sweeps, *self.used_inner)
            for step in sweep.update
        )

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Every array that is read or written, each read at such places once."""
        units, alignments = self.layout.unit, self.layout.alignment
        found = [*reads(self._loads(), self.program.array, self.size, units, alignments)]
        for stage in self._imports():
            type_ = walk.definition_types(self.program)[stage]
            axes = type_.axes
            size = type_.dtype.bytes
            whole = self.size(axes) * size
            found.append(Access(stage, axes, size, whole, axes[-1] if axes else None, 16))
        return (*found, *self._stores())

    def _stores(self) -> Iterator[Access]:
        for number in self.nest.results:
            result = self.program.results[number]
            name = f"result.{number}"
            size = result.dtype.bytes
            yield Access(
                name,
                result.axes,
                size,
                self.size(result.axes) * size,
                self.layout.unit.get(name),
                self.layout.alignment.get(name, size),
                written=True,
            )
        for stage in self.nest.exports:
            type_ = walk.definition_types(self.program)[stage]
            whole = self.size(type_.axes) * type_.dtype.bytes
            unit = type_.axes[-1] if type_.axes else None
            yield Access(stage, type_.axes, type_.dtype.bytes, whole, unit, 16, written=True)

    def _roots(self) -> list[Expr]:
        sweeps = (*self.nest.sweeps, *self.used_inner)
        roots = [e for s in sweeps for stage in s.stages for e in self._value_expressions(stage)]
        return roots + [self.program.results[n].value for n in self.nest.results]

    def _value_expressions(self, name: str) -> tuple[Expr, ...]:
        return walk.expressions(self.definitions[name].value)

    def reached(self, roots: Iterable[Expr]) -> Iterator[Expr]:
        """Yield expressions and the pointwise definitions behind them, each once."""
        todo = list(roots)
        seen: set[str] = set()
        while todo:
            expr = todo.pop()
            yield expr
            for name in walk.refs(expr) - seen:
                seen.add(name)
                definition = self.definitions.get(name)
                if definition is not None and not isinstance(definition.value, Reduce):
                    todo.append(definition.value)

    def _loads(self) -> list[Load]:
        return self.loads_of(self._roots())

    def loads_of(self, exprs: Iterable[Expr]) -> list[Load]:
        """Return the elements of arrays that expressions read, also by pointwise definitions."""
        return [
            node
            for expr in self.reached(exprs)
            for node in walk.nodes(expr)
            if isinstance(node, Load)
        ]

    def imported(self, exprs: Iterable[Expr]) -> list[tuple[str, ...]]:
        """Return the axes of the stages that expressions read from memory."""
        names = {name for expr in self.reached(exprs) for name in walk.refs(expr)}
        return [walk.definition_types(self.program)[n].axes for n in self._imports() if n in names]

    def _imports(self) -> list[str]:
        """Return the stages that are read from memory."""
        own = {s for sweep in (*self.nest.sweeps, *self.used_inner) for s in sweep.stages}
        names = {n for expr in self.reached(self._roots()) for n in walk.refs(expr)} - own
        known = self.definitions
        return sorted(n for n in names if n in known and isinstance(known[n].value, Reduce))

    def size(self, axes: Iterable[str]) -> int:
        """Return the number of elements over some axes."""
        return prod(self.extent(axis) for axis in axes)

    def extent(self, axis: str) -> int:
        """Return an axis's extent in this class; of a list's axis, its slots."""
        return self.slots.get(axis) or self.extents.get(axis, 1)

    @cached_property
    def vector(self) -> str | None:
        """The axis along which most bytes lie side by side."""
        votes: dict[str, float] = {}
        for access in self.accesses:
            axis = self.run_axis(access)
            if axis is not None and axis not in self.slots:
                votes[axis] = votes.get(axis, 0) + access.whole
        return max(votes, key=lambda axis: (votes[axis], axis)) if votes else None

    def run_axis(self, access: Access) -> str | None:
        """Return the axis along which a run of adjacent elements is long, or None.

        Where the adjacent axis is short and its whole extent is adjacent to the next one's
        elements, as in points of three coordinates, that is the next one.
        """
        if access.unit is None or access.unit not in access.axes:
            return None
        if access.places == "any":
            # The next row may be any.
            return access.unit
        place, run = access.axes.index(access.unit), 1
        while place > 0 and self.is_short(access.axes[place]):
            run *= self.extent(access.axes[place])
            if run > LONGEST_RUN:
                break
            place -= 1
        return access.axes[place]

    def fits(self, axis: str) -> bool:
        """Tell whether an axis is so short that a thread can hold its extent beside another."""
        return self.extents.get(axis, 1) <= SHORT

    def is_short(self, axis: str) -> bool:
        """Tell whether a thread holds the whole extent of an axis beside another."""
        return axis in self.slots or (
            self.fits(axis)
            and axis in {*self.swept, *self.extra, *self.mapped, *self.inner, *self.points}
        )

    @cached_property
    def points(self) -> frozenset[str]:
        """The innermost axes of a map's arrays where these differ: points that become planes.

        Or where they are the same short axis, of which no power of two is whole: colours of pixels.
        """
        if self.nest.sweeps:
            return frozenset()
        arrays = [a for a in self.accesses if len(a.axes) > 1 and not a.gathered]
        ends = frozenset(a.axes[-1] for a in arrays)
        odd = frozenset(a for a in ends if (n := self.extents.get(a, SHORT - 1)) & (n - 1))
        return ends if len(ends) > 1 else odd

    @cached_property
    def width(self) -> int:
        """Elements along the vector axis that the widest access of the heaviest array moves."""
        heaviest = self._heaviest
        if heaviest is None:
            return 1
        wide = max(1, min(16, heaviest.alignment) // heaviest.size)
        return wide // gcd(wide, self.size(self.run))

    @cached_property
    def run(self) -> tuple[str, ...]:
        """The short axes inside the vector axis, of the heaviest array along it."""
        heavy, vector = self._heaviest, self.vector
        if heavy is None or vector not in heavy.axes or heavy.unit not in heavy.axes:
            return ()
        return heavy.axes[heavy.axes.index(vector) + 1 : heavy.axes.index(heavy.unit) + 1]

    @cached_property
    def _heaviest(self) -> Access | None:
        along = [a for a in self.accesses if self.run_axis(a) == self.vector]
        return max(along, key=lambda a: (a.whole, not a.by_element, not a.written), default=None)

    def pointwise(self, name: str) -> Expr | None:
        """Return the expression of a pointwise definition; None for any other name."""
        definition = self.definitions.get(name)
        value = None if definition is None else definition.value
        return None if isinstance(value, Reduce) else value

    @cached_property
    def sides(self) -> tuple[frozenset[str], frozenset[str]]:
        """The axes that are rows, and those that are columns, of contractions here."""
        rows, columns = set[str](), set[str]()

        for sweep in (*self.nest.sweeps, *self.used_inner):
            for step in sweep.update:
                if isinstance(step, Partial):
                    pair = self._product(step, sweep)
                    if pair is not None:
                        a, b = (set(side.type.axes) for side in (pair.left, pair.right))
                        first, second = (a - b, b - a) if not (a - b) & columns else (b - a, a - b)
                        rows |= first - columns
                        columns |= second - rows
        return frozenset(rows), frozenset(columns)

    def _product(self, step: Partial, sweep: Sweep) -> Product | None:
        """Return a partial sum as a product, if it is one."""
        if step.op != "sum":
            return None
        return split_product(step, sweep, self.program, self.pointwise)

    # Work -------------------------------------------------------------------------------------

    @cached_property
    def bytes_read(self) -> float:
        """Bytes that must be read, each once."""
        return sum(a.moved for a in self.accesses if not a.written)

    @cached_property
    def bytes_written(self) -> float:
        """Bytes that are written."""
        return sum(a.whole for a in self.accesses if a.written)

    @cached_property
    def element_work(self) -> Work:
        """Operations on elements: what varies with a swept or mapped axis."""
        conversions = sum(self.size(a.axes) for a in self.accesses if a.size < 4)
        return self._counted(self._element_nodes()) + Work(extreme=conversions, launches=0)

    def operations(self, expr: Expr) -> Work:
        """Return what the operators of an expression take over all of its elements."""
        return self._counted(n for n in map(operation, walk.nodes(expr)) if n)

    @cached_property
    def elements(self) -> int:
        """Elements that are computed with: of the largest array, or of what arrays are made to."""
        sizes = [self.size(axes) for _, _, axes in self._element_nodes()]
        return max([1, *sizes, *(self.size(access.axes) for access in self.accesses)])

    @cached_property
    def turns(self) -> int:
        """Sines and cosines of elements."""
        return sum(self.size(axes) for op, _, axes in self._element_nodes() if op in TURNS)

    @cached_property
    def _together(self) -> tuple[tuple[str, ...], ...]:
        """The axes of each array and of each operation on elements."""
        axes = {axes for _, _, axes in self._element_nodes()}
        return tuple({*axes, *(access.axes for access in self.accesses)})

    def held(self, counts: Mapping[str, int]) -> int:
        """Return the most elements that a thread holds of a value.

        Args:
            counts: How many it has along each axis.
        """
        sizes = (prod(counts.get(axis, 1) for axis in axes) for axes in self._together)
        return max(sizes, default=1)

    def _element_nodes(self) -> list[tuple[str, bool, tuple[str, ...]]]:
        moving = {*self.swept, *self.inner, *self.mapped, *self.extra}
        if not self.nest.sweeps:
            moving |= set(self.nest.base)
        found = []
        steps = [e for s in (*self.nest.sweeps, *self.used_inner) for e in self._evaluated(s)]
        roots = steps + [self.program.results[n].value for n in self.nest.results]
        for expr in self.reached(roots):
            found += [n for n in map(operation, walk.nodes(expr)) if n and moving & set(n[2])]
        for sweep in (*self.nest.sweeps, *self.used_inner):
            for step in sweep.update:
                if isinstance(step, Partial):
                    axes = {a for value in step.values for a in value.type.axes} | {*sweep.axes}
                    double = any(t.dtype.name == "f64" for t in step.types)
                    rounds = 12 if step.k else 2 if "arg" in step.op else _rounds(step)
                    op = "add" if step.op in ("sum", "mantissa", "count") else "max"
                    found += [(op, double, tuple(axes))] * rounds
        return found

    def _evaluated(self, sweep: Sweep) -> Iterator[Expr]:
        """Yield what a sweep evaluates: a factor that leaves a sum is no part of each term."""
        products: dict[Expr, Product] = {}
        for step in sweep.update:
            product = self._product(step, sweep) if isinstance(step, Partial) else None
            if isinstance(step, Partial) and product is not None and product.outer is not None:
                products[step.values[0]] = product
        builder = Builder.of(self.program)
        for expr in step_expressions(sweep):
            product = products.get(expr)
            if product is None or product.outer is None:
                yield expr
            else:
                yield builder.mul(product.left, product.right)
                yield product.outer

    def _counted(self, nodes: Iterable[tuple[str, bool, tuple[str, ...]]]) -> Work:
        fma = extreme = special = double = 0.0
        for op, is_double, axes in nodes:
            count = self.size(axes)
            if is_double:
                double += count * (DOUBLE if op in SPECIAL or op in COSTLY else 1)
            elif op in SPECIAL or op in COSTLY:
                special += count * (SPECIAL.get(op) or COSTLY[op])
                fma += ROOT * count if op == "sqrt" else 4 * count
            elif op in EXTREME:
                extreme += count
            else:
                fma += WHOLE.get(op, 1) * count
        return Work(fma=fma, extreme=extreme, special=special, double=double, launches=0)

    @cached_property
    def state_operations(self) -> int:
        """Operations that each step of a sweep costs beside the elements: moving the states."""
        count = 0
        for sweep in self.nest.sweeps:
            for step in sweep.update:
                if not isinstance(step, Partial):
                    count += 2
            count += 2 * len(sweep.states)
            count += sum(8 for e in step_expressions(sweep) if "exp" in operators(e))
        return count


def _rounds(step: Partial) -> int:
    """Return the comparisons of an extreme: whole numbers that may be any take several."""
    value = step.values[0]
    while isinstance(value, Cast):
        value = value.operand
    word = isinstance(value, Load | Index) or value.type.dtype.name != "i64"
    return 1 if word or step.op not in ("max", "min") else WIDE


def unique(axes: Iterable[str]) -> list[str]:
    """Return axes in order, each once."""
    return list(dict.fromkeys(axes))


def power_above(extent: int) -> int:
    """Return the least power of two that is not below `extent`."""
    return 1 << max(0, extent - 1).bit_length()
