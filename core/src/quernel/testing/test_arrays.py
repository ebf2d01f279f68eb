"""Arrays of a device: what NumPy makes of the same shapes, strides and types, and what becomes of too large ones."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import DeviceError, KernelTypeError, LaunchError
from quernel.testing.outcomes import not_declared

NUMBERS = (qn.i8, qn.i16, qn.i32, qn.i64, qn.u8, qn.u16, qn.u32, qn.u64, qn.f16, qn.bf16, qn.f32, qn.f64)
SHAPES = [(1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2)]
EMPTY = [(0,), (3, 0), (0, 4, 2)]
VIEWS = {
    "part": np.s_[2:5],
    "every other": np.s_[::2],
    "backwards": np.s_[::-1],
    "of both axes": np.s_[1:4, ::3],
    "a row": np.s_[3],
    "a column": np.s_[:, 2],
    "the last": np.s_[-1, ...],
    "both backwards": np.s_[::-2, ::-1],
    "nothing": np.s_[4:2],
}


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.arange(np.prod(shape, dtype=int)) % 97).reshape(shape).astype(dtype.numpy)


def same(found: Any, wanted: Any) -> bool:
    """Whether two arrays are equal in shape, type and every byte."""
    same_kind = (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    return same_kind and np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_is_copied_there_comes_back(quernel_device: Any, dtype: Any) -> None:
    for shape in SHAPES:
        host = numbers(shape, dtype)
        there = quernel_device.array(host)
        assert (there.shape, there.dtype, there.ndim, there.size) == (shape, dtype, len(shape), host.size)
        assert (there.strides, there.nbytes) == (host.strides, host.nbytes)
        assert same(there.numpy(), host)


@pytest.mark.parametrize("order", ["transposed", "strided", "reversed", "broadcast"])
def test_any_layout_of_the_host_is_copied_by_its_elements(quernel_device: Any, order: str) -> None:
    whole = numbers((6, 8), qn.i32)
    host = {
        "transposed": whole.T,
        "strided": whole[::2, 1::3],
        "reversed": whole[::-1, ::-2],
        "broadcast": np.broadcast_to(whole[:1], (4, 8)),
    }[order]
    assert same(quernel_device.array(host).numpy(), np.ascontiguousarray(host))
    there = quernel_device.zeros(host.shape, qn.i32)
    there.copy_from(host)
    assert same(there.numpy(), np.ascontiguousarray(host))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_new_arrays_hold_what_was_asked_for(quernel_device: Any, dtype: Any) -> None:
    assert same(quernel_device.zeros((3, 5), dtype).numpy(), np.zeros((3, 5), dtype.numpy))
    assert same(quernel_device.full((2, 9), 7, dtype).numpy(), np.full((2, 9), 7, dtype.numpy))
    there = quernel_device.empty(1000, dtype)
    there.fill(3)
    assert same(there.numpy(), np.full(1000, 3, dtype.numpy))


@pytest.mark.parametrize("count", [1, 3, 63, 64, 65, 4099])
def test_a_fill_writes_all_and_nothing_beyond(quernel_device: Any, count: int) -> None:
    there = quernel_device.array(numbers((count + 8,), qn.i16))
    wanted = numbers((count + 8,), qn.i16)
    there[4 : 4 + count].fill(-5)
    wanted[4 : 4 + count] = -5
    assert same(there.numpy(), wanted)


@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_arrays_without_elements_are_arrays(quernel_device: Any, shape: tuple[int, ...]) -> None:
    for there in (quernel_device.zeros(shape, qn.i32), quernel_device.array(np.empty(shape, np.int32))):
        assert (there.shape, there.size, there.nbytes) == (shape, 0, 0)
        there.fill(3)
        there.copy_from(np.empty(shape, np.int32))
        assert same(there.numpy(), np.empty(shape, np.int32))
        assert there.copy().shape == shape


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_the_part_that_numpys_is(quernel_device: Any, view: str) -> None:
    host = numbers((6, 10), qn.i32)
    found, wanted = quernel_device.array(host)[VIEWS[view]], host[VIEWS[view]]
    assert (found.shape, found.size, found.ndim) == (wanted.shape, wanted.size, wanted.ndim)
    assert found.strides == wanted.strides or not wanted.size
    assert same(found.numpy(), np.ascontiguousarray(wanted))


ORDERS = [(), (None,), ((2, 0, 1),), (0, 2, 1), (-1, 0, 1), ([1, 2, 0],), (0, 1, 2)]


@qn.kernel
def numbered(x: qn.Array3[qn.i32], out: qn.Array3[qn.i32]):
    i, j, k = qn.global_id()
    out[i, j, k] = x[i, j, k] * 2 + 1
    x[i, j, k] = i * 100 + j * 10 + k


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_axes_in_another_order_are_a_view_for_copies_and_kernels(quernel_device: Any, order: tuple[Any, ...]) -> None:
    host = numbers((2, 3, 5), qn.i32)
    there = quernel_device.array(host)
    found, wanted = there.transpose(*order), host.transpose(*order)
    assert (found.shape, found.strides) == (wanted.shape, wanted.strides)
    assert same(found.numpy(), np.ascontiguousarray(wanted))
    assert same(there.T.numpy(), np.ascontiguousarray(host.T))
    assert same(there[0].T[1:].numpy(), np.ascontiguousarray(host[0].T[1:]))
    out = quernel_device.zeros_like(found)
    numbered.over(found.shape, device=quernel_device)(found, out)
    assert same(out.numpy(), np.ascontiguousarray(wanted * 2 + 1))
    wanted[...] = np.indices(wanted.shape).transpose(1, 2, 3, 0) @ [100, 10, 1]
    assert same(there.numpy(), host)
    found.copy_from(np.ascontiguousarray(wanted + 1))
    assert same(there.numpy(), host + 1)


def test_arrays_without_axes_or_elements_have_a_transpose_too(quernel_device: Any) -> None:
    assert quernel_device.zeros((0, 3), qn.f32).T.shape == (3, 0)
    assert quernel_device.zeros((), qn.f32).T.shape == ()
    assert quernel_device.full(3, 2, qn.i16).T.numpy().tolist() == [2, 2, 2]


NO_ORDERS = [(0, 1), (0, 0, 1), (0, 1, 3), (-4, 0, 1), ((0, 1, 2, 1),), (0.0, 1, 2), ((),), ([],)]


@pytest.mark.parametrize("order", NO_ORDERS, ids=str)
def test_an_order_that_does_not_name_every_axis_once_is_refused(quernel_device: Any, order: tuple[Any, ...]) -> None:
    with pytest.raises(KernelTypeError, match=r"are no order of those|no integer"):
        quernel_device.zeros((2, 3, 5), qn.i32).transpose(*order)


@pytest.mark.parametrize("dtype", [None, qn.i16, qn.bool])
def test_arrays_like_another_take_its_shape_and_type(quernel_device: Any, dtype: Any) -> None:
    host = numbers((4, 6), qn.u16)[::2].T
    for like in (host, quernel_device.array(host), quernel_device.array(host).T.T):
        wanted = np.dtype(np.uint16) if dtype is None else dtype.numpy
        empty = quernel_device.empty_like(like, dtype)
        assert (empty.shape, empty.numpy_dtype, empty.is_contiguous) == (host.shape, wanted, True)
        assert same(quernel_device.zeros_like(like, dtype).numpy(), np.zeros(host.shape, wanted))
        value = True if dtype is qn.bool else 7
        assert same(quernel_device.full_like(like, value, dtype).numpy(), np.full(host.shape, value, wanted))


def test_nothing_is_made_like_what_is_no_array(quernel_device: Any) -> None:
    makers = (quernel_device.empty_like, quernel_device.zeros_like, lambda source: quernel_device.full_like(source, 1))
    for make in makers:
        with pytest.raises(KernelTypeError, match=r"like a list, which has no shape(.|\n)*asarray"):
            make([1.0, 2.0])


def test_a_mask_is_not_lost_unsaid(quernel_device: Any) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    there = quernel_device.zeros(2)
    for take in (quernel_device.array, quernel_device.asarray, there.copy_from, there.copy_to):
        with pytest.raises(KernelTypeError, match=r"got a masked array(.|\n)*filled"):
            take(masked)


def test_what_is_no_array_is_refused_by_a_copy_with_the_way_to_fill(quernel_device: Any) -> None:
    there = quernel_device.zeros(2)
    for source in (3.0, [1.0, 2.0]):
        with pytest.raises(KernelTypeError, match=r"a copy between f64 of shape \(2,\) and a (float|list)(.|\n)*fill"):
            there.copy_from(source)


def test_shapes_without_elements_that_no_memory_could_hold_otherwise_are_refused(quernel_device: Any) -> None:
    with pytest.raises(LaunchError, match="beyond what any memory holds"):
        quernel_device.empty((0, 1 << 62, 1 << 62), qn.f64)


@pytest.mark.parametrize("view", VIEWS)
def test_writing_a_view_changes_that_part_alone(quernel_device: Any, view: str) -> None:
    host = numbers((6, 10), qn.i32)
    there = quernel_device.array(host)
    there[VIEWS[view]].fill(-1)
    host[VIEWS[view]] = -1
    assert same(there.numpy(), host)
    new = numbers(host[VIEWS[view]].shape, qn.i32) + 100
    there[VIEWS[view]] = new
    host[VIEWS[view]] = new
    assert same(there.numpy(), host)


def test_a_view_keeps_its_memory_alive(quernel_device: Any) -> None:
    part = quernel_device.array(numbers((1000,), qn.i32))[10:20]
    gc.collect()
    others = [quernel_device.full(1000, -1, qn.i32) for _ in range(8)]
    assert part.numpy().tolist() == list(range(10, 20))
    assert len(others) == 8


def test_reshaped_arrays_share_their_elements(quernel_device: Any) -> None:
    there = quernel_device.array(numbers((4, 6), qn.i32))
    there.reshape(3, -1)[1].fill(0)
    wanted = numbers((4, 6), qn.i32)
    wanted.reshape(3, -1)[1] = 0
    assert same(there.numpy(), wanted)
    with pytest.raises(KernelTypeError, match="strided view cannot be reshaped"):
        there[:, ::2].reshape(-1)


def test_copies_are_of_their_own(quernel_device: Any) -> None:
    there = quernel_device.array(numbers((4, 6), qn.i32))
    copies = [there.copy(), quernel_device.array(there), there[:, ::2].copy()]
    there.fill(-1)
    assert same(copies[0].numpy(), numbers((4, 6), qn.i32))
    assert same(copies[1].numpy(), numbers((4, 6), qn.i32))
    assert same(copies[2].numpy(), np.ascontiguousarray(numbers((4, 6), qn.i32)[:, ::2]))


@pytest.mark.parametrize(
    ("to", "source"), [("every other", "part"), ("backwards", "every other"), ("part", "backwards")]
)
def test_views_are_copied_into_views(quernel_device: Any, to: str, source: str) -> None:
    host, other = numbers((6, 10), qn.i32), numbers((6, 10), qn.i32) + 50
    there, more = quernel_device.array(host), quernel_device.array(other)
    target, wanted = there[VIEWS[to]][:3], host[VIEWS[to]][:3]
    target.copy_from(more[VIEWS[source]][:3])
    wanted[...] = other[VIEWS[source]][:3]
    assert same(there.numpy(), host)


@pytest.mark.parametrize("shift", [1, 3, 17])
def test_a_copy_onto_itself_is_as_if_all_was_read_first(quernel_device: Any, shift: int) -> None:
    for to, source in ((np.s_[shift:], np.s_[:-shift]), (np.s_[:-shift], np.s_[shift:])):
        host = numbers((40,), qn.i32)
        there = quernel_device.array(host)
        there[to].copy_from(there[source])
        host[to] = host[source].copy()
        assert same(there.numpy(), host)


MIXED = (np.uint8, np.int16, np.float32, np.int64, np.dtype("u1, u1, u1"), np.dtype("f4, i8"))


def some_part(random: Random, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """A part of each axis: with steps, backwards, nothing at all."""
    parts = []
    for length in shape:
        first, last = sorted(random.randrange(length + 2) for _ in range(2))
        step = random.choice([1, 1, 2, 3, -1, -2])
        parts.append(slice(first, last, step) if step > 0 else slice(last, first or None, step))
    return tuple(parts)


def change(random: Random, there: Any, host: Any, others: list[tuple[Any, Any]]) -> None:
    """Does one thing to an array of the device, and the same to NumPy's."""
    part = some_part(random, host.shape)
    value = np.full((), random.randrange(100), host.dtype)[()]
    alike = [pair for pair in others if pair[1].shape == host.shape and pair[1].dtype == host.dtype]
    match random.choice(["fill", "part", "host", "other"]):
        case "fill":
            there.fill(value)
            host[...] = value
        case "part":
            there[part] = value
            host[part] = value
        case "host":
            turned = host[part][::-1].copy()
            there[part] = turned
            host[part] = turned
        case "other":
            source, copied = random.choice(alike)
            there[...] = source
            host[...] = copied.copy()


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_of_views_fills_and_copies_does_as_numpys(quernel_device: Any, seed: int) -> None:
    random = Random(seed)
    pairs: list[tuple[Any, Any]] = []
    for _ in range(2):
        shape = tuple(random.choice([1, 2, 7, 16, 33]) for _ in range(random.randint(1, 3)))
        host = np.zeros(shape, random.choice(MIXED))
        host[...] = (np.arange(host.size) % 97).reshape(shape).astype(host.dtype)
        pairs.append((quernel_device.array(host), host))
    for _ in range(12):
        there, host = random.choice(pairs)
        match random.choice(["view", "turned", "copy", "change", "change", "change"]):
            case "view":
                part = some_part(random, host.shape)
                pairs.append((there[part], host[part]))
            case "turned":
                pairs.append((there.T, host.T))
            case "copy":
                pairs.append((there.copy(), host.copy()))
            case "change":
                change(random, there, host, pairs)
    for there, host in pairs:
        assert same(there.numpy(), host)


