"""All mistakes of a text that the grammar refuses, in the words of its author.

The text is read again line by line: each line that the grammar accepts by itself is built as usual,
which finds the mistakes inside it; each line that it refuses is explained, first as Python that is
not redlang (`foreign`), else by the token that has no place. Blocks that a kernel cannot have are
named once and not looked into, since what they hold is no mistake of its own.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redlang.frontend.advice import STATEMENTS
from redlang.frontend.build import Builder
from redlang.frontend.foreign import find_foreign
from redlang.frontend.lines import PIECE, Line, logical_lines
from redlang.frontend.reading import Node, Read, Refusal
from redlang.frontend.refused import LOOKALIKES, REPLACEMENTS, describe, describe_sign
from redlang.source import Span

if TYPE_CHECKING:
    from redlang.errors import KernelSyntaxError

BLOCKS: dict[str, type[ast.stmt]] = {
    "for": ast.For,
    "while": ast.While,
    "if": ast.If,
    "with": ast.With,
    "try": ast.Try,
    "match": ast.Match,
    "def": ast.FunctionDef,
    "async": ast.AsyncFunctionDef,
    "class": ast.ClassDef,
}
FOLLOWERS = ("elif", "else", "except", "finally", "case")
"""Words that continue the block before them; where there is none, they stand for an `if`."""

EXAMPLE = 'write def name(x: "m n") -> "m":'
METHODS = "a monoid has the functions init, lift, combine and finish"

CLOSING = {"(": ")", "[": "]", "{": "}"}
_WORD = re.compile(r"\w*")


@dataclass(slots=True)
class Block:
    """A logical line with the lines that are indented below it."""

    line: Line
    text: str
    body: list[Block] = field(default_factory=list)

    @property
    def word(self) -> str:
        """Return the first word of the line."""
        found = _WORD.match(self.text)
        return found[0] if found else ""


def explain(text: str, refusal: Refusal, read: Read) -> list[KernelSyntaxError]:
    """Return all mistakes of a text that the grammar refuses; at least one.

    Args:
        text: The whole text.
        refusal: What the grammar said about it.
        read: The grammar.
    """
    recovery = _Recovery(text, read)
    recovery.text(_blocks(text))
    if not recovery.builder.mistakes:
        recovery.builder.offset = 0
        describe(recovery.builder, text, 0, refusal)
    return recovery.builder.mistakes


def _blocks(text: str) -> list[Block]:
    """Return the logical lines of `text`, nested by their indentation."""
    top: list[Block] = []
    open_blocks: list[Block] = []
    for line in logical_lines(text):
        block = Block(line, text[line.start : line.stop])
        while open_blocks and open_blocks[-1].line.indent >= line.indent:
            open_blocks.pop()
        (open_blocks[-1].body if open_blocks else top).append(block)
        open_blocks.append(block)
    return top


class _Recovery:
    """Reads a text line by line and notes every mistake on one builder."""

    def __init__(self, text: str, read: Read) -> None:
        self.builder = Builder(text, read)
        self.read = read

    def note(self, problem: str, hint: str, line: Line) -> None:
        self.builder.note(problem, hint, Span(line.start, line.stop))

    def text(self, blocks: list[Block]) -> None:
        """Read a whole text: one definition."""
        rest = self.definition(blocks)
        if rest:
            hint = "compile the others by themselves"
            self.note("a text holds one definition; this stands behind it", hint, rest[0].line)

    def definition(self, blocks: list[Block]) -> list[Block]:
        """Read decorators and one function or class; return what follows."""
        for place, block in enumerate(blocks):
            if block.text.startswith("@"):
                self.decorator(block)
            elif block.word in ("def", "class") or block.text.startswith("async def"):
                self.header(block)
                (self.methods if block.word == "class" else self.function)(block)
                return blocks[place + 1 :]
            elif place == 0:
                self.note("a definition starts with def", EXAMPLE, block.line)
                return []
            else:
                self.note("a decorator stands above no function", EXAMPLE, block.line)
                return []
        end = blocks[-1].line if blocks else Line(0, 0, 0)
        problem = "a decorator stands above no function" if blocks else "the text is empty"
        self.note(problem, EXAMPLE, end)
        return []

    def decorator(self, block: Block) -> None:
        node = self.try_read("", block, "\ndef f(): return 0")
        if node is not None:
            self.builder.decorator(node.nodes[0])
        elif not self.explained(block):
            hint = "give the value a name above the definition, and pass the name"
            problem = "the options of a decorator are numbers, strings and names"
            self.note(problem, hint, block.line)

    def header(self, block: Block) -> None:
        """Read the line that opens a function or class."""
        if block.body and not block.text.endswith(":") and block.line.unclosed is None:
            stop = block.line.stop
            self.builder.note("the line ends without ':'", EXAMPLE, Span(stop - 1, stop))
            block.text += ":"
        body = "\n def f(): return 0" if block.word == "class" else " return 0"
        inline = not block.text.endswith(":")
        if inline and block.word == "class":
            self.note("the class has no body", METHODS, block.line)
            return
        node = self.try_read("", block, "" if inline else body)
        if node is not None:
            node = node.nodes[-1]
            kinds = {"parameters", "results", *(("line",) if inline else ())}
            for part in node.nodes:
                if part.rule in kinds:
                    getattr(self.builder, part.rule)(part)
        elif not self.explained(block):
            text = f"{block.text}{'' if inline else ' pass'}"
            self.foreign_or_refused(block, text, header=True)

    def function(self, block: Block) -> None:
        """Read the body of a function."""
        noted = len(self.builder.mistakes)
        self.body(block.body)
        if not block.body:
            if block.text.endswith(":"):
                self.note("the function has no body", "end it with return", block.line)
            return
        returns = [place for place, below in enumerate(block.body) if below.word == "return"]
        if not returns and len(self.builder.mistakes) == noted:
            self.note("nothing is returned", "end the function with return", block.line)
        elif returns and returns[0] + 1 < len(block.body):
            hint = "a body is one list of definitions that ends with one return"
            below = block.body[returns[0] + 1]
            self.note("this statement stands behind the return", hint, below.line)

    def methods(self, block: Block) -> None:
        """Read the body of a class."""
        blocks = block.body[1:] if block.body and _is_docstring(block.body[0]) else block.body
        if not blocks and block.text.endswith(":"):
            self.note("the class has no body", METHODS, block.line)
        while blocks:
            if blocks[0].text.startswith("@") or blocks[0].word in ("def", "async"):
                blocks = self.definition(blocks)
            else:
                self.note("a monoid holds only functions", METHODS, blocks[0].line)
                blocks = blocks[1:]

    def body(self, blocks: list[Block]) -> None:
        """Read the statements of a body."""
        for place, block in enumerate(blocks):
            if block.line.indent != blocks[0].line.indent:
                hint = "indent all lines of a body alike"
                self.note("the indentation matches no line above", hint, block.line)
            if place == 0 and _is_docstring(block):
                continue
            before = blocks[place - 1].word if place else ""
            if block.word in FOLLOWERS and (before in BLOCKS or before in FOLLOWERS):
                continue
            if self.is_block(block):
                problem, hint = STATEMENTS[BLOCKS.get(block.word, ast.If)]
                self.note(problem, hint, block.line)
                continue
            self.statement(block)
            if block.body:
                below = block.body[0]
                self.note(
                    "the line is indented too far", "align it with the line above", below.line
                )
                self.body(block.body)

    def is_block(self, block: Block) -> bool:
        """Return whether a line opens a block that a kernel cannot have."""
        if block.word in ("match", "case"):
            return bool(block.body) and block.text.endswith(":")
        return block.word in BLOCKS or block.word in FOLLOWERS

    def statement(self, block: Block) -> None:
        """Read one line of statements."""
        node = self.try_read("def f(): ", block, "")
        if node is None and self.lookalikes(block):
            node = self.try_read("def f(): ", block, "")
        if node is not None:
            self.builder.line(node.nodes[-1].nodes[-1])
        elif not self.explained(block):
            self.foreign_or_refused(block, block.text)

    def try_read(self, before: str, block: Block, behind: str) -> Node | None:
        """Return the nodes of one line in a frame that makes it a definition."""
        self.builder.offset = block.line.start - len(before)
        try:
            return self.read("definition", f"{before}{block.text}{behind}")
        except Refusal as refusal:
            self.refusal = refusal
            return None

    def lookalikes(self, block: Block) -> bool:
        """Note and replace signs such as `≤`; return whether there were any."""
        found = False
        for piece in PIECE.finditer(block.text):
            for place, sign in enumerate(piece[0], piece.start()):
                if sign in LOOKALIKES and piece.lastgroup not in ("string", "space"):
                    found = True
                    describe_sign(self.builder, sign, block.line.start + place)
        block.text = block.text.translate(REPLACEMENTS) if found else block.text
        return found

    def explained(self, block: Block) -> bool:
        """Note a bracket or string that is never closed; return whether there is one."""
        unclosed = block.line.unclosed
        if unclosed is None:
            return False
        found = self.builder.text[unclosed]
        if found in CLOSING:
            hint = f"write {CLOSING[found]!r} where it ends"
            self.builder.note(f"{found!r} is never closed", hint, Span(unclosed, unclosed + 1))
        else:
            hint = "end it with the same three quotes"
            self.builder.note("the string is never closed", hint, Span(unclosed, unclosed + 3))
        return True

    def foreign_or_refused(self, block: Block, text: str, *, header: bool = False) -> None:
        """Note why the grammar refused a line."""
        mistakes = self.builder.mistakes
        noted = len(mistakes)
        frame = self.builder.offset
        self.builder.offset = block.line.start
        find_foreign(self.builder, text, header=header)
        self.builder.offset = frame
        if len(mistakes) == noted:
            describe(self.builder, block.text, block.line.start, self.refusal)


def _is_docstring(block: Block) -> bool:
    return re.match(r"""[rRuU]?["']""", block.text) is not None
