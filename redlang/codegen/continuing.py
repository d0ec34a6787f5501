"""Searches that go on from a state instead of starting anew in each tile.

    t = argmax of a tile;  s = join(s, t)   -->   s = argmax of s and the tile

A search that knows the best so far passes over almost everything; one that begins with nothing
has to find its way up again in every tile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from redlang.codegen.bodies import statements
from redlang.codegen.nesting import MANNERS
from redlang.ir import loops
from redlang.schedule import tidy

Body = tuple[loops.Statement, ...]


def continued(body: Body) -> tuple[Body, frozenset[str]]:
    """Return the body with searches that go on from the states that they are joined to.

    The second value holds the names of these states: their folds do not begin with nothing.
    """
    touched: Counter[str] = Counter()
    for statement in statements(body):
        if not isinstance(statement, loops.Loop | loops.Branch):
            touched.update(_uses(statement))
    return _continued(body, touched)


def _uses(statement: loops.Statement) -> frozenset[str]:
    return tidy.reads(statement) | tidy.writes(statement)


def _continued(body: Body, touched: Counter[str]) -> tuple[Body, frozenset[str]]:
    names = frozenset[str]()
    done: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.Loop():
                inner, more = _continued(statement.body, touched)
                done.append(replace(statement, body=inner))
                names |= more
            case loops.Combine():
                place = _search_before(done, statement, touched)
                if place is None:
                    done.append(statement)
                    continue
                search = done[place]
                assert isinstance(search, loops.Fold)
                done[place] = replace(search, names=statement.names, types=statement.types)
                names |= frozenset(statement.names)
            case _:
                done.append(statement)
    return tuple(done), names


def _search_before(
    body: list[loops.Statement], join: loops.Combine, touched: Counter[str]
) -> int | None:
    """Return where the search stands whose result is needed for nothing but this join."""
    if join.left != join.names or MANNERS.get(join.op) != "search":
        return None
    busy = frozenset((*join.names, *join.right))
    for place in reversed(range(len(body))):
        statement = body[place]
        if isinstance(statement, loops.Fold) and statement.names == join.right:
            alone = all(touched[name] == 2 for name in join.right)
            return place if alone and not _uses(statement) & frozenset(join.names) else None
        if _uses(statement) & busy:
            return None
    return None
