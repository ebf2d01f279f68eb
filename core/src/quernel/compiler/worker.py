"""A compile worker: `python -m quernel.compiler.worker`. Takes calls from standard input, answers on standard output.

It ends when its input does, be that because its parent closed it or because the parent is no more, and even amid a
call. What code prints here, in Python or in C, goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import signal
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any

from quernel.compiler.frames import GREETING, read_frame, write_all, write_frame

__all__ = ["main"]

_GRACE_S = 1.0
"""What is running when the input ends has so long to end too."""


def main() -> None:
    """Serves until the input ends."""
    inbox, outbox = _take_over_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's keyboard is the parent's business
    faulthandler.enable(all_threads=False)
    calls: SimpleQueue[bytes | None] = SimpleQueue()
    is_over = threading.Event()
    threading.Thread(target=_receive, args=(inbox, calls, is_over), name="quernel-receive", daemon=True).start()
    try:
        write_all(outbox, GREETING)
        while (frame := calls.get()) is not None:
            write_frame(outbox, _answer(frame))
    except OSError:
        pass  # the parent is gone
    finally:
        is_over.set()


def _take_over_pipes() -> tuple[int, int]:
    """The pipes, on handles that no other code knows. What reads standard input finds its end."""
    sys.stdout.flush()
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


def _receive(inbox: int, calls: SimpleQueue[bytes | None], is_over: threading.Event) -> None:
    """Reads ahead, so that the end of the input is noticed while a call runs."""
    try:
        while (frame := read_frame(inbox)) is not None:
            calls.put(frame)
    except OSError:
        pass
    calls.put(None)
    if not is_over.wait(_GRACE_S):
        os._exit(1)


def _answer(frame: bytes) -> bytes:
    """The call's pickled outcome: whether it returned, and its value or exception."""
    try:
        path, variables, call = pickle.loads(frame)
        _adopt(path, variables)
        function, arguments, keywords = pickle.loads(call)
        outcome = True, function(*arguments, **keywords)
    except Exception as error:
        outcome = False, error
    finally:
        with contextlib.suppress(OSError):  # nowhere to write what was printed
            sys.stdout.flush()
    return _pickled(*outcome)


def _adopt(path: list[str], variables: dict[str, str]) -> None:
    """Finds modules where the parent finds them, and has its settings."""
    if sys.path != path:
        sys.path[:] = path
        importlib.invalidate_caches()
    from quernel import settings

    settings.adopt(variables)


def _pickled(is_returned: bool, value: Any) -> bytes:
    try:
        content = pickle.dumps((is_returned, value), pickle.HIGHEST_PROTOCOL)
        if not is_returned:
            pickle.loads(content)  # exceptions of odd constructors pickle, but never come back
    except Exception as obstacle:
        shown = value if isinstance(value, Exception) else obstacle
        text = "".join(traceback.format_exception_only(shown)).strip()
        what = f"{text} (which cannot be sent)" if shown is value else f"the result cannot be sent: {text}"
        return pickle.dumps((False, RuntimeError(what)), pickle.HIGHEST_PROTOCOL)
    return content


if __name__ == "__main__":
    main()
