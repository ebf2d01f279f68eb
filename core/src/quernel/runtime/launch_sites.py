"""Where in the user's source a launch was written, for errors that no line of a kernel explains."""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from types import CodeType, FrameType, TracebackType

from quernel.errors import DeviceError, KernelTypeError, LaunchError, PluginError, QuernelError, ValidationError
from quernel.locations import Location

__all__ = ["INTERPRETED", "as_raised_by_the_call", "calls_in_kernel"]

INTERPRETED = "<kernel>"
"""The module's name in the globals of a kernel that an interpreter runs as Python; its frames are told by it."""

_OWN = ("quernel.api.", "quernel.runtime.", "quernel.compiler.")
"""The modules that call for a user what a user may call too."""

_OF_A_CALL = (KernelTypeError, LaunchError, ValidationError, DeviceError, PluginError)
"""The errors that are about a call of the user's where they are about no line of a kernel."""


def as_raised_by_the_call(error: QuernelError, depth: int) -> QuernelError:
    """The error as the user is to see it, to be raised anew from its cause.

    It belongs to the call `depth` frames above the caller, or where that is the framework's own, to the first one above
    that is not. It gets the place of that call if it has none, and loses the frames of the framework below the caller.
    Frames of a kernel that was interpreted stay: they are the user's.
    """
    if error.where is None and isinstance(error, _OF_A_CALL):
        where = _call_in(_frame_of_the_user(sys._getframe(depth + 1)))
        error.where = where
        error.source_line = linecache.getline(where.file, where.line) or None
    return error.with_traceback(_from_the_kernel_on(error))


def calls_in_kernel(traceback: TracebackType | None) -> list[Location]:
    """Where functions of a kernel that is interpreted were called, the innermost call first."""
    calls = []
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") == INTERPRETED:
            calls.append(_location(traceback.tb_frame.f_code, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    return calls[-2::-1]


def _frame_of_the_user(frame: FrameType) -> FrameType:
    found: FrameType | None = frame
    while found is not None and str(found.f_globals.get("__name__")).startswith(_OWN):
        found = found.f_back
    return frame if found is None else found


def _from_the_kernel_on(error: QuernelError) -> TracebackType | None:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") != INTERPRETED:
        traceback = traceback.tb_next
    return traceback


def _call_in(frame: FrameType) -> Location:
    return _location(frame.f_code, frame.f_lasti, frame.f_lineno)


def _location(code: CodeType, last: int, known_line: int) -> Location:
    line, end_line, column, end_column = next(islice(code.co_positions(), last // 2, None))
    if line is None:
        return Location(code.co_filename, known_line)
    return Location(
        code.co_filename,
        line,
        _characters(code.co_filename, line, column or 0),
        end_line or line,
        _characters(code.co_filename, end_line or line, end_column or 0),
    )


def _characters(file: str, line: int, num_bytes: int) -> int:
    return len(linecache.getline(file, line).encode()[:num_bytes].decode("utf-8", "replace"))
