"""Compiling without launching: blocks that queue, lists, warm kernels, contexts that compile nothing; progress bars."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.runtime.scripted import ScriptedDevice

import quernel as qn
from quernel.compiler import PendingState
from quernel.errors import CompilationError, KernelSyntaxError, KernelTypeError, LaunchError
from quernel.runtime import interceptors, progress
from quernel.runtime.devices import Device


@qn.kernel
def saxpy(a, x, y):  # type: ignore[no-untyped-def]
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def counted(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    i = qn.global_id()
    x[i] = 1.0


@qn.kernel
def scaled(a: qn.f64, x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    i = qn.global_id()
    x[i] = a * x[i]


@qn.kernel
def broken(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    i = qn.global_id()
    x[i] = [1, 2, 3]


@qn.kernel
def broken_too(x: qn.Array1[qn.f64]):  # type: ignore[no-untyped-def, valid-type]
    i = qn.global_id()
    x[i] = {}


@pytest.fixture
def cpu(tmp_path: Path) -> Iterator[Device]:
    """The CPU, with an environment in which nothing is kept yet."""
    with qn.environment(tmp_path):
        yield qn.device("cpu")


def compiled(seen: ScriptedDevice) -> list[str]:
    return [lowered.kernel.name for lowered in seen.target.compiler.lowered]


# --- with device.compiling() ------------------------------------------------------------------------------------------


def test_launches_inside_do_not_run_and_are_compiled_at_the_end_as_one_batch(gpu: Device, seen: ScriptedDevice) -> None:
    x, y = gpu.zeros(8, qn.f64), gpu.zeros(8, qn.f64)
    with gpu.compiling() as block:
        saxpy.over(8)(2.0, x, y)
        counted.over(8)(x)
        counted.over(8)(y)
        assert compiled(seen) == []
        assert len(block) == 2
        assert repr(block) == "<2 kernels to be compiled for fake:0>"
    assert sorted(compiled(seen)) == ["counted", "saxpy"]
    assert seen.launches == []
    assert gpu.loader.counts().compiled == 2
    saxpy.over(8)(2.0, x, y)
    counted.over(8)(x)
    assert len(compiled(seen)) == 2
    assert len(seen.launches) == 2


def test_block_compiles_exactly_what_the_launches_afterwards_need(cpu: Device) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    strided = np.ones(200, np.float32)[::2]
    with cpu.compiling():
        saxpy.over(100)(2.0, x, y)
        saxpy.over(100)(2.0, x, strided)
        saxpy[4, 32](2.0, x, y)
    assert y.tolist() == [1.0] * 100
    before = cpu.loader.counts()
    with qn.no_compiling():
        saxpy.over(100)(2.0, x, y)
        saxpy.over(100)(2.0, x, strided)
    assert cpu.loader.counts() == before
    assert y.tolist() == (2 * x + 1).tolist() == strided.tolist()


def test_prepared_launches_and_graphs_do_not_run_inside(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    bound = counted.over(8).bind(x)
    with gpu.graph() as graph:
        counted.over(8)(x)
    with gpu.compiling() as block:
        bound()
        graph()
        assert len(block) == 1
    assert seen.launches == []
    graph()
    assert len(seen.launches) == 1


def test_launches_on_other_devices_run(gpu: Device, seen: ScriptedDevice, cpu: Device) -> None:
    x = gpu.zeros(8, qn.f64)
    with cpu.compiling() as block:
        counted.over(8)(x)
        assert len(block) == 0
    assert len(seen.launches) == 1


@pytest.mark.parametrize("named", [None, "cpu"])
def test_launch_that_names_no_device_does_not_run_elsewhere(gpu: Device, cpu: Device, named: str | None) -> None:
    x = np.arange(8.0)
    bound = counted.over(8).bind(x)
    with contextlib.ExitStack() as stack:
        stack.enter_context(gpu.compiling())
        if named is not None:
            stack.enter_context(qn.use(named))
        for launch in (lambda: counted.over(8)(x), bound):
            with pytest.raises(
                LaunchError, match=r"(?s)counted names no device and would run on cpu:0.*device='fake:0'"
            ):
                launch()
        assert x.tolist() == np.arange(8.0).tolist()
        counted.over(8, device="cpu")(x)
    assert x.tolist() != np.arange(8.0).tolist()


def test_launch_that_names_no_device_is_taken_by_an_outer_block_of_its_own(gpu: Device, cpu: Device) -> None:
    x = np.arange(8.0)
    with cpu.compiling() as outer:
        with gpu.compiling() as inner:
            counted.over(8)(x)
            assert len(inner) == 0
        assert len(outer) == 1
    assert x.tolist() == np.arange(8.0).tolist()


def test_other_threads_run_their_launches(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    with gpu.compiling() as block:
        thread = threading.Thread(target=counted.over(8), args=(x,))
        thread.start()
        thread.join()
        assert len(block) == 0
    assert len(seen.launches) == 1


def test_tasks_of_a_block_are_in_it_until_it_ends(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)

    async def launch(block_ended: asyncio.Event) -> None:
        counted.over(8)(x)
        await block_ended.wait()
        counted.over(8)(x)
        assert x.numpy() is not None

    async def main() -> None:
        block_ended = asyncio.Event()
        with gpu.compiling() as block:
            task = asyncio.create_task(launch(block_ended))
            await asyncio.sleep(0)
            assert (len(block), len(seen.launches)) == (1, 0)
        counted.over(8)(x)
        assert len(seen.launches) == 1
        with block:  # the same object, for others than the task
            block_ended.set()
            await task
            assert (len(block), len(seen.launches)) == (0, 2)

    asyncio.run(main())


def test_task_made_before_a_block_is_not_in_it(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)

    async def launch() -> None:
        counted.over(8)(x)

    async def main() -> None:
        task = asyncio.create_task(launch())
        with gpu.compiling() as block:
            await task
            assert (len(block), len(seen.launches)) == (0, 1)

    asyncio.run(main())


def test_threads_with_a_copied_context_lose_no_launch_as_the_block_ends(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    for _ in range(20):
        before = len(seen.launches)
        is_over = threading.Event()
        with gpu.compiling():
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(launch_until, is_over, x))
            thread.start()
        is_over.set()
        thread.join()
        assert len(seen.launches) > before


def launch_until(is_over: threading.Event, x: Any) -> None:
    is_waiting = True
    while is_waiting:
        is_waiting = not is_over.is_set()
        counted.over(8)(x)


def test_block_may_be_left_in_another_context(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    block = gpu.compiling()
    contextvars.copy_context().run(block.__enter__)
    counted.over(8)(x)
    assert len(block) == 0
    contextvars.copy_context().run(block.__exit__, None, None, None)
    saxpy.over(8)(1.0, x, x)
    assert len(seen.launches) == 2
    assert not interceptors.standing


def test_inner_blocks_leave_compiling_to_the_outermost_of_their_device(gpu: Device, seen: ScriptedDevice) -> None:
    x, y = gpu.zeros(8, qn.f64), gpu.zeros(8, qn.f64)
    with gpu.compiling():
        with gpu.compiling():
            counted.over(8)(x)
        assert compiled(seen) == []
        with pytest.raises(LaunchError, match="would be written by kernel counted"):
            raise_from_reading(x)
        saxpy.over(8)(1.0, x, y)
    assert sorted(compiled(seen)) == ["counted", "saxpy"]
    assert seen.launches == []


def raise_from_reading(array: Any) -> None:
    array.numpy()


def test_block_left_with_an_error_compiles_nothing_and_forgets(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)

    def fail() -> None:
        with gpu.compiling():
            counted.over(8)(x)
            raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        fail()
    assert gpu.loader.counts().registered == 0
    with gpu.compiling():
        saxpy.over(8)(1.0, x, x)
    assert compiled(seen) == ["saxpy"]
    counted.over(8)(x)
    assert len(seen.launches) == 1


def test_inner_block_left_with_an_error_forgets_only_its_own(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    with gpu.compiling():
        counted.over(8)(x)
        with pytest.raises(KernelTypeError, match="misses the arguments"), gpu.compiling():
            saxpy.over(8)(1.0)
    assert compiled(seen) == ["counted"]


def test_reading_what_a_queued_launch_would_write_is_refused_and_the_rest_is_not(gpu: Device) -> None:
    x, y = gpu.array(np.arange(8.0)), gpu.zeros(16, qn.f64)
    with gpu.compiling():
        saxpy.over(8)(2.0, x, y[:8])
        for read in (
            y.numpy,
            y[2:4].numpy,
            lambda: y[3].item(),
            lambda: y.copy_to(np.empty(16)),
            y.copy,
            lambda: gpu.array(y),
            lambda: y.astype(qn.f32),
            lambda: float(y[0]),
        ):
            with pytest.raises(LaunchError, match=r"written by kernel saxpy.*queued and does not run within compiling"):
                read()
        assert x.numpy().tolist() == list(range(8))
        assert y[8:].numpy().tolist() == [0.0] * 8
        y.fill(3.0)
        y[:8].copy_from(np.ones(8))
        assert repr(y).startswith("<device array of")
    assert y[:8].numpy().tolist() == [1.0] * 8


def test_host_access_to_what_a_queued_launch_would_write_is_refused(cpu: Device) -> None:
    x = cpu.zeros(8, qn.f64)
    with cpu.compiling():
        counted.over(8)(x)
        for read in (lambda: np.asarray(x), lambda: np.from_dlpack(x), lambda: x.__array_interface__, x.numpy):
            with pytest.raises(LaunchError, match="written by kernel counted"):
                read()
    assert np.asarray(x).tolist() == [0.0] * 8


@attrs.frozen
class Pair:
    first: qn.Array1[qn.f64]  # type: ignore[valid-type]
    second: qn.Array1[qn.f64]  # type: ignore[valid-type]


@qn.kernel
def swaps(pair, n: int):  # type: ignore[no-untyped-def]
    i = qn.global_id()
    pair.first[i] = pair.second[i]


def test_arrays_within_structs_count_as_arguments(cpu: Device) -> None:
    x, y = cpu.zeros(8, qn.f64), cpu.zeros(8, qn.f64)
    with cpu.compiling():
        swaps.over(8)(Pair(x, y), 8)
        with pytest.raises(LaunchError, match="written by kernel swaps"):
            x.numpy()
        assert y.numpy().tolist() == [0.0] * 8


def test_waiting_for_the_device_is_refused_once_something_is_queued(gpu: Device, cpu: Device) -> None:
    x, stream = gpu.zeros(8, qn.f64), gpu.stream()
    with gpu.compiling():
        gpu.synchronize()
        event = stream.record()
        counted.over(8)(x)
        for wait in (gpu.synchronize, stream.synchronize, event.synchronize):
            with pytest.raises(LaunchError, match=r"launches within compiling\(\) of fake:0 are queued and do not run"):
                wait()
        cpu.synchronize()
    gpu.synchronize()


def test_failing_kernel_is_raised_at_the_end_and_its_siblings_are_loaded(cpu: Device) -> None:
    x = np.ones(8)

    def fail() -> None:
        with cpu.compiling():
            broken.over(8)(x)
            counted.over(8)(x)

    with pytest.raises(KernelSyntaxError, match="a list has no meaning"):
        fail()
    before = cpu.loader.counts().compiled
    counted.over(8)(x)
    assert cpu.loader.counts().compiled == before
    with pytest.raises(KernelSyntaxError, match="a list has no meaning"):
        broken.over(8)(x)


def test_arguments_that_do_not_fit_are_refused_at_the_launch(gpu: Device) -> None:
    with gpu.compiling() as block:
        with pytest.raises(KernelTypeError, match="parameter 'x' is an array"):
            counted.over(8, device=gpu)(1.0)
        assert len(block) == 0


def test_block_is_entered_once_at_a_time_and_may_be_used_again(gpu: Device, seen: ScriptedDevice) -> None:
    x = gpu.zeros(8, qn.f64)
    block = gpu.compiling()
    with block:
        with pytest.raises(LaunchError, match="entered already"):
            block.__enter__()
        counted.over(8)(x)
    with block:
        saxpy.over(8)(1.0, x, x)
    assert sorted(compiled(seen)) == ["counted", "saxpy"]


def test_closed_device_compiles_nothing(gpu: Device) -> None:
    gpu.close()
    with pytest.raises(LaunchError, match="is closed"):
        gpu.compiling().__enter__()


# --- device.compile ---------------------------------------------------------------------------------------------------


def test_list_of_kernels_in_each_form_is_compiled_as_one_batch(cpu: Device) -> None:
    x = np.ones(8, np.float32)
    asked = [
        saxpy.specialize(qn.f32, qn.Array1[qn.f32], qn.Array1[qn.f32]),
        (saxpy, (2.0, x, x)),
        (scaled, {"a": qn.f64}),
        counted,
        counted.specialize().definition,
    ]
    before = cpu.loader.counts().compiled
    loaded = cpu.compile(asked)
    assert [kernel.id.kernel.name for kernel in loaded] == ["saxpy", "saxpy", "scaled", "counted", "counted"]
    assert loaded[3] is loaded[4]
    assert cpu.loader.counts().compiled - before == 4
    cpu.kernels.check(loaded[0])
    assert cpu.compile(counted) == (loaded[3],)


def test_list_compiles_on_the_given_executor_and_tells_how_far_it_is(gpu: Device, seen: ScriptedDevice) -> None:
    told: list[tuple[int, int]] = []
    with ThreadPoolExecutor(1) as executor:
        gpu.compile([counted, scaled], executor=executor, progress=lambda done, of, name: told.append((done, of)))
        assert executor._threads
    assert told == [(1, 2), (2, 2)]
    assert sorted(compiled(seen)) == ["counted", "scaled"]


def test_failures_of_a_list_are_raised_together_and_the_others_are_loaded(gpu: Device, seen: ScriptedDevice) -> None:
    with pytest.raises(CompilationError, match="2 of 3 kernels failed: broken, broken_too") as caught:
        gpu.compile([broken, (broken_too, ()), counted])
    assert any(line.startswith("broken: ") for line in caught.value.chain)
    assert compiled(seen) == ["counted"]
    assert len(gpu.kernels) == 1


def test_what_is_no_kernel_is_refused(gpu: Device) -> None:
    with pytest.raises(KernelTypeError, match="3 is no kernel to compile"):
        gpu.compile([3])


# --- kernel.warm ------------------------------------------------------------------------------------------------------


def test_warm_kernel_compiles_in_the_background_and_launches_need_no_more(cpu: Device) -> None:
    pending = saxpy.warm(2.0, np.ones(8, np.float32), np.ones(8, np.float32))
    kernel = pending.result()
    assert pending.state is PendingState.LOADED
    assert kernel.id.kernel.name == "saxpy"
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    with qn.no_compiling():
        saxpy.over(8)(2.0, x, y)
    assert y.tolist() == (2 * x + 1).tolist()


def test_many_warm_kernels_are_awaited(cpu: Device) -> None:
    async def ask() -> list[Any]:
        pending = [scaled.options(block=block).warm() for block in (32, 64, 128, 256)]
        return [await each for each in pending]

    assert [kernel.id.kernel.name for kernel in asyncio.run(ask())] == ["scaled"] * 4


def test_warm_kernel_goes_to_its_own_device(cpu: Device) -> None:
    pending = counted.options(device="reference").warm()
    assert pending.result().owner.name == "reference:0"


def test_warm_kernel_without_types_names_what_is_missing(cpu: Device) -> None:
    with pytest.raises(KernelTypeError, match="parameter 'a' of kernel saxpy has no exact type"):
        saxpy.warm()


# --- no_compiling -----------------------------------------------------------------------------------------------------


def test_launch_that_would_compile_is_refused_with_name_reason_and_fix(cpu: Device) -> None:
    x = np.ones(8)
    with qn.no_compiling(), pytest.raises(LaunchError, match=r"kernel counted is not compiled for cpu") as caught:
        counted.over(8)(x)
    assert "has no kernel of that name" in str(caught.value)
    assert "counted.warm(...)" in str(caught.value.fix)
    assert caught.value.where is not None
    counted.over(8)(x)
    with qn.no_compiling():
        counted.over(8)(x)
        with pytest.raises(LaunchError, match="with a different: options"):
            counted.options(fast_math=True).over(8)(x)


def test_launch_loads_from_the_store_where_nothing_is_compiled(tmp_path: Path) -> None:
    x = np.ones(8)
    with qn.environment(tmp_path):
        counted.over(8)(x)
    with qn.environment(tmp_path), qn.no_compiling():  # the first one's end let go of what was loaded
        before = qn.device("cpu").loader.counts()
        counted.over(8)(x)
        after = qn.device("cpu").loader.counts()
    assert (after.loaded - before.loaded, after.compiled - before.compiled) == (1, 0)


def test_compiling_blocks_and_lists_load_what_is_kept_where_nothing_is_compiled(tmp_path: Path) -> None:
    with qn.environment(tmp_path):
        qn.device("cpu").compile([counted])
    with qn.environment(tmp_path), qn.no_compiling():
        (kernel,) = qn.device("cpu").compile([counted])
        assert kernel.id.kernel.name == "counted"
        with pytest.raises(LaunchError, match="kernel scaled is not compiled"):
            qn.device("cpu").compile([scaled])
        assert counted.warm().result() is kernel


# --- from inside a compilation ----------------------------------------------------------------------------------------


def test_launch_from_inside_a_compilation_is_refused_even_of_a_kernel_that_is_ready(cpu: Device) -> None:
    x = np.ones(8)
    launcher = counted.over(8)
    for _ in range(4):
        launcher(x)
    bound = launcher.bind(x)
    refusals: list[str] = []

    def launch(compiled: Any) -> None:
        for again in (lambda: launcher(x), bound, lambda: counted[1](x), lambda: scaled.over(8)(1.0, x)):
            with pytest.raises(
                LaunchError, match=r"cannot (launch|load) (counted|scaled) here: this thread is"
            ) as caught:
                again()
            refusals.append(str(caught.value))

    cpu.kernels.reporting(launch).get(saxpy.specialize(qn.f64, x, x))
    assert len(refusals) == 4
    launcher(x)
    bound()


# --- progress bars ----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def slow_steps(tell: Any, number: int) -> None:
    for step in range(number):
        if tell is not None:
            tell(step + 1, number, f"kernel [{step}]")
        time.sleep(0.02)


def test_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown(None, "compiling for cpu:0") as tell:
        slow_steps(tell, 12)
    shown = terminal.getvalue()
    assert "compiling for cpu:0" in shown
    assert "/12" in shown


@pytest.mark.parametrize("given", [None, True, False])
def test_no_bar_where_standard_error_is_no_terminal_or_none_is_wanted(
    given: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if given is False else io.StringIO()
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.shown(given, "compiling") as tell:
        assert tell is None
    assert stream.getvalue() == ""


def test_quick_batches_and_single_kernels_draw_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown(None, "compiling") as tell:
        assert tell is not None
        tell(1, 2, "a")
        tell(2, 2, "b")
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    with progress.shown(None, "compiling") as tell:
        assert tell is not None
        tell(1, 1, "a")
    assert terminal.getvalue() == ""
