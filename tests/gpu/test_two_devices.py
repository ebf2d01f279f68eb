"""Two CUDA devices in one process: copies between them in order, kernels on each, and nothing of one in the other."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import quernel as qn


@qn.kernel
def add(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = x[i] + a


@qn.kernel
def slowly_set(x: qn.Array[qn.f32], rounds: int, value: float):
    i = qn.global_id()
    v = x[i]
    for _ in range(rounds):
        v = v * qn.f32(1.0000001) + qn.f32(1e-7)
    x[i] = v * qn.f32(0.0) + value


@qn.kernel
def outside(x: qn.Array[qn.f32], i: int):
    x[i] = 1.0


N = 1 << 20
ROUNDS = 1_500_000
"""Some 100 ms of work: far longer than the host takes to go on."""


@pytest.fixture(scope="module")
def other(gpu: Any) -> Any:
    if len(qn.devices("cuda")) < 2:
        pytest.skip("needs two CUDA devices")
    return qn.device("cuda:1")


def test_the_two_are_two(gpu: Any, other: Any) -> None:
    assert (gpu.name, other.name) == ("cuda:0", "cuda:1")
    assert qn.device("cuda:1") is other
    assert gpu is not other


@pytest.mark.parametrize("dtype", [qn.u8, qn.i16, qn.f32, qn.f64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (1001,), (33, 70, 5)])
def test_arrays_go_both_ways(gpu: Any, other: Any, shape: tuple[int, ...], dtype: Any) -> None:
    values = np.random.default_rng(3).integers(0, 100, shape).astype(dtype.numpy)
    there = gpu.array(values).to(other)
    assert there.device is other
    assert np.array_equal(there.numpy(), values)
    back = there.to("cuda:0")
    assert back.device is gpu
    assert np.array_equal(back.numpy(), values)


def test_views_go_too(gpu: Any, other: Any) -> None:
    values = np.arange(10_000, dtype=np.int32).reshape(100, 100)
    x = gpu.array(values)
    for index in (np.s_[::2, ::-3], np.s_[5:50], np.s_[:, 7], np.s_[3:4, ::-1]):
        assert np.array_equal(x[index].to(other).numpy(), values[index])
        target = other.zeros(values.shape, qn.i32)
        target[index].copy_from(x[index])
        expected = np.zeros_like(values)
        expected[index] = values[index]
        assert np.array_equal(target.numpy(), expected)


def test_much_memory_goes(gpu: Any, other: Any) -> None:
    values = np.random.default_rng(1).integers(0, 2**32, 70_000_001, dtype=np.uint32)
    assert np.array_equal(gpu.array(values).to(other).numpy(), values)


def test_a_copy_comes_after_what_the_source_is_given(gpu: Any, other: Any) -> None:
    x = gpu.zeros(N, qn.f32)
    for value in (1.0, 2.0, 3.0):
        slowly_set.over(N)(x, ROUNDS, value)
        there = x.to(other)
        add.over(N)(10.0, there, there)
        assert np.unique(there.numpy()).tolist() == [value + 10]


def test_a_copy_comes_after_what_a_stream_of_the_source_is_given(gpu: Any, other: Any) -> None:
    x = gpu.zeros(N, qn.f32)
    with gpu.stream() as stream:
        slowly_set.over(N, stream=stream)(x, ROUNDS, 5.0)
        assert np.unique(x.to(other).numpy()).tolist() == [5]


def test_a_copy_is_seen_in_every_stream_of_the_target(gpu: Any, other: Any) -> None:
    x, y = gpu.zeros(N, qn.f32), other.zeros(N, qn.f32)
    with other.stream() as stream:
        slowly_set.over(N)(x, ROUNDS, 6.0)
        there = x.to(other)
        add.over(N, stream=stream)(1.0, there, y)
        assert np.unique(y.numpy()).tolist() == [7]


def test_the_source_is_not_written_before_it_was_read(gpu: Any, other: Any) -> None:
    x, y = gpu.full(N, 1.0, qn.f32), other.zeros(N, qn.f32)
    slowly_set.over(N)(y, ROUNDS, 0.0)  # keeps the target busy
    y.copy_from(x)
    x.fill(9.0)
    assert np.unique(y.numpy()).tolist() == [1]


def test_the_source_may_be_let_go_at_once(gpu: Any, other: Any) -> None:
    y = other.zeros(N, qn.f32)
    slowly_set.over(N)(y, ROUNDS, 0.0)
    for value in range(20):
        x = gpu.full(N, float(value), qn.f32)
        y.copy_from(x)
        del x
        gc.collect()
    last = gpu.full(N, -1.0, qn.f32)  # may lie where the others lay
    assert np.unique(y.numpy()).tolist() == [19]
    assert last.numpy()[0] == -1


def test_a_kernel_runs_where_its_arrays_are(gpu: Any, other: Any) -> None:
    for device in (gpu, other, gpu, other):
        x, y = device.full(1000, 2.0, qn.f32), device.zeros(1000, qn.f32)
        add.over(1000)(1.0, x, y)
        add[10, 100](2.0, y, y)
        bound = add.over(1000).bind(3.0, y, y)
        bound()
        assert y.device is device
        assert y.numpy().tolist() == [8] * 1000


def test_arrays_of_two_devices_make_no_launch(gpu: Any, other: Any) -> None:
    with pytest.raises(qn.errors.LaunchError, match=r"on two devices, cuda:[01] and cuda:[01]"):
        add.over(10)(1.0, gpu.zeros(10, qn.f32), other.zeros(10, qn.f32))


def test_streams_and_events_are_of_one_device(gpu: Any, other: Any) -> None:
    with gpu.stream() as stream, other.stream() as theirs:
        with pytest.raises(qn.errors.LaunchError, match=r"fix: call event\.synchronize"):
            theirs.wait(stream.record())
        with pytest.raises(qn.errors.LaunchError, match="cuda:1"):
            add.over(10, stream=theirs)(1.0, gpu.zeros(10, qn.f32), gpu.zeros(10, qn.f32))


def test_a_thread_for_each_device(gpu: Any, other: Any) -> None:
    found: dict[str, float] = {}

    def work(device: Any, step: float) -> None:
        y = device.zeros(N, qn.f32)
        for _ in range(500):
            add.over(N)(step, y, y)
        found[device.name] = float(y.numpy().min())

    threads = [threading.Thread(target=work, args=arguments) for arguments in ((gpu, 1.0), (other, 2.0)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"cuda:0": 500, "cuda:1": 1000}


def test_threads_copy_both_ways_at_once(gpu: Any, other: Any) -> None:
    wrong: list[object] = []

    def there_and_back(first: Any, second: Any, value: float) -> None:
        for step in range(100):
            x = first.full(4096, value + step, qn.f32)
            found = np.unique(x.to(second).to(first).numpy()).tolist()
            if found != [value + step]:
                wrong.append((first.name, found))

    threads = [
        threading.Thread(target=there_and_back, args=arguments)
        for arguments in ((gpu, other, 0.0), (other, gpu, 1000.0), (gpu, other, 2000.0), (other, gpu, 3000.0))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_graphs_of_each_device(gpu: Any, other: Any) -> None:
    for device in (gpu, other):
        x = device.zeros(1000, qn.f32)
        with device.graph() as graph:
            add.over(1000)(1.0, x, x)
            add.over(1000)(2.0, x, x)
        for _ in range(10):
            graph()
        assert x.numpy().tolist() == [30] * 1000


def test_a_copy_from_another_device_is_no_part_of_a_graph(gpu: Any, other: Any) -> None:
    x, y = gpu.zeros(10, qn.f32), other.zeros(10, qn.f32)
    for device in (gpu, other):
        with pytest.raises(qn.errors.LaunchError, match="graph"), device.graph():
            y.copy_from(x)
    assert np.array_equal(y.numpy(), x.numpy())


def test_a_checked_launch_on_the_second_device(other: Any) -> None:
    x = other.zeros(10, qn.f32)
    with pytest.raises(IndexError, match="index 10 is outside"):
        outside.options(checked=True).over(1)(x, 10)
    outside.options(checked=True).over(1)(x, 9)
    assert x.numpy().tolist() == [0] * 9 + [1]


def test_the_device_of_a_context_allocates_and_launches(gpu: Any, other: Any) -> None:
    with qn.use(other):
        assert qn.device() is other
        x = qn.device().full(100, 1.0, qn.f32)
        add.over(100)(1.0, x, x)
    assert x.device is other
    assert x.numpy().tolist() == [2] * 100


def test_pytorch_keeps_its_current_device(gpu: Any, other: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    with torch.cuda.device(0):
        tensor = torch.arange(1000, dtype=torch.float32, device="cuda:1")
        x = other.asarray(tensor)
        assert x.address == tensor.data_ptr()
        add.over(1000)(1.0, x, x)
        assert torch.cuda.current_device() == 0
        assert torch.ones(3, device="cuda").device.index == 0
        back = torch.from_dlpack(x)
        assert back.device.index == 1
        assert torch.equal(tensor, torch.arange(1, 1001, dtype=torch.float32, device="cuda:1"))


def test_a_tensor_of_the_second_device_is_not_the_firsts(gpu: Any, other: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    tensor = torch.arange(1000, dtype=torch.float32, device="cuda:1")
    with pytest.raises(qn.errors.LaunchError, match="the Tensor is on cuda:1, not on cuda:0"):
        gpu.array(tensor)
    taken = other.asarray(tensor).to(gpu)
    assert np.array_equal(taken.numpy(), np.arange(1000, dtype=np.float32))


def in_a_process(text: str, **variables: str) -> str:
    path = os.path.join(os.environ["QUERNEL_ENVIRONMENT"], f"two-{os.getpid()}.py")
    with open(path, "w") as file:
        file.write("import numpy as np, quernel as qn\n" + textwrap.dedent(text))
    ran = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **variables},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


KERNEL = """
@qn.kernel
def only_here(x: qn.Array[qn.f32]):
    x[qn.global_id()] = 8.25
