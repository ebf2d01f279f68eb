"""Segments: where kernels are cut, and what a thread hands from one segment to the next."""

from __future__ import annotations

import pytest
from tests.property.block_executor import Machine, arrays_of

from quernel.errors import KernelSyntaxError
from quernel.ir.parser import parse_module
from quernel.ir.segments import (
    BlockBreak,
    BlockFor,
    BlockIf,
    BlockLoop,
    BlockReturn,
    Segment,
    SegmentedKernel,
    has_barriers,
    segment,
)

HEAD = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>, n: i64) grid (4):
    local i, j, u, v, w: i64
    shared s: i64[4]
    private p: i64[4]
    private q: i64[4]
"""


def segmented(*lines: str) -> SegmentedKernel:
    return segment(parse_module(HEAD + "".join(f"    {line}\n" for line in lines)))


def same_as_direct(*lines: str, n: int = 3) -> bool:
    """Whether segments and threads at barriers give equal memory."""
    module = parse_module(HEAD + "".join(f"    {line}\n" for line in lines))
    direct = Machine(module, arrays_of(module, {"x": (8,), "y": (8,)}), {"n": n})
    other = Machine(module, arrays_of(module, {"x": (8,), "y": (8,)}), {"n": n})
    direct.run()
    other.run_segmented(segment(module))
    return direct.arrays == other.arrays


def names(locals_: object) -> list[str]:
    return [local.name for local in locals_]  # type: ignore[attr-defined]


def test_kernel_without_barriers_is_one_segment_that_hands_on_nothing() -> None:
    kernel = segmented("v = local_id(0)", "p[0] = v", "y[v] = p[0]")
    assert not has_barriers(kernel.module)
    (only,) = kernel.regions
    assert isinstance(only, Segment)
    assert (only.loads, only.stores, kernel.uniform, kernel.carried, kernel.carried_arrays) == ((), (), (), (), ())
    assert names(kernel.private) == ["p", "q"]


def test_kernel_is_cut_at_its_barriers() -> None:
    kernel = segmented("v = local_id(0)", "s[v] = v", "barrier", "y[v] = s[3 - v]", "barrier", "y[v] = y[v] + 1")
    assert [type(region) for region in kernel.regions] == [Segment] * 3
    assert names(kernel.carried) == ["v"]


def test_local_that_no_later_segment_reads_is_not_handed_on() -> None:
    kernel = segmented("v = local_id(0)", "w = v + 1", "s[v] = w", "barrier", "w = 2", "y[v] = w")
    assert names(kernel.carried) == ["v"]
    first, second = kernel.regions
    assert isinstance(first, Segment)
    assert isinstance(second, Segment)
    assert first.stores == ("v",)
    assert second.loads == ("v",)


def test_local_on_which_the_block_agrees_has_one_cell() -> None:
    kernel = segmented("u = block_id(0) + n", "v = local_id(0)", "barrier", "y[v] = u")
    assert names(kernel.uniform) == ["u"]
    assert names(kernel.carried) == ["v"]


def test_private_array_outlives_a_segment_only_where_two_use_it() -> None:
    kernel = segmented("p[0] = 1", "q[0] = 1", "y[0] = q[0]", "barrier", "y[1] = p[0]")
    assert names(kernel.carried_arrays) == ["p"]
    assert names(kernel.private) == ["q"]
    assert names(kernel.shared) == ["s"]


def test_private_array_in_a_loop_of_the_block_outlives_its_segment() -> None:
    assert names(segmented("for i in range(0, 3, 1):", "    p[0] = i", "    barrier").carried_arrays) == ["p"]


def test_control_round_a_barrier_is_the_blocks() -> None:
    lines = ("for i in range(0, n, 1):", "    if i == 2:", "        barrier", "    else:", "        y[0] = i")
    (loop,) = segmented(*lines).regions
    assert isinstance(loop, BlockFor)
    (branch,) = loop.body
    assert isinstance(branch, BlockIf)
    assert [type(region) for region in branch.otherwise] == [Segment]


def test_control_without_a_barrier_stays_inside() -> None:
    kernel = segmented("v = local_id(0)", "barrier", "for i in range(0, v, 1):", "    y[v] = i")
    assert [type(region) for region in kernel.regions] == [Segment, Segment]


def test_uniform_return_ends_the_block() -> None:
    (branch,) = segmented("if n == 1:", "    return", "barrier").regions
    assert isinstance(branch, BlockIf)
    assert branch.then == (BlockReturn(),)


def test_loop_of_one_trip_is_left_by_the_block() -> None:
    (loop,) = segmented("loop:", "    barrier", "    y[local_id(0)] = 1", "    break").regions
    assert isinstance(loop, BlockLoop)
    assert isinstance(loop.body[-1], BlockBreak)


def test_range_variable_that_threads_change_is_counted_apart() -> None:
    lines = ("v = local_id(0)", "for i in range(0, 3, 1):", "    barrier", "    i = i + v", "    y[v] = y[v] * 10 + i")
    (_, loop) = segmented(*lines).regions
    assert isinstance(loop, BlockFor)
    assert loop.variable != "i"
    assert same_as_direct(*lines)


def test_barrier_that_some_threads_miss_is_refused() -> None:
    with pytest.raises(KernelSyntaxError, match="a barrier is reached by some threads"):
        segmented("if local_id(0) > 1:", "    barrier")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            (
                "v = local_id(0)",
                "u = 0",
                "for i in range(0, 4, 1):",
                "    barrier",
                "    if n > 1:",
                "        barrier",
                "        if v == i:",
                "            continue",
                "        y[v] = i",
                "    y[v] = y[v] * 3 + i",
            ),
            id="continue inside a branch of the block misses the rest of the trip",
        ),
        pytest.param(
            (
                "v = local_id(0)",
                "barrier",
                "if n > 1:",
                "    barrier",
                "    if v > 1:",
                "        return",
                "    y[v] = 4",
                "y[v] = y[v] + 1",
                "if v == 0:",
                "    return",
                "y[v] = 7",
            ),
            id="return inside a branch of the block misses the rest of the kernel",
        ),
        pytest.param(
            (
                "v = local_id(0)",
                "loop:",
                "    barrier",
                "    if n > 1:",
                "        barrier",
                "        if v > 1:",
                "            break",
                "        y[v] = 4",
                "    y[v] = y[v] + 1",
                "    break",
                "y[v] = y[v] * 5",
                "barrier",
            ),
            id="break out of a loop of one trip goes on behind it",
        ),
        pytest.param(
            (
                "v = local_id(0)",
                "u = 1",
                "for i in range(0, 3, 1):",
                "    y[v] = y[v] + u",
                "    u = u * 3",
                "    barrier",
            ),
            id="all threads start from the block's value",
        ),
        pytest.param(
            ("v = 0", "if local_id(0) > 1:", "    v = 5", "barrier", "y[global_id(0)] = v"),
            id="a local assigned by some threads keeps its value in others",
        ),
        pytest.param(
            (
                "u = 0",
                "loop:",
                "    u = u + 1",
                "    if u == 3:",
                "        break",
                "    s[local_id(0)] = u",
                "    barrier",
                "    v = s[0]",
                "    barrier",
                "    y[global_id(0)] = y[global_id(0)] * 5 + v",
            ),
            id="a loop that the block leaves",
        ),
    ],
)
def test_segments_do_what_threads_do(lines: tuple[str, ...]) -> None:
    assert same_as_direct(*lines)
