"""What a call does once its kind is known: test shapes, make results, run, return them.

A launcher is a function made as text for one specialisation, in which element types, libraries,
layouts and devices are settled and only extents, addresses, strides and scalars are open. Whether
shapes fit, and all that follows from them alone, is found out once: a warm call looks it up. What
runs between making the results and returning them is a backend's affair: it adds its own lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import FunctionType
from typing import Any, Protocol

from redlang.ir.program import ArrayParam, Dim, Program, Result, ScalarParam
from redlang.ir.types import DType
from redlang.runtime import extents
from redlang.runtime.arguments import Argument
from redlang.runtime.call import Call, Latest
from redlang.runtime.dlpack import row_major
from redlang.runtime.extents import MISFIT, ExtentText
from redlang.runtime.interop import NUMPY, TORCH
from redlang.runtime.memory import AnyArray, Library, layout_class
from redlang.values import dataclass

KEPT_SHAPES = 4096
"""Sets of shapes that fit which one launcher remembers."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An array that a launcher reads or writes.

    Attributes:
        name: `x` for a parameter, `result.0` for a result.
        variable: Its name in the launcher's text.
        dims: Its dimensions as the program names them.
        dtype: Its element type.
        library: Whose array it is.
        contiguous: Whether all arrays of this specialisation are row-major.
        unit_dim: The dimension along which elements are adjacent, None for none.
        padded: Whether it has room for whole groups where a dimension is ragged: generated code
            stores whole groups, and the launcher hands out the part that the result has.
    """

    name: str
    variable: str
    dims: tuple[Dim, ...]
    dtype: DType
    library: Library
    contiguous: bool
    unit_dim: int | None
    padded: bool = False

    @property
    def address(self) -> str:
        """Return the variable that holds its address."""
        return f"p{self.variable}"


@dataclass(slots=True)
class Launch:
    """A launcher's text while it is made.

    Attributes:
        program: The program of this specialisation, normalised.
        extents: Text of every extent.
        inputs, outputs: The arrays.
        scalars: Text of every scalar and captured number.
        device: Where all arrays are.
        pointed: Scalars whose text is an address, with the element types found there.
        names: What the text refers to.
        constants: Text of what follows from the extents alone, by the variable that holds it.
        lines: The text of what comes after the look at the shapes.
    """

    program: Program
    extents: ExtentText
    inputs: tuple[Stored, ...]
    outputs: tuple[Stored, ...]
    scalars: Mapping[str, str]
    device: str
    pointed: Mapping[str, DType] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def constant(self, text: str) -> str:
        """Return the variable of what `text` makes of the extents; a warm call looks it up."""
        same = (name for name, known in self.constants.items() if known == text)
        name = next(same, f"k{len(self.constants)}")
        self.constants[name] = text
        return name

    def length(self, x: Stored, dim: Dim) -> str:
        """Return the text of a dimension's extent in memory."""
        return self.extents.product(dim.axes) if x.padded else self.extents.size(dim)


class Backend(Protocol):
    """Runs a program on the arrays of a launch."""

    def emit(self, launch: Launch) -> None:
        """Add the lines that fill the results; `extents` holds the extents of all axes there."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a launcher is made for.

    Attributes:
        kind: What the calls have in common: program, array arguments, arrays in `out=`.
        device: Where all arrays are.
        types: The Python type of each captured number.
        pointed: Scalars that are tensors on the arrays' device, with their element types.
        misfit: Names the mistake in a call whose extents do not fit, given its values and `out`.
        guard: Refuses an `out` that overlaps an input or itself, given inputs, results and extents.
        latest: Where each call is noted.
    """

    kind: Call
    device: str
    types: Mapping[str, type]
    pointed: Mapping[str, DType]
    misfit: Callable[[tuple[object, ...], object], None]
    guard: Callable[[Sequence[AnyArray], Sequence[AnyArray], tuple[int, ...]], None]
    latest: Latest


