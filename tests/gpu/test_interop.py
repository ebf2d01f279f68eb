"""Arrays that PyTorch, CuPy and Quernel hold together on one GPU: one memory, in order, alive as long as needed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import quernel as qn


@qn.kernel
def scale(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i]


@qn.kernel
def slowly(x: qn.Array1[qn.f32], n: int):
    i = qn.global_id()
    v = x[i]
    for _ in range(n):
        v = v * qn.f32(1.0000001) + qn.f32(1e-7)
    x[i] = v * qn.f32(0.0) + qn.f32(7.0)


@qn.kernel
def transposed(x: qn.Array2[qn.f32], y: qn.Array2[qn.f32]):
    i, j = qn.global_id()
    y[i, j] = x[j, i]


N = 1 << 20
ROUNDS = 1_500_000
"""Some 100 ms of work: far longer than the host takes to go on."""


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="needs CuPy")


def test_a_tensor_is_taken_where_it_is_and_given_back(gpu: Any, torch: Any) -> None:
    tensor = torch.arange(1000, dtype=torch.float32, device="cuda")
    x, y = gpu.asarray(tensor), gpu.zeros(1000, qn.f32)
    assert x.address == tensor.data_ptr()
    scale.over(1000)(2.0, x, y)
    back = torch.from_dlpack(y)
    assert back.data_ptr() == y.address
    assert back.device == tensor.device
    assert torch.equal(back, tensor * 2)
    back.fill_(5)
    assert y.numpy().tolist() == [5] * 1000


def test_an_array_of_cupy_is_taken_where_it_is_and_given_back(gpu: Any, cupy: Any) -> None:
    theirs = cupy.arange(1000, dtype=cupy.float32)
    x, y = gpu.asarray(theirs), gpu.zeros(1000, qn.f32)
    assert x.address == theirs.data.ptr
    scale.over(1000)(2.0, x, y)
    for back in (cupy.from_dlpack(y), cupy.asarray(y)):
        assert back.data.ptr == y.address
        assert bool((back == theirs * 2).all())


def test_an_object_with_the_interface_alone_is_taken(gpu: Any, cupy: Any) -> None:
    theirs = cupy.arange(1000, dtype=cupy.float32)

    class Holder:
        __cuda_array_interface__ = theirs.__cuda_array_interface__

    x = gpu.asarray(Holder())
    assert x.address == theirs.data.ptr
    assert x.numpy().tolist() == list(range(1000))


def test_strides_go_both_ways(gpu: Any, torch: Any, cupy: Any) -> None:
    tensor = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    x, y = gpu.asarray(tensor.t()), gpu.zeros((3, 4), qn.f32)
    assert (x.shape, x.strides) == ((4, 3), (4, 16))
    transposed.over((3, 4))(x, y)
    assert torch.equal(torch.from_dlpack(y), tensor)
    assert torch.equal(torch.from_dlpack(y[:, 1::2]), tensor[:, 1::2])
    turned = cupy.from_dlpack(y[::-1, ::2])
    assert turned.strides == (-16, 8)
    assert turned.get().tolist() == y.numpy()[::-1, ::2].tolist()


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
)
def test_every_type_goes_both_ways(gpu: Any, torch: Any, name: str) -> None:
    tensor = torch.tensor([0, 1, 1, 0], device="cuda").to(getattr(torch, name))
    x = gpu.asarray(tensor)
    back = torch.from_dlpack(x)
    assert (back.dtype, back.data_ptr()) == (tensor.dtype, tensor.data_ptr())
    own = torch.from_dlpack(gpu.full(4, True if name == "bool" else 1, x.dtype))
    assert own.dtype == tensor.dtype
    assert own.cpu().to(torch.float32).tolist() == [1, 1, 1, 1]


def test_arrays_without_elements_go_both_ways(gpu: Any, torch: Any, cupy: Any) -> None:
    empty = gpu.empty((3, 0), qn.f32)
    assert tuple(torch.from_dlpack(empty).shape) == cupy.from_dlpack(empty).shape == cupy.asarray(empty).shape == (3, 0)
    assert gpu.asarray(torch.empty((0, 2), device="cuda")).shape == (0, 2)
    assert gpu.asarray(cupy.empty((0, 2), cupy.float32)).shape == (0, 2)


def test_originals_may_go(gpu: Any, torch: Any, cupy: Any) -> None:
    taken = [gpu.asarray(torch.full((N,), 3.0, device="cuda")), gpu.asarray(cupy.full(N, 3.0, cupy.float32))]
    given = [torch.from_dlpack(gpu.full(N, 3.0, qn.f32)), cupy.from_dlpack(gpu.full(N, 3.0, qn.f32))]
    gc.collect()
    junk = [torch.full((N,), -1.0, device="cuda"), cupy.full(N, -1, cupy.float32), gpu.full(N, -1.0, qn.f32)]
    assert all(float(array.numpy().min()) == 3 for array in taken)
    assert all(float(array.min()) == 3 for array in given)
    del junk


def test_an_allocation_is_given_back_with_its_last_user(gpu: Any, torch: Any) -> None:
    gpu.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(40):
        tensor = torch.from_dlpack(gpu.empty(1 << 30, qn.u8))
        again = gpu.asarray(tensor)
        del tensor, again
    assert free - torch.cuda.mem_get_info()[0] < 8 << 30


def test_a_tensor_is_given_back_with_its_last_user(gpu: Any, torch: Any) -> None:
    before = torch.cuda.memory_allocated()
    view = gpu.asarray(torch.empty(1 << 28, dtype=torch.uint8, device="cuda"))[5:]
    gc.collect()
    assert torch.cuda.memory_allocated() == before + (1 << 28)
    gpu.synchronize()
    del view
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_pytorch_s_stream_sees_our_pending_work(gpu: Any, torch: Any, side: bool, own: bool) -> None:
    x = gpu.zeros(N, qn.f32)
    stream = gpu.stream() if own else None
    slowly.over(N, stream=stream)(x, 1)
    gpu.synchronize()
    x.fill(0)
    slowly.over(N, stream=stream)(x, ROUNDS)
    with torch.cuda.stream(torch.cuda.Stream() if side else torch.cuda.default_stream()):
        total = torch.from_dlpack(x).sum()
        assert float(total) == 7 * N


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_our_streams_see_pytorch_s_pending_work(gpu: Any, torch: Any, side: bool, own: bool) -> None:
    y = gpu.zeros(N, qn.f32)
    stream = gpu.stream() if own else None
    tensor = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream() if side else torch.cuda.default_stream()):
        torch.cuda._sleep(200_000_000)
        tensor.fill_(2.0)
        x = gpu.asarray(tensor)
    scale.over(N, stream=stream)(2.0, x, y)
    assert y.numpy().min() == 4


@pytest.mark.parametrize("blocking", [False, True])
def test_cupy_s_streams_and_ours_are_in_order(gpu: Any, cupy: Any, blocking: bool) -> None:
    x, y, z = gpu.zeros(N, qn.f32), gpu.zeros(N, qn.f32), gpu.zeros(N, qn.f32)
    gpu.synchronize()
    with cupy.cuda.Stream(non_blocking=not blocking):
        slowly.over(N)(x, ROUNDS)
        theirs = cupy.from_dlpack(x) + 1
        slowly.over(N)(z, ROUNDS)
        also = cupy.asarray(z) + 2
        scale.over(N)(2.0, gpu.asarray(theirs), y)
        assert float(also.min()) == 9
    assert y.numpy().min() == 16


def test_memory_is_not_used_again_while_the_other_library_works_on_it(gpu: Any, torch: Any) -> None:
    side = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(side):
            tensor = torch.from_dlpack(gpu.full(N, 3.0, qn.f32))
            torch.cuda._sleep(20_000_000)
            kept = tensor * 1
            del tensor
        ours = gpu.full(N, -1.0, qn.f32)
        side.synchronize()
        assert float(kept.min()) == 3
        del ours


def test_memory_of_the_other_library_is_not_used_again_while_we_work_on_it(gpu: Any, torch: Any) -> None:
    side, stream = torch.cuda.Stream(), gpu.stream()
    busy, y = gpu.zeros(N, qn.f32), gpu.zeros(N, qn.f32)
    for _ in range(5):
        with torch.cuda.stream(side):
            x = gpu.asarray(torch.full((N,), 3.0, device="cuda"))
            slowly.over(N, stream=stream)(busy, ROUNDS // 8)
            scale.over(N, stream=stream)(1.0, x, y)
            del x
            other = torch.full((N,), -1.0, device="cuda")
        stream.synchronize()
        assert y.numpy().min() == 3
        del other


def test_taking_and_letting_go_never_waits(gpu: Any, torch: Any) -> None:
    x, tensor = gpu.zeros(N, qn.f32), torch.ones(N, device="cuda")
    slowly.over(N)(x, 1)
    scale.over(N)(1.0, gpu.asarray(tensor), x)  # compiled, so that nothing below takes long
    gpu.synchronize()
    slowly.over(N)(x, ROUNDS)
    scale.over(N)(1.0, gpu.asarray(tensor), x)
    last = torch.cuda.Event()
    last.record()  # in the legacy stream, behind ours
    assert not last.query()
    gpu.synchronize()
    assert last.query()


def test_what_cannot_be_taken_says_why(gpu: Any, torch: Any) -> None:
    with pytest.raises(qn.errors.KernelTypeError, match="kernels have no complex64"):
        gpu.asarray(torch.zeros(4, dtype=torch.complex64, device="cuda"))
    with pytest.raises(qn.errors.KernelTypeError, match=r"x = device\.asarray\(x\)"):
        scale.over(4)(1.0, torch.zeros(4, device="cuda"), gpu.zeros(4, qn.f32))
    assert np.array_equal(gpu.asarray(torch.arange(4)).numpy(), np.arange(4))
