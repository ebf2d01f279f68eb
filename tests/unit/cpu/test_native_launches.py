"""Launches whose arguments native code reads are held against the general path, which is the reference."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quernel as qn
from quernel.errors import QuernelError
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.launchers import Launcher
from quernel_cpu import native_launching
from quernel_cpu.native_launching import native_launch

needs_native = pytest.mark.skipif(
    not native_launching._is_known_python(), reason="needs 64-bit CPython with its lock, without debugging"
)


@qn.kernel
def shift(x: qn.Array1[qn.f32], out: qn.Array1[qn.f64], by: qn.f32, times: int, twice: bool, k: qn.i8 = 1):
    i = qn.global_id()
    out[i] = out[i] + x[i] * times + by + k
    if twice:
        out[i] = out[i] * 2.0


@qn.kernel
def lengths(a: qn.Array3[qn.i32], out: qn.Array2[qn.i64], scale: float):
    i, j = qn.global_id()
    out[i, j] = a.shape[0] * 100 + a.shape[1] * 10 + a.shape[2] + a[1, i, j] * 1000 + qn.i64(scale)


@qn.kernel
def count(y: qn.Array1[qn.i64]):
    y[qn.global_id()] += 1


@pytest.fixture(autouse=True)
def compiled() -> None:
    """LLVM is there, as when kernels are compiled: then native code is made at once."""
    import llvmlite.binding  # noqa: F401 — its presence counts


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been left to the general path."""
    left: list[Any] = []
    whole: Any = Launcher._general

    def noted(self: Launcher, *args: Any) -> None:
        left.append(args)
        whole(self, *args)

    monkeypatch.setattr(Launcher, "_general", noted)
    return left


def fresh(kernel: Any) -> Any:
    """The kernel without anything that earlier tests have made ready."""
    return kernel.options(debug=False)


def taken(launcher: Any) -> Any:
    """What takes the arguments of quick launches."""
    return launcher._quick[1]


def native(launcher: Any) -> Any:
    """The native function of a launcher, which it has to have."""
    read = taken(launcher)
    assert type(read) is type(len)
    return read


# --- what is read ----------------------------------------------------------------------------------------------------

SHIFTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "same": lambda x, out: (x, out, 0.5, 3, True, 1),
    "other numbers": lambda x, out: (x, out, -1e30, -(2**40), False, -128),
    "default": lambda x, out: (x, out, 0.5, 3, True),
    "too large for f32": lambda x, out: (x, out, 1e39, 3, True, 1),
    "infinite": lambda x, out: (x, out, float("inf"), 3, True, 1),
    "no number": lambda x, out: (x, out, float("nan"), 3, True, 1),
    "int for float": lambda x, out: (x, out, 7, 3, True, 1),
    "int beyond floats": lambda x, out: (x, out, 10**400, 3, True, 1),
    "too large for i8": lambda x, out: (x, out, 0.5, 3, True, 128),
    "too small for i8": lambda x, out: (x, out, 0.5, 3, True, -129),
    "beyond 64 bits": lambda x, out: (x, out, 0.5, 1 << 64, True, 1),
    "bool for int": lambda x, out: (x, out, 0.5, True, True, 1),
    "int for bool": lambda x, out: (x, out, 0.5, 3, 1, 1),
    "float for int": lambda x, out: (x, out, 0.5, 3.0, True, 1),
    "NumPy's numbers": lambda x, out: (x, out, np.float32(0.5), np.int64(3), np.True_, np.int8(1)),
    "another array": lambda x, out: (x[::-1].copy(), out, 0.5, 3, True, 1),
    "one missing": lambda x, out: (x, out, 0.5),
    "one too many": lambda x, out: (x, out, 0.5, 3, True, 1, 1),
    "read only": lambda x, out: (np.broadcast_to(x, x.shape), out, 0.5, 3, True, 1),
    "read only, written": lambda x, out: (x, np.broadcast_to(out, out.shape), 0.5, 3, True, 1),
    "every other": lambda x, out: (np.repeat(x, 2)[::2], out, 0.5, 3, True, 1),
    "backwards": lambda x, out: (x, out[::-1], 0.5, 3, True, 1),
    "repeating": lambda x, out: (np.broadcast_to(x[:1], x.shape), out, 0.5, 3, True, 1),
    "off 16 bytes": lambda x, out: (np.concatenate([x[:1], x])[1:], out, 0.5, 3, True, 1),
    "off elements": lambda x, out: (np.zeros(4 * len(x) + 1, np.uint8)[1:].view(np.float32), out, 0.5, 3, True, 1),
    "another dtype": lambda x, out: (x.astype(np.float64), out, 0.5, 3, True, 1),
    "other byte order": lambda x, out: (x.astype(">f4"), out, 0.5, 3, True, 1),
    "another rank": lambda x, out: (x.reshape(2, -1), out, 0.5, 3, True, 1),
    "no axis": lambda x, out: (x.reshape(-1)[0:1].reshape(()), out, 0.5, 3, True, 1),
    "subclass": lambda x, out: (x.view(np.recarray), out, 0.5, 3, True, 1),
    "masked": lambda x, out: (np.ma.masked_array(x), out, 0.5, 3, True, 1),
    "empty": lambda x, out: (x[:0], out, 0.5, 3, True, 1),
    "device array": lambda x, out: (qn.device("cpu").array(x), out, 0.5, 3, True, 1),
    "list": lambda x, out: (x.tolist(), out, 0.5, 3, True, 1),
    "nothing": lambda x, out: (None, out, 0.5, 3, True, 1),
}
"""Changes of the arguments of `shift`."""