def make_launcher(site: Site, backend: Backend) -> tuple[FunctionType, str]:
    """Return the launcher of one specialisation, and its text.

    It takes the values of the program's parameters in order, and `out` where the kind has one.
    """
    kind, program = site.kind, site.kind.program
    variables = {p.name: f"v{i}" for i, p in enumerate(program.params)}
    scalars = {p.name: variables[p.name] for p in program.params if isinstance(p, ScalarParam)}
    inputs = tuple(
        _stored(p.name, variables[p.name], p.dims, p.dtype, kind.arguments[p.name])
        for p in program.params
        if isinstance(p, ArrayParam)
    )
    scalars |= {name: TORCH.address_text.format(variables[name]) for name in site.pointed}
    home = inputs[0].library if inputs else NUMPY
    outputs = tuple(
        Stored(*(f"result.{i}", f"r{i}", r.dims, r.dtype, home), True, _last(r.dims), _ragged(r))
        if not kind.results or _ragged(r)
        else _stored(f"result.{i}", f"r{i}", r.dims, r.dtype, kind.results[i])
        for i, r in enumerate(program.results)
    )
    launch = Launch(
        program,
        ExtentText(program, scalars),
        inputs,
        outputs,
        scalars,
        site.device,
        site.pointed,
        dict(extents.NAMES),
    )
    fitting = launch.extents.bind({x.name: f"s{x.variable}" for x in inputs})
    launch.lines += _results(launch, bool(kind.results))
    launch.lines.append("latest.noted = noted")
    launch.names["layout"] = {}
    backend.emit(launch)
    launch.lines += _handed_out(launch, bool(kind.results))
    launch.lines.append(f"return {_tuple([x.variable for x in outputs], single=False)}")
    scalar_lines = _scalar_lines(program, variables, site.types)
    launch.lines = [*_look(launch, scalar_lines, fitting), *launch.lines]
    return _assemble(launch, list(variables.values()), site)


class Fits(dict[object, tuple[Any, ...]]):
    """What follows from shapes that fit; `get` is all that a warm call does."""

    def keep(self, shapes: object, fit: tuple[Any, ...]) -> tuple[Any, ...]:
        """Remember `fit` and return it."""
        # No lock: a fork could leave it held, and two threads find the same.
        while len(self) >= KEPT_SHAPES:
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                del self[next(iter(self))]
        self[shapes] = fit
        return fit


def _look(launch: Launch, scalar_lines: Sequence[str], fitting: Sequence[str]) -> list[str]:
    """Return the lines that look at the shapes, of which `fitting` tests those not seen before."""
    own = [f"s{x.variable}" for x in launch.inputs]
    shapes = _tuple([f"{x.variable}.shape" for x in launch.inputs], single=False)
    look = [f"shapes = {shapes}"]
    if any(x.library.name == "torch" for x in launch.inputs):
        # A nested tensor has none.
        look = ["try:", f"    {look[0]}", "except RuntimeError:", f"    {MISFIT}"]
    read = sorted(launch.extents.read)
    key = _tuple(["shapes", *read], single=False)
    found = ["extents", "noted", *launch.extents.variables, *launch.constants]
    first = [f"{_tuple(own, single=False)} = shapes"] if own else []
    return [
        *look,
        *scalar_lines,
        f"fit = fits.get({key})",
        "if fit is None:",
        *(f"    {line}" for line in (*first, *fitting)),
        f"    extents = {launch.extents.extents()}",
        "    noted = program, device, extents, layout",
        *(f"    {name} = {text}" for name, text in launch.constants.items()),
        f"    fit = fits.keep({key}, {_tuple(found)})",
        f"{_tuple(found)} = fit",
    ]


def _stored(
    name: str, variable: str, dims: tuple[Dim, ...], dtype: DType, argument: Argument
) -> Stored:
    memory = argument.memory
    strides = memory.strides
    assert strides is not None, "an array without whole strides is refused"
    if _is_contiguous(memory.shape, strides):
        return Stored(name, variable, dims, dtype, argument.library, True, _last(dims))
    unit = layout_class(memory.shape, strides, 1)
    return Stored(name, variable, dims, dtype, argument.library, False, unit if unit >= 0 else None)


def _ragged(result: Result) -> bool:
    return result.condition is not None


def _last(dims: tuple[Dim, ...]) -> int | None:
    return len(dims) - 1 if dims else None


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return 0 in shape
        step *= extent
    return True


def _scalar_lines(
    program: Program, variables: Mapping[str, str], types: Mapping[str, type]
) -> list[str]:
    """Bring captured numbers into their kind; arguments have been brought there already."""
    lines = []
    for param in program.params:
        if not isinstance(param, ScalarParam) or not param.captured:
            continue
        name = variables[param.name]
        kind = {"bool": bool, "int": int, "uint": int, "float": float}[param.dtype.kind]
        if types.get(param.name) is not kind:
            lines.append(f"{name} = {kind.__name__}({name})")
        if kind is int:
            lines += [f"if {name}.bit_length() > 63:", f"    {MISFIT}"]
    return lines


