"""The decorators, and the objects that they make.

A `Kernel` is called like the function that it was; everything heavy behind it (parser, prover,
compiler) is loaded at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from redlang import inspection, pipeline, streams
from redlang.definition import Defined, Definition
from redlang.errors import ArgumentError, RedlangError, brief, briefly
from redlang.options import Contract, Fuse, Instructions, Options, Rounding

if TYPE_CHECKING:
    from redlang.explanation import Explanation
    from redlang.runtime.calling import Caller
    from redlang.runtime.cuda_code import KernelStats
    from redlang.runtime.fold import Fold
    from redlang.runtime.methods import MethodCaller

Precision = Literal["double", "declared"]
Target = TypeVar("Target", bound=Callable[..., Any])


class Kernel(Defined):
    """A kernel: call it with arrays of one library and device, get arrays of that kind.

    Attributes:
        options: What was asked of it; see `redlang.kernel`.
    """

    def __init__(
        self, definition: Definition, like: object = None, *, options: Options | None = None
    ) -> None:
        """Make a kernel; users write `redlang.kernel` or `redlang.compile`."""
        super().__init__(definition, like)
        self.options = options or Options()
        self._caller: Caller | MethodCaller | None = None

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401
        """Run the kernel.

        Args:
            args: Arrays and numbers in the order of the signature.
            keywords: The same by name, and `out`: an array, or a tuple of them for several
                results, to store results in.

        Raises:
            ArgumentError: The arguments do not fit the signature.
            RedlangError: The kernel has mistakes, or cannot be compiled.
        """
        try:
            caller = self._caller or self._start().caller
            return caller.call(*args, **keywords) if keywords else caller.call(*args)
        except RedlangError as error:
            raise briefly(error) from error.__cause__
        except TypeError as error:
            # Python raises it in this very frame where arguments do not match parameters.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            problem = str(error)
        raise self._start().caller.unbound(problem)

    @brief
    def reference(self, /, *args: Any, precision: Precision = "double", **keywords: Any) -> Any:  # noqa: ANN401
        """Return what the kernel means for these arguments, evaluated without fusion.

        Args:
            args: As in a call.
            precision: `double` computes floats in float64 and judges values; `declared` gives
                every operation its own type and judges where NaN and infinities stand.
            keywords: As in a call.

        Returns:
            NumPy arrays, one or a tuple. In `double` precision floats are float64, as computed;
            integers and truth values have the types that they have from the kernel.
        """
        return pipeline.reference(self._start(), args, keywords, precision)

    @brief
    def explain(self, stage: str | None = None) -> Explanation:
        """Return what became of the kernel, as text that notebooks also show as HTML.

        Args:
            stage: `syntax`, `program`, `fuse`, `plan` or `loops`; by default all that a reader
                needs: the program, the proofs, the sweeps and the plan.

        The element types and extents are those of the last call; before any call every open
        element type is f32, and extents are taken to be large.
        """
        return inspection.explain(self._start(), stage)

    @brief
    def source(self, target: str = "cpu") -> str:
        """Return the generated text for `target`, of the last call or for f32 arrays.

        Args:
            target: `cpu` or `cuda`; the second needs the compiler for GPUs, but no GPU.
        """
        return inspection.source(self._start(), target)

    @property
    @brief
    def ptx(self) -> str:
        """The PTX text of the kernels for GPUs, of the last call there or for f32 arrays."""
        return inspection.ptx(self._start())

    @property
    @brief
    def stats(self) -> tuple[KernelStats, ...]:
        """Registers, spills, shared memory and occupancy of each kernel for GPUs."""
        return inspection.stats(self._start())

    @property
    @brief
    def sweeps(self) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]:
        """For each kernel that runs, the axes and stages of each sweep over the data."""
        return inspection.sweeps(self._start())

    @brief
    def fold(
        self,
        /,
        axis: str,
        size: int | None = None,
        *misplaced: NoReturn,
        **constants: Any,  # noqa: ANN401
    ) -> Fold:
        """Return an empty stream along `axis`: `update` it with chunks, `merge`, take `result`.

        Args:
            axis: The axis that arrives in pieces.
            size: Its whole extent, which only kernels that use `size(axis)` in elements need.
            misplaced: Nothing; what stands here by mistake is told to have a name.
            constants: Arguments that do not vary with the axis; others are an ArgumentError.

        Raises:
            FusionError: The kernel passes over the axis more than once, or returns it.
        """
        return streams.fold(self, axis, size, misplaced, constants)

    def cache_info(self) -> inspection.CacheInfo:
        """Return what has been compiled for this kernel, and why."""
        return inspection.cache_info(self._start())

    @property
    def signature(self) -> str:
        """The signature as it was written; only the name where there is no text."""
        return self._definition.header

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401
        """Bind a kernel whose first parameter is `self`; any other is like a static method."""
        if instance is not None and self._definition.takes_receiver:
            return Method(self, instance)
        return self

    def __repr__(self) -> str:
        return f"<redlang kernel {self.signature}>"

    def _repr_html_(self) -> str | None:
        return inspection.html(self)

    def own_options(self) -> dict[str, Any]:
        """Return the options that it was made with."""
        return {"options": self.options}

    @property
    def machine(self) -> pipeline.Machine:
        """What stands behind the kernel; for tools, not a stable interface."""
        return self._start()

    def _start(self) -> pipeline.Machine:
        made: pipeline.Machine | None = self.__dict__.get("_made")
        if made is None:
            # One step of the interpreter: threads that meet here agree on one, without a lock.
            machine = pipeline.Machine(self._definition, self.options)
            made = self.__dict__.setdefault("_made", machine)
            self._caller = made.caller
        return made


class Method(Kernel):
    """A kernel together with the object that it is a method of, which goes along with each call.

    Attributes:
        __self__: The object.
        __func__: The kernel, which has compiled what the methods of all objects share.
    """

    def __init__(self, kernel: Kernel, instance: object) -> None:
        """Bind a kernel; users write `instance.kernel`."""
        self.__dict__.update(kernel.__dict__)
        self.__self__, self.__func__ = instance, kernel
        if "__wrapped__" in self.__dict__:
            self.__wrapped__ = MethodType(self.__wrapped__, instance)

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401
        """Run the kernel; see `Kernel.__call__`."""
        return self.__func__(self.__self__, *args, **keywords)

    def __get__(self, instance: object, owner: type | None = None) -> Method:
        """Return itself: it is bound."""
        return self

    def __redlang__(self) -> object:
        """Return what it means inside a kernel: nothing, since kernels have no objects."""
        return pipeline.method_entity(self.__name__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Method):
            return NotImplemented
        return self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__func__))

    def __reduce__(self) -> tuple[Any, ...]:
        return Method, (self.__func__, self.__self__)

    def _start(self) -> pipeline.Machine:
        return self.__func__._start().bound(self.__self__)


def copy(kernel: Kernel) -> Kernel:
    """Return a kernel of the same definition that has compiled nothing yet."""
    return Kernel(kernel._definition, options=kernel.options)


class Function(Defined):
    """A macro: kernels call it, and its body is put in the place of the call."""

    role = "macro"

    def __init__(
        self,
        definition: Definition,
        like: object = None,
        *,
        axes: str | None = None,
        integers: str | None = None,
    ) -> None:
        """Make a macro; users write `redlang.function`."""
        super().__init__(definition, like)
        self.axes = axes
        self.integers = integers
        definition.options = {n: text for n, text in self.own_options().items() if text is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(p.name for p in pipeline.parameters(self._definition))

    @property
    def defaults(self) -> dict[str, bool | int | float]:
        """The defaults of those parameters that have one."""
        parameters = pipeline.parameters(self._definition)
        return {p.name: p.default for p in parameters if p.default is not None}

    def __call__(self, *args: object, **keywords: object) -> Any:  # noqa: ANN401
        """Refuse: outside kernels a macro has no axes to work on.

        Raises:
            ArgumentError: Always, with what to write instead.
        """
        raise ArgumentError(
            f"{self.__name__} is a macro, which kernels call",
            hint="decorate it with @redlang.kernel and annotate its parameters to call it here",
        )

    def __repr__(self) -> str:
        return f"<redlang function {self._definition.header}>"

    def own_options(self) -> dict[str, Any]:
        """Return the options that it was made with."""
        return {"axes": self.axes, "integers": self.integers}


class Monoid(Defined):
    """A reduction of the user's own: init, lift, combine and finish."""

    role = "monoid"

    def __repr__(self) -> str:
        return f"<redlang monoid {self.__name__}>"