def result(launch: Callable[..., None], name: str) -> Any:
    x, out = np.arange(16, dtype=np.float32), np.arange(16, dtype=np.float64)
    try:
        launch(*SHIFTS[name](x, out))
    except QuernelError as error:
        return type(error), error.what, error.fix, repr(out)
    return repr(out)


@needs_native
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(list(SHIFTS)), min_size=1, max_size=6))
def test_any_sequence_of_arguments_means_the_same_both_ways(names: list[str]) -> None:
    launcher = fresh(shift).over(16)
    for _ in range(12):
        result(launcher, "same")
    native(launcher)
    for name in names:
        for _ in range(3):  # The first may be handed over to be timed, the next are launched natively.
            assert result(launcher, name) == result(lambda *args: Launcher.__call__(launcher, *args), name)
        assert result(launcher, "same") == result(lambda *args: Launcher.__call__(launcher, *args), "same")


@needs_native
@pytest.mark.parametrize("name", list(SHIFTS))
def test_each_change_means_the_same_both_ways(name: str) -> None:
    launcher = fresh(shift).over(16)
    for _ in range(12):
        result(launcher, "same")
    for _ in range(10):
        assert result(launcher, name) == result(lambda *args: Launcher.__call__(launcher, *args), name)


@needs_native
def test_arrays_and_numbers_that_fit_never_take_the_general_path(general: list[Any]) -> None:
    x, out = np.ones(64, np.float32), np.zeros(64)
    frozen = x.copy()
    frozen.flags.writeable = False
    launcher = fresh(shift).over(64)
    for _ in range(3):
        launcher(x, out, 0.5, 3, False, 1)
    native(launcher)
    for number in range(40):
        launcher(x, out, 0.25 * number, number, False, -number)
        launcher(frozen, by=0.5, out=out, twice=False, times=2)
    assert not general
    assert out.tolist() == [3 * 4.5 + sum(0.25 * n for n in range(40)) + 40 * 3.5] * 64


