"""Generated CUDA text → LLVM text.

The text is Python as far as it goes: assignments, `if`, `while`, expressions of numbers and tuples,
and calls of words (`targets.ptx.inline`), which write the instructions. Types follow from those of
the parameters; a variable may change its type only where no other path could see the old one.
Integers compute in 64 bits, and signed ones do not overflow. What is not known is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

from llvmlite import ir

from redlang.targets.expressions import Expressions, TextError, Typed, Variable, refused
from redlang.targets.kinds import BOOL, I8, I32, NOTHING, Kind, Tuple
from redlang.targets.nvvm import LAYOUT, TRIPLE, ir_version

_NODES = "__redlang_nodes__"
"""Where a text's namespace holds the nodes of its functions, by name and line."""

_Node: TypeAlias = ast.FunctionDef | ast.Lambda


def execute(source: str, file: str) -> dict[str, Any]:
    """Run a text, which makes its words, and return what it defines."""
    tree = ast.parse(source, file)
    nodes: dict[tuple[str, int], _Node] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            # Python counts a function's lines from its first decorator on.
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            nodes[node.name, first] = node
        elif isinstance(node, ast.Lambda):
            if ("<lambda>", node.lineno) in nodes:
                raise TextError(f"line {node.lineno}: two lambdas on one line")
            nodes["<lambda>", node.lineno] = node
    namespace: dict[str, Any] = {"__name__": "redlang_generated", _NODES: nodes}
    exec(compile(tree, file, "exec"), namespace)
    return namespace


def translate(
    python: Callable[..., object], entry: str, parameters: Sequence[Kind], bounds: tuple[int, int]
) -> str:
    """Return the LLVM module of a kernel, a function of a text that `execute` has run.

    Args:
        python: The function.
        entry: The kernel's name.
        parameters: The types of its parameters.
        bounds: The largest number of threads a block, and the blocks that registers leave room for.
    """
    module = ir.Module(entry)
    module.triple, module.data_layout = TRIPLE, LAYOUT
    numbers = [ir.Constant(I32, number) for number in ir_version()]
    module.add_named_metadata("nvvmir.version", module.add_metadata(numbers))
    # A truth value is passed as a byte.
    passed = [I8 if kind == BOOL else kind.llvm for kind in parameters]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), passed), entry)
    writer = _Writer(function, python)
    given = [
        Typed(k, writer.builder.trunc(raw, k.llvm) if k == BOOL else raw)
        for k, raw in zip(parameters, function.args, strict=True)
    ]
    writer.write(given, NOTHING)
    for name, value in (("kernel", 1), ("maxntidx", bounds[0]), ("minctasm", bounds[1])):
        note = [function, ir.MetaDataString(module, name), ir.Constant(I32, value)]
        module.add_named_metadata("nvvm.annotations", module.add_metadata(note))
    return str(module)


