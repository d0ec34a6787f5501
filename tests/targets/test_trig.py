"""Sine and cosine on CUDA: the PTX that reduces large arguments, run on arrays of registers."""

import numpy as np
import pytest

from redlang.targets.ptx import trig

U, F, Q = np.uint32, np.float32, np.uint64


def pair(x, y):
    """Return the words of both operands' product."""
    whole = x.astype(Q) * y
    return (whole >> Q(32)).astype(U), whole.astype(U)


class Registers(dict):
    """What the statements of one text hold, as words; `carry` is the condition code."""

    def value(self, name):
        if name.startswith("0f"):
            return np.full_like(self["$2"], int(name[2:], 16))
        return self[name] if name in self else np.full_like(self["$2"], int(name, 0) & 0xFFFFFFFF)

    def run(self, text):
        for statement in text.strip("{} \n").split(";"):
            words = statement.replace(",", " ").split()
            if words and words[0][0] != "." and words[-1] != "near:":
                if words[0] == "@q":
                    self[words[2]] = np.where(self["q"], self.value(words[3]), self[words[2]])
                elif words[0] != "@p":
                    self.execute(words[0], words[1], *words[2:])

    def execute(self, name, to, *operands):
        if to.startswith("{"):
            self[operands[0].rstrip("}")], self[to[1:]] = pair(self[operands[1]], U(1))
            return
        if operands[0].startswith("{"):
            low, high = self[operands[0][1:]], self[operands[1].rstrip("}")]
            self[to] = high.astype(Q) << Q(32) | low
            return
        x, *rest = map(self.value, operands)
        floats = [v.view(F) for v in (x, *rest) if v.dtype == U]
        match name.split("."):
            case ["mov", *_]:
                self[to] = x
            case ["setp", "eq", _]:
                self[to] = x == rest[0]
            case ["setp", *_]:
                self[to] = x <= rest[0]
            case ["shl", "b64"]:
                self[to] = x << rest[0].astype(Q)
            case ["clz", _]:
                self[to] = (63 - np.floor(np.log2(x.astype(np.longdouble)))).astype(U)
            case ["shl", _]:
                self[to] = x << rest[0]
            case ["shr", "s32"]:
                self[to] = (x.view(np.int32) >> rest[0].view(np.int32)).view(U)
            case ["shr", _]:
                self[to] = x >> rest[0]
            case ["shf", *_]:
                both = rest[0].astype(Q) << Q(32) | x
                self[to] = (both << (rest[1] & U(31)).astype(Q) >> Q(32)).astype(U)
            case ["and" | "or" | "xor" as op, _]:
                self[to] = getattr(np, f"bitwise_{op}")(x, rest[0])
            case ["add" | "sub" as op, _]:
                self[to] = getattr(np, f"{op}tract" if op == "sub" else op)(x, rest[0])
            case ["mul", "hi", _]:
                self[to] = pair(x, rest[0])[0]
            case ["mad", "lo", *_]:
                total = pair(x, rest[0])[1].astype(Q) + rest[1]
                self[to], self.carry = total.astype(U), (total >> Q(32)).astype(U)
            case ["madc", "hi", _]:
                self[to] = pair(x, rest[0])[0] + rest[1] + self.carry
            case ["cvt", *_]:
                self[to] = x.astype(F).view(U)
            case ["mul", _, "f32"]:
                self[to] = (floats[0] * floats[1]).view(U)
            case ["fma", *_]:
                self[to] = (floats[0] * floats[1] + floats[2]).view(U)
            case _:
                raise AssertionError(name)


def polynomial(z, parts):
    total = np.full_like(z, F(parts[-1]))
    for part in reversed(parts[:-1]):
        # One rounding, as a fused operation has.
        total = (total.astype(np.float64) * z + F(part)).astype(F)
    return total


def circle(n, t):
    """Return sine and cosine as the emitters compute them."""
    z = t * t
    sine = (polynomial(z, trig._SIN).astype(np.float64) * (z * t) + t).astype(F)
    cosine = polynomial(z, (1.0, -0.5, *trig._COS))
    turned = [np.choose(n + k & 3, [sine, cosine, -sine, -cosine]) for k in (0, 1)]
    return turned


def reduced(x):
    bits = x.view(U)
    registers = Registers({"$2": bits, "$0": np.zeros_like(bits), "$1": np.zeros_like(bits)})
    with np.errstate(all="ignore"):
        registers.run(trig._FAR)
    return registers["$0"], registers["$1"].view(F)


def error(found, wanted):
    return np.max(np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(F)))


def test_large_arguments_are_within_two_ulp():
    rng = np.random.default_rng(0)
    bits = rng.integers(trig._LIMIT + 1, 0x7F800000, 200_000, U)
    multiples = (np.arange(70_000, 200_000) * (np.pi / 2)).astype(F)
    x = np.concatenate([bits.view(F), multiples, np.array([np.finfo(F).max], F)])
    n, t = reduced(x)
    assert np.abs(t).max() <= np.pi / 4 + 1e-6
    sine, cosine = circle(n, t)
    exact = x.astype(np.float64)
    assert error(sine, np.sin(exact)) <= 2
    assert error(cosine, np.cos(exact)) <= 2


def test_the_nearest_of_all_to_a_multiple():
    n, t = reduced(np.array([16367173 * 2.0**72], F))
    assert n[0] & 1
    # cos(16367173 · 2^72), by 300 bits of pi
    assert t[0] == pytest.approx(1.6147697e-9, rel=1e-6)


def test_what_is_not_finite_becomes_nan():
    _, t = reduced(np.array([np.inf, np.nan], F))
    assert np.isnan(t).all()


def test_arguments_up_to_the_limit_are_within_two_ulp():
    rng = np.random.default_rng(1)
    limit = F(trig._NEAR)
    multiples = (np.arange(1, 67_000) * (np.pi / 2)).astype(F)
    x = np.concatenate([rng.uniform(0, limit, 300_000).astype(F), multiples, [limit]]).astype(F)
    exact = x.astype(np.float64)
    turns = exact * F(2 / np.pi) + trig._ROUND
    n = np.rint(turns).astype(F) - F(trig._ROUND)
    t = exact
    for part in trig._PARTS:
        t = (t - n.astype(np.float64) * F(part)).astype(F).astype(np.float64)
    sine, cosine = circle(n.astype(np.int64), t.astype(F))
    assert error(sine, np.sin(exact)) <= 2
    assert error(cosine, np.cos(exact)) <= 2
