"""Where values live: in a variable, or in a scratch buffer over the axes that need one.

A value needs a dimension along an axis unless one loop over that axis holds everything that touches
the value: then only the current index matters. A value that needs no dimension is a local variable,
except for what must lie in memory: operands and results of matrix products, and top-k lists.
"""

from __future__ import annotations

from dataclasses import dataclass

from redlang.codegen.kernels import Tree
from redlang.codegen.nesting import For, If, Leaf, Multiply, Node, Path, Tiles, walk_nodes
from redlang.codegen.steps import step_reads, step_writes
from redlang.ir import walk
from redlang.ir.program import Ref


@dataclass(frozen=True, slots=True)
class Storage:
    """Where one value lives.

    Attributes:
        dims: The axes of its buffer, outermost first; without one, those along which each index is
            a variable of its own.
        in_memory: Whether it has a buffer at all.
    """

    dims: tuple[str, ...]
    in_memory: bool


def touched(node: Node) -> frozenset[str]:
    """Return the names that a node itself reads or writes."""
    match node:
        case Leaf(step=step):
            return step_reads(step) | step_writes(step)
        case Multiply(contract=contract):
            operands = walk.refs(contract.left) | walk.refs(contract.right)
            return operands | {contract.name}
        case Tiles(loop=loop):
            return frozenset() if loop.some is None else walk.refs(loop.some)
        case If(condition=condition):
            return walk.refs(condition)
        case For():
            return frozenset()


def decide(tree: Tree) -> dict[str, Storage]:
    """Return where each value of a kernel lives."""
    around: dict[str, list[For | Tiles]] = {}
    memory: set[str] = set(tree.slots)

    def visit(node: Node, path: Path) -> None:
        for name in touched(node):
            if name in around:
                around[name] = [loop for loop in around[name] if loop in path]
            elif name in tree.types:
                around[name] = list(path)
        if isinstance(node, Multiply):
            memory.add(node.contract.name)
            for operand in (node.contract.left, node.contract.right):
                if isinstance(operand, Ref):
                    memory.add(operand.name)

    walk_nodes(tree.root, visit)
    places = {}
    for name, loops in around.items():
        single = {loop.axis for loop in loops} | tree.fixed
        axes = tree.layout.get(name, tree.types[name].axes)
        dims = tuple(axis for axis in axes if axis not in single)
        apart = all(axis in tree.unrolled for axis in dims)
        places[name] = Storage(dims, not apart or name in memory)
    return places
