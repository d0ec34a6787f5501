"""Recognise a sum of products as a contraction of two operands.

    sum over K of f1 * f2 * ... * fn   -->   (sum over K of left * right) * outer

Allowed when the factors fall into two groups that both vary with K and each of which has an axis
that the other lacks: then the pair is a matrix product, whatever it is for. Factors are found
through pointwise definitions; a division by something is a factor of the numerator's group.

In real numbers any grouping will do; in floats `(x * y) * g` may over- or underflow where the
user's `(x * g) * y` does not. So a group is multiplied in the order of the text, and a grouping is
taken only if it differs from the text by *tame* factors: those that are 0 or within 2^-24 and 2^24
in magnitude, which is how far from the ends of the range masks of NaN and infinity are promised.
A factor outside of both groups does not vary with K, and the text multiplies a product by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from redlang.ir import walk
from redlang.ir.build import Builder
from redlang.ir.incremental import Each, Let, Partial, Sweep
from redlang.ir.program import Apply, Cast, Expr, Index, Literal, Load, Program, Ref, Size
from redlang.ir.types import BOOL, DType

Lookup = Callable[[str], Expr | None]
"""Name of a pointwise definition → its expression; None for anything else."""

Tree: TypeAlias = "int | tuple[Tree, Tree]"
"""A product as it was written; a leaf is the number of a factor."""

Bounds: TypeAlias = tuple[float, float]
"""Powers of two that a magnitude lies between, unless it is 0."""

TAME = 24
"""The largest power of two by which a factor may be off 1 to change places freely."""

F16_RANGE: Bounds = (-14, 15)
LARGEST = 16
"""Factors of a product: one of more is a factor itself."""

_STORED: dict[str, Bounds] = {"f8e4m3": (-9, 9), "f8e5m2": (-16, 16), "f16": (-24, 16)}
_COUNTED: Bounds = (0, 31)
"""Of indices and extents: more elements along one axis than this do not fit a memory."""


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products as a contraction.

    Attributes:
        left: One operand.
        right: The other.
        outer: A factor of the whole sum, or None.
    """

    left: Expr
    right: Expr
    outer: Expr | None = None


def split_product(
    step: Partial, sweep: Sweep, program: Program, lookup: Lookup, *, integers: bool = False
) -> Product | None:
    """Return a sum of a sweep as a contraction, or None if it is not one.

    Args:
        step: The sum.
        sweep: Its sweep.
        program: Where arrays and axes are declared.
        lookup: Pointwise definitions that may be taken apart.
        integers: Whether it is to be one of integers, not of floats.
    """
    (value,) = step.values
    if value.type.dtype.kind != ("int" if integers else "float"):
        return None
    named = {s.name: s.value for s in sweep.update if isinstance(s, Each | Let)}

    def known(name: str) -> Expr | None:
        return named.get(name) or lookup(name)

    masked = step.condition is not None
    return split_sum(value, sweep.axes, program, lookup, known, masked=masked)


def split_sum(
    value: Expr,
    swept: Sequence[str],
    program: Program,
    lookup: Lookup,
    known: Lookup,
    *,
    masked: bool,
    ordered: bool = True,
) -> Product | None:
    """Return a sum as a contraction, or None if it is not one.

    Args:
        value: What is summed.
        swept: The axes that it is summed over.
        program: Where arrays and axes are declared.
        lookup: Pointwise definitions that may be taken apart.
        known: Those, and names that stand for themselves.
        masked: Whether elements may take no part.
        ordered: Whether factors keep to the order of the text, as far as magnitudes ask for it.
    """
    factors: list[Expr] = []
    tree = _tree(value, lookup, factors)
    magnitudes = _Magnitudes(program, known)
    tame = _tame([magnitudes.of(factor) for factor in factors])
    split = _Split(factors, tame, frozenset(swept), Builder.of(program), ordered=ordered)
    # The factor of an absent element must not show, so that it stays with the element.
    outer = frozenset[int]() if masked else split.peel(tree)
    every = frozenset(_leaves(tree))
    found = split.groups(tree, every - outer)
    if found is None:
        return None
    left, right = (split.product(tree, group) for group in found)
    if outer and _reads_stage(left, known):
        # What is computed anew takes a scale in, and its product is added to what there is.
        whole = split.groups(tree, every)
        if whole is not None and split.product(tree, whole[1]) == right:
            return Product(split.product(tree, whole[0]), right)
    rest = split.product(tree, outer) if outer else None
    return Product(left, right, rest)


