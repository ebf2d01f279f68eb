from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice, Source

import quernel as qn
from quernel.errors import DeviceError
from quernel.runtime.devices import Device
from quernel.runtime.directory import DeviceDirectory

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs an operating system that forks")


@qn.kernel
def double(x):
    i = qn.global_id()
    x[i] = x[i] * 2


@qn.kernel
def triple(x):
    i = qn.global_id()
    x[i] = x[i] * 3


@qn.kernel
def count(x):
    qn.atomic.add(x, 0, 1)


def in_child(work: Callable[[], None]) -> None:
    """Runs `work` in a forked child; fails here if it fails there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_device_with_a_driver_raises_in_the_child_and_frees_nothing_there(gpu: Device, seen: ScriptedDevice) -> None:
    array = gpu.zeros(4, qn.f32)

    def work() -> None:
        with pytest.raises(
            DeviceError, match=r"(?s)opened before this process was forked.*fix: start processes with .spawn"
        ):
            double.over(4)(array)
        with pytest.raises(DeviceError, match="forked"):
            array.numpy()
        kept = len(seen.live)
        array._allocation.__del__()
        assert len(seen.live) == kept

    in_child(work)
    double.over(4)(array)
    assert len(seen.launches) == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_device_with_a_driver_is_not_opened_anew_in_the_child(*, is_closed: bool) -> None:
    directory = DeviceDirectory(Source(ScriptedBackend("away", [("gpu", "One"), ("gpu", "Two")])))
    device = directory.device("away")
    first, second = directory.infos("away")
    if is_closed:
        device.close()

    def work() -> None:
        for again in ("away", "away:0", "away:1", "auto", first, second):
            with pytest.raises(DeviceError, match="fork") as raised:
                directory.device(again)
            assert again == "auto" or raised.value.fix.startswith("start processes with 'spawn'")
        with pytest.raises(DeviceError, match="its driver does not survive a fork"):
            directory.infos("away")

    in_child(work)
    assert directory.device("away:1").name == "away:1"


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_device_of_the_host_goes_on_in_the_child(name: str) -> None:
    x = np.arange(4.0)
    double.over(4, device=name)(x)

    def work() -> None:
        double.over(4, device=name)(x)
        assert x.tolist() == [0, 4, 8, 12]

    in_child(work)


def test_large_launch_on_all_cores_works_in_the_child() -> None:
    x = np.ones(1 << 22, np.float32)
    launcher = double.over(len(x), device="cpu")
    for _ in range(3):
        launcher(x)

    def work() -> None:
        for _ in range(3):
            launcher(x)
        assert x.min() == x.max() == 64

    in_child(work)


def test_fork_while_a_device_is_being_opened_does_not_hang_the_child() -> None:
    directory = importlib.import_module("quernel.runtime.directory").directory
    name = qn.device("reference").name
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with directory._lock:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)

    def work() -> None:
        signal.alarm(20)
        directory.forget(qn.device(name))
        assert qn.device(name + "").name == name

    try:
        in_child(work)
    finally:
        leave.set()
        thread.join()


def hold_in_a_thread(lock: AbstractContextManager[object]) -> Callable[[], None]:
    """Holds a lock in another thread; call what it gives to let go."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)

    def let_go() -> None:
        leave.set()
        thread.join()

    return let_go


def test_fork_while_a_kernel_is_expanded_does_not_hang_the_child() -> None:
    launcher = triple.over(4, device="cpu")
    with qn.use("cpu"):
        specialized = triple.specialize(qn.Array[qn.f64])
    let_go = hold_in_a_thread(specialized.definition._lock)

    def work() -> None:
        signal.alarm(20)
        assert "triple" in specialized.ir
        x = np.ones(4)
        launcher(x)
        assert x.tolist() == [3, 3, 3, 3]

    try:
        in_child(work)
    finally:
        let_go()


def test_fork_while_the_interpreter_updates_memory_does_not_hang_the_child() -> None:
    views = importlib.import_module("quernel.reference.views")
    let_go = hold_in_a_thread(views._atomics)

    def work() -> None:
        signal.alarm(20)
        x = np.zeros(1)
        count.over(4, device="reference")(x)
        assert x.tolist() == [4]

    try:
        in_child(work)
    finally:
        let_go()


def test_fork_waits_until_no_thread_is_within_llvm() -> None:
    double.over(4, device="cpu")(np.ones(4))
    toolchain = importlib.import_module("quernel_cpu._toolchain")
    for lock in (toolchain._linking, toolchain._llvm().ffi.lib._lock):
        let_go = hold_in_a_thread(lock)
        threading.Timer(0.2, let_go).start()

        def work() -> None:
            signal.alarm(20)
            x = np.ones(4, np.int16)
            double.over(4, device="cpu")(x)
            assert x.tolist() == [2, 2, 2, 2]

        in_child(work)
        let_go()


def test_values_kept_by_objects_take_no_lock_that_outlives_a_fork() -> None:
    with qn.use("cpu"):
        specialized = double.specialize(qn.Array[qn.f32])
    assert not hasattr(type(specialized).ir, "lock")
    assert specialized.ir is specialized.ir