def test_copies_into_the_hosts_arrays(quernel_device: Any) -> None:
    there = quernel_device.array(numbers((4, 6), qn.i32))
    out, strided = np.zeros((4, 6), np.int32), np.zeros((8, 6), np.int32)
    assert there.numpy(out=out) is out
    there.copy_to(strided[::2])
    assert same(out, numbers((4, 6), qn.i32))
    assert same(np.ascontiguousarray(strided[::2]), out)
    assert not strided[1::2].any()
    with pytest.raises(KernelTypeError, match="shape"):
        there.copy_to(np.zeros((6, 4), np.int32))


def test_the_hosts_array_may_change_once_it_was_copied(quernel_device: Any) -> None:
    host = numbers((100_000,), qn.i32)
    there = quernel_device.array(host)
    host[:] = -1
    assert same(there.numpy(), numbers((100_000,), qn.i32))


def test_an_array_that_is_only_borrowed_changes_with_the_hosts(quernel_device: Any) -> None:
    host = numbers((10,), qn.i32)
    there = quernel_device.asarray(host)
    assert quernel_device.asarray(there) is there
    there.fill(5)
    quernel_device.synchronize()
    assert there.numpy().tolist() == [5] * 10
    assert host.tolist() == ([5] * 10 if quernel_device.is_host_accessible else list(range(10)))


