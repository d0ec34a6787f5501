from dataclasses import replace

import pytest

from redlang.errors import InternalError
from redlang.ir.build import Builder, literal, ref
from redlang.ir.incremental import Commit, Let, Partial, State
from redlang.ir.normalise import normalise
from redlang.ir.program import (
    Apply,
    ArrayParam,
    Axis,
    Definition,
    Dim,
    Index,
    Literal,
    Program,
    Ref,
    Result,
    Scalar,
)
from redlang.ir.types import F16, F32, F64, I64, Type
from redlang.ir.verify import verify, verify_sweep
from tests.ir.sweeps import AFFINE, SWEEPS
from tests.kernels import CORPUS, program_of

B = Builder(("m", "n"))
M, N = B.index("m"), B.index("n")
X = B.load("x", F16, [M, N])
TOTAL = B.reduce("sum", ("n",), X)
S = ref("s", TOTAL.types[0])


def program(**changes):
    base = Program(
        "kernel",
        (ArrayParam("x", (Dim(("m",)), Dim(("n",))), F16),),
        (Axis("m"), Axis("n")),
        (Definition(("s",), TOTAL),),
        (Result(S, (Dim(("m",)),), F16),),
    )
    return replace(base, **changes)


def with_definition(value):
    return program(definitions=(Definition(("s",), TOTAL), Definition(("t",), value)))


def with_monoid(**changes):
    monoid = replace(AFFINE, **changes)
    return with_definition(B.reduce("monoid", ("n",), X, X, monoid=monoid))


@pytest.mark.parametrize("kernel", CORPUS.values(), ids=lambda kernel: kernel.name)
def test_the_corpus_is_right_in_both_forms(kernel):
    resolved = program_of(kernel)
    verify(resolved)
    verify(normalise(resolved), "normalised")


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_by_hand_are_right(name):
    whole, sweep = SWEEPS[name]
    verify(whole, "normalised")
    verify_sweep(sweep, whole)