def is_tame(factor: Expr, program: Program, lookup: Lookup = lambda name: None) -> bool:
    """Tell whether a factor may change places freely."""
    return bool(_tame([_Magnitudes(program, lookup).of(factor)]))


def fits_f16(expr: Expr, program: Program, lookup: Lookup) -> bool:
    """Say whether f16 holds the range of an expression, without subnormal numbers."""
    found = _Magnitudes(program, lookup).of(expr)
    return found is not None and found[0] >= F16_RANGE[0] and found[1] <= F16_RANGE[1]


def _reads_stage(expr: Expr, known: Lookup) -> bool:
    """Tell whether an operand is made of the results of another reduction."""
    names, seen = list(walk.refs(expr)), set[str]()
    while names:
        name = names.pop()
        value = known(name)
        if value is None:
            return True
        if name not in seen:
            seen.add(name)
            names.extend(walk.refs(value))
    return False


class _Split:
    """The factors of one product, and how they may be grouped."""

    def __init__(
        self,
        factors: list[Expr],
        tame: frozenset[int],
        swept: frozenset[str],
        builder: Builder,
        *,
        ordered: bool,
    ) -> None:
        self.factors = factors
        self.axes = [frozenset(factor.type.axes) for factor in factors]
        self.tame = tame
        self.swept = swept
        self.builder = builder
        self.ordered = ordered

    def peel(self, tree: Tree) -> frozenset[int]:
        """Return the factors that can multiply the sum instead of its terms.

        Operands without a scale are often arrays as they are, which need no copy.
        """
        every = frozenset(_leaves(tree))
        fixed = frozenset(i for i in every if not self.axes[i] & self.swept)
        return (fixed & self.tame) | self._leaving(tree, fixed)

    def _leaving(self, tree: Tree, fixed: frozenset[int]) -> frozenset[int]:
        """Return the factors that a product may be multiplied by at its end.

        In `a * (b * f)`, f may leave where a or b is tame: the text has a product of f's size too.
        """
        if not isinstance(tree, tuple):
            return fixed & {tree}
        for rest, side in (tree, tree[::-1]):
            leaves = frozenset(_leaves(side))
            if leaves <= fixed:
                return leaves | self._leaving(rest, fixed)
        found = frozenset[int]()
        for rest, side in (tree, tree[::-1]):
            left = self._leaving(side, fixed)
            kept = frozenset(_leaves(side)) - left
            if kept <= self.tame or frozenset(_leaves(rest)) <= self.tame:
                found |= left
        return found

    def groups(
        self, tree: Tree, inner: frozenset[int]
    ) -> tuple[frozenset[int], frozenset[int]] | None:
        """Return the factors of the two operands; the first has the factor with most axes."""
        leaves = sorted(inner)
        if not leaves:
            # What is summed is the same for all elements.
            return None
        # A square holds the same factor twice, so that the seed goes by its place.
        seed = max(leaves, key=lambda i: (self.swept <= self.axes[i], len(self.axes[i])))
        right = {i for i in leaves if not self.axes[i] <= self.axes[seed]}
        reach = frozenset[str]().union(*(self.axes[i] for i in right))
        free = [i for i in leaves if i != seed and i not in right and self.axes[i] <= reach]
        for count in range(len(free) + 1):
            for moved in combinations(free, count):
                other = frozenset(right.union(moved))
                one = frozenset(leaves) - other
                if self._is_matrix_product(one, other) and self._keeps_order(tree, one, other):
                    return one, other
        return None

    def _is_matrix_product(self, one: frozenset[int], other: frozenset[int]) -> bool:
        a, b = (frozenset[str]().union(*(self.axes[i] for i in side)) for side in (one, other))
        own = a - b - self.swept, b - a - self.swept
        return self.swept <= a and self.swept <= b and all(own)

    def _keeps_order(self, tree: Tree, one: frozenset[int], other: frozenset[int]) -> bool:
        """Tell whether, tame factors aside, the text multiplies one group by the other."""
        left, right = one - self.tame, other - self.tame
        if not left or not right:
            return True
        wild = left | right
        while isinstance(tree, tuple):
            a, b = (frozenset(_leaves(side)) & wild for side in tree)
            if a and b and {a, b} == {left, right}:
                return True
            if a and b and (self.ordered or not (b <= left or b <= right)):
                return False
            # What is multiplied by one factor after another is multiplied by their product.
            left, right = (side - b if a else side for side in (left, right))
            tree = tree[0] if a else tree[1]
        return False

    def product(self, tree: Tree, group: frozenset[int]) -> Expr:
        """Return the product of a group, multiplied in the order of the text."""
        found = self._product(tree, group)
        assert found is not None
        return found

    def _product(self, tree: Tree, group: frozenset[int]) -> Expr | None:
        if not isinstance(tree, tuple):
            return self.factors[tree] if tree in group else None
        left, right = (self._product(side, group) for side in tree)
        if left is None or right is None:
            return left if right is None else right
        return self.builder.mul(left, right)


