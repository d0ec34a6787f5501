"""Notebooks: `%load_ext redlang.notebook` gives `%%redlang` cells and typeset explanations.

A `%%redlang` cell holds definitions without decorators. Functions become kernels and are shown with
what became of them; every mistake of a kernel is reported when the cell runs.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import linecache
import shlex
from typing import TYPE_CHECKING, Any

from redlang.errors import ArgumentError
from redlang.explanation import Explanation
from redlang.kernel import Kernel, kernel
from redlang.notebook.page import page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

DECORATOR = "__redlang_kernel__"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the cell magic and the HTML of explanations and kernels."""

    def magic(line: str, cell: str) -> None:
        run(shell, line, cell)

    shell.register_magic_function(magic, "cell", "redlang")  # type: ignore[arg-type]  # it binds
    assert shell.display_formatter is not None
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(Explanation, page)
    formatter.for_type(Kernel, lambda value: page(value.explain()))


def run(shell: InteractiveShell, line: str, cell: str) -> None:
    """Define the kernels of a cell in the user's namespace and show them.

    Args:
        shell: Where names live and results are shown.
        line: Options behind `%%redlang`: `--fuse MODE`, `--stage STAGE`, `--quiet`.
        cell: Definitions in the language.
    """
    options = _options(line)
    place = f"<redlang cell {shell.execution_count}>"
    kernels = define(cell, place, shell.user_ns, fuse=options.fuse)
    for made in kernels:
        explanation = made.explain(options.stage)
        if not options.quiet:
            # Only notebooks have IPython.
            importlib.import_module("IPython.display").display(explanation)


def define(cell: str, place: str, namespace: dict[str, Any], *, fuse: str) -> list[Kernel]:
    """Run a cell whose undecorated functions are kernels, and return these.

    Lines in messages count from the top of the cell: the decorator is put into the tree, not into
    the text.
    """
    tree = ast.parse(cell, place)
    names = list(_decorate(tree))
    linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)
    namespace[DECORATOR] = kernel(fuse=fuse)  # type: ignore[call-overload]  # checked there
    try:
        exec(compile(tree, place, "exec"), namespace)
    finally:
        del namespace[DECORATOR]
    return [namespace[name] for name in names]


def _decorate(tree: ast.Module) -> Iterator[str]:
    """Put the decorator on each bare function, and yield their names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            name = ast.Name(DECORATOR, ast.Load())
            node.decorator_list.append(ast.copy_location(name, node))
            yield node.name


def _options(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="%%redlang", exit_on_error=False, add_help=False)
    parser.add_argument("--fuse", default="auto")
    parser.add_argument("--stage")
    parser.add_argument("--quiet", action="store_true")
    options, other = parser.parse_known_args(shlex.split(line))
    if other:
        raise ArgumentError(
            f"%%redlang has no option {other[0]}",
            hint="there are --fuse MODE, --stage STAGE and --quiet",
        )
    return options
