"""Where a live function's source is, read and parsed, and proved to be what Python runs.

The IR comes from the file, the identity of a kernel from the loaded code. Both must speak of the same text, so the file
is compiled in memory, and the code object of the function compared with the loaded one, by the digest of identity.
"""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import io
import linecache
import sys
import textwrap
import threading
import types
from collections.abc import Iterator

import attrs

from quernel.errors import KernelSyntaxError
from quernel.forks import in_child
from quernel.identity import code_digest
from quernel.locations import Location

__all__ = ["Source", "read_source"]

_FUTURE_FLAGS = functools.reduce(
    lambda mask, name: mask | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)


_HOW_TO_KEEP_SOURCE = (
    "keep the function in a .py file or a notebook cell (Python's own prompt and `python -` keep no source, IPython "
    "does), or register the text that is executed in linecache.cache"
)


@attrs.frozen(eq=False)
class Source:
    """The source of one function.

    Attributes:
        file: the path, or the name under which `linecache` holds the text.
        definition: the `def` statement.
        lines: the lines of the file.
        storable: whether what is compiled from it may be kept; not where pytest rewrote the code that runs.
    """

    file: str
    definition: ast.FunctionDef
    lines: tuple[str, ...]
    storable: bool = True

    def location(self, node: ast.stmt | ast.expr | ast.arg | ast.keyword | ast.excepthandler) -> Location:
        """Where `node` stands, in characters (`ast` counts bytes)."""
        end_line = node.end_lineno or node.lineno
        end = node.end_col_offset if node.end_col_offset is not None else node.col_offset
        return Location(
            self.file,
            node.lineno,
            self._characters(node.lineno, node.col_offset),
            end_line,
            self._characters(end_line, end),
        )

    def line(self, number: int) -> str | None:
        """The text of a line, 1-based."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else None

    def _characters(self, line: int, num_bytes: int) -> int:
        text = self.line(line) or ""
        return num_bytes if text.isascii() else len(text.encode()[:num_bytes].decode(errors="ignore"))


def read_source(function: types.FunctionType) -> Source:
    """The source of `function`.

    Raises:
        KernelSyntaxError: it is a lambda or a coroutine; its source cannot be found; or the file changed
            since it was imported.
    """
    code = function.__code__
    where = Location(code.co_filename, code.co_firstlineno)
    if code.co_name == "<lambda>":
        raise KernelSyntaxError("a lambda cannot be a kernel or device function", where=where, fix="write it with def")
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise KernelSyntaxError(
            "a coroutine cannot be a kernel or device function", where=where, fix="write `def`, and wait on the host"
        )
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__) or _lines_of_command(code.co_filename)
    text = "".join(lines)
    if not text:
        raise KernelSyntaxError(
            f"the source of {code.co_qualname} cannot be read from {code.co_filename}",
            where=where,
            fix=_HOW_TO_KEEP_SOURCE,
        )
    changed = KernelSyntaxError(
        f"{code.co_filename} changed since it was imported: {code.co_qualname} is not what runs any more",
        where=where,
        fix="restart Python, or load the module again: importlib.reload(module)",
    )
    try:
        tree, module_code = _compiled(text, code.co_filename, code.co_flags & _FUTURE_FLAGS)
    except (SyntaxError, ValueError):
        raise changed from None
    found = sorted(
        (candidate for candidate in _code_objects(module_code) if candidate.co_qualname == code.co_qualname),
        key=lambda candidate: abs(candidate.co_firstlineno - code.co_firstlineno),
    )
    loaded = code_digest(code)
    match = next((candidate for candidate in found if code_digest(candidate) == loaded), None)
    storable = match is not None
    if match is None and found and _is_rewritten_by_pytest(function):
        match = found[0]
    definition = _definition(tree, match) if match is not None else None
    if definition is None:
        raise changed
    return Source(code.co_filename, definition, tuple(lines), storable)


def _lines_of_command(file: str) -> list[str]:
    """The lines of `python -c TEXT`, where the file is what Python calls that text."""
    if file != "<string>" or sys.argv[:1] != ["-c"]:
        return []
    arguments = iter(sys.orig_argv[1:])
    for argument in arguments:
        for position, letter in enumerate(argument[1:], 2):
            if letter == "c":
                text = argument[position:] or next(arguments, "")
                text = textwrap.dedent(text) if sys.version_info >= (3, 14) else text
                return io.StringIO(text + "\n", newline=None).readlines()
            if letter in "WX":
                if not argument[position:]:
                    next(arguments, "")
                break
    return []


_parsing = threading.Lock()


def _renew_after_fork() -> None:
    global _parsing
    _parsing = threading.Lock()  # a thread of the parent may be parsing


in_child(_renew_after_fork)


def _compiled(text: str, file: str, flags: int) -> tuple[ast.Module, types.CodeType]:
    """The text as a tree and as code. One thread at a time: the others find it done."""
    with _parsing:
        return _compiled_once(text, file, flags)


@functools.lru_cache(maxsize=32)
def _compiled_once(text: str, file: str, flags: int) -> tuple[ast.Module, types.CodeType]:
    tree = _parsed(text, file)
    try:
        return tree, compile(text, file, "exec", flags=flags, dont_inherit=True)
    except SyntaxError:
        # A notebook cell may await at its top level.
        flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return tree, compile(text, file, "exec", flags=flags, dont_inherit=True)


def _parsed(text: str, file: str) -> ast.Module:
    """The text's tree. Python 3.11 counts the depth of all threads that parse in one place, and may miscount."""
    for _ in range(_MAX_MISCOUNTS):
        try:
            return ast.parse(text, file)
        except SystemError:
            continue
    return ast.parse(text, file)


_MAX_MISCOUNTS = 20
"""So often a text is parsed anew; a thread of the user's that parses for as long as that is no accident."""


def _code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    pending = [code]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(constant for constant in current.co_consts if isinstance(constant, types.CodeType))


def _is_rewritten_by_pytest(function: types.FunctionType) -> bool:
    loader = function.__globals__.get("__loader__")
    return type(loader).__module__ == "_pytest.assertion.rewrite"


def _definition(tree: ast.Module, code: types.CodeType) -> ast.FunctionDef | None:
    """The `def` of `code`: the one on its first line (that of its first decorator) with its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if first == code.co_firstlineno:
                return node
    return None
