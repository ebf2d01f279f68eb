"""Where in the user's source a launch was written, for errors that no line of a kernel explains."""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from types import FrameType

from quernel.errors import KernelTypeError, LaunchError, QuernelError, ValidationError
from quernel.locations import Location

__all__ = ["OF_A_LAUNCH", "locate"]

OF_A_LAUNCH = (KernelTypeError, LaunchError, ValidationError)
"""The errors that are about a launch where they are about no line of its kernel."""


def locate(error: QuernelError, depth: int) -> None:
    """Puts the call `depth` frames above the caller into an error that has no place yet."""
    if error.where is None:
        where = _call_in(sys._getframe(depth + 1))
        error.where = where
        error.source_line = linecache.getline(where.file, where.line) or None


def _call_in(frame: FrameType) -> Location:
    code = frame.f_code
    line, end_line, column, end_column = next(islice(code.co_positions(), frame.f_lasti // 2, None))
    if line is None:
        return Location(code.co_filename, frame.f_lineno)
    return Location(
        code.co_filename,
        line,
        _characters(code.co_filename, line, column or 0),
        end_line or line,
        _characters(code.co_filename, end_line or line, end_column or 0),
    )


def _characters(file: str, line: int, num_bytes: int) -> int:
    return len(linecache.getline(file, line).encode()[:num_bytes].decode("utf-8", "replace"))