@needs_native
def test_lengths_and_strides_of_several_axes_are_those_of_each_launch(general: list[Any]) -> None:
    launcher = fresh(lengths).over((2, 3))
    for shape in [(2, 2, 3), (2, 2, 3), (2, 2, 3), (2, 4, 3), (5, 2, 9), (3, 7, 3)]:
        a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        for columns in (3, 8):
            out = np.zeros((2, columns), np.int64)
            launcher(a, out, 7.9)
            wanted = shape[0] * 100 + shape[1] * 10 + shape[2] + a[1, :2, :3].astype(np.int64) * 1000 + 7
            assert out[:, :3].tolist() == wanted.tolist()
    native(launcher)
    assert not general


@needs_native
def test_arrays_of_the_device_are_taken_where_only_their_address_counts(general: list[Any]) -> None:
    x, out = qn.device("cpu").full(64, 1.0, qn.f32), np.zeros(64)
    launcher = fresh(shift).over(64)
    for _ in range(30):
        launcher(x, out, 0.0, 1, False, 0)
    native(launcher)
    assert not general
    assert out.tolist() == [30.0] * 64


@needs_native
@given(st.integers(-(1 << 70), 1 << 70), st.floats(), st.integers(-200, 200))
@settings(max_examples=100, deadline=None)
def test_numbers_have_the_cells_that_python_packs(times: int, by: float, k: int) -> None:
    x, out = np.arange(16, dtype=np.float32), np.zeros(16)
    launcher = fresh(shift).over(16)
    for _ in range(3):
        launcher(x, out, 0.5, 3, True, 1)
    plan, read, _ = launcher._quick
    while read(x, out, 0.5, 3, True, 1) is True:
        pass
    try:
        values = read_arguments(launcher._kernel.parameters.specs, (x, out, by, times, True, k), 7)[1]
        wanted = plan.ready.packed(values, launcher._geometry)
    except QuernelError:
        assert read(x, out, by, times, True, k) is None
        return
    assert read(x, out, by, times, True, k) == (wanted if math.isfinite(by) else None)


@needs_native
def test_a_bound_launch_has_the_cells_that_it_was_bound_to() -> None:
    a = np.arange(30, dtype=np.int32).reshape(2, 3, 5)
    out = np.zeros((2, 3), np.int64)
    bound = fresh(lengths).over((2, 3)).bind(a, out, -7.9)
    for number in range(40):
        a[1, 0, 0] = number
        out[:] = -1
        bound()
        assert out.tolist() == (a[1, :2, :3].astype(np.int64) * 1000 + 235 - 7).tolist()
    repeat = next(cell.cell_contents for cell in bound._bound.run.__closure__ if type(cell.cell_contents) is type(len))
    made = set()
    for _ in range(20):
        bound()  # Now and then it is timed, and then native code makes the next ones.
        made.add(repeat())
    made |= {repeat() for _ in range(20)}
    assert made == {True, bound._bound.prepared.arguments}
    bound.update(scale=100.0)
    bound()
    assert out.tolist() == (a[1, :2, :3].astype(np.int64) * 1000 + 235 + 100).tolist()


