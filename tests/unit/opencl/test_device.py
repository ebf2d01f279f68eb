"""Memory, streams, events and launches of several threads."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading

import attrs
import numpy as np
import pytest
from tests.unit.ir_by_hand import array, const, definition, load, local, scalar, store
from tests.unit.opencl.harness import STRIDED, Built, kernel, lowered

from quernel.codegen.pointers import Pointers
from quernel.compiler.arguments import ArgumentPacker, ArrayArgument
from quernel.compiler.artifacts import ArtifactId
from quernel.dtypes import f32, i64
from quernel.errors import CompilationError, DeviceError, ValidationError
from quernel.geometry import extent_geometry
from quernel.identity import KernelId
from quernel.ir.nodes import Assign, Binary, BinaryOp, For, Param
from quernel.locations import Location
from quernel.runtime.operations import Memory
from quernel_opencl import _driver, _toolchain
from quernel_opencl._toolchain import DeviceKey
from quernel_opencl.compiler import OpenclCompiler
from quernel_opencl.device import OpenclDevice
from quernel_opencl.memory import BufferMemory
from quernel_opencl.targets import device_key, target_of


def adder(device: OpenclDevice) -> Built:
    value = Binary(op=BinaryOp.ADD, left=load("y", f32), right=Param(name="a", type=f32))
    return Built(device, kernel((scalar("a", f32), array("y", f32)), (store("y", value),)))


def slow(device: OpenclDevice) -> Built:
    """A kernel of some milliseconds."""
    loop = For(
        variable="k",
        start=const(0),
        stop=load("y", i64),
        step=const(1),
        body=(Assign(name="s", value=Binary(op=BinaryOp.XOR, left=local("s"), right=local("k"))),),
    )
    body = (Assign(name="s", value=const(0)), loop, store("y", local("s")))
    return Built(device, kernel((array("y", i64),), body, variables={"k": i64, "s": i64}))


def argument(memory, length: int) -> ArrayArgument:
    return ArrayArgument(memory.address, (length,), (1,))


def test_bytes_go_there_and_come_back(device: OpenclDevice) -> None:
    memory = device.allocate(100)
    data = np.arange(50, dtype=np.uint8)
    device.copy_from_host(memory, 30, data, None)
    back = np.zeros(50, np.uint8)
    device.copy_to_host(back, memory, 30, None)
    assert (back == data).all()
    device.free(memory)


def test_memory_is_copied_and_filled_on_the_device(device: OpenclDevice) -> None:
    first, second = device.allocate(64), device.allocate(64)
    device.fill(first, 8, b"\x01\x02\x03\x04", 4, None)
    device.copy(second, 0, first, 8, 16, None)
    back = np.zeros(16, np.uint8)
    device.copy_to_host(back, second, 0, None)
    assert back.tolist() == [1, 2, 3, 4] * 4


@pytest.mark.parametrize(("size", "offset"), [(12, 0), (8, 4), (3, 1), (256, 0), (4, 4)])
def test_memory_is_filled_with_patterns_of_any_size_at_any_place(device: OpenclDevice, size: int, offset: int) -> None:
    memory, pattern = device.allocate(1000), bytes(range(1, size))[:255] + b"\x07"
    device.fill(memory, 0, b"\0", 1000, None)
    device.fill(memory, offset, pattern, 3, None)
    back = np.zeros(1000, np.uint8)
    device.copy_to_host(back, memory, 0, None)
    assert back.tobytes() == (bytes(offset) + pattern * 3).ljust(1000, b"\0")


@pytest.mark.parametrize("size", [1, 3, 4, 12, 16])
@pytest.mark.parametrize("offset", [0, 48, 240, 252, 256, 300])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_what_a_driver_does_not_fill_is_written_and_copied(
    device: OpenclDevice, monkeypatch: pytest.MonkeyPatch, size: int, offset: int, count: int
) -> None:
    monkeypatch.setattr("quernel_opencl.memory._FILLED_UNTIL", 256)
    monkeypatch.setattr("quernel_opencl.memory._WRITTEN_BYTES", 32)
    memory, pattern = device.allocate(1000), bytes(range(1, size + 1))
    device.fill(memory, 0, b"\0", 256, None)
    device.copy_from_host(memory, 256, np.zeros(744, np.uint8), None)
    device.fill(memory, offset, pattern, count, None)
    found = np.empty(1000, np.uint8)
    device.copy_to_host(found, memory, 0, None)
    assert found.tobytes() == b"\0" * offset + pattern * count + b"\0" * (1000 - offset - size * count)


@pytest.mark.parametrize(("size", "offset"), [(1, 0), (1, 3), (1, 2**31 - 40), (1, 2**31 + 1), (2, 6), (4, 0), (16, 8)])
def test_a_driver_is_never_asked_for_2_to_the_31_patterns(
    monkeypatch: pytest.MonkeyPatch, size: int, offset: int
) -> None:
    done: list[tuple[int, int]] = []

    def fill(queue: object, buffer: object, start: int, pattern: bytes, count: int) -> None:
        assert count < 2**31
        assert start % len(pattern) == 0
        assert start + len(pattern) * count <= 2**31
        done.append((start, len(pattern) * count))

    def copy(queue: object, target: object, start: int, source: object, source_start: int, nbytes: int) -> None:
        assert source_start == offset
        assert source_start + nbytes <= start == sum(done[-1])
        done.append((start, nbytes))

    monkeypatch.setattr(_driver, "fill", fill)
    monkeypatch.setattr(_driver, "write", lambda queue, buffer, start, data: done.append((start, data.nbytes)))
    monkeypatch.setattr(_driver, "copy", copy)
    memory = BufferMemory(DeviceKey("", "", "", "", 0), most_bytes=2**40, maps_host_memory=False)
    memory.fill(None, Memory(0, 2**40, None), offset, bytes(size), 2**33 // size)
    assert done[0][0] == offset
    assert all(sum(before) == after[0] for before, after in itertools.pairwise(done))
    assert sum(done[-1]) == offset + 2**33


@pytest.mark.parametrize(("to", "start", "nbytes"), [(8, 0, 100), (0, 8, 100), (5, 5, 50), (100, 0, 100), (7, 3, 0)])
def test_copies_within_memory_may_overlap(device: OpenclDevice, to: int, start: int, nbytes: int) -> None:
    memory, data = device.allocate(200), np.arange(200, dtype=np.uint8)
    device.copy_from_host(memory, 0, data, None)
    device.copy(memory, to, memory, start, nbytes, None)
    back, expected = np.zeros(200, np.uint8), data.copy()
    expected[to : to + nbytes] = data[start : start + nbytes]
    device.copy_to_host(back, memory, 0, None)
    assert np.array_equal(back, expected)


def test_a_launch_that_the_driver_refuses_is_an_error_of_ours(device: OpenclDevice) -> None:
    built = adder(device)
    memory = device.allocate(400)
    geometry = extent_geometry(100, (32,))  # the kernel was compiled for another block
    cells = ArgumentPacker(built.header)([2.0, argument(memory, 100)], geometry)
    with pytest.raises(DeviceError, match=r"launching k failed: the driver says INVALID_WORK_GROUP_SIZE"):
        built.run(geometry, cells, None)


def test_the_collector_may_free_memory_in_the_midst_of_any_method(device: OpenclDevice) -> None:
    built, memory = adder(device), device.allocate(400)
    geometry = extent_geometry(100, built.header.block)

    def free() -> None:
        built.run(geometry, ArgumentPacker(built.header)([2.0, argument(memory, 100)], geometry), None)
        with device._freeing, getattr(device._memory, "_lock", contextlib.nullcontext()):
            device.free(memory)

    thread = threading.Thread(target=free, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    device.synchronize(None)


@pytest.mark.parametrize("nbytes", [1 << 50, 1 << 62])
def test_more_memory_than_there_is_is_refused(device: OpenclDevice, nbytes: int) -> None:
    with pytest.raises(DeviceError, match=str(nbytes)):
        device.allocate(nbytes)


def test_empty_memory_is_no_special_case(device: OpenclDevice) -> None:
    memory = device.allocate(0)
    device.free(memory)


def test_addresses_are_aligned_and_apart(device: OpenclDevice) -> None:
    memories = [device.allocate(1000) for _ in range(20)]
    addresses = sorted(memory.address for memory in memories)
    assert all(address % 64 == 0 for address in addresses)
    assert all(after - before >= 1000 for before, after in itertools.pairwise(addresses))
    assert all(address < 1 << 63 for address in addresses)


def test_the_host_sees_memory_only_where_it_is_shared(device: OpenclDevice) -> None:
    view = device.host_view(device.allocate(16))
    assert (view is not None) is device.host_accessible


def test_a_view_starts_at_its_own_offset(device: OpenclDevice) -> None:
    built = adder(device)
    memory = device.allocate(400)
    device.fill(memory, 0, np.float32(1).tobytes(), 100, None)
    geometry = extent_geometry(10, built.header.block)
    shifted = ArrayArgument(memory.address + 5 * 4, (10,), (2,))
    backwards = ArrayArgument(memory.address + 99 * 4, (10,), (-1,))
    for given in (shifted, backwards):
        built.run(geometry, ArgumentPacker(built.header)([2.0, given], geometry), None)
    back = np.zeros(100, np.float32)
    device.copy_to_host(back.view(np.uint8), memory, 0, None)
    expected = np.ones(100, np.float32)
    expected[5:25:2] += 2
    expected[90:] += 2
    assert (back == expected).all()


def test_memory_that_takes_the_place_of_freed_memory_is_the_one_used(device: OpenclDevice) -> None:
    built = adder(device)
    geometry = extent_geometry(10, built.header.block)
    pack = ArgumentPacker(built.header)
    for value in range(5):
        memory = device.allocate(40)
        device.fill(memory, 0, np.float32(0).tobytes(), 10, None)
        built.run(geometry, pack([float(value), argument(memory, 10)], geometry), None)
        back = np.zeros(10, np.float32)
        device.copy_to_host(back.view(np.uint8), memory, 0, None)
        assert (back == value).all()
        device.free(memory)


def test_memory_freed_while_a_kernel_runs_is_used_to_its_end(device: OpenclDevice) -> None:
    built = slow(device)
    length = 64
    memory = device.allocate(8 * length)
    device.fill(memory, 0, np.int64(3_000_000).tobytes(), length, None)
    geometry = extent_geometry(length, built.header.block)
    built.run(geometry, ArgumentPacker(built.header)([argument(memory, length)], geometry), None)
    device.free(memory)
    others = [device.allocate(8 * length) for _ in range(8)]
    for other in others:
        device.fill(other, 0, np.int64(7).tobytes(), length, None)
    device.synchronize(None)
    back = np.zeros(length, np.int64)
    for other in others:
        device.copy_to_host(back.view(np.uint8), other, 0, None)
        assert (back == 7).all()


def test_threads_launch_one_kernel_with_their_own_arguments(device: OpenclDevice) -> None:
    built = adder(device)
    geometry = extent_geometry(1000, built.header.block)
    pack = ArgumentPacker(built.header)
    sums: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        memory = device.allocate(4000)
        device.fill(memory, 0, np.float32(0).tobytes(), 1000, None)
        for _ in range(50):
            built.run(geometry, pack([float(number), argument(memory, 1000)], geometry), None)
        back = np.zeros(1000, np.float32)
        device.copy_to_host(back.view(np.uint8), memory, 0, None)
        sums[number] = back

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((sums[number] == 50 * number).all() for number in range(6))


def test_streams_run_beside_each_other_and_events_order_them(device: OpenclDevice) -> None:
    built = adder(device)
    memory = device.allocate(4000)
    device.fill(memory, 0, np.float32(1).tobytes(), 1000, None)
    geometry = extent_geometry(1000, built.header.block)
    packed = ArgumentPacker(built.header)([1.0, argument(memory, 1000)], geometry)
    device.synchronize(None)
    first, second = device.open_stream(), device.open_stream()
    for _ in range(20):
        built.run(geometry, packed, first)
        device.wait_event(second, device.record_event(first))
        built.run(geometry, packed, second)
        device.wait_event(first, device.record_event(second))
    device.synchronize(first)
    device.synchronize(second)
    back = np.zeros(1000, np.float32)
    device.copy_to_host(back.view(np.uint8), memory, 0, None)
    assert (back == 41).all()
    device.close_stream(first)
    device.close_stream(second)


def test_events_tell_the_time_between_them(device: OpenclDevice) -> None:
    built = slow(device)
    memory = device.allocate(8 * 64)
    device.fill(memory, 0, np.int64(2_000_000).tobytes(), 64, None)
    geometry = extent_geometry(64, built.header.block)
    packed = ArgumentPacker(built.header)([argument(memory, 64)], geometry)
    start = device.record_event(None)
    built.run(geometry, packed, None)
    end = device.record_event(None)
    device.synchronize_event(end)
    assert 0 < device.elapsed_ns(start, end) < 10_000_000_000


# --- the compiling half -----------------------------------------------------------------------------------------------


def test_the_compiler_pickles_without_its_context(device: OpenclDevice) -> None:
    compiler = device.target.compiler
    assert isinstance(compiler, OpenclCompiler)
    again = pickle.loads(pickle.dumps(compiler))
    assert again.target_info == compiler.target_info
    assert again.build_id == compiler.build_id


def test_a_text_that_does_not_compile_is_refused_at_the_users_line(device: OpenclDevice) -> None:
    compiler = device.target.compiler
    assert isinstance(compiler, OpenclCompiler)
    made = definition(kernel((array("y", f32),), (store("y", const(1.0, f32)),)))
    text = lowered(compiler, made)
    lines = text.text.splitlines()
    number = next(n for n, line in enumerate(lines) if line.strip().startswith("y["))
    lines[number] = "    y[0] = nonsense;"
    where = Location("user.py", 7, 2)
    places = tuple(where if n == number else place for n, place in enumerate(text.lines))
    broken = attrs.evolve(text, text="\n".join(lines), lines=places)
    with pytest.raises(CompilationError, match="nonsense") as caught:
        compiler.finalize(ArtifactId(made.id, STRIDED), broken)
    assert caught.value.where == where
    assert any("nonsense" in line for line in caught.value.chain)


def test_a_damaged_binary_is_refused(device: OpenclDevice) -> None:
    built = adder(device)
    damaged = attrs.evolve(built.artifact, payload=b"no binary at all")
    with pytest.raises((CompilationError, DeviceError), match=r"refuses|build|failed"):
        device.target.load(ArtifactId(KernelId("k", "0" * 64), STRIDED), damaged)


def test_a_block_beyond_the_limits_is_refused_before_the_driver_sees_it(device: OpenclDevice) -> None:
    with pytest.raises(ValidationError, match="threads"):
        Built(device, kernel((array("y", f32),), (store("y", const(1.0, f32)),), block=(1 << 20,)))


def test_a_machine_without_the_device_says_so(device: OpenclDevice) -> None:
    key = device_key(device.target.compiler.target_info)
    with pytest.raises(DeviceError, match="is not here"):
        _toolchain.device_of(attrs.evolve(key, driver="none"))


def test_both_ways_to_pass_arrays_have_fingerprints_of_their_own() -> None:
    for found in _toolchain.find_devices()[0]:
        fingerprints = {target_of(found, pointers).fingerprint for pointers in Pointers}
        assert len(fingerprints) == len(Pointers)
