"""Which names lines of generated text read and give: to run a part of them elsewhere once more."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence


def reads(lines: Sequence[str]) -> frozenset[str]:
    """Return the names that lines read, whether or not they gave them before."""
    return _names(_parsed(lines), ast.Load)


def writes(lines: Sequence[str]) -> frozenset[str]:
    """Return the names that lines give a value."""
    return _names(_parsed(lines), ast.Store)


def without(lines: Sequence[str], names: frozenset[str]) -> list[str]:
    """Return lines without the statements that do nothing but give some names a value."""
    kept = [
        s
        for s in _parsed(lines)
        if not isinstance(s, ast.Assign) or not _names([s], ast.Store) <= names
    ]
    return _text(kept)


def needed(lines: Sequence[str], wanted: frozenset[str]) -> list[str]:
    """Return the statements that give some names their values, and those that these need."""
    kept: list[ast.stmt] = []
    for statement in reversed(_parsed(lines)):
        if _names([statement], ast.Store) & wanted:
            kept.insert(0, statement)
            wanted |= _names([statement], ast.Load)
    return _text(kept)


def renamed(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return lines with other names."""
    found = _parsed(lines)
    for statement in found:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
    return _text(found)


def _parsed(lines: Sequence[str]) -> list[ast.stmt]:
    return ast.parse("\n".join(lines)).body


def _text(statements: Iterable[ast.stmt]) -> list[str]:
    return [line for s in statements for line in ast.unparse(s).split("\n")]


def _names(statements: Iterable[ast.stmt], context: type[ast.expr_context]) -> frozenset[str]:
    return frozenset(
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    )
