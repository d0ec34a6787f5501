"""Recognise a reduction over pairs of elements: of any function of two sides, not a product.

    sum over K of f(left, right), max over K of f(left, right), min over K of f(left, right)

Each side is arrays as they are, which vary with K and have axes that the other side lacks. Threads
hold blocks of rows and columns of the result, as they do of a product, and every element that is
read serves a row or a column of the block. The function stays as it is written: what a squared
distance would lose in digits as a product, it loses nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from redlang.ir import walk
from redlang.ir.incremental import Each, Let, Partial, Sweep
from redlang.ir.program import Apply, Expr, Index, Literal, Load, Ref
from redlang.ir.types import BF16, F16, F32, F64, Type
from redlang.schedule.contract import Lookup

NEUTRAL = {"sum": 0.0, "max": -inf, "min": inf}
"""What a pair is that takes no part."""
PAIRED = (F16, BF16, F32, F64)
"""What arrays hold of which pairs are taken."""
ELEMENT = "element"
"""What the names of elements begin with."""
LARGEST = 256
"""Nodes of a pair with every name written out."""
_COSTLY = {"exp": 6, "exp2": 4, "log": 8, "log2": 8, "sqrt": 6, "rsqrt": 4, "div": 8, "tanh": 12}
_COSTLY |= {"sigmoid": 12, "erf": 16, "sin": 16, "cos": 16, "pow": 24}
"""Instructions of an operator that takes several, roughly."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A reduction over pairs.

    Attributes:
        op: The reduction.
        value: What is reduced, a function of the names of elements.
        elements: The names, and the parts of arrays that they stand for.
        lefts: Parts of arrays on the one side.
        rights: Parts of arrays on the other.
        instructions: What a pair takes, its joining included.
    """

    op: str
    value: Expr
    elements: tuple[tuple[str, Load], ...]
    lefts: tuple[Load, ...]
    rights: tuple[Load, ...]
    instructions: int

    @property
    def axes(self) -> frozenset[str]:
        """Return the axes of all pairs."""
        return frozenset(a for load in (*self.lefts, *self.rights) for a in load.type.axes)


def pairing_of(step: Partial, sweep: Sweep, lookup: Lookup) -> Pairing | None:
    """Return a stage of a sweep as a reduction over pairs, or None if it is not one."""
    if len(step.values) != 1 or len(sweep.axes) != 1:
        return None
    named = {s.name: s.value for s in sweep.update if isinstance(s, Each | Let)}
    known: Lookup = lambda name: named.get(name) or lookup(name)  # noqa: E731
    return find_pairing(step.op, step.values[0], step.condition, sweep.axes[0], known)


def find_pairing(
    op: str, value: Expr, condition: Expr | None, over: str, lookup: Lookup
) -> Pairing | None:
    """Return a reduction over an axis as one over pairs, or None if it is not one.

    Args:
        op: The reduction.
        value: What is reduced.
        condition: Which pairs take part; all if not given.
        over: The axis.
        lookup: Gives the expressions of names that are written out.
    """
    if op not in NEUTRAL or value.type.dtype not in (F32, F64):
        return None
    if condition is not None:
        axes = dict.fromkeys((*value.type.axes, *condition.type.axes))
        dtype = value.type.dtype
        nothing = Literal(NEUTRAL[op], Type(dtype))
        value = Apply("where", (condition, value, nothing), Type(dtype, tuple(axes)))
    if walk.tree_size(value, lookup) > LARGEST:
        return None
    loads: dict[Load, Ref] = {}

    def rule(node: Expr) -> Expr:
        if isinstance(node, Ref):
            body = lookup(node.name)
            return node if body is None else walk.rewrite(body, rule)
        if isinstance(node, Load) and node.type.axes:
            return loads.setdefault(node, Ref(f"{ELEMENT}.{len(loads)}", node.type))
        return node

    value = walk.rewrite(value, rule)
    names = {ref.name for ref in loads.values()}
    plain = all(_is_plain(node, names) for node in walk.nodes(value))
    sides = _sides(list(loads), over)
    if not plain or sides is None or not all(_is_whole(load, over) for load in loads):
        return None
    own = tuple(frozenset(a for load in side for a in load.type.axes) for side in sides)
    elements = tuple((ref.name, load) for load, ref in loads.items())
    return Pairing(op, value, elements, *sides, _instructions(op, value, own))


def _is_plain(node: Expr, elements: set[str]) -> bool:
    """Say whether a node is an element, a number, or computed from such."""
    match node:
        case Ref(name):
            return name in elements
        case Load():
            return not node.subscripts
        case Index():
            return False
        case _:
            return True


def _is_whole(load: Load, over: str) -> bool:
    """Say whether an array is read as it is, along the reduced axis too."""
    plain = all(isinstance(part, Index) for part in load.subscripts)
    return plain and over in load.type.axes and not any(load.guarded)


def _sides(loads: list[Load], over: str) -> tuple[tuple[Load, ...], tuple[Load, ...]] | None:
    """Return loads as two sides each of which has an axis that the other lacks."""
    sets = [frozenset(load.type.axes) - {over} for load in loads]
    widest = [axes for axes in dict.fromkeys(sets) if not any(axes < other for other in sets)]
    if len(widest) != 2 or any(not axes for axes in sets):
        return None
    left, right = widest
    batch = left & right
    if any(axes <= batch for axes in sets):
        return None
    lefts = tuple(x for x, axes in zip(loads, sets, strict=True) if axes <= left)
    rights = tuple(x for x, axes in zip(loads, sets, strict=True) if not axes <= left)
    return lefts, rights


def _instructions(op: str, value: Expr, sides: tuple[frozenset[str], ...]) -> int:
    """Return the instructions of a pair: what one side alone is made of serves many pairs."""
    nodes = {
        node
        for node in walk.nodes(value)
        if isinstance(node, Apply) and not any(set(node.type.axes) <= axes for axes in sides)
    }
    count = sum(_of_operator(node) for node in nodes)
    fused = op == "sum" and isinstance(value, Apply) and _of_product(value)
    return max(1, count + (0 if fused else 1))


def _of_operator(node: Apply) -> int:
    if node.op in ("neg", "abs"):
        # Signs are changed on the way into the next operation.
        return 0
    return 1 if _of_product(node) else _COSTLY.get(node.op, 1)


def _of_product(node: Apply) -> bool:
    """Say whether a node is one multiplication, which an addition takes in."""
    if node.op == "mul":
        return True
    exponent = node.arguments[-1]
    return node.op == "pow" and isinstance(exponent, Literal) and exponent.value == 2