def test_arrays_go_to_another_device_and_back(quernel_device: Any) -> None:
    host = numbers((5, 7), qn.i32)
    elsewhere = quernel_device.array(host)[::2].to("reference")
    assert elsewhere.device is qn.device("reference")
    assert same(elsewhere.to(quernel_device).numpy(), np.ascontiguousarray(host[::2]))


def test_casts_are_the_languages(quernel_device: Any) -> None:
    there = quernel_device.array(np.array([-1.5, 0.0, 2.7, 1e30, np.nan], np.float32))
    assert there.astype(qn.i32).numpy().tolist() == [-1, 0, 2, 2**31 - 1, 0]
    assert there.astype(qn.u8).numpy().tolist() == [0, 0, 2, 255, 0]


def test_memory_starts_where_kernels_may_read_it_in_one_piece(quernel_device: Any) -> None:
    arrays = [quernel_device.empty(count, qn.u8) for count in (1, 3, 64, 1000, 100_000)]
    assert [array.allocation.memory.address % 64 for array in arrays] == [0] * len(arrays)
    assert len({array.allocation.memory.address for array in arrays}) == len(arrays)


def test_more_memory_than_there_is_is_an_error_and_does_no_harm(quernel_device: Any) -> None:
    there = quernel_device.full(10, 4, qn.i32)
    with pytest.raises(DeviceError, match=str(2**60)) as caught:
        quernel_device.empty(2**60, qn.u8)
    assert caught.value.fix
    assert there.numpy().tolist() == [4] * 10
    assert quernel_device.full(10, 6, qn.i32).numpy().tolist() == [6] * 10


