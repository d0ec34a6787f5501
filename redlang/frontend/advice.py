"""What to say of Python that is not redlang: the problem and the hint, as data."""

from __future__ import annotations

import ast

REDUCE = "reduce over an axis instead: sum[n](x), max[n](x), any[n](x)"
OUTSIDE = "do it outside of the kernel"
SEPARATE = "give it a line of its own: a = x"

STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.For: ("a kernel has no for loops", REDUCE),
    ast.While: ("a kernel has no while loops", REDUCE),
    ast.If: ("a kernel has no if statements", "choose by element: y = where(c, a, b)"),
    ast.With: ("a kernel has no with statements", OUTSIDE),
    ast.Try: ("a kernel has no try statements", "0/0 is nan; where(c, a, b) chooses by element"),
    ast.Match: ("a kernel has no match statements", "choose by element: y = where(c, a, b)"),
    ast.FunctionDef: (
        "a function cannot be defined inside a kernel",
        "define it outside, with @redlang.function",
    ),
    ast.AsyncFunctionDef: ("a kernel cannot be async", "write def"),
    ast.ClassDef: ("a class cannot be defined inside a kernel", "define it outside"),
    ast.Import: ("a kernel cannot import", "import outside; a name is looked up at each call"),
    ast.ImportFrom: ("a kernel cannot import", "import outside; a name is looked up at each call"),
    ast.Global: ("a kernel has no global statement", "read the name; it cannot be assigned"),
    ast.Nonlocal: ("a kernel has no nonlocal statement", "read the name; it cannot be assigned"),
    ast.Delete: ("a kernel has no del statement", "remove the line; nothing is kept anyway"),
    ast.Assert: ("a kernel has no assert statement", "check the arguments outside of the kernel"),
    ast.Raise: ("a kernel cannot raise", "check the arguments outside of the kernel"),
    ast.Pass: ("pass says nothing in a kernel", "remove the line"),
    ast.Break: ("a kernel has no loops to break", REDUCE),
    ast.Continue: ("a kernel has no loops to continue", REDUCE),
}

EXPRESSIONS: dict[type[ast.expr], tuple[str, str]] = {
    ast.Lambda: ("a kernel has no lambda", "define a macro outside, with @redlang.function"),
    ast.ListComp: ("a kernel has no list comprehensions", REDUCE),
    ast.SetComp: ("a kernel has no set comprehensions", REDUCE),
    ast.DictComp: ("a kernel has no dict comprehensions", REDUCE),
    ast.GeneratorExp: ("a kernel has no generator expressions", REDUCE),
    ast.JoinedStr: ("a kernel has no strings", "values are numbers and arrays"),
    ast.NamedExpr: ("':=' assigns inside an expression", SEPARATE),
    ast.Await: ("a kernel cannot await", OUTSIDE),
    ast.Yield: ("a kernel cannot yield", "several results: return a, b"),
    ast.YieldFrom: ("a kernel cannot yield", "several results: return a, b"),
    ast.Starred: ("'*' does not unpack here", "write the values one by one"),
    ast.List: ("a kernel has no lists", "pass an array with an axis of its own"),
    ast.Set: ("a kernel has no sets", "pass an array with an axis of its own"),
    ast.Dict: ("a kernel has no dicts", "pass numbers by name, or read cfg.name"),
    ast.Tuple: ("a tuple stands where one value is needed", SEPARATE),
    ast.Slice: (
        "an index has no ranges",
        "an axis is always taken whole; where(n < 4, x) leaves elements out",
    ),
}

OPERATORS: dict[type[ast.operator | ast.cmpop], tuple[str, str]] = {
    ast.MatMult: ("'@' has no meaning in a kernel", "sum the product over the axis that both have"),
    ast.LShift: (
        "'<<' has no meaning in a kernel",
        "write x * 4 for x << 2, and x * i64(2**k) where k is no literal",
    ),
    ast.RShift: (
        "'>>' has no meaning in a kernel",
        "write x // 4 for x >> 2, and x // i64(2**k) where k is no literal",
    ),
    ast.Is: ("'is' has no meaning in a kernel", "compare with =="),
    ast.IsNot: ("'is not' has no meaning in a kernel", "compare with !="),
    ast.In: ("'in' has no meaning in a kernel", "write any[n](x[n] == y)"),
    ast.NotIn: ("'not in' has no meaning in a kernel", "write all[n](x[n] != y)"),
}

PRINT = (
    "print has no meaning in a kernel: Python never runs its body",
    "return the value; kernel.explain() shows what is computed",
)
CONSTANTS: dict[type, tuple[str, str]] = {
    str: ("a kernel has no strings", "values are numbers and arrays"),
    bytes: ("a kernel has no strings", "values are numbers and arrays"),
    type(None): ("None is no value in a kernel", "leave the argument out, or use nan"),
    type(...): ("'...' stands for no axis", "name every axis"),
    complex: ("a kernel has no complex numbers", "carry real and imaginary part separately"),
}
ANNOTATION_HINT = 'an array is written "b n" or "f16[b n]", a number float, int or bool'

ATTRIBUTES: dict[str, str] = {
    **{
        name: f"write {name}[n](x) with the name of an axis"
        for name in ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "topk")
    },
    **dict.fromkeys(
        ("T", "mT", "transpose", "reshape", "view", "permute", "unsqueeze", "expand"),
        "axes meet by their names, so nothing is transposed or reshaped",
    ),
    **dict.fromkeys(("shape", "size", "ndim"), "the extent of axis n is size(n)"),
    **dict.fromkeys(("dtype", "astype", "to", "float", "half"), "cast with f32(x), f16(x), ..."),
}
"""Hints for methods and attributes that arrays have elsewhere."""