def _results(launch: Launch, given: bool) -> list[str]:
    """Make the results, or test the arrays in `out`."""
    lines = []
    names = [x.variable for x in launch.outputs]
    asked = [f"o{name}" for name in names]
    if given:
        lines.append(f"{_tuple(asked, single=False)} = out")
    for x, name in zip(launch.outputs, asked, strict=True):
        shape = launch.constant(_tuple([launch.extents.size(dim) for dim in x.dims]))
        if given:
            lines += [f"if {name}.shape != {shape}:", f"    {MISFIT}"]
        lines.append(f"{x.variable} = {name if given and not x.padded else _empty(launch, x)}")
    stored = (*launch.inputs, *launch.outputs)
    lines += _addresses(stored)
    if given:
        test = " or ".join(_overlap_tests(launch))
        inputs = _tuple([x.variable for x in launch.inputs])
        call = f"guard({inputs}, {_tuple(asked)}, extents)"
        lines += [f"if {test}:", f"    {call}"] if test else [call]
    return lines


def _addresses(stored: Sequence[Stored]) -> list[str]:
    """Return the lines that find where arrays lie; a tensor that is traced has no place."""
    lines = [f"{x.address} = {x.library.address_text.format(x.variable)}" for x in stored]
    tensors = [x for x in stored if x.library.name == "torch"]
    if not tensors:
        return lines
    everywhere = " and ".join(x.address for x in tensors)
    nowhere = " or ".join(f"not {x.address} and {x.variable}.numel()" for x in tensors)
    return [
        *("try:", *(f"    {line}" for line in lines), "except RuntimeError:", f"    {MISFIT}"),
        *(f"if not ({everywhere}) and ({nowhere}):", f"    {MISFIT}"),
    ]


def _empty(launch: Launch, x: Stored) -> str:
    """Return the text of a new array, with room for whole groups if it is padded."""
    shape = launch.constant(_tuple([launch.length(x, dim) for dim in x.dims]))
    placed = {"shape": shape}
    if "{steps}" in x.library.empty_text:
        placed["steps"] = launch.constant(f"row_major({shape})")
    for key, value in x.library.empty_names(x.dtype, launch.device).items():
        placed[key] = f"{x.variable}_{key}"
        launch.names[placed[key]] = value
    return x.library.empty_text.format_map(placed)


def _handed_out(launch: Launch, given: bool) -> list[str]:
    """Cut padded results to their extents, and copy them where `out` wants them."""
    lines = []
    for x in launch.outputs:
        if x.padded:
            part = ", ".join(f":{launch.extents.size(dim)}" for dim in x.dims)
            lines.append(f"{x.variable} = {x.variable}[{part}]")
            if given:
                lines += [f"o{x.variable}[...] = {x.variable}", f"{x.variable} = o{x.variable}"]
    return lines


def _overlap_tests(launch: Launch) -> list[str]:
    """Return tests of which one holds wherever a result may overlap something; none if unknown."""
    tests = []
    everything = (*launch.inputs, *launch.outputs)
    if not all(x.contiguous and not x.padded for x in everything):
        return []
    for i, out in enumerate(launch.outputs):
        for other in (*launch.inputs, *launch.outputs[:i]):
            ends = [_end(launch, x) for x in (out, other)]
            tests.append(f"({out.address} < {ends[1]} and {other.address} < {ends[0]})")
    return tests


def _end(launch: Launch, x: Stored) -> str:
    """Return the address behind a row-major array."""
    sizes = [*map(launch.extents.size, x.dims), str(x.dtype.bytes)]
    return f"{x.address} + {' * '.join(sizes)}"


def _tuple(parts: Sequence[str], single: bool = True) -> str:
    """Return a tuple display; with `single=False` one part stands for itself."""
    if len(parts) == 1 and not single:
        return parts[0]
    return f"({''.join(f'{part}, ' for part in parts)})"


def _assemble(launch: Launch, parameters: list[str], site: Site) -> tuple[FunctionType, str]:
    signature = ", ".join([*parameters, *(["out"] if site.kind.results else [])])
    leave = f"return misfit({_tuple(parameters)}, {'out' if site.kind.results else None})"
    lines = [f"def launch({signature}):"]
    lines += [f"    {line.replace(MISFIT, leave)}" for line in launch.lines]
    source = "\n".join(lines) + "\n"
    namespace = {
        **launch.names,
        "fits": Fits(),
        "row_major": row_major,
        "misfit": site.misfit,
        "guard": site.guard,
        "latest": site.latest,
        "program": launch.program,
        "device": launch.device,
    }
    exec(compile(source, f"<redlang launch of {launch.program.name}>", "exec"), namespace)
    function = namespace["launch"]
    assert isinstance(function, FunctionType)
    return function, source
