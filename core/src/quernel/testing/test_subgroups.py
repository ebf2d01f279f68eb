"""Operations among the threads of a subgroup, against a direct computation with the device's size of subgroups."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on

pytestmark = pytest.mark.quernel_needs("subgroups")
BLOCKS = {"whole": lambda size: 2 * size, "one": lambda size: size, "partial": lambda size: size + (size + 1) // 2}
SMALL = (qn.i32, qn.u32, qn.i64, qn.f32, qn.f64)


def lanes_of(values: Any, block: int, size: int) -> list[list[Any]]:
    """The values of each subgroup, by lane; subgroups never reach across blocks."""
    plain = values.tolist()
    blocks = [plain[first : first + block] for first in range(0, len(plain), block)]
    return [part[first : first + size] for part in blocks for first in range(0, len(part), size)]


def values_of(dtype: Any, count: int) -> Any:
    return np.random.default_rng(count).integers(1, 50, count).astype(dtype.numpy)


def computed(device: Any, operation: str, x: Any, block: int, out: Any) -> Any:
    """What `qn.subgroup.<operation>` gives each thread, where `v` is its value and `lane` its lane."""
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    lane = qn.subgroup.lane()\n    v = x[i]\n"
        f"    out[i] = qn.subgroup.{operation}\n"
    )
    on(device, kernel)[len(x) // block, block](x, out)
    return out


@pytest.mark.parametrize("name", BLOCKS)
def test_every_thread_knows_its_lane_its_subgroup_and_the_size(quernel_device: Any, name: str) -> None:
    size = quernel_device.target_info.subgroup_size
    block = BLOCKS[name](size)
    out = np.full((2 * block, 3), -1, np.int64)
    kernel = kernel_of(
        "@qn.kernel\ndef k(out):\n    i = qn.global_id()\n    out[i, 0] = qn.subgroup.lane()\n"
        "    out[i, 1] = qn.subgroup.id()\n    out[i, 2] = qn.subgroup.size()\n"
    )
    on(quernel_device, kernel)[2, block](out)
    assert out.tolist() == [[t % size, t // size, size] for _ in range(2) for t in range(block)]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize(("operation", "meaning"), [("sum", sum), ("min", min), ("max", max)])
def test_a_reduction_gives_every_lane_the_subgroups_value(
    quernel_device: Any, operation: str, meaning: Any, dtype: Any, name: str
) -> None:
    size = quernel_device.target_info.subgroup_size
    block = BLOCKS[name](size)
    x = values_of(dtype, 3 * block)
    out = computed(quernel_device, f"{operation}(v)", x, block, np.zeros_like(x))
    assert out.tolist() == [meaning(part) for part in lanes_of(x, block, size) for _ in part]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_a_scan_gives_each_lane_the_sum_up_to_itself(quernel_device: Any, dtype: Any, name: str) -> None:
    size = quernel_device.target_info.subgroup_size
    block = BLOCKS[name](size)
    x = values_of(dtype, 2 * block)
    out = computed(quernel_device, "scan(v)", x, block, np.zeros_like(x))
    assert out.tolist() == [value for part in lanes_of(x, block, size) for value in itertools.accumulate(part)]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("least", [0, 25, 49, 60])
def test_votes_count_the_lanes_that_are_there(quernel_device: Any, least: int, name: str) -> None:
    size = quernel_device.target_info.subgroup_size
    block = BLOCKS[name](size)
    x = values_of(qn.i32, 2 * block)
    parts = [[value > least for value in part] for part in lanes_of(x, block, size)]
    for operation, meaning in (("any", any), ("all", all)):
        out = computed(quernel_device, f"{operation}(v > {least})", x, block, np.zeros(len(x), bool))
        assert out.tolist() == [meaning(part) for part in parts for _ in part]
    ballots = computed(quernel_device, f"ballot(v > {least})", x, block, np.zeros(len(x), np.uint64))
    assert ballots.tolist() == [sum(1 << lane for lane, c in enumerate(part) if c) for part in parts for _ in part]


EXCHANGES = {
    "shuffle(v, n - 1 - lane)": lambda lane, size: size - 1 - lane,
    "shuffle_xor(v, n // 2)": lambda lane, size: lane ^ (size // 2),
    "shuffle_up(v, 1)": lambda lane, size: lane - 1,
    "shuffle_down(v, 2)": lambda lane, size: lane + 2,
    "broadcast(v, n - 1)": lambda lane, size: size - 1,
}


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("operation", EXCHANGES)
def test_lanes_exchange_values(quernel_device: Any, operation: str, dtype: Any) -> None:
    size = quernel_device.target_info.subgroup_size
    block = 2 * size
    x = values_of(dtype, 2 * block)
    out = computed(quernel_device, operation.replace("n ", f"{size} "), x, block, np.zeros_like(x))
    for part, got in zip(lanes_of(x, block, size), lanes_of(out, block, size), strict=True):
        for lane in range(size):
            other = EXCHANGES[operation](lane, size)
            if 0 <= other < size:  # What a lane gets from one that is not there is not promised.
                assert got[lane] == part[other]


def test_subgroups_work_in_loops_of_their_own_length(quernel_device: Any) -> None:
    size = quernel_device.target_info.subgroup_size
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n    total = 0\n"
        "    for k in range(qn.subgroup.id() + 1):\n        total += qn.subgroup.sum(x[i] * (k + 1))\n"
        "    out[i] = total\n"
    )
    x, out = values_of(qn.i32, 3 * size), np.zeros(3 * size, np.int64)
    on(quernel_device, kernel)[1, 3 * size](x, out)
    sums = [sum(part) for part in lanes_of(x, 3 * size, size)]
    assert out.tolist() == [total * factor for total, factor in zip(sums, (1, 3, 6), strict=True) for _ in range(size)]