@pytest.mark.quernel_needs(memory_bytes=24 * 2**30)
def test_more_than_4_gib_are_filled_and_copied_whole(quernel_device: Any) -> None:
    """Drivers count bytes and elements in 31 or 32 bits here and there. The host's memory has other tests."""
    if quernel_device.is_host_accessible:
        pytest.skip(not_declared(["memory apart from the host's"], quernel_device.info.backend))
    length = 2**32 + 40
    there = quernel_device.full(length, 3, qn.u8)
    there[3 : length - 2] = 7
    there[2**31 : 2**31 + 5] = 9
    wanted = [3] * 3 + [7] * 57 + [7] * 20 + [9] * 5 + [7] * 35 + [7] * 58 + [3] * 2
    for found in (there, there.copy()):
        parts = [found[first : first + 60].numpy() for first in (0, 2**31 - 20, 2**32 - 20)]
        assert np.concatenate(parts).tolist() == wanted
    pairs = quernel_device.full(length // 2, 0x0102, qn.u16)
    pairs[1:-1] = 0x0304
    parts = [pairs[first : first + 20].numpy() for first in (0, 2**30 - 10, 2**31)]
    assert np.concatenate(parts).tolist() == [0x0102] + [0x0304] * 58 + [0x0102]


def test_a_shape_that_is_none_is_refused(quernel_device: Any) -> None:
    with pytest.raises(LaunchError, match="negative length"):
        quernel_device.empty(-1, qn.i32)
    with pytest.raises(LaunchError, match="shape"):
        quernel_device.empty(2.5, qn.i32)
    with pytest.raises(KernelTypeError, match="shape"):
        quernel_device.zeros(4, qn.i32).copy_from(np.zeros(5, np.int32))


NUM_PIECES = 32
PIECE_BYTES = 2**24


def resident_bytes() -> int:
    """The memory that the system holds for this process, or 0 where it does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def test_memory_that_nobody_holds_is_given_back(quernel_device: Any) -> None:
    """Pieces of half a GiB together, at most a quarter of the device's memory, one after the other.

    What the process holds for them must not add up. Nor may what it does not see, the memory of a GPU: pieces come at
    the addresses of earlier ones, or else nobody holds the backend's own objects for them.
    """
    most = quernel_device.info.memory_bytes or 2**62
    nbytes = min(PIECE_BYTES, most // (4 * NUM_PIECES))
    addresses, num_held = set(), 0
    before = resident_bytes()
    for number in range(NUM_PIECES):
        there = quernel_device.full(nbytes, number, qn.u8)
        assert there[-1:].numpy()[0] == number
        addresses.add(there.allocation.memory.address)
        handle = there.allocation.memory.handle
        del there
        gc.collect(0)
        quernel_device.synchronize()
        num_held += handle is None or sys.getrefcount(handle) > 2  # of which one is this function's, one the call's
        del handle
    kept = resident_bytes() - before
    assert kept < NUM_PIECES // 2 * nbytes, f"the process holds {kept} more bytes after pieces of {nbytes}"
    assert min(num_held, len(addresses)) <= NUM_PIECES // 4, (
        f"{NUM_PIECES} pieces came at {len(addresses)} addresses, and of {num_held} the backend's object is not gone"
    )
