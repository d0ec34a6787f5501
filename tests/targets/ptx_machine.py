"""Runs the PTX of products: 32 lanes, registers of 32 bits or f64, shared memory.

The fragments of `mma` and `ldmatrix` are those of the PTX ISA's figures, written down once more:
the tests compare them with what the generators believe.
"""

import re

import numpy as np

LANE = np.arange(32)
GROUP, QUAD = LANE // 4, LANE % 4


class Machine:
    """One warp."""

    def __init__(self, shared, registers):
        self.shared = shared
        self.registers = {
            name: np.broadcast_to(np.asarray(value), (32,)).copy()
            for name, value in registers.items()
        }

    def run(self, statements):
        text = " ".join(statements).replace("again${:uid}:", "again:;")
        lines = [line.strip() for line in text.split(";") if line.strip()]
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if line.startswith((".reg", ".pragma")) or line == "again:":
                continue
            name, _, rest = line.partition(" ")
            if name.startswith("@"):
                taken = self.registers[name[1:]]
                assert (taken == taken[0]).all(), "a branch that diverges"
                at = lines.index("again:") if taken[0] else at
                continue
            self.execute(name, re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,]+", rest))

    def get(self, operand):
        if operand.lstrip("-").isdigit():
            return np.full(32, int(operand), np.uint32)
        return self.registers[operand].view(np.uint32)

    def floats(self, operand):
        held = self.registers[operand]
        return held if held.dtype == np.float64 else held.view(np.float32)

    def execute(self, name, operands):
        to = operands[0]
        values = [self.get(x) for x in operands[1:] if x[0] not in "{["]
        match name.split("."):
            case ["mov", *_]:
                self.registers[to] = values[0].copy()
            case ["and", *_]:
                self.registers[to] = values[0] & values[1]
            case ["or", *_]:
                self.registers[to] = values[0] | values[1]
            case ["xor", *_]:
                self.registers[to] = values[0] ^ values[1]
            case ["shl", *_]:
                self.registers[to] = values[0] << values[1]
            case ["shr", *_]:
                self.registers[to] = values[0] >> values[1]
            case ["add", *_]:
                self.registers[to] = values[0] + values[1]
            case ["mad", *_]:
                self.registers[to] = values[0] * values[1] + values[2]
            case ["setp", "lt", "u32"]:
                self.registers[to] = values[0] < values[1]
            case ["cvt", "rna", "tf32", "f32"]:
                self.registers[to] = (values[0] + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
            case ["fma", *_]:
                a, b, c = (self.floats(x) for x in operands[1:])
                self.registers[to] = (a.astype(np.float64) * b + c).astype(a.dtype)
            case ["ld", "shared", *_]:
                self.load(names_in(to), operands[1], np.float64 if "f64" in name else np.uint32)
            case ["ldmatrix", *_]:
                self.load_matrices(names_in(to), operands[1], transposed="trans" in name)
            case ["mma", *_]:
                self.multiply([names_in(operand) for operand in operands], name)
            case _:
                raise AssertionError(f"{name} is not known here")

    def address(self, operand):
        register, _, offset = operand.strip("[]").partition("+")
        return self.registers[register].astype(np.int64) + int(offset or 0)

    def load(self, names, place, kind):
        address, size = self.address(place), np.dtype(kind).itemsize
        assert (address % (size * len(names)) == 0).all()
        for number, name in enumerate(names):
            at = address[:, None] + size * number + np.arange(size)
            self.registers[name] = self.shared[at].view(kind)[:, 0]

    def load_matrices(self, names, place, *, transposed):
        address = self.address(place)
        assert (address % 16 == 0).all()
        for number, name in enumerate(names):
            rows = address[8 * number : 8 * number + 8]
            banks = (rows // 16) % 8
            assert len(set(banks)) == 8, "lines of a matrix meet in a bank"
            matrix = self.shared[rows[:, None] + np.arange(16)].view(np.uint16)
            low, high = matrix[GROUP, 2 * QUAD], matrix[GROUP, 2 * QUAD + 1]
            if transposed:
                low, high = matrix[2 * QUAD, GROUP], matrix[2 * QUAD + 1, GROUP]
            self.registers[name] = low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)

    def multiply(self, operands, name):
        to, left, right, before = operands
        if "tf32" in name:
            a, b = np.zeros((16, 8)), np.zeros((8, 8))
            for number, register in enumerate(left):
                a[GROUP + 8 * (number % 2), QUAD + 4 * (number // 2)] = self.floats(register)
            for number, register in enumerate(right):
                b[QUAD + 4 * number, GROUP] = self.floats(register)
        else:
            a, b = np.zeros((16, 16)), np.zeros((16, 8))
            for number, register in enumerate(left):
                for x, values in enumerate(self.halves(register)):
                    a[GROUP + 8 * (number % 2), 2 * QUAD + x + 8 * (number // 2)] = values
            for number, register in enumerate(right):
                for x, values in enumerate(self.halves(register)):
                    b[2 * QUAD + x + 8 * number, GROUP] = values
        total = a @ b
        for number, (register, old) in enumerate(zip(to, before, strict=True)):
            own = total[GROUP + 8 * (number // 2), 2 * QUAD + number % 2]
            self.registers[register] = (self.floats(old) + own).astype(np.float32)

    def halves(self, register):
        bits = self.get(register)
        return [(bits >> np.uint32(16 * x)).astype(np.uint16).view(np.float16) for x in (0, 1)]


def names_in(operand):
    return [name.strip() for name in operand.strip("{}").split(",")]
