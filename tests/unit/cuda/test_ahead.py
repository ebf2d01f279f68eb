"""What is imported while the driver works, and what becomes of the driver's work."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cuda.fake_driver import OK, FakeDriver

import quernel as qn
from quernel import forks
from quernel_cuda import _driver, ahead
from quernel_cuda.ahead import Meanwhile
from quernel_cuda.plugin import CudaBackend


def run(program: str, folder: Path) -> str:
    variables = {**os.environ, "QUERNEL_ENVIRONMENT": str(folder)}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, env=variables
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


PROGRAM = """
import sys, threading
from quernel_cuda import ahead
go_on = threading.Event()
meanwhile = ahead.Meanwhile(lambda: go_on.wait(60))
meanwhile.import_next()
go_on.set()
assert meanwhile.result() is True
missing = [name for name in (*ahead._OF_LAUNCHES, *ahead._OF_COMPILATIONS) if name not in sys.modules]
print(missing == list(ahead._OF_COMPILATIONS), missing == [])
"""


def test_modules_of_launches_are_imported_and_those_of_compilations_where_nothing_is_kept(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path) == "False True\n"
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "cache.db").touch()
    assert run(PROGRAM, tmp_path) == "True False\n"


def test_imports_end_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go = threading.Event()
    asked: list[str] = []

    def slow(name: str) -> None:
        asked.append(name)
        may_go.set()
        meanwhile._thread.join()

    monkeypatch.setattr(ahead, "_OF_LAUNCHES", ("one", "two"))
    monkeypatch.setattr(ahead, "import_module", slow)
    meanwhile = Meanwhile(lambda: may_go.wait(10))
    meanwhile.import_next()
    assert asked == ["one"]
    assert meanwhile.result()


def test_a_module_that_fails_is_left_to_whoever_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_OF_LAUNCHES", ("no_such_module_of_anyone",))
    may_go = threading.Event()
    monkeypatch.setattr(ahead, "_find_out", may_go.set)
    meanwhile = Meanwhile(lambda: may_go.wait(10))
    meanwhile.import_next()
    assert meanwhile.result()


def test_what_the_work_raises_is_raised_where_its_result_is_asked_for() -> None:
    def fail() -> None:
        raise qn.errors.DeviceError("no", fix="yes")

    meanwhile = Meanwhile(fail)
    with pytest.raises(qn.errors.DeviceError, match="no\n  fix: yes"):
        meanwhile.result()


def test_a_wrong_setting_is_no_fault_of_the_driver(
    unstarted: Callable[..., Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, bindings = unstarted(), FakeDriver()
    monkeypatch.setenv("QUERNEL_NO_CACHE", "maybe")
    monkeypatch.setattr("cuda.bindings.driver", bindings)
    monkeypatch.setattr(ahead, "_OF_LAUNCHES", ())
    monkeypatch.setattr(ahead, "_OF_COMPILATIONS", ())
    monkeypatch.setattr(ahead, "_load_compiler", lambda: None)
    monkeypatch.setattr(ahead, "_find_out", lambda: None)
    has_store = ahead._has_store

    def last() -> bool:
        try:
            return has_store()
        finally:
            library.may_go.set()

    monkeypatch.setattr(ahead, "_has_store", last)
    _driver.begin()
    assert _driver.driver() is bindings


def test_who_was_interrupted_asks_for_the_result_again(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go = threading.Event()
    meanwhile = Meanwhile(lambda: may_go.wait(10))
    join = meanwhile._thread.join

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(meanwhile._thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        meanwhile.result()
    monkeypatch.setattr(meanwhile._thread, "join", join)
    may_go.set()
    assert meanwhile.result() is True
    assert meanwhile.result() is True


def test_an_interrupt_while_the_context_opens_gives_it_back(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    result, asked = Meanwhile.result, []

    def interrupted_once(self: Any) -> Any:
        asked.append(self)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return result(self)

    monkeypatch.setattr(Meanwhile, "result", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        backend.open(infos[0])
    assert fake.names().count("cuDevicePrimaryCtxRetain") == fake.names().count("cuDevicePrimaryCtxRelease") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_meanwhile_is_told_so() -> None:
    may_go = threading.Event()
    meanwhile = Meanwhile(lambda: may_go.wait(10))
    child = os.fork()
    if child == 0:
        try:
            meanwhile.result()
        except qn.errors.DeviceError:
            os._exit(0)
        finally:
            os._exit(1)
    may_go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert meanwhile.result() is True


def test_the_work_is_done_here_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    meanwhile = Meanwhile(threading.get_ident)
    meanwhile.import_next()
    assert meanwhile.result() == threading.get_ident()


# --- the driver -------------------------------------------------------------------------------------------------------


class Library:
    """A driver's library that takes its time."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.begun = threading.Event()
        self.may_go = threading.Event()
        self.threads: list[int] = []

    def cuInit(self, flags: int) -> int:
        self.threads.append(threading.get_ident())
        self.begun.set()
        assert self.may_go.wait(30)
        return self.status


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Library]:
    """A process that has not looked for the driver yet."""

    def made(**given: Any) -> Library:
        library = Library(**given)
        for name in ("_loaded", "_missing", "_beginning"):
            monkeypatch.setattr(_driver, name, None)
        monkeypatch.setattr(_driver, "_absent", False)
        monkeypatch.setattr(forks, "_started", [])
        monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
        return library

    return made