"""


def test_what_one_compiled_the_other_loads(gpu: Any, other: Any, tmp_path: Any) -> None:
    printed = in_a_process(
        KERNEL
        + """
x, y = qn.device("cuda:1").zeros(10, qn.f32), qn.device("cuda:0").zeros(10, qn.f32)
only_here.over(10)(x)
with qn.no_compiling():
    only_here.over(10)(y)
print(x.numpy().sum(), y.numpy().sum())
        """,
        QUERNEL_ENVIRONMENT=str(tmp_path / "environment"),
    )
    assert printed.split() == ["82.5", "82.5"]


@pytest.mark.lost
def test_a_lost_device_takes_the_other_with_it_and_both_say_why(gpu: Any, other: Any) -> None:
    printed = in_a_process(
        KERNEL
        + """
@qn.kernel
def astray(x: qn.Array[qn.f32]):
    x[qn.global_id() + 10_000_000_000] = 1.0
lost, whole = qn.device("cuda:1"), qn.device("cuda:0")
x, y = lost.zeros(10, qn.f32), whole.zeros(10, qn.f32)
only_here.over(10)(y)
whole.synchronize()
astray.over(10)(x)
def tries(use):
    try:
        use()
    except qn.errors.DeviceError as error:
        print("most probably the launch of astray on cuda:1." in error.what)
tries(lost.synchronize)
tries(lambda: only_here.over(10)(y))
tries(y.numpy)
tries(lambda: y.to(lost))
tries(lambda: lost.zeros(3, qn.f32))
        """
    )
    assert printed.split() == ["True"] * 5
