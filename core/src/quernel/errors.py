"""The error tree: each error says what went wrong, where, and how to fix it, and survives pickling."""

from __future__ import annotations

import linecache
import sys
import warnings
from typing import Any

from quernel.locations import Location

__all__ = [
    "BundleError",
    "CompilationError",
    "DeviceError",
    "KernelAssertionError",
    "KernelSyntaxError",
    "KernelTypeError",
    "LaunchError",
    "OutOfBoundsError",
    "PluginError",
    "QuernelDeprecationWarning",
    "QuernelError",
    "SettingError",
    "StoreError",
    "ValidationError",
    "caret_lines",
    "warn_deprecated",
]


def caret_lines(where: Location, source_line: str | None = None) -> str:
    """The line of `where` with a caret below it, or an empty string where the line cannot be read.

    `source_line` is the text to show when the caller has it; otherwise the file is read through `linecache`.
    """
    text = source_line if source_line is not None else linecache.getline(where.file, where.line)
    text = text.rstrip("\n")
    if not text.strip():
        return ""
    shown = text.expandtabs(1)
    indent = len(shown) - len(shown.lstrip())
    column = max(where.column, indent)
    end = where.end_column if where.end_line in (0, where.line) else len(shown)
    carets = max(1, min(end, len(shown)) - column)
    return f"    {shown[indent:]}\n    {' ' * (column - indent)}{'^' * carets}"


class QuernelError(Exception):
    """The root of every error that Quernel raises on purpose.

    Attributes:
        what: one sentence that says what is wrong.
        where: the place in the user's source, or `None`.
        fix: what to do about it, or `None`.
        source_line: the text of the line at `where`, kept so that the caret survives pickling and moved files.
        chain: lines of context below the caret (call chain, uniformity chain, toolchain log).
    """

    def __init__(
        self,
        what: str,
        *,
        where: Location | None = None,
        fix: str | None = None,
        source_line: str | None = None,
        chain: tuple[str, ...] = (),
    ) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        if source_line is None and where is not None:
            source_line = linecache.getline(where.file, where.line) or None
        self.source_line = source_line
        self.chain = tuple(chain)
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.where is not None:
            parts = [f"{self.where}: {self.what}"]
            caret = caret_lines(self.where, self.source_line)
            if caret:
                parts.append(caret)
        parts.extend(f"  {line}" for line in self.chain)
        if self.fix:
            parts.append(f"  fix: {self.fix}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        return _rebuild, (type(self), state)


def _rebuild(cls: type[QuernelError], state: dict[str, Any]) -> QuernelError:
    error = cls.__new__(cls, state["what"])
    error.args = (state["what"],)
    error.__dict__.update(state)
    if isinstance(error, KernelSyntaxError):
        error._fill_builtin_fields()
    return error


class KernelSyntaxError(QuernelError, SyntaxError):
    """A construct that the kernel language does not have.

    Python prints a `SyntaxError` from its own fields (file, line, offset, text), so these are filled in too.
    """

    def __init__(
        self,
        what: str,
        *,
        where: Location | None = None,
        fix: str | None = None,
        source_line: str | None = None,
        chain: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, where=where, fix=fix, source_line=source_line, chain=chain)
        self._fill_builtin_fields()

    def _fill_builtin_fields(self) -> None:
        self.msg = "\n".join([self.what, *self.chain, *([f"fix: {self.fix}"] if self.fix else [])])
        if self.where is not None:
            self.filename = self.where.file
            self.lineno = self.where.line
            self.offset = self.where.column + 1
            self.text = self.source_line
            self.end_lineno = self.where.end_line or self.where.line
            self.end_offset = self.where.end_column + 1 if self.where.end_column else self.offset + 1


class KernelTypeError(QuernelError, TypeError):
    """Types that do not fit, in a kernel or in the arguments of a launch."""


class ValidationError(QuernelError, ValueError):
    """A kernel that this device cannot run: too large a block, a missing feature."""


class CompilationError(QuernelError, RuntimeError):
    """A toolchain refused a lowered kernel, or a worker failed."""


class LaunchError(QuernelError, RuntimeError):
    """A launch that cannot be made: wrong arguments, wrong device, use after close."""


class OutOfBoundsError(QuernelError, IndexError):
    """An index outside its array, found by a checked launch."""


class KernelAssertionError(QuernelError, AssertionError):
    """An `assert` in a kernel that did not hold, found by a checked launch."""


class SettingError(QuernelError, ValueError):
    """An environment variable that holds what is not understood."""


class DeviceError(QuernelError, RuntimeError):
    """A device that is not there, is ambiguous, or whose driver reported a failure."""


class StoreError(QuernelError, OSError):
    """The store cannot be used; the loader warns once and goes on without it."""


class BundleError(QuernelError, ValueError):
    """A bundle that is damaged, not trusted or of another format."""


class PluginError(QuernelError, ImportError):
    """A plugin that is missing, fails to import or was built for another core."""


class QuernelDeprecationWarning(DeprecationWarning):
    """Something of the public surface that will go.

    Attributes:
        what: one sentence that says what.
        removed_in: the first version without it, such as `0.4`.
        fix: what to write instead.
    """

    def __init__(self, what: str, removed_in: str, fix: str) -> None:
        super().__init__(what, removed_in, fix)
        self.what = what
        self.removed_in = removed_in
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}, and goes in {self.removed_in}\n  fix: {self.fix}"


def warn_deprecated(what: str, *, removed_in: str, fix: str) -> None:
    """Announces that something will go, at the line outside of the core that uses it: a user's, or a backend's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "quernel":
        level, frame = level + 1, frame.f_back
    warnings.warn(QuernelDeprecationWarning(what, removed_in, fix), stacklevel=level)