def test_the_driver_starts_on_a_thread_once(unstarted: Callable[..., Library], monkeypatch: pytest.MonkeyPatch) -> None:
    library, bindings = unstarted(), FakeDriver()
    monkeypatch.setattr("cuda.bindings.driver", bindings)
    monkeypatch.setattr(ahead, "_OF_LAUNCHES", ())
    monkeypatch.setattr(ahead, "_find_out", library.may_go.set)
    _driver.begin()
    assert library.begun.wait(30)
    assert set(forks._started) == {"cuda"}, "another thread may fork meanwhile"
    _driver.begin()
    assert _driver.driver() is bindings
    _driver.begin()
    assert len(library.threads) == 1
    assert library.threads[0] != threading.get_ident()
    assert bindings.names() == ["cuInit"]
    assert set(forks._started) == {"cuda"}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_driver_that_does_not_start_is_told_of_by_its_bindings(
    is_there: bool, unstarted: Callable[..., Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, bindings = unstarted(status=999), FakeDriver()
    library.may_go.set()
    if not is_there:

        def missing(name: str) -> None:
            raise OSError(f"no {name}")

        monkeypatch.setattr(ctypes, "CDLL", missing)
    bindings.failing["cuInit"] = type(OK).CUDA_ERROR_UNKNOWN
    monkeypatch.setattr("cuda.bindings.driver", bindings)
    _driver.begin()
    with pytest.raises(_driver.DriverMissingError, match="does not start: it reports CUDA_ERROR_UNKNOWN"):
        _driver.driver()
    assert not forks._started
    assert len(library.threads) == is_there


def test_looking_for_devices_begins_and_importing_the_plugin_does_not(
    unstarted: Callable[..., Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = unstarted()
    library.may_go.set()
    monkeypatch.setattr("cuda.bindings.driver", FakeDriver())
    backend = CudaBackend()
    assert not library.threads
    assert isinstance(backend.devices(), tuple)
    assert len(library.threads) == 1


def test_what_opening_a_context_raises_opening_the_device_raises(fake: FakeDriver) -> None:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    fake.failing["cuDevicePrimaryCtxRetain"] = type(OK).CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(qn.errors.DeviceError, match=r"opening cuda:0 failed.*OUT_OF_MEMORY"):
        backend.open(infos[0])


def test_a_device_that_cannot_be_made_gives_its_context_back(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)

    def interrupted(self: Any, target: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(CudaBackend, "compiler", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.open(infos[0])
    assert fake.names().count("cuDevicePrimaryCtxRetain") == fake.names().count("cuDevicePrimaryCtxRelease") == 1
    fake.failing["cuDevicePrimaryCtxRetain"] = type(OK).CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(KeyboardInterrupt):  # what came first is told, not that there is nothing to give back
        backend.open(infos[0])
