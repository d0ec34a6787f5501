"""Generated CUDA text → LLVM text.

The text is Python as far as it goes: assignments, `if`, `while`, expressions of numbers and tuples,
and calls of words (`targets.ptx.inline`), which write the instructions. Types follow from those of
the parameters; a variable may change its type only where no other path could see the old one.
Integers compute in 64 bits, and signed ones do not overflow. What is not known is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llvmlite import ir

from redlang.targets.kinds import (
    BOOL,
    FLOAT64,
    I8,
    I32,
    INT32,
    INT64,
    NOTHING,
    UINT64,
    Kind,
    Scalar,
    Tuple,
    common,
    tuple_of,
)
from redlang.targets.nvvm import LAYOUT, TRIPLE, ir_version
from redlang.targets.ptx.inline import Values, Word, pack

_NODES = "__redlang_nodes__"
"""Where a text's namespace holds the nodes of its functions, by name and line."""

_Node: TypeAlias = ast.FunctionDef | ast.Lambda


class TextError(Exception):
    """A text goes beyond what can be translated."""


@dataclass(frozen=True, slots=True)
class Register:
    """A number that the hardware tells, such as that of the thread.

    Attributes:
        name: As libNVVM calls it: `tid.x`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class _Typed:
    """An LLVM value with its type."""

    kind: Kind
    raw: Values


@dataclass(frozen=True, slots=True)
class _Variable:
    """Where a variable lies, and its type there."""

    kind: Kind
    place: ir.Value


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
        _Typed(k, writer.builder.trunc(raw, k.llvm) if k == BOOL else raw)
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
        given = [_Typed(kind, raw) for kind, raw in zip(arguments, function.args, strict=True)]
        _Writer(function, python).write(given, result)
        known[python] = function
    return known[python]


@dataclass(slots=True, eq=False)
class _Writer:
    """Writes one function."""

    function: ir.Function
    python: Any
    builder: ir.IRBuilder = field(init=False)
    variables: dict[str, _Variable | None] = field(default_factory=dict)
    result: Kind = NOTHING
    _places: dict[tuple[str, Kind], _Variable] = field(default_factory=dict)
    _entry: ir.IRBuilder = field(init=False)

    def __post_init__(self) -> None:
        # Variables lie in memory of the first block, from which LLVM makes registers.
        self._entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.builder = ir.IRBuilder(self.function.append_basic_block("start"))

    def write(self, arguments: Sequence[_Typed], result: Kind) -> None:
        """Write the whole function."""
        self.result = result
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
                raise _refused(statement, "nothing may follow a return")
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
                self.builder.ret(self.cast(self.value(value), self.result, node))
            case ast.Pass():
                pass
            case _:
                raise _refused(node, "this statement")

    def bind(self, target: ast.expr, value: _Typed) -> None:
        """Assign a value to a name, or its elements to several."""
        match target:
            case ast.Name(id=name):
                self.assign(name, value)
            case ast.Tuple(elts=targets) if isinstance(value.kind, Tuple):
                kinds = value.kind.elements
                if len(targets) != len(kinds):
                    raise _refused(target, f"{len(kinds)} values for {len(targets)} names")
                for number, (part, kind) in enumerate(zip(targets, kinds, strict=True)):
                    self.bind(part, _Typed(kind, self.builder.extract_value(value.raw, number)))
            case _:
                raise _refused(target, "assigning to this")

    def assign(self, name: str, value: _Typed) -> None:
        """Store a variable."""
        key = name, value.kind
        if key not in self._places:
            place = self._entry.alloca(value.kind.llvm, name=name)
            self._places[key] = _Variable(value.kind, place)
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
        before = dict(self.variables)
        self.builder.cbranch(self.test(test), inside, after)
        self.builder.position_at_end(inside)
        self.block(body)
        for name, variable in before.items():
            if self.variables[name] is not variable:
                raise _refused(test, f"{name} changes its type in this loop")
        self.builder.cbranch(self.test(test), inside, after)
        self.builder.position_at_end(after)

    # Expressions

    def value(self, node: ast.expr) -> _Typed:
        """Write an expression."""
        match node:
            case ast.Constant(value=value):
                return _constant(value, node)
            case ast.Name(id=name) if name in self.variables:
                variable = self.variables[name]
                if variable is None:
                    raise _refused(node, "a variable of several types")
                return _Typed(variable.kind, self.builder.load(variable.place))
            case ast.Name() | ast.Attribute():
                return self.known(self.outside(node), node)
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self.call(self.outside(function), arguments, node)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(type(op), self.value(left), self.value(right), node)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.value(operand), node)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(type(op), self.value(left), self.value(right), node)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self.chosen(self.test(test), yes, no, node)
            case ast.Tuple(elts=elements) if len(elements) > 1:
                parts = [self.value(element) for element in elements]
                raw = pack(self.builder, [part.raw for part in parts])
                return _Typed(tuple_of(part.kind for part in parts), raw)
            case _:
                raise _refused(node, "this expression")

    def test(self, node: ast.expr) -> ir.Value:
        """Write a condition: a truth value, or a whole number that is not 0."""
        found = self.value(node)
        if found.kind.is_integer:
            return self.builder.icmp_unsigned("!=", found.raw, ir.Constant(found.kind.llvm, 0))
        if found.kind != BOOL:
            raise _refused(node, "a condition that is no truth value")
        return found.raw

    def outside(self, node: ast.expr) -> object:
        """Return what a name means in the text's module."""
        try:
            match node:
                case ast.Name(id=name):
                    return self.python.__globals__[name]
                case ast.Attribute(value=value, attr=attribute):
                    return getattr(self.outside(value), attribute)
        except (KeyError, AttributeError):
            pass
        raise _refused(node, "an unknown name")

    def known(self, found: object, node: ast.expr) -> _Typed:
        """Write a number from the text's module, or a register of the hardware."""
        if isinstance(found, Register):
            name = f"llvm.nvvm.read.ptx.sreg.{found.name}"
            module = self.function.module
            read = module.globals.get(name) or ir.Function(module, ir.FunctionType(I32, []), name)
            return _Typed(INT32, self.builder.call(read, []))
        return _constant(found, node)

    def call(self, word: object, arguments: Sequence[ast.expr], node: ast.expr) -> _Typed:
        """Write a call of a word."""
        if not isinstance(word, Word):
            raise _refused(node, "calling this")
        given = [self.value(argument) for argument in arguments]
        typed = word.typed(*(value.kind for value in given)) if len(given) == word.arity else None
        if typed is None:
            kinds = ", ".join(_name(value.kind) for value in given)
            raise _refused(node, f"{word.name} of ({kinds})")
        signature, generate = typed
        raws = [
            self.cast(value, kind, node)
            for value, kind in zip(given, signature.arguments, strict=True)
        ]
        return _Typed(signature.result, generate(self.builder, raws))

    def chosen(self, test: ir.Value, yes: ast.expr, no: ast.expr, node: ast.expr) -> _Typed:
        """Write `yes if test else no`."""
        blocks = [self.function.append_basic_block(name) for name in ("yes", "no", "chosen")]
        self.builder.cbranch(test, *blocks[:2])
        found, ends = [], []
        for block, part in zip(blocks, (yes, no), strict=False):
            self.builder.position_at_end(block)
            found.append(self.value(part))
            ends.append(self.builder.block)
        kind = self.shared(found[0], found[1], node)
        raws = []
        for value, end in zip(found, ends, strict=True):
            self.builder.position_at_end(end)
            raws.append(self.cast(value, kind, node))
            self.builder.branch(blocks[2])
        self.builder.position_at_end(blocks[2])
        phi = self.builder.phi(kind.llvm)
        for raw, end in zip(raws, ends, strict=True):
            phi.add_incoming(raw, end)
        return _Typed(kind, phi)

    def shared(self, a: _Typed, b: _Typed, node: ast.expr) -> Kind:
        """Return the type in which two values meet."""
        kind = a.kind if a.kind == b.kind else common(a.kind, b.kind)
        if kind is None:
            raise _refused(node, f"{_name(a.kind)} beside {_name(b.kind)}")
        return kind

    def binary(self, op: type[ast.operator], a: _Typed, b: _Typed, node: ast.expr) -> _Typed:
        """Write arithmetic."""
        if a.kind == b.kind == BOOL and op in _LOGIC:
            return _Typed(BOOL, getattr(self.builder, _LOGIC[op])(a.raw, b.raw))
        kind = common(a.kind, b.kind)
        names = _FLOATING if kind is not None and kind.is_float else _WHOLE | _LOGIC
        if kind is None or (op not in names and op not in (ast.FloorDiv, ast.Mod)):
            raise _refused(node, f"{_name(a.kind)} beside {_name(b.kind)}")
        left, right = (self.cast(value, kind, node) for value in (a, b))
        if op in (ast.FloorDiv, ast.Mod):
            quotient, rest = self.divided(kind, left, right, node)
            return _Typed(kind, quotient if op is ast.FloorDiv else rest)
        name = names[op]
        if op is ast.RShift:
            name = "ashr" if kind.signed else "lshr"
        # Overflow of signed numbers is left open, which lets the compiler count in steps.
        flags = ["nsw"] if kind.signed and op in _OVERFLOWING else []
        return _Typed(kind, getattr(self.builder, name)(left, right, flags=flags))

    def divided(
        self, kind: Kind, a: ir.Value, b: ir.Value, node: ast.expr
    ) -> tuple[ir.Value, ir.Value]:
        """Write a quotient, rounded down, and the remainder, by a number that is not 0."""
        builder = self.builder
        if not kind.is_integer:
            raise _refused(node, "quotients of floats as whole numbers")
        if not kind.signed:
            return builder.udiv(a, b), builder.urem(a, b)
        quotient, rest = builder.sdiv(a, b), builder.srem(a, b)
        zero = ir.Constant(a.type, 0)
        apart = builder.icmp_signed("<", builder.xor(rest, b), zero)
        down = builder.and_(apart, builder.icmp_unsigned("!=", rest, zero))
        return (
            builder.sub(quotient, builder.zext(down, a.type)),
            builder.select(down, builder.add(rest, b), rest),
        )

    def unary(self, op: ast.unaryop, x: _Typed, node: ast.expr) -> _Typed:
        """Write a sign or a negation."""
        builder = self.builder
        if isinstance(op, ast.Not) and x.kind == BOOL:
            return _Typed(BOOL, builder.not_(x.raw))
        if isinstance(op, ast.USub) and x.kind.is_float:
            # libNVVM's dialect has no fneg.
            return _Typed(x.kind, builder.fsub(ir.Constant(x.kind.llvm, -0.0), x.raw))
        if isinstance(op, ast.USub) and x.kind.is_integer:
            kind = INT64 if x.kind.signed else UINT64
            return _Typed(kind, builder.neg(self.cast(x, kind, node)))
        raise _refused(node, f"this of {_name(x.kind)}")

    def compare(self, op: type[ast.cmpop], a: _Typed, b: _Typed, node: ast.expr) -> _Typed:
        """Write a comparison."""
        sign = _SIGNS.get(op)
        if sign is None:
            raise _refused(node, "this comparison")
        kind = self.shared(a, b, node)
        left, right = (self.cast(value, kind, node) for value in (a, b))
        if kind.is_float:
            # Of comparisons with NaN only `!=` is true.
            ordered, unordered = self.builder.fcmp_ordered, self.builder.fcmp_unordered
            return _Typed(BOOL, (unordered if sign == "!=" else ordered)(sign, left, right))
        write = self.builder.icmp_signed if kind.signed else self.builder.icmp_unsigned
        return _Typed(BOOL, write(sign, left, right))

    def cast(self, value: _Typed, kind: Kind, node: ast.AST) -> Values:
        """Write the conversion of a value to what somebody takes."""
        source, raw, builder = value.kind, value.raw, self.builder
        if source == kind:
            return raw
        if (
            isinstance(source, Scalar)
            and isinstance(kind, Scalar)
            and NOTHING not in (source, kind)
        ):
            if kind.is_float and source.is_float:
                return (builder.fpext if kind == FLOAT64 else builder.fptrunc)(raw, kind.llvm)
            if kind.is_float:
                return (builder.sitofp if source.signed else builder.uitofp)(raw, kind.llvm)
            if kind.is_integer and source.is_float:
                return (builder.fptosi if kind.signed else builder.fptoui)(raw, kind.llvm)
            if kind.is_integer and source == BOOL:
                return builder.zext(raw, kind.llvm)
            if kind.is_integer and source.is_integer:
                if kind.bits == source.bits:
                    return raw
                if kind.bits < source.bits:
                    return builder.trunc(raw, kind.llvm)
                return (builder.sext if source.signed else builder.zext)(raw, kind.llvm)
        if isinstance(source, Tuple) and isinstance(kind, Tuple):
            kinds = zip(source.elements, kind.elements, strict=True)
            parts = [
                self.cast(_Typed(given, builder.extract_value(raw, number)), wanted, node)
                for number, (given, wanted) in enumerate(kinds)
            ]
            return pack(builder, parts)
        raise _refused(node, f"{_name(source)} as {_name(kind)}")


