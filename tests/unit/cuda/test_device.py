"""The device's operations against a stand-in for the driver: what is called, in which order and context."""

from __future__ import annotations

import functools
import gc
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit import ir_by_hand as ir
from tests.unit.cuda import harness
from tests.unit.cuda.fake_driver import OK, FakeDriver, cells_at

import quernel as qn
from quernel.compiler.arguments import ArgumentPacker, ArrayArgument
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.dtypes import f32
from quernel.errors import CompilationError, DeviceError, LaunchError
from quernel.geometry import LaunchForm, extent_geometry, grid_geometry
from quernel.ir.nodes import Binary, BinaryOp, Module
from quernel.runtime.launchers import Launcher
from quernel.runtime.operations import Memory
from quernel_cuda import _driver
from quernel_cuda.device import CudaDevice
from quernel_cuda.plugin import CudaBackend


@pytest.fixture
def device(fake: FakeDriver) -> CudaDevice:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    return backend.open(infos[0])


def doubled(block: tuple[int, ...] = (64,), form: LaunchForm = LaunchForm.OVER) -> Module:
    params = (ir.array("x", f32), ir.array("y", f32))
    x = ir.load("x", f32)
    return ir.kernel(params, (ir.store("y", Binary(op=BinaryOp.ADD, left=x, right=x)),), block=block, form=form)


def status(name: str) -> Any:
    return getattr(_driver.driver().CUresult, name)


def ready(device: CudaDevice, module: Module) -> tuple[Any, Any, Any]:
    compiler = device.target.compiler
    assert isinstance(compiler, harness.CudaCompiler)
    artifact = harness.compiled(compiler, module)
    loaded = device.target.load(ArtifactId(ir.definition(module).id, harness.WHOLE), artifact)
    return device.prepare(loaded, artifact.header), artifact.header, loaded


def launch(device: CudaDevice, fake: FakeDriver, name: str) -> None:
    params = (ir.array("y", f32),)
    module = ir.kernel(params, (ir.store("y", ir.const(1.0, f32)),), name=name)
    run, header, _ = ready(device, module)
    run(extent_geometry(10, (64,)), bytes(8 * len(header.slots)), None)


def test_the_device_is_shown_without_opening_it(fake: FakeDriver) -> None:
    (info,) = CudaBackend().devices()  # type: ignore[misc]
    assert (info.name, info.kind, info.memory_bytes) == ("Fake GPU", "gpu", 1 << 30)
    assert info.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert ("compute capability", "9.0") in info.details
    assert "cuDevicePrimaryCtxRetain" not in fake.names()


def test_an_old_driver_is_named_with_the_mend(fake: FakeDriver) -> None:
    fake.version = 12040
    found = CudaBackend().devices()
    assert not isinstance(found, tuple)
    assert found.reason == "the driver runs CUDA 12.4, which is older than NVRTC 13.0: it loads nothing compiled here"
    assert found.fix == "update NVIDIA's driver"


def test_the_target_of_a_device_is_that_of_its_architecture(device: CudaDevice) -> None:
    assert device.target.compiler.target_info == CudaBackend().target_info("sm_90")


