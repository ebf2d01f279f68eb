"""Words, numbers and symbols of the IR's text form, each with its place in the text."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from typing import Final

import attrs

from quernel.errors import QuernelError
from quernel.locations import Location

__all__ = ["Cursor", "IRSyntaxError", "Line", "Token", "TokenKind", "lines_of", "syntax_error"]


class IRSyntaxError(QuernelError, ValueError):
    """Text that is no module; `where` has its line and column."""


class TokenKind(enum.Enum):
    """What a token is."""

    WORD = "word"
    """A word of the text form, or a plain name."""
    NAME = "name"
    """A name between backquotes; its text is the name itself."""
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end of line"


@attrs.frozen
class Token:
    """One token: its kind, its text, and where it starts."""

    kind: TokenKind
    text: str
    line: int
    column: int


@attrs.frozen
class Line:
    """One line that is not blank: its indentation in spaces and its tokens, the last one an `END`."""

    indent: int
    tokens: tuple[Token, ...]
    text: str


_TOKEN: Final = re.compile(
    r"(?P<space>[ ]+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?(?:bf16|[iuf][0-9]+)?)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|`(?P<name>(?:[^`\\]|\\.)*)`"
    r"|(?P<symbol>==|!=|<=|>=|<<|>>|//|->|[-+*/%&|^~<>=()\[\]:,.?])"
)


def lines_of(text: str) -> Iterator[Line]:
    """The lines of `text` that are not blank.

    Raises:
        IRSyntaxError: a character begins no token.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip(" "):
            yield Line(len(line) - len(line.lstrip(" ")), tuple(_tokens(line, number)), line)


def syntax_error(what: str, line: int, column: int, text: str) -> IRSyntaxError:
    """The error at a place of the text, with the line itself for its caret."""
    return IRSyntaxError(what, where=Location("<ir>", line, column), source_line=text)


def _tokens(text: str, line: int) -> Iterator[Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise syntax_error(f"{text[position]!r} begins nothing that the text form knows", line, position, text)
        match found.lastgroup:
            case "number":
                yield Token(TokenKind.NUMBER, found["number"], line, position)
            case "word":
                yield Token(TokenKind.WORD, found["word"], line, position)
            case "symbol":
                yield Token(TokenKind.SYMBOL, found["symbol"], line, position)
            case "name":
                yield Token(TokenKind.NAME, _unescaped(found["name"], line, position, text), line, position)
            case _:
                pass
        position = found.end()
    yield Token(TokenKind.END, "", line, len(text))


def _unescaped(quoted: str, line: int, column: int, text: str) -> str:
    try:
        name: str = json.loads(f'"{quoted}"')
    except json.JSONDecodeError:
        raise syntax_error("a name between backquotes has a wrong escape", line, column, text) from None
    return name


class Cursor:
    """Reads the tokens of one line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._position = 0

    @property
    def token(self) -> Token:
        """The next token, not yet taken."""
        return self._line.tokens[self._position]

    @property
    def following(self) -> Token:
        """The token behind the next one."""
        return self._line.tokens[min(self._position + 1, len(self._line.tokens) - 1)]

    def error(self, what: str, token: Token | None = None) -> IRSyntaxError:
        """An error at `token`, by default the next one."""
        at = token if token is not None else self.token
        return syntax_error(what, at.line, at.column, self._line.text)

    def unexpected(self, wanted: str) -> IRSyntaxError:
        """The error that the next token is not what was wanted."""
        found = self.token
        shown = "the end of the line" if found.kind is TokenKind.END else repr(found.text)
        return self.error(f"expected {wanted}, found {shown}")

    def take(self) -> Token:
        """The next token, taken."""
        token = self.token
        self._position += token.kind is not TokenKind.END
        return token

    def is_at(self, text: str) -> bool:
        """Whether the next token is this symbol or word of the text form."""
        return self.token.kind in (TokenKind.SYMBOL, TokenKind.WORD) and self.token.text == text

    def accept(self, text: str) -> bool:
        """Takes the next token if it is this symbol or word."""
        found = self.is_at(text)
        if found:
            self.take()
        return found

    def expect(self, *texts: str) -> None:
        """Takes these symbols or words, which must come next."""
        for text in texts:
            if not self.accept(text):
                raise self.unexpected(repr(text))

    def name(self, reserved: frozenset[str]) -> str:
        """Takes a name, which must come next."""
        token = self.token
        if token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and token.text not in reserved):
            return self.take().text
        raise self.unexpected("a name")

    def integer(self) -> int:
        """Takes an integer without a suffix, which must come next; a minus sign may stand before it."""
        negative = self.accept("-")
        if self.token.kind is not TokenKind.NUMBER or not self.token.text.isdigit():
            raise self.unexpected("an integer")
        value = int(self.take().text)
        return -value if negative else value

    def end(self) -> None:
        """The line must end here."""
        if self.token.kind is not TokenKind.END:
            raise self.unexpected("the end of the line")