@needs_native
@pytest.mark.parametrize("length", [1 << 15, 1 << 16, 100_003])
def test_shared_launches_run_every_item_once(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from quernel_cpu import device as cpu_device
    from quernel_cpu.workers import make_native_workers

    if make_native_workers() is None:
        pytest.skip("needs native workers")
    # Whatever they cost, two threads share them.
    monkeypatch.setattr(cpu_device, "_WORTH_TELLING_NS", 0)
    monkeypatch.setattr(cpu_device, "_WORTH_RELEASING_NS", 1 << 60)
    monkeypatch.setattr(cpu_device, "threads_of_launch", lambda now_ns: 2)
    y = np.zeros(length, np.int64)
    launcher: Any = fresh(count).over(length)
    for _ in range(20):
        launcher(y)
    read, run = native(launcher), launcher._quick[2]
    num_native = 0
    for _ in range(400):
        cells = read(y)
        num_native += cells is True
        if cells is not True:
            run(cells)
    assert y.tolist() == [420] * length
    assert num_native > 200
    state = next(cell.cell_contents for cell in run.__closure__ if hasattr(cell.cell_contents, "raw"))
    from quernel_cpu.native_launch import STATE

    assert all(STATE.unpack(state.raw)[1:]), "no launch was shared"


# --- what is kept, counted and raised --------------------------------------------------------------------------------


@needs_native
def test_no_reference_is_lost_or_kept() -> None:
    x, out = np.ones(16, np.float32), np.zeros(16)
    launcher = fresh(shift).over(16)
    for _ in range(12):
        launcher(x, out, 0.5, 3, True, 1)
    read, by, times = native(launcher), 0.123, 123456
    watched = (x, out, by, times, x.dtype, np.ndarray, float, True, None, read)
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(5000):
        launcher(x, out, by, times, True, 1)
        read(x, out, by, times, True, 1)
        read(x, out, by, times, 1, 1)
        read(x)
    gc.collect()
    changes = [after - was for after, was in zip(map(sys.getrefcount, watched), before, strict=True)]
    assert all(abs(change) < 1000 for change in changes), changes


@needs_native
def test_a_native_function_keeps_its_kernel_after_everything_else_is_gone() -> None:
    y = np.zeros(64, np.int64)
    launcher: Any = fresh(count).over(64)
    for _ in range(12):
        launcher(y)
    read, run = launcher._quick[1:]
    del launcher
    gc.collect()
    before = y[0]
    for _ in range(100):
        cells = read(y)
        if cells is not True:
            run(cells)
    assert y.tolist() == [before + 100] * 64


@needs_native
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer's signals")
def test_no_launch_is_made_twice_when_a_signals_handler_raises() -> None:
    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("late")

    y = np.zeros(16, np.int64)
    launcher = fresh(count).over(16)
    for _ in range(12):
        launcher(y)
    native(launcher)
    former = signal.signal(signal.SIGALRM, late)
    try:
        for _ in range(100):
            y[:], done = 0, 0
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            try:
                while done < 3000:
                    launcher(y)
                    done += 1
            except TimeoutError:
                pass
            assert done <= y[0] <= done + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


@needs_native
def test_threads_launch_with_their_own_arguments() -> None:
    launcher: Any = fresh(count).over(64)
    first = np.zeros(64, np.int64)
    for _ in range(12):
        launcher(first)
    native(launcher)
    arrays = [np.zeros(64, np.int64) for _ in range(4)]

    def repeat(y: Any) -> None:
        for _ in range(3000):
            launcher(y)

    threads = [threading.Thread(target=repeat, args=(y,)) for y in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [y.tolist() for y in arrays] == [[3000] * 64] * 4


# --- where there is none ---------------------------------------------------------------------------------------------


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not made native launches yet."""
    monkeypatch.setattr(native_launching, "_TRIED", [])


def assert_read_in_python() -> None:
    y = np.zeros(16, np.int64)
    launcher = fresh(count).over(16)
    for _ in range(12):
        launcher(y)
    assert taken(launcher) is None
    assert y.tolist() == [12] * 16


@pytest.mark.usefixtures("untried")
def test_whoever_launches_while_native_launches_are_tried_waits_for_nobody() -> None:
    """A signal's handler may have interrupted just that, to launch."""
    with native_launching._lock:
        assert_read_in_python()
    assert not native_launching._TRIED


@pytest.mark.usefixtures("untried")
def test_no_code_is_made_in_a_thread_while_the_interpreter_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[threading.Thread] = []
    is_running = False
    monkeypatch.setattr(threading.Thread, "start", lambda thread: begun.append(thread))
    monkeypatch.setattr(threading.main_thread(), "is_alive", lambda: is_running)
    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    with qn.environment(tmp_path) as environment:
        assert native_launching._loaded(environment) is None
        assert not begun
        is_running = True
        assert native_launching._loaded(environment) is None
        assert [thread.name for thread in begun] == ["quernel-cpu-launch"]


def test_a_setting_has_python_read_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NATIVE_LAUNCHES", "0")
    assert_read_in_python()


@needs_native
def test_a_setting_that_changes_counts_for_the_next_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.zeros(16, np.int64)
    kernel = fresh(count)
    for _ in range(3):
        kernel.over(16)(y)
    native(kernel.over(16))
    monkeypatch.setenv("QUERNEL_NATIVE_LAUNCHES", "0")
    launcher = kernel.over(8)
    for _ in range(3):
        launcher(y)
    assert taken(launcher) is None
    assert y.tolist() == [6] * 8 + [3] * 8


@pytest.mark.parametrize("flags", ["t", "d"])
def test_other_builds_of_python_read_the_arguments_themselves(
    flags: str, untried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "abiflags", flags)
    assert_read_in_python()


@needs_native
@pytest.mark.parametrize("name", ["_DIMENSIONS", "_NDIM", "_DTYPE", "_FLAGS", "_FLOAT_VALUE", "_DATA"])
def test_objects_laid_out_otherwise_are_noticed(name: str, untried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from quernel_cpu import native_launch as code

    # Where the code then looks there is something else of the same object.
    elsewhere = {"_DIMENSIONS": code._DIMENSIONS + 8, "_NDIM": code._FLAGS, "_FLOAT_VALUE": 8, "_DATA": code._DTYPE}
    monkeypatch.setattr(code, name, elsewhere.get(name, code._DATA))
    assert_read_in_python()


def test_what_the_code_does_not_read_python_does() -> None:
    @qn.kernel
    def half(y: qn.Array1[qn.f32], by: qn.bf16) -> None:
        y[qn.global_id()] += qn.f32(by)

    y = np.zeros(16, np.float32)
    for _ in range(12):
        half.over(16)(y, 1.5)
    assert taken(half.over(16)) is None
    assert y.tolist() == [18.0] * 16


@needs_native
def test_what_launches_of_every_shape_share_is_worked_out_once() -> None:
    kernel, y = fresh(count), np.zeros(64, np.int64)
    for _ in range(3):
        kernel.over(8)(y)
    before = native_launching._form.cache_info().misses
    for extent in range(9, 60):
        kernel.over(extent)(y)
    assert native_launching._form.cache_info().misses == before


@needs_native
def test_dtypes_that_are_equal_but_not_the_same_are_each_read(general: list[Any]) -> None:
    for dtype in (np.dtype(np.int64), np.dtype(np.int64, metadata={"unit": "m"})):
        launcher, y = fresh(count).over(16), np.zeros(16, dtype)
        for _ in range(2):
            launcher(y)
        assert taken(launcher) is not None
        before = len(general)
        launcher(y)
        assert len(general) == before
        assert y.tolist() == [3] * 16


@needs_native
def test_a_record_of_too_many_operands_is_not_made() -> None:
    import ctypes

    from quernel.compiler.artifacts import HeaderParameter
    from quernel_cpu.native_launch import STATE

    state = ctypes.create_string_buffer(STATE.size)
    made = [
        native_launch(((float, None, 0),) * n, (HeaderParameter("x", "f64"),) * n, (), False, 1, b"", 0, state, None)
        for n in (32, 33)
    ]
    assert made[0] is not None
    assert made[0](*[0.5] * 32) == b""
    assert made[0](*[0.5] * 31) is None
    assert made[1] is None


PROGRAM = """
import sys
import numpy as np
import quernel as qn

@qn.kernel
def count(y: qn.Array1[qn.i64]):
    y[qn.global_id()] += 1

y = np.zeros(16, np.int64)
for _ in range(9):
    count.over(16)(y)
assert y.tolist() == [9] * 16
print(type(count.over(16)._quick[1]).__name__, "llvmlite" in sys.modules)
"""


@needs_native
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs code images")
def test_a_warm_process_launches_natively_without_llvm(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {**os.environ, "QUERNEL_ENVIRONMENT": str(tmp_path / "store")}
    outputs = [
        subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["builtin_function_or_method", "True"], ["builtin_function_or_method", "False"]]