_WHOLE: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_LOGIC: dict[type[ast.operator], str] = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_FLOATING: dict[type[ast.operator], str] = {
    ast.Add: "fadd",
    ast.Sub: "fsub",
    ast.Mult: "fmul",
    ast.Div: "fdiv",
}
_OVERFLOWING = (ast.Add, ast.Sub, ast.Mult)
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _constant(value: object, node: ast.expr) -> _Typed:
    if isinstance(value, bool):
        return _Typed(BOOL, ir.Constant(BOOL.llvm, int(value)))
    if isinstance(value, int):
        kind = INT64 if value.bit_length() < 64 else UINT64
        return _Typed(kind, ir.Constant(kind.llvm, value))
    if isinstance(value, float):
        return _Typed(FLOAT64, ir.Constant(FLOAT64.llvm, value))
    raise _refused(node, "this value")


def _merged(
    one: dict[str, _Variable | None], other: dict[str, _Variable | None]
) -> dict[str, _Variable | None]:
    """Return the variables after two paths; one whose type differs may not be read."""
    both = {**one, **other}
    return {
        name: variable if one.get(name, variable) is variable else None
        for name, variable in both.items()
    }


def _name(kind: Kind) -> str:
    if isinstance(kind, Scalar):
        return kind.code
    return f"({', '.join(map(_name, kind.elements))})"


def _refused(node: ast.AST, what: str) -> TextError:
    return TextError(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}: {what}")