BROKEN = {
    "axis m is defined 2 times": program(axes=(Axis("m"), Axis("n"), Axis("m"))),
    "parameter x is defined 2 times": program(params=program().params * 2),
    "definition s is defined 2 times": program(definitions=program().definitions * 2),
    "x has an axis that is not declared": program(axes=(Axis("m"),)),
    "u is not defined before in u": with_definition(ref("u", Type(F32))),
    "s has type f32[m], not f32[]": with_definition(ref("s", Type(F32))),
    "no scalar scale": with_definition(Scalar("scale", Type(F32))),
    "no axis k": with_definition(replace(B.size("n"), axis="k")),
    "axes ('n',) instead of ('m',)": with_definition(Index("m", Type(I64, ("n",)))),
    "the storage type f16 is computed with": with_definition(Literal(1.0, Type(F16))),
    "no array y": with_definition(replace(X, array="y")),
    "1 subscripts for 2 axes": with_definition(B.load("x", F16, [M])),
    "x holds f16 and is read as i64": with_definition(B.load("x", I64, [M, N])),
    "a subscript that is no integer": with_definition(B.load("x", F16, [S, N])),
    "no operator 'sqr'": with_definition(Apply("sqr", (S,), S.type)),
    "add takes 2 arguments": with_definition(Apply("add", (S,), S.type)),
    "arguments of types f32, i64": with_definition(Apply("add", (S, M), S.type)),
    "lt of f32, f32 has type f32": with_definition(Apply("lt", (S, S), S.type)),
    "where by something that is not bool": with_definition(Apply("where", (S, S, S), S.type)),
    "a cast to f16 has type i64": with_definition(replace(B.cast(S, F16), type=Type(I64, ("m",)))),
    "a mask by something that is not bool": with_definition(B.mask(S, S)),
    "absent is False instead of True": with_definition(
        replace(B.mask(B.apply("gt", S, 0), S), type=S.type)
    ),
    "a condition before normalise": with_definition(replace(TOTAL, condition=literal(True))),
    "a condition of type f32[m n]": with_definition(replace(TOTAL, condition=X)),
    "no reduction 'median'": with_definition(replace(TOTAL, op="median")),
    "sum of 2 operands": with_definition(replace(TOTAL, operands=(X, X))),
    "sum reduces an axis twice": with_definition(replace(TOTAL, axes=("n", "n"))),
    "sum reduces ('n',) of something over ('m',)": with_definition(replace(TOTAL, operands=(S,))),
    "sum has axes () instead of ('m',)": with_definition(replace(TOTAL, types=(Type(F32),))),
    "topk, and only topk, has k": with_definition(replace(TOTAL, k=2)),
    "a reduction 'monoid' with the wrong monoid": with_definition(replace(TOTAL, op="monoid")),
    "affine: lift has 1 parts instead of 2": with_monoid(lift=AFFINE.lift[:1]),
    "affine: finish reads b.1": with_monoid(finish=(AFFINE.combine[1],)),
    "affine: init reads x.0": with_monoid(init=AFFINE.lift),
    "affine: a state of types f32, f64, f64": with_monoid(init=(literal(1.0), literal(0.0, F64))),
    "s: 2 values": program(
        definitions=(Definition(("s",), replace(TOTAL, types=TOTAL.types * 2)),)
    ),
    "a result over () has a value over ('m',)": program(results=(Result(S, (), F16),)),
    "a result may be absent": program(
        results=(Result(B.mask(B.apply("gt", S, 0), S), (Dim(("m",)),), F16),)
    ),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_program_is_named_and_shown(problem):
    with pytest.raises(InternalError) as caught:
        verify(BROKEN[problem])
    assert problem in caught.value.problem
    assert "program kernel\n" in caught.value.hint


def test_normalised_programs_have_no_masks_guards_or_absence():
    masked = with_definition(B.reduce("sum", ("n",), B.mask(B.apply("le", N, M), X)))
    verify(masked)
    with pytest.raises(InternalError, match="a mask after normalise"):
        verify(masked, "normalised")
    guarded = with_definition(
        B.reduce("sum", ("m",), B.load("x", F16, [M, M], guarded=[False, True]))
    )
    verify(guarded)
    with pytest.raises(InternalError, match="a guarded load after normalise"):
        verify(guarded, "normalised")


ONLINE, SWEEP = SWEEPS["online"]
ROW = Type(F32, ("m",))

BROKEN_SWEEPS = {
    "state m is defined 2 times": replace(SWEEP, states=(*SWEEP.states, SWEEP.states[0])),
    "state w varies along the swept axes": replace(
        SWEEP, states=(*SWEEP.states, State("w", Type(F32, ("n",)), literal(0.0, F32)))
    ),
    "state w starts as i64[]": replace(SWEEP, states=(*SWEEP.states, State("w", ROW, literal(0)))),
    "no axes ('k',)": replace(SWEEP, axes=("k",)),
    "here is not defined before": replace(SWEEP, update=SWEEP.update[1:]),
    "z is not defined before": replace(SWEEP, merge=(Let("y", Ref("z", ROW)), *SWEEP.merge)),
    "no state w": replace(SWEEP, commits=(*SWEEP.commits, Commit("w", "new"))),
    "commit of m is defined 2 times": replace(SWEEP, commits=(*SWEEP.commits, Commit("m", "new"))),
    "merge does not commit every state once": replace(SWEEP, merge_commits=SWEEP.merge_commits[:1]),
    "total is not finished": replace(SWEEP, finish=SWEEP.finish[:1]),
    "no definition middle": replace(SWEEP, stages=(*SWEEP.stages, "middle")),
    "top is finished as bool[m]": replace(
        SWEEP,
        finish=(Let("top", B.apply("gt", Ref("m", ROW), 0)), *SWEEP.finish[1:]),
    ),
    "new is defined twice": replace(SWEEP, update=(*SWEEP.update, SWEEP.update[1])),
    "y varies along the swept axes": replace(
        SWEEP, update=(*SWEEP.update, Let("y", B.convert(N, F32)))
    ),
    "max has 2 results": replace(
        SWEEP,
        update=(Partial(("p", "q"), "max", (X,), None, (ROW, ROW)), *SWEEP.update),
    ),
    "state m of f32[m] becomes bool[m]": replace(
        SWEEP,
        update=(*SWEEP.update, Let("flag", B.apply("gt", Ref("m", ROW), 0))),
        commits=(Commit("m", "flag"), *SWEEP.commits[1:]),
    ),
}


@pytest.mark.parametrize("problem", BROKEN_SWEEPS)
def test_a_broken_sweep_is_named_and_shown(problem):
    with pytest.raises(InternalError) as caught:
        verify_sweep(BROKEN_SWEEPS[problem], ONLINE)
    assert problem in caught.value.problem
    assert "sweep " in caught.value.hint