def device_function(
    module: ir.Module, python: Callable[..., object], result: Kind, arguments: Sequence[Kind]
) -> ir.Function:
    """Return a function of the text in a module, written when it is first asked for."""
    known: dict[Callable[..., object], ir.Function]
    known = module.__dict__.setdefault("redlang_functions", {})
    if python not in known:
        shape = ir.FunctionType(result.llvm, [kind.llvm for kind in arguments])
        name = module.get_unique_name(f"{python.__name__}.device")
        function = ir.Function(module, shape, name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        given = [Typed(kind, raw) for kind, raw in zip(arguments, function.args, strict=True)]
        _Writer(function, python).write(given, result)
        known[python] = function
    return known[python]


class _Writer(Expressions):
    """Writes one function."""

    def __init__(self, function: ir.Function, python: Callable[..., object]) -> None:
        # Variables lie in memory of the first block, from which LLVM makes registers.
        self._entry = ir.IRBuilder(function.append_basic_block("entry"))
        super().__init__(function, python, ir.IRBuilder(function.append_basic_block("start")))
        self._places: dict[tuple[str, Kind], Variable] = {}
        self._result: Kind = NOTHING
        # Of each loop around: where it is left to, and the variables wherever it is left early.
        self._loops: list[tuple[ir.Block, list[dict[str, Variable | None]]]] = []

    def write(self, arguments: Sequence[Typed], result: Kind) -> None:
        """Write the whole function."""
        self._result = result
        key = self.python.__name__, self.python.__code__.co_firstlineno
        node = self.python.__globals__[_NODES][key]
        for argument, value in zip(node.args.args, arguments, strict=True):
            self.assign(argument.arg, value)
        body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        self.block(body)
        if not self.builder.block.is_terminated:
            if result != NOTHING:
                raise TextError(f"{key[0]} does not return")
            self.builder.ret_void()
        self._entry.branch(self.function.blocks[1])

    # Statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Write statements one after the other."""
        for statement in statements:
            if self.builder.block.is_terminated:
                raise refused(statement, "nothing may follow a return or a break")
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Write one statement."""
        match node:
            case ast.Assign(targets=[target], value=value):
                self.bind(target, self.value(value))
            case ast.Expr(value=value):
                self.value(value)
            case ast.If(test=test, body=then, orelse=otherwise):
                self.branch(self.test(test), then, otherwise)
            case ast.While(test=test, body=body, orelse=[]):
                self.loop(test, body)
            case ast.Return(value=None):
                self.builder.ret_void()
            case ast.Return(value=value):
                assert value is not None
                self.builder.ret(self.cast(self.value(value), self._result, node))
            case ast.Break() if self._loops:
                after, exits = self._loops[-1]
                exits.append(dict(self.variables))
                self.builder.branch(after)
            case ast.Pass():
                pass
            case _:
                raise refused(node, "this statement")

    def bind(self, target: ast.expr, value: Typed) -> None:
        """Assign a value to a name, or its elements to several."""
        match target:
            case ast.Name(id=name):
                self.assign(name, value)
            case ast.Tuple(elts=targets) if isinstance(value.kind, Tuple):
                kinds = value.kind.elements
                if len(targets) != len(kinds):
                    raise refused(target, f"{len(kinds)} values for {len(targets)} names")
                for number, (part, kind) in enumerate(zip(targets, kinds, strict=True)):
                    self.bind(part, Typed(kind, self.builder.extract_value(value.raw, number)))
            case _:
                raise refused(target, "assigning to this")

    def assign(self, name: str, value: Typed) -> None:
        """Store a variable."""
        key = name, value.kind
        if key not in self._places:
            place = self._entry.alloca(value.kind.llvm, name=name)
            self._places[key] = Variable(value.kind, place)
        self.variables[name] = self._places[key]
        self.builder.store(value.raw, self._places[key].place)

    def branch(
        self, test: ir.Value, then: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]
    ) -> None:
        """Write `if`."""
        before = dict(self.variables)
        ends = []
        after = self.function.append_basic_block("after")
        first = self.function.append_basic_block("then")
        second = self.function.append_basic_block("else") if otherwise else after
        self.builder.cbranch(test, first, second)
        for block, body in ((first, then), (second, otherwise)):
            self.variables = dict(before)
            if block is not after:
                self.builder.position_at_end(block)
                self.block(body)
                if self.builder.block.is_terminated:
                    continue
                self.builder.branch(after)
            ends.append(self.variables)
        self.builder.position_at_end(after)
        self.variables = ends[0] if ends else before
        for end in ends[1:]:
            self.variables = _merged(self.variables, end)
        if not ends:
            self.builder.unreachable()

    def loop(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        """Write `while`: a test, then the body and the test again for as long as it holds."""
        inside = self.function.append_basic_block("loop")
        after = self.function.append_basic_block("done")
        self.builder.cbranch(self.test(test), inside, after)
        before, read = dict(self.variables), self.read
        self.read = set()
        self.builder.position_at_end(inside)
        exits: list[dict[str, Variable | None]] = []
        self._loops.append((after, exits))
        self.block(body)
        self._loops.pop()
        if self.builder.block.is_terminated:
            raise refused(body[-1], "a loop that never goes round")
        self.builder.cbranch(self.test(test), inside, after)
        for name, variable in before.items():
            # What the next round would read has been left elsewhere.
            if self.variables[name] is not variable and variable in self.read:
                raise refused(test, f"{name} changes its type in this loop")
        self.variables = reduce(_merged, [self.variables, *exits], before)
        self.read |= read
        self.builder.position_at_end(after)


def _merged(
    one: dict[str, Variable | None], other: dict[str, Variable | None]
) -> dict[str, Variable | None]:
    """Return the variables after two paths; one whose type differs may not be read."""
    both = {**one, **other}
    return {
        name: variable if one.get(name, variable) is variable else None
        for name, variable in both.items()
    }