@pytest.mark.parametrize("nbytes", [1, 4096, (2 << 20) + 1, 9 << 20])
def test_bytes_come_back_as_they_went(device: CudaDevice, nbytes: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    memory = device.allocate(nbytes)
    device.copy_from_host(memory, 0, data, None)
    back = np.zeros(nbytes, np.uint8)
    device.copy_to_host(back, memory, 0, None)
    assert np.array_equal(back, data)


@pytest.mark.parametrize("pattern", [b"a", b"ab", b"abcd", b"abc", b"abcdefgh", bytes(range(16)), b"x" * 8])
@pytest.mark.parametrize("count", [1, 3, 256, 257, 3000])
def test_patterns_of_any_length_are_filled(device: CudaDevice, pattern: bytes, count: int) -> None:
    memory = device.allocate(len(pattern) * count + 16)
    device.fill(memory, 0, b"\0", memory.nbytes, None)
    device.fill(memory, 16, pattern, count, None)
    found = np.empty(memory.nbytes, np.uint8)
    device.copy_to_host(found, memory, 0, None)
    assert found.tobytes() == bytes(16) + pattern * count


def test_overlapping_copies_go_by_way_of_other_memory(device: CudaDevice) -> None:
    memory = device.allocate(100)
    device.copy_from_host(memory, 0, np.arange(100, dtype=np.uint8), None)
    device.copy(memory, 10, memory, 0, 90, None)
    found = np.empty(100, np.uint8)
    device.copy_to_host(found, memory, 0, None)
    assert found.tolist() == [*range(10), *range(90)]


def test_no_context_is_left_behind(device: CudaDevice, fake: FakeDriver) -> None:
    memory = device.allocate(8)
    device.fill(memory, 0, b"\0", 8, None)
    stream = device.open_stream()
    device.elapsed_ns(device.record_event(stream), device.record_event(stream))
    device.synchronize(None)
    device.close_stream(stream)
    device.free(memory)
    device.close()
    assert fake.current == []
    assert fake.names().count("cuDevicePrimaryCtxRelease") == 1


def test_no_context_is_left_behind_by_a_failure(device: CudaDevice, fake: FakeDriver) -> None:
    fake.failing["cuMemAllocAsync"] = status("CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(DeviceError, match="allocating 12345 bytes with 1048576 of 1073741824 free failed"):
        device.allocate(12345)
    assert fake.current == []
    assert fake.names().count("cuMemAllocAsync") == 2
    assert "cuMemPoolTrimTo" in fake.names()


def test_launches_pass_cells_and_blocks(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, _ = ready(device, doubled())
    assert header.points_per_thread == 4
    geometry = extent_geometry(1000, (64,))
    arguments = [ArrayArgument(0x1000, (1000,), (1,)), ArrayArgument(0x2000, (1000,), (1,))]
    run(geometry, ArgumentPacker(header)(arguments, geometry), None)
    _, dimensions, shared, pointers = fake.launched[-1]
    assert dimensions == (4, 1, 1, 64, 1, 1)
    assert shared == 0
    assert cells_at(pointers, len(header.slots)) == [0x1000, 0x2000, 1000, 0]


def test_launches_at_once_have_cells_of_their_own_and_later_ones_use_them_again(
    device: CudaDevice, fake: FakeDriver
) -> None:
    run, header, _ = ready(device, doubled())
    geometry = extent_geometry(10, (64,))
    together = threading.Barrier(4)
    seen: list[int] = []

    def in_the_driver(function: Any, dimensions: Any, shared: int, stream: Any, pointers: int) -> Any:
        together.wait()
        seen.append(cells_at(pointers, 1)[0])
        together.wait()
        return OK

    fake.on_launch = in_the_driver
    cells = [struct.pack("<Q", number) + bytes(8 * (len(header.slots) - 1)) for number in range(4)]
    threads = [threading.Thread(target=run, args=(geometry, packed, None)) for packed in cells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    places = [pointers for *_, pointers in fake.launched]
    assert len(set(places)) == 4
    assert sorted(seen) == [0, 1, 2, 3]
    fake.on_launch = lambda *arguments: OK
    run(geometry, cells[3], None)
    assert fake.launched[-1][3] in places


def test_shapes_and_bound_launches_of_one_kernel_keep_their_own_grid_stream_and_cells(
    device: CudaDevice, fake: FakeDriver
) -> None:
    run, header, loaded = ready(device, doubled())
    stream = device.open_stream()
    shapes = [
        device.prepare_shape(run, loaded, header, extent_geometry(extent, (64,)), into)
        for extent, into in ((1000, None), (5000, stream))
    ]
    cells = [struct.pack("<4Q", *range(start, start + 4)) for start in (10, 20, 30)]
    bound = device.prepare_bound(run, loaded, header, extent_geometry(100, (64,)), cells[2], stream)
    for _ in range(2):
        for shaped, given in zip(shapes, cells, strict=False):
            shaped(given)
            assert cells_at(fake.launched[-1][3], 4) == list(struct.unpack("<4Q", given))
        bound()
        assert cells_at(fake.launched[-1][3], 4) == [30, 31, 32, 33]
    assert [dimensions[0] for _, dimensions, *_ in fake.launched] == [4, 20, 1] * 2
    streams = [int(arguments[0].hStream) for name, arguments in fake.calls if name == "cuLaunchKernelEx"]
    assert streams == [int(device._default.handle), int(stream.handle), int(stream.handle)] * 2


def test_a_shape_is_refused_when_it_is_prepared(device: CudaDevice) -> None:
    run, header, loaded = ready(device, doubled())
    with pytest.raises(LaunchError, match="launch it in parts"):
        device.prepare_shape(run, loaded, header, extent_geometry(1 << 41, (64,)), None)


def test_a_shaped_launch_in_another_context_is_made_in_its_own(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, loaded = ready(device, doubled())
    statuses = [status("CUDA_ERROR_INVALID_HANDLE"), OK, status("CUDA_ERROR_INVALID_HANDLE"), OK]
    fake.on_launch = lambda *arguments: statuses.pop(0)
    geometry, cells = extent_geometry(100, (64,)), bytes(8 * len(header.slots))
    device.prepare_shape(run, loaded, header, geometry, None)(cells)
    device.prepare_bound(run, loaded, header, geometry, cells, None)()
    assert not statuses
    assert fake.names().count("cuLaunchKernelEx") == 4
    assert fake.current == []


def test_rows_of_blocks_have_no_limit_of_65535(device: CudaDevice, fake: FakeDriver) -> None:
    params = (ir.array("y", f32, 2),)
    here = (ir.index(axis=0), ir.index(axis=1))
    module = ir.kernel(params, (ir.store("y", ir.const(1.0, f32), *here),), block=(8, 32))
    run, header, _ = ready(device, module)
    geometry = extent_geometry((1_000_000, 130), (8, 32))
    run(geometry, bytes(8 * len(header.slots)), None)
    assert fake.launched[-1][1] == (125_000 * 2, 1, 1, 32, 8, 1)


def test_a_launch_of_too_many_blocks_is_refused(device: CudaDevice) -> None:
    run, header, _ = ready(device, doubled())
    with pytest.raises(LaunchError, match="launch it in parts"):
        run(extent_geometry(1 << 41, (64,)), bytes(8 * len(header.slots)), None)


def test_a_grid_is_reversed(device: CudaDevice, fake: FakeDriver) -> None:
    module = ir.kernel(
        (ir.array("y", f32),),
        (ir.store("y", ir.const(1.0, f32), ir.index(axis=2)),),
        block=(2, 4, 8),
        form=LaunchForm.GRID,
    )
    run, header, _ = ready(device, module)
    run(grid_geometry((3, 5, 7), (2, 4, 8)), bytes(8 * len(header.slots)), None)
    assert fake.launched[-1][1] == (7, 5, 3, 8, 4, 2)


def test_a_launch_while_another_context_is_current_makes_ours_current(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, _ = ready(device, doubled())
    ours = device._context.handle

    def answered(*arguments: Any) -> Any:
        return status("CUDA_SUCCESS" if fake.current[-1:] == [ours] else "CUDA_ERROR_INVALID_CONTEXT")

    fake.on_launch = answered
    run(extent_geometry(10, (64,)), bytes(8 * len(header.slots)), None)
    assert len(fake.launched) == 2
    assert fake.current == []


def test_a_refused_launch_says_what_to_do(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, _ = ready(device, doubled())
    fake.on_launch = lambda *arguments: status("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(LaunchError, match=r"launching k .* CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES") as caught:
        run(extent_geometry(10, (64,)), bytes(8 * len(header.slots)), None)
    assert caught.value.fix is not None
    assert "smaller block" in caught.value.fix


def test_a_late_failure_names_the_probable_launch(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, _ = ready(device, doubled())
    run(extent_geometry(10, (64,)), bytes(8 * len(header.slots)), None)
    fake.failing["cuCtxSynchronize"] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match=r"most probably the launch of k.* context is lost"):
        device.synchronize(None)


def test_a_failure_after_everything_was_waited_for_blames_no_launch(device: CudaDevice, fake: FakeDriver) -> None:
    run, header, _ = ready(device, doubled())
    run(extent_geometry(10, (64,)), bytes(8 * len(header.slots)), None)
    device.synchronize(None)
    fake.failing["cuCtxSynchronize"] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match="context is lost") as caught:
        device.synchronize(None)
    assert "probably" not in caught.value.what


LOSING: dict[str, tuple[str, Callable[[CudaDevice], object]]] = {
    "waiting": ("cuCtxSynchronize", lambda device: device.synchronize(None)),
    "allocating": ("cuMemAllocAsync", lambda device: device.allocate(8)),
    "filling": ("cuMemsetD8Async", lambda device: device.fill(Memory(4096, 8), 0, b"a", 8, None)),
    "copying in": ("cuMemcpyHtoDAsync", lambda device: device.copy_from_host(Memory(4096, 8), 0, np.ones(8), None)),
    "copying": ("cuMemcpyDtoDAsync", lambda device: device.copy(Memory(4096, 8), 0, Memory(8192, 8), 0, 8, None)),
    "loading": ("cuModuleLoadData", lambda device: ready(device, doubled())),
    "finding a function": ("cuModuleGetFunction", lambda device: ready(device, doubled())),
    "recording": ("cuEventCreate", lambda device: device.record_event(None)),
    "opening a stream": ("cuStreamCreate", lambda device: device.open_stream()),
    "capturing": ("cuStreamBeginCapture", lambda device: device.begin_graph(device.open_stream())),
    "entering": ("cuCtxPushCurrent", lambda device: device.allocate(8)),
}


@pytest.mark.parametrize("doing", LOSING)
def test_every_call_names_the_launches_that_may_have_lost_the_context(
    device: CudaDevice, fake: FakeDriver, doing: str
) -> None:
    launch(device, fake, "early")
    launch(device, fake, "late")
    call, use = LOSING[doing]
    for _ in range(2):  # It stays so, also when the device is waited for or launches are tried.
        fake.failing[call] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
        with pytest.raises(DeviceError, match=r"most probably the launch of late \(.*early\).* context is lost"):
            use(device)
        assert fake.current == []
        fake.failing.clear()
        device.synchronize(None)
        launch(device, fake, "later")


def test_a_launch_in_a_lost_context_names_the_one_before_it(device: CudaDevice, fake: FakeDriver) -> None:
    launch(device, fake, "early")
    fake.on_launch = lambda *arguments: status("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match=r"launching late .* most probably the launch of early\."):
        launch(device, fake, "late")


def test_nothing_is_said_when_what_a_lost_context_had_goes(device: CudaDevice, fake: FakeDriver) -> None:
    arrays = [device.allocate(64) for _ in range(2)]
    stream, event = device.open_stream(), device.record_event(None)
    graph = device.end_graph(device.begin_graph(stream))
    for call in ("cuMemFreeAsync", "cuEventRecord", "cuEventDestroy", "cuGraphDestroy", "cuGraphExecDestroy"):
        fake.failing[call] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    for memory in arrays:
        device.free(memory)
    fake.failing["cuStreamSynchronize"] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    device.close_stream(stream)
    del graph, event
    gc.collect()
    fake.failing["cuCtxSynchronize"] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    device.close()
    assert fake.current == []


def test_the_end_of_a_stream_tells_of_a_failure_that_nobody_knows_of(device: CudaDevice, fake: FakeDriver) -> None:
    stream = device.open_stream()
    launch(device, fake, "astray")
    fake.failing["cuStreamSynchronize"] = status("CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(DeviceError, match="most probably the launch of astray"):
        device.close_stream(stream)


def test_code_that_the_driver_refuses_is_compiled_again(device: CudaDevice, fake: FakeDriver) -> None:
    fake.failing["cuModuleLoadData"] = status("CUDA_ERROR_NO_BINARY_FOR_GPU")
    with pytest.raises(CompilationError, match="loading k failed"):
        ready(device, doubled())


def test_open_streams_wait_for_memory_of_the_default_one(device: CudaDevice, fake: FakeDriver) -> None:
    stream = device.open_stream()
    fake.calls.clear()
    device.allocate(64)
    waits = [arguments for name, arguments in fake.calls if name == "cuStreamWaitEvent"]
    assert [arguments[0] for arguments in waits] == [stream.handle]


def test_memory_is_freed_behind_the_work_of_open_streams(device: CudaDevice, fake: FakeDriver) -> None:
    stream = device.open_stream()
    memory = device.allocate(64)
    fake.calls.clear()
    device.free(memory)
    names = fake.names()
    assert names.index("cuStreamWaitEvent") < names.index("cuMemFreeAsync")
    assert next(given[1] for name, given in fake.calls if name == "cuEventRecord") == stream.handle


def test_a_stream_that_captures_waits_for_nothing_outside(device: CudaDevice, fake: FakeDriver) -> None:
    stream = device.open_stream()
    capture = device.begin_graph(stream)
    fake.calls.clear()
    memory = device.allocate(64)
    device.free(memory)
    assert "cuStreamWaitEvent" not in fake.names()
    graph = device.end_graph(capture)
    device.launch_graph(graph, None)
    device.update_graph(graph, device.begin_graph(stream))
    assert "cuGraphExecUpdate" in fake.names()
    fake.calls.clear()
    del graph
    gc.collect()
    assert {"cuGraphExecDestroy", "cuGraphDestroy"} <= set(fake.names())


def test_freeing_after_closing_does_nothing(device: CudaDevice, fake: FakeDriver) -> None:
    memory = device.allocate(64)
    device.close()
    fake.calls.clear()
    device.free(memory)
    device.close()
    assert fake.calls == []


def test_an_empty_allocation_has_no_address(device: CudaDevice) -> None:
    memory = device.allocate(0)
    assert memory == Memory(0, 0) or (memory.address, memory.nbytes) == (0, 0)
    device.free(memory)


def test_the_variant_says_what_holds_for_all_arrays(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = LaunchFacts(aligned16=True, contiguous=False, index32=True)
    assert device.target.variant(facts).several_points
    monkeypatch.setenv("QUERNEL_SEVERAL_POINTS", "0")
    found = device.target.variant(facts)
    assert (found.aligned16, found.contiguous, found.index32, found.several_points) == (True, False, True, False)


def test_scalars_are_cells_of_their_width(device: CudaDevice, fake: FakeDriver) -> None:
    params = (ir.scalar("a", f32), ir.array("y", f32))
    from quernel.ir.nodes import Param

    module = ir.kernel(params, (ir.store("y", Param(name="a", type=f32)),))
    run, header, _ = ready(device, module)
    geometry = extent_geometry(10, (64,))
    run(geometry, ArgumentPacker(header)([1.5, ArrayArgument(0x40, (10,), (1,))], geometry), None)
    first = cells_at(fake.launched[-1][3], len(header.slots))[0]
    assert struct.pack("<Q", first)[:4] == struct.pack("<f", 1.5)


def test_closing_takes_the_kernels_out_of_the_shared_context(device: CudaDevice, fake: FakeDriver) -> None:
    loaded = ready(device, doubled())[2]
    device.close()
    assert [arguments for name, arguments in fake.calls if name == "cuModuleUnload"] == [(loaded.module,)]
    assert fake.names().index("cuModuleUnload") < fake.names().index("cuDevicePrimaryCtxRelease")


@pytest.mark.parametrize("refused", ["cuStreamCreate", "cuDeviceGetDefaultMemPool"])
def test_a_device_that_does_not_open_gives_its_context_back(fake: FakeDriver, refused: str) -> None:
    backend = CudaBackend()
    infos = backend.devices()
    assert isinstance(infos, tuple)
    fake.failing[refused] = status("CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(DeviceError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        backend.open(infos[0])
    assert "cuDevicePrimaryCtxRelease" in fake.names()
    assert fake.current == []


def test_an_overlapping_copy_that_fails_keeps_no_memory(device: CudaDevice, fake: FakeDriver) -> None:
    memory = device.allocate(1000)
    fake.failing["cuMemcpyDtoDAsync"] = status("CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(DeviceError, match="copying on the device failed"):
        device.copy(memory, 8, memory, 0, 500, None)
    assert len(fake.memory) == 1


@qn.kernel
def scaled(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32], a: qn.f32, h: qn.bf16, n: qn.i64):
    i = qn.global_id()
    if i < n:
        y[i] = x[i] * a + qn.f32(h)


def test_quick_launches_write_the_cells_whose_values_differ_from_those_that_are_there(fake: FakeDriver) -> None:
    gpu = qn.device("cuda")
    x, y = gpu.zeros(8, qn.f32), gpu.zeros(8, qn.f32)
    launcher = scaled[1, 32]
    for _ in range(3):
        launcher(x, y, 1.0, 1.0, 8)
    assert type(launcher) is not Launcher
    places = {fake.launched[-1][3]}
    given: list[tuple[Any, ...]] = [
        (x, y, 0.0, 1.0, 8),
        (x, y, 0.0, 1.0, 8),
        (x, y, -0.0, 1.0, 8),  # equal, and another number
        (x, y, -0.0, 1.0, 8),
        (y, x, -0.0, 1.0, 8),
        (y, x, -0.0, 2.0, 8),
        (y, x, float("nan"), 2.0, 1 << 40),
        (x[2:6], y[2:6], 0.5, 2.0, 3),
        (x, y, 0.5, 2.0, 3),
    ]
    for number, (one, other, a, h, n) in enumerate(given * 2):
        call = launcher if number % 3 else functools.partial(Launcher.__call__, launcher)  # which writes all at once
        call(one, other, a, h, n)
        cells = cells_at(fake.launched[-1][3], 5)
        places.add(fake.launched[-1][3])
        assert cells[:2] == [one.address, other.address]
        assert struct.pack("<Q", cells[2]) == struct.pack("<f4x", a)
        assert cells[3:] == [int(np.float32(h).view(np.uint32)) >> 16, n]
    assert len(places) == 1, "launches one after the other share their cells"