def _tree(value: Expr, lookup: Lookup, factors: list[Expr]) -> Tree:
    """Return a product as it was written, and collect its factors."""
    counts: dict[int, int] = {}

    def sides(expr: Expr) -> tuple[Expr, ...]:
        body = expr
        if isinstance(expr, Ref):
            found = lookup(expr.name)
            body = found if isinstance(found, Apply) and found.op == "mul" else expr
        return body.arguments if isinstance(body, Apply) and body.op == "mul" else ()

    def count(expr: Expr) -> int:
        if id(expr) not in counts:
            counts[id(expr)] = sum(map(count, sides(expr))) or 1
        return counts[id(expr)]

    def made(expr: Expr) -> Tree:
        found = sides(expr)
        if found and count(expr) <= LARGEST:
            left, right = map(made, found)
            return left, right
        factors.append(expr)
        return len(factors) - 1

    return made(value)


def _leaves(tree: Tree) -> Iterator[int]:
    if isinstance(tree, tuple):
        for side in tree:
            yield from _leaves(side)
    else:
        yield tree


def _tame(bounds: list[Bounds | None]) -> frozenset[int]:
    """Return factors whose product, and that of any of them, is within 2^-24 and 2^24."""
    tame: list[int] = []
    low = high = 0.0
    known = [(max(-found[0], found[1]), i) for i, found in enumerate(bounds) if found is not None]
    for _, i in sorted(known):
        found = bounds[i]
        assert found is not None
        low, high = low + min(found[0], 0), high + max(found[1], 0)
        if max(-low, high) > TAME:
            break
        tame.append(i)
    return frozenset(tame)


class _Magnitudes:
    """Bounds of the magnitudes of expressions, each of which is looked at once."""

    def __init__(self, program: Program, lookup: Lookup) -> None:
        self.program = program
        self.lookup = lookup
        self.known: dict[int, Bounds | None] = {}

    def of(self, expr: Expr) -> Bounds | None:
        """Return bounds of a magnitude, or None where nothing is known."""
        stack = [expr]
        while stack:
            node = stack[-1]
            parts = self._parts(node)
            missing = [part for part in parts if id(part) not in self.known]
            if missing:
                stack += missing
                continue
            stack.pop()
            self.known[id(node)] = self._of(node, [self.known[id(part)] for part in parts])
        return self.known[id(expr)]

    def _parts(self, expr: Expr) -> tuple[Expr, ...]:
        match expr:
            case Ref(name):
                body = self.lookup(name)
                return () if body is None else (body,)
            case Apply() | Cast():
                return walk.children(expr)
            case _:
                return ()

    def _of(self, expr: Expr, parts: list[Bounds | None]) -> Bounds | None:
        if expr.type.dtype is BOOL:
            return 0, 0
        match expr:
            case Literal(value) if math.isfinite(value):
                power = math.log2(abs(value)) if value else 0.0
                return power, power
            case Index() | Size():
                return _COUNTED
            case Load(array=name):
                return _of_type(self.program.array(name).dtype)
            case Cast(to=to):
                return _of_type(to) or parts[0]
            case Ref():
                return parts[0] if parts else None
            case Apply(op=op):
                return _of_operator(op, parts)
            case _:
                return None


def _of_type(dtype: DType) -> Bounds | None:
    if dtype.kind == "float":
        return _STORED.get(dtype.name)
    return (0, dtype.bits)


def _of_operator(op: str, arguments: list[Bounds | None]) -> Bounds | None:
    if op == "sign":
        return 0, 0
    if op == "where":
        arguments = arguments[1:]
    known = [found for found in arguments if found is not None]
    if len(known) < len(arguments):
        return None
    match op, known:
        case (("neg" | "abs"), [(low, high)]):
            return low, high
        case "sqrt", [(low, high)]:
            return low / 2, high / 2
        case "rsqrt", [(low, high)]:
            return -high / 2, -low / 2
        case "mul", [(a, b), (c, d)]:
            return a + c, b + d
        case "div", [(a, b), (c, d)]:
            return a - d, b - c
        case (("where" | "minimum" | "maximum"), [(a, b), (c, d)]):
            return min(a, c), max(b, d)
        case _:
            return None