@overload
def kernel(target: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    *,
    fuse: Fuse = "auto",
    contract: Contract = "auto",
    rounding: Rounding = "exact",
    tune: bool = False,
    instructions: Instructions = "auto",
) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(
    target: Callable[..., Any] | None = None,
    *,
    fuse: Fuse = "auto",
    contract: Contract = "auto",
    rounding: Rounding = "exact",
    tune: bool = False,
    instructions: Instructions = "auto",
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a function; its body is redlang's language and never run by Python.

    Args:
        target: The function, where the decorator stands without parentheses.
        fuse: Whether stages share sweeps: `auto` where that is proved and stable, `always` where
            it is proved, `never`, or `require`, which makes a stage left out an error.
        contract: `f32` forbids that a computed operand of a matrix product is rounded to the
            16-bit type of the other operand; `auto` allows it where its range is proved to fit, and
            `tf32` that tensor cores round f32 operands to ten bits too.
        rounding: `exact` gives casts to 8 bits of a value scaled by a maximum their two-pass
            result; `running` allows the scale known so far. It is a permission that no plan uses
            yet, and `explain` says so.
        tune: Whether the first call for a class of extents measures a few plans and keeps the
            fastest, instead of trusting the model.
        instructions: `portable` keeps matrix products to instructions that every GPU from 8.0 on
            has; `auto` takes the fastest that the device has.

    Raises:
        ArgumentError: An option has a value that it does not take.
    """
    options = Options(fuse, contract, rounding, tune, instructions)

    def decorate(function: Callable[..., Any]) -> Kernel:
        _require_callable(function, "kernel")
        return Kernel(Definition.of(function), function, options=options)

    return decorate if target is None else decorate(target)


@overload
def function(target: Callable[..., Any]) -> Function: ...
@overload
def function(
    *, axes: str | Sequence[str] | None = None, integers: str | Sequence[str] | None = None
) -> Callable[[Callable[..., Any]], Function]: ...


def function(
    target: Callable[..., Any] | None = None,
    *,
    axes: str | Sequence[str] | None = None,
    integers: str | Sequence[str] | None = None,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a macro of a function that kernels then call.

    Args:
        target: The function, where the decorator stands without parentheses.
        axes: The macro's axis parameters, as in `softmax[n](s)`: names in one text, or several.
        integers: Parameters that take integers only, such as the label of a class.

    Raises:
        TypeError: `axes` or `integers` holds something that is no name.
    """
    options = {"axes": _names("axes", axes), "integers": _names("integers", integers)}

    def decorate(inner: Callable[..., Any]) -> Function:
        _require_callable(inner, "function")
        return Function(Definition.of(inner), inner, **options)

    return decorate if target is None else decorate(target)


def _names(option: str, given: str | Sequence[str] | None) -> str | None:
    names = given.replace(",", " ").split() if isinstance(given, str) else given
    if names is None:
        return None
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise TypeError(f'{option}={given!r}: give names, such as {option}="m n"')
    return " ".join(names)


def _require_callable(target: object, decorator: str) -> None:
    if not callable(target):
        kind = type(target).__name__
        raise TypeError(f"@redlang.{decorator} stands above a function, and this is {kind}")


def monoid(target: type) -> Monoid:
    """Make a reduction of a class of DSL functions init, lift, combine and finish."""
    return Monoid(Definition.of(target), target)


@brief
def compile(
    text: str,
    names: Mapping[str, object] | None = None,
    *,
    fuse: Fuse = "auto",
    contract: Contract = "auto",
    rounding: Rounding = "exact",
    tune: bool = False,
    instructions: Instructions = "auto",
) -> Kernel:
    """Return the kernel that `text` defines.

    Args:
        text: One definition, with or without `@redlang.kernel` above it, indented or not.
        names: What names from outside mean: numbers, macros, kernels, monoids.
        fuse: This and the others as for `redlang.kernel`; what the text's own decorator says wins.
        contract: See there.
        rounding: See there.
        tune: See there.
        instructions: See there.

    Raises:
        KernelSyntaxError: The text is no kernel.
        TypeError: It is not text.
        ArgumentError: An option has a value that it does not take.

        >>> import numpy as np
        >>> total = compile('def total(x: "m n") -> "m": return sum[n](x)')
        >>> total(np.ones((2, 3), np.float32))
        array([3., 3.], dtype=float32)
    """
    if not isinstance(text, str):
        raise TypeError(
            f"redlang.compile takes the text of a definition, not {text!r}; "
            "put @redlang.kernel above a function"
        )
    source, syntax, written = pipeline.read_text(text)
    definition = Definition(syntax.name, source, names=names, syntax=syntax)
    options = Options(fuse, contract, rounding, tune, instructions)
    return Kernel(definition, options=replace(options, **written))
