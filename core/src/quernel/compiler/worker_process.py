"""One compile worker as its parent sees it: a process to call functions in, which may be lost at any moment."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from quernel import settings
from quernel.compiler.frames import read_frame, skip_to_greeting, write_frame
from quernel.compiler.results import WorkerLostError
from quernel.forks import around, renewed

__all__ = ["WorkerProcess", "packed_call"]

_START_LIMIT_S = 120.0
_MAX_LINES = 40
_MAX_BYTES = 1 << 16
"""More is not read of what a worker wrote, and not kept of it."""


def packed_call(function: Callable[..., object], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """A call as a worker takes it, with the caller's module path and settings."""
    path = _module_path()
    call = pickle.dumps((function, arguments, keywords), pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((path, settings.variables(), call), pickle.HIGHEST_PROTOCOL)


class WorkerProcess:
    """A started worker. One thread at a time calls it; any thread may kill it."""

    def __init__(self) -> None:
        """Starts it, and waits until it greets.

        Raises:
            WorkerLostError: it does not come up.
            OSError: there is no such program, or no more processes.
        """
        self._errors = _scratch_file()
        with _starting:
            self._process = _started(self._errors)
            renewed(self)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._inbox, self._outbox = self._process.stdin, self._process.stdout
        with self._ended_after(_START_LIMIT_S) as limit:
            is_up = skip_to_greeting(self._outbox.fileno())
        if not is_up:
            raise self._lost(limit)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def call(self, call: bytes, limit_s: float | None = None) -> Any:
        """What the packed call returns there. Blocks, for at most `limit_s`.

        Raises:
            WorkerLostError: it ended before it answered, or was ended as the time was over.
            Exception: what the call raised, or what keeps its answer from being unpickled.
        """
        with self._ended_after(limit_s) as limit:
            try:
                write_frame(self._inbox.fileno(), call)
                frame = read_frame(self._outbox.fileno())
            except OSError:
                frame = None
        if frame is None or limit.is_over:  # once it is over, the worker is gone, though its answer may have come
            raise self._lost(limit)
        is_returned, value = pickle.loads(frame)
        if not is_returned:
            raise value
        return value

    def written(self) -> tuple[str, ...]:
        """The last lines that it wrote to standard error since this was last asked."""
        if self._errors is None or not os.fstat(self._errors.fileno()).st_size:
            return ()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _MAX_BYTES))
        lines = self._errors.read(_MAX_BYTES).decode(errors="replace").rstrip().splitlines()
        self._errors.truncate(0)
        return tuple(lines[-_MAX_LINES:])

    def end(self, timeout_s: float) -> None:
        """Closes its input, on which it ends; kills it where that takes longer."""
        self._close_pipes()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """Ends it at once. Whoever waits for its answer finds it lost."""
        self._process.kill()

    @contextlib.contextmanager
    def _ended_after(self, limit_s: float | None) -> Any:
        limit = _Limit(limit_s)
        if limit_s is None:
            yield limit
            return
        timer = threading.Timer(limit_s, limit.run_out, (self.kill,))
        timer.daemon = True
        timer.start()
        try:
            yield limit
        finally:
            timer.cancel()
            limit.keep()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def renew_after_fork(self) -> None:
        """In a forked child: lets go of the parent's worker, which would not notice its parent's end otherwise."""
        self._close_pipes()
        self._process.returncode = 0  # not this process's child, so not to be waited for

    def _lost(self, limit: _Limit) -> WorkerLostError:
        self._close_pipes()
        try:
            status = self._process.wait(_LAST_BREATH_S)
        except subprocess.TimeoutExpired:  # it closed its pipes and lives on
            self.kill()
            status = self._process.wait()
        if limit.is_over:
            what = f"took longer than {limit.limit_s:g} s and was ended"
            return WorkerLostError(what, self.written(), fix="let QUERNEL_COMPILE_LIMIT allow more seconds")
        return WorkerLostError(_manner(status), self.written())


class _Limit:
    """A time that is either kept or over, whichever is said first: a timer that is late ends nobody's next call."""

    __slots__ = ("_is_kept", "_lock", "is_over", "limit_s")

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self.is_over = False
        self._is_kept = False
        self._lock = threading.Lock()

    def keep(self) -> None:
        with self._lock:
            self._is_kept = True

    def run_out(self, end: Callable[[], object]) -> None:
        with self._lock:
            if not self._is_kept:
                self.is_over = True
                end()


_LAST_BREATH_S = 2.0


def _started(errors: BinaryIO | None) -> subprocess.Popen[bytes]:
    """The process, in a group of its own, as interrupts from the keyboard are for the parent.

    Raises:
        OSError: there is no interpreter to start, or no more processes.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        raise OSError("this program is not run by a Python interpreter that could be started again")
    group: dict[str, Any] = {"process_group": 0} if os.name == "posix" else {"creationflags": _NEW_GROUP}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "quernel.compiler.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors if errors is not None else subprocess.DEVNULL,
        bufsize=0,
        env=_environment(),
        **group,
    )


_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


def _manner(status: int) -> str:
    """How a process ended, from its status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _module_path() -> list[str]:
    """Where this process finds modules, made absolute, without what Python passes over."""
    path = []
    for place in sys.path:
        if isinstance(place, str) and "\0" not in place:
            with contextlib.suppress(OSError):  # it depends on the current folder, which was deleted
                path.append(os.path.abspath(place))
    return path


def _environment() -> dict[str, str]:
    """The environment of a worker: this process's, and where modules are found."""
    inherited = dict(os.environ)
    if sys.flags.ignore_environment:
        inherited = {name: value for name, value in inherited.items() if not name.startswith("PYTHON")}
    listable = [place for place in _module_path() if os.pathsep not in place]  # the rest comes with the first call
    inherited["PYTHONPATH"] = os.pathsep.join(listable)
    inherited.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that nobody needs there take time and memory to start
    return inherited


def _scratch_file() -> BinaryIO | None:
    """A file without a name, which every write is appended to, whoever has read or emptied it in between."""
    try:
        handle, path = tempfile.mkstemp(prefix="quernel-worker-")
        os.close(handle)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 — lives as long as the worker
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.unlink(path)
    return file


_starting = threading.RLock()
"""Held while a worker starts, and while this process forks: a child must know all whose pipes it got."""


around(_starting.acquire, _starting.release)
