"""What CUDA alone does with devices: memory, streams, events, graphs, other libraries, and what follows a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import quernel as qn


@qn.kernel
def add(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = x[i] + a


@qn.kernel
def busy(x: qn.Array1[qn.f32], n: int):
    i = qn.global_id()
    v = x[i]
    for _ in range(n):
        v = v * qn.f32(1.0000001) + qn.f32(1e-7)
    x[i] = v


@pytest.mark.parametrize("nbytes", [1, 7, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 20_000_003])
def test_bytes_come_back_as_they_went(gpu: Any, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    moved = gpu.array(data)
    kept = data.copy()
    data[:] = 0  # the copy has taken its own
    assert np.array_equal(moved.numpy(), kept)


@pytest.mark.parametrize("dtype", [qn.u8, qn.i16, qn.f32, qn.f64, qn.i64, qn.u64])
def test_arrays_are_filled(gpu: Any, dtype: Any) -> None:
    assert np.array_equal(gpu.full((33, 700), 77, dtype).numpy(), np.full((33, 700), 77, dtype.numpy))
    assert not gpu.zeros(1001, dtype).numpy().any()
    assert np.array_equal(gpu.full(70_001, 3, dtype)[1:].numpy(), np.full(70_000, 3, dtype.numpy))


@pytest.mark.parametrize("pattern", [b"abc", b"abcdefgh", bytes(range(12)), bytes(range(16)), b"a" * 16])
@pytest.mark.parametrize("count", [1, 255, 256, 257, 5000])
def test_patterns_of_any_length_are_filled(gpu: Any, pattern: bytes, count: int) -> None:
    operations = gpu.operations
    memory = operations.allocate(len(pattern) * count + 64)
    operations.fill(memory, 0, b"\xff", memory.nbytes, None)
    operations.fill(memory, 16, pattern, count, None)
    found = np.empty(memory.nbytes, np.uint8)
    operations.copy_to_host(found, memory, 0, None)
    operations.free(memory)
    end = 16 + len(pattern) * count
    assert found[16:end].tobytes() == pattern * count
    assert (found[:16] == 255).all()
    assert (found[end:] == 255).all()


def test_overlapping_copies_keep_the_source(gpu: Any) -> None:
    x = gpu.array(np.arange(10_000, dtype=np.float32))
    x[1:].copy_from(x[:-1])
    assert np.array_equal(x.numpy()[1:], np.arange(9999, dtype=np.float32))


def test_too_much_memory_is_refused_and_less_still_works(gpu: Any) -> None:
    with pytest.raises(qn.errors.DeviceError, match=r"allocating .* free"):
        gpu.empty(1 << 50, qn.u8)
    assert gpu.zeros(4, qn.f32).numpy().sum() == 0


def test_streams_run_in_order_and_events_tell_the_time(gpu: Any) -> None:
    x, y = gpu.full(1 << 20, 1.0, qn.f32), gpu.zeros(1 << 20, qn.f32)
    with gpu.stream() as stream:
        start = stream.record()
        busy.over(1 << 20, stream=stream)(x, 2000)
        add.over(1 << 20, stream=stream)(1.0, x, y)
        end = stream.record()
        assert start.elapsed_ns(end) > 10_000
        assert np.array_equal(y.numpy(), x.numpy() + np.float32(1))


def test_memory_freed_while_a_stream_uses_it_is_not_given_to_others(gpu: Any) -> None:
    with gpu.stream() as stream:
        for _ in range(20):
            x, y = gpu.full(1 << 20, 1.0, qn.f32), gpu.zeros(1 << 20, qn.f32)
            busy.over(1 << 20, stream=stream)(x, 500)
            add.over(1 << 20, stream=stream)(0.0, x, y)
            del x
            other = gpu.full(1 << 20, -5.0, qn.f32)
            assert y.numpy().min() > 0
            del other


def test_a_graph_replays_launches_and_copies(gpu: Any) -> None:
    x, y, z = gpu.zeros(1000, qn.f32), gpu.zeros(1000, qn.f32), gpu.zeros(1000, qn.f32)
    with gpu.graph() as graph:
        add.over(1000)(1.0, x, y)
        z.copy_from(y)
        add.over(1000)(1.0, z, x)
    assert x.numpy().sum() == 0
    for _ in range(5):
        graph()
    assert np.array_equal(x.numpy(), np.full(1000, 10, np.float32))


def test_scalars_of_a_graph_are_updated(gpu: Any) -> None:
    x, y = gpu.zeros(100, qn.f32), gpu.zeros(100, qn.f32)
    with gpu.graph() as graph:
        add.over(100)(1.0, x, y)
    graph()
    assert y.numpy()[0] == 1
    graph.update("add", a=7.0)
    graph()
    assert y.numpy()[0] == 7


def test_other_libraries_share_the_context(gpu: Any) -> None:
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    ours = gpu.full(1000, 2.0, qn.f32)
    theirs = cupy.arange(1000, dtype=cupy.float32)
    y = gpu.zeros(1000, qn.f32)
    add.over(1000)(1.0, ours, y)
    assert float(theirs.sum()) == 499_500
    assert np.array_equal(y.numpy(), np.full(1000, 3, np.float32))


def test_pytorch_works_beside_us(gpu: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    theirs = torch.ones(1000, device="cuda") * 3
    y = gpu.zeros(1000, qn.f32)
    add.over(1000)(1.0, gpu.full(1000, 1.0, qn.f32), y)
    assert theirs.sum().item() == 3000
    assert y.numpy().sum() == 2000


def test_the_previous_context_is_restored(gpu: Any) -> None:
    from cuda.bindings import driver

    before = driver.cuCtxGetCurrent()[1]
    gpu.zeros(1000, qn.f32).numpy()
    assert int(driver.cuCtxGetCurrent()[1]) == int(before)


def in_a_process(text: str) -> subprocess.CompletedProcess[str]:
    head = "import os, numpy as np, quernel as qn\n"
    path = os.path.join(os.environ["QUERNEL_ENVIRONMENT"], f"lost-{os.getpid()}.py")
    with open(path, "w") as file:
        file.write(head + textwrap.dedent(text))
    return subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.lost
def test_after_an_illegal_access_every_call_names_the_launch_and_nothing_else_is_said(gpu: Any) -> None:
    ran = in_a_process(
        """
        @qn.kernel
        def astray(x: qn.Array1[qn.f32]):
            i = qn.global_id()
            x[i + 10_000_000_000] = 1.0
        @qn.kernel
        def innocent(x: qn.Array1[qn.f32]):
            x[qn.global_id()] = 1.0
        gpu = qn.device("cuda")
        x, y = gpu.zeros(100, qn.f32), gpu.zeros(100, qn.f32)
        stream = gpu.stream()
        event = stream.record()
        with gpu.graph() as graph:
            innocent.over(100)(y)
        gpu.synchronize()
        astray.over(100)(x)
        def tries(name, use):
            try:
                use()
            except qn.errors.DeviceError as error:
                print(name, error.what)
        tries("WAIT", gpu.synchronize)
        tries("ALLOCATE", lambda: gpu.zeros(10, qn.f32))
        tries("COPY", x.numpy)
        tries("WRITE", lambda: x.copy_from(np.ones(100, np.float32)))
        tries("LOAD", lambda: innocent.over(100, block=32)(y))
        tries("LAUNCH", lambda: innocent.over(100)(y))
        tries("EVENT", stream.record)
        tries("STREAM", gpu.stream)
        tries("GRAPH", graph)
        del x, stream, event, graph
        print("END")
        """
    )
    lines = dict(line.partition(" ")[::2] for line in ran.stdout.splitlines())
    assert set(lines) == {
        "WAIT", "ALLOCATE", "COPY", "WRITE", "LOAD", "LAUNCH", "EVENT", "STREAM", "GRAPH", "END",
    }, ran.stdout + ran.stderr  # fmt: skip
    del lines["END"]
    assert all("most probably the launch of astray. The device's context is lost" in what for what in lines.values()), (
        ran.stdout
    )
    assert ran.stderr == ""


@pytest.mark.lost
def test_a_forked_child_is_refused(gpu: Any) -> None:
    ran = in_a_process(
        """
        gpu = qn.device("cuda")
        x = gpu.zeros(100, qn.f32)
        child = os.fork()
        if child == 0:
            try:
                gpu.zeros(1, qn.f32)
            except qn.errors.DeviceError as error:
                print("REFUSED", error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("PARENT", x.numpy().sum())
        """
    )
    assert "REFUSED" in ran.stdout, ran.stdout + ran.stderr
    assert "PARENT 0.0" in ran.stdout


def test_a_device_is_closed_and_opened_again(gpu: Any) -> None:
    ran = in_a_process(
        """
        for _ in range(3):
            with qn.device("cuda") as gpu:
                x = gpu.full(1000, 2.0, qn.f32)
                print(x.numpy().sum())
        """
    )
    assert ran.stdout.split() == ["2000.0"] * 3, ran.stdout + ran.stderr


def test_arrays_go_from_device_to_device(gpu: Any) -> None:
    if len(qn.devices("cuda")) < 2:
        pytest.skip("needs two CUDA devices")
    other = qn.device("cuda:1")
    x = gpu.array(np.arange(1000, dtype=np.float32))
    assert np.array_equal(x.to(other).numpy(), np.arange(1000, dtype=np.float32))
