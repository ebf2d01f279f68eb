"""Checked launches, assertions and prints; loops with `else`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelAssertionError, OutOfBoundsError
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on

checked = pytest.mark.quernel_needs("checked")
together = pytest.mark.quernel_needs("checked", "barriers")


def written(body: str, parameters: str = "a, out", **settings: bool) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel = kernel_of(f"@qn.kernel\ndef k({parameters}):\n    i = qn.global_id()\n{lines}")
    return kernel.options(**settings)


@checked
@pytest.mark.parametrize("index", [5, -1, 2**31, -(2**40), 2**62])
@pytest.mark.parametrize("access", ["out[0] = a[n[i]]", "a[n[i]] = 1", "a[n[i]] += 1", "qn.atomic.add(a, n[i], 1)"])
def test_an_index_outside_raises_at_its_line_with_index_and_shape(quernel_device: Any, index: int, access: str) -> None:
    a, out = np.zeros(5, np.int32), np.zeros(1, np.float32)
    kernel = written(f"out[0] = 1\n{access}", "a, n, out", checked=True)
    with pytest.raises(OutOfBoundsError, match=str(index)) as caught:
        on(quernel_device, kernel).over(3)(a, np.array([0, index, 1]), out)
    error = caught.value
    assert isinstance(error, IndexError)
    assert error.where.line == 5
    assert "5" in error.what
    assert "^" in str(error)


@pytest.mark.quernel_needs("f64")
@checked
def test_every_axis_is_checked_and_named(quernel_device: Any) -> None:
    kernel = written("out[i] = a[i, j + i]", "a, out, j: int", checked=True)
    with pytest.raises(OutOfBoundsError, match=r"\(1, 7\)") as caught:
        on(quernel_device, kernel).over(2)(np.zeros((2, 7)), np.zeros(2), 6)
    assert "(2, 7)" in str(caught.value)


@pytest.mark.quernel_needs("f64")
@checked
def test_an_access_that_is_not_reached_is_not_checked(quernel_device: Any) -> None:
    kernel = written("if i < len(a) and a[i] >= 0:\n    out[0] += 0\nout[i] = a[i] if i < len(a) else -1", checked=True)
    out = np.zeros(8)
    on(quernel_device, kernel).over(8)(np.arange(4.0), out)
    assert out.tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


@qn.func
def element_of(values, index):
    return values[index]


@qn.kernel(checked=True)
def reads_for_nothing(a, out):
    i = qn.global_id()
    unread = element_of(a, i + 1) * 2  # noqa: F841 — that is what it is about
    out[i] = i


CALLED = """
@qn.func
def element(values, index):
    return values[index]

@qn.func
def pair(values, index):
    first = element(values, index)
    return first + element(values, index + 1)

@qn.func
def put(values, index, value):
    assert value < 100
    values[index] = value

@qn.kernel
def k(a: qn.Array1[qn.i32], out: qn.Array1[qn.i32], which: qn.i32, index: qn.i32):
    i = qn.global_id()
    out[i] = element(a, i)
    if which == 1:
        out[i] += pair(a, index)
    if which == 2:
        out[i] += pair(a, i) + pair(a, index)
    if which == 3:
        put(out, index, 1)
    if which == 4:
        put(out, i, index)
"""


@checked
@pytest.mark.parametrize(
    ("which", "index", "line", "callers"),
    [
        (1, 4, 3, [(7, "first = element(values, index)"), (20, "out[i] += pair(a, index)")]),
        (1, 3, 3, [(8, "return first + element(values, index + 1)"), (20, "out[i] += pair(a, index)")]),
        (2, -1, 3, [(7, "first = element(values, index)"), (22, "out[i] += pair(a, i) + pair(a, index)")]),
        (3, 7, 13, [(24, "put(out, index, 1)")]),
        (4, 100, 12, [(26, "put(out, i, index)")]),
    ],
)
def test_a_violation_in_a_device_function_shows_the_calls_that_led_there(
    quernel_device: Any, which: int, index: int, line: int, callers: list[tuple[int, str]]
) -> None:
    kernel = kernel_of(CALLED.lstrip("\n")).options(checked=True)
    with pytest.raises((OutOfBoundsError, KernelAssertionError)) as caught:
        on(quernel_device, kernel).over(1)(np.zeros(4, np.int32), np.zeros(4, np.int32), which, index)
    error = caught.value
    assert error.where.line == line
    assert [text.split(": ", 1)[1] for text in error.chain] == [text for _, text in callers]
    assert [int(text.split(": ", 1)[0].rsplit(":", 2)[1]) for text in error.chain] == [line for line, _ in callers]
    shown = str(error).splitlines()
    assert shown[2].strip("^ ") == ""
    assert shown[3 : 3 + len(callers)] == [f"  {text}" for text in error.chain]
    assert all(text.startswith(f"called from {error.where.file}:") for text in error.chain)


@checked
def test_a_violation_in_the_kernel_itself_shows_no_calls(quernel_device: Any) -> None:
    with pytest.raises(OutOfBoundsError, match="outside a") as caught:
        on(quernel_device, written("out[i] = a[i + 1]", checked=True)).over(1)(
            np.zeros(1, np.int32), np.zeros(1, np.int32)
        )
    assert caught.value.chain == ()


@pytest.mark.quernel_needs("f64")
@checked
def test_a_load_that_nothing_reads_is_checked_even_in_a_function(quernel_device: Any) -> None:
    out = np.zeros(4)
    on(quernel_device, reads_for_nothing).over(3)(np.zeros(4), out)
    assert out.tolist() == [0, 1, 2, 0]
    with pytest.raises(OutOfBoundsError, match="index 4 is outside"):
        on(quernel_device, reads_for_nothing).over(4)(np.zeros(4), out)
    on(quernel_device, reads_for_nothing.options(checked=False)).over(4)(np.zeros(5), out)
    assert out.tolist() == [0, 1, 2, 3]


@checked
def test_a_checked_launch_that_is_right_gives_what_an_unchecked_one_gives(quernel_device: Any) -> None:
    body = "total = 0\nfor k in range(len(a)):\n    total += a[k] * (k + i)\nout[i] = total"
    a, plain, careful = np.arange(9), np.zeros(5, np.int64), np.zeros(5, np.int64)
    on(quernel_device, written(body)).over(5)(a, plain)
    on(quernel_device, written(body, checked=True)).over(5)(a, careful)
    assert plain.tolist() == careful.tolist()
    assert plain[1] == sum(k * (k + 1) for k in range(9))


@pytest.mark.quernel_needs("f64")
@checked
def test_an_assertion_that_fails_raises_with_its_text_and_line(quernel_device: Any) -> None:
    kernel = written('assert a[i] < 3, "too large"\nout[i] = 1', checked=True)
    with pytest.raises(KernelAssertionError, match="too large") as caught:
        on(quernel_device, kernel).over(5)(np.arange(5), np.zeros(5))
    assert isinstance(caught.value, AssertionError)
    assert caught.value.where.line == 4


@pytest.mark.quernel_needs("f64")
def test_an_assertion_is_nothing_in_a_launch_that_is_not_checked(quernel_device: Any) -> None:
    out = np.zeros(5)
    on(quernel_device, written('assert a[i] < 3, "too large"\nout[i] = 1')).over(5)(np.arange(5), out)
    assert out.tolist() == [1] * 5


@pytest.mark.quernel_needs("f64")
@together
def test_a_broken_promise_of_uniformity_raises_in_a_checked_launch(quernel_device: Any) -> None:
    kernel = written("if qn.uniform(a[i]) > 0:\n    qn.barrier()\nout[i] = 1", checked=True)
    out = np.zeros(4)
    on(quernel_device, kernel)[1, 4](np.ones(4), out)
    assert out.tolist() == [1] * 4
    with pytest.raises(qn.errors.QuernelError, match="uniform"):
        on(quernel_device, kernel)[1, 4](np.array([1.0, 0, 1, 1]), out)


PROMISES: dict[str, tuple[str, list[float], list[float]]] = {
    "in a loop": (
        "for k in range(3):\n    if qn.uniform(a[i] + k * qn.local_id()) > 2:\n        qn.barrier()\n    out[i] = k",
        [],
        [1.0] * 4,
    ),
    "of a loop": (
        "for k in range(qn.i64(qn.uniform(a[i]))):\n    qn.barrier()\n    out[i] = 1",
        [2.0] * 4,
        [2, 2, 3, 2],
    ),
    "of a while": (
        "n = a[i]\nwhile qn.uniform(n) > 0:\n    n -= 1\n    qn.barrier()\nout[i] = 1",
        [3.0] * 4,
        [3.0, 3.0, 3.0, 2.0],
    ),
    "behind a uniform condition": (
        "b = qn.block_id()\nif b == 0 and qn.uniform(a[i]) > 1:\n    qn.barrier()\nout[i] = 1",
        [5.0] * 4,
        [5.0, 0.0, 5.0, 5.0],
    ),
    "of a promise": (
        "if qn.uniform(qn.uniform(a[i]) + a[0]) > 1:\n    qn.barrier()\nout[i] = 1",
        [5.0] * 4,
        [5, 5, 5, 4],
    ),
    "without a barrier": ("out[i] = qn.uniform(a[i])", [1.0] * 4, [1, 1, 1, 2]),
    "of no number": ("out[i] = 0 if qn.uniform(a[i]) > 0 else 1", [float("nan")] * 4, [float("nan"), 0, 0, 0]),
}


@pytest.mark.quernel_needs("f64")
@together
@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_is_compared_wherever_a_whole_block_makes_it(quernel_device: Any, name: str) -> None:
    body, kept, broken = PROMISES[name]
    kernel = on(quernel_device, written(body, checked=True))
    if kept:
        out = np.full(4, -1.0)
        kernel[1, 4](np.array(kept), out)
        assert -1 not in out.tolist()
    with pytest.raises(KernelAssertionError, match=r"qn\.uniform\(…\) differs between threads; here = ") as caught:
        kernel[1, 4](np.array(broken, np.float64), np.zeros(4))
    assert "qn.uniform" in (body.splitlines()[caught.value.where.line - 4])


@pytest.mark.quernel_needs("f64")
@together
@pytest.mark.parametrize(
    "body",
    [
        "if i > 0:\n    out[i] = qn.uniform(a[i])",
        "out[i] = qn.uniform(a[i]) if i > 0 else 0",
        "if i == 0:\n    return\nout[i] = qn.uniform(a[i])",
        "c = qn.block_id() == 1\nif c and qn.uniform(a[i]) > 0:\n    qn.barrier()",
    ],
)
def test_a_promise_that_a_part_of_the_block_makes_stops_nobody(quernel_device: Any, body: str) -> None:
    out = np.full(4, -1.0)
    on(quernel_device, written(body, checked=True))[1, 4](np.arange(4.0), out)
    runs = not body.startswith("c = ")  # with a promise that is not kept, what is written is anybody's
    assert (out >= 0).tolist() == [runs and "else" in body, runs, runs, runs]


@pytest.mark.quernel_needs("f64")
@pytest.mark.quernel_needs("checked", "barriers", "subgroups")
def test_a_promise_that_one_subgroup_makes_is_compared_within_it(quernel_device: Any) -> None:
    body = "if qn.subgroup.id() == 0:\n    if qn.uniform(a[i]) > 1:\n        out[i] = qn.subgroup.sum(1)"
    kernel = on(quernel_device, written(body, checked=True))
    size = quernel_device.target_info.subgroup_size
    a, out = np.full(2 * size, 2.0), np.zeros(2 * size)
    a[size:] = np.arange(size)
    kernel[1, 2 * size](a, out)
    assert out.tolist() == [size] * size + [0] * size
    if size > 1:
        a[1] = 3
        with pytest.raises(KernelAssertionError, match=r"here = 3\.0, in the first thread = 2\.0"):
            kernel[1, 2 * size](a, out)


JOINED: dict[str, tuple[str, Callable[[list[int]], list[int]]]] = {
    "sum": ("sum(v)", lambda part: [sum(part)] * len(part)),
    "min": ("min(v)", lambda part: [min(part)] * len(part)),
    "max": ("max(v)", lambda part: [max(part)] * len(part)),
    "scan": ("scan(v)", lambda part: list(itertools.accumulate(part))),
    "any": ("any(v > 9)", lambda part: [any(value > 9 for value in part)] * len(part)),
    "all": ("all(v > 9)", lambda part: [all(value > 9 for value in part)] * len(part)),
    "broadcast": ("broadcast(v, 0)", lambda part: [part[0]] * len(part)),
    "shuffle": (
        "shuffle_xor(v, qn.subgroup.size() // 2)",
        lambda part: part[len(part) // 2 :] + part[: len(part) // 2],
    ),
}
PLACES = {
    "everywhere": "v = a[n[i]]\nout[i] = qn.subgroup.{}",
    "one subgroup": "if qn.subgroup.id() == 0:\n    v = a[n[i]]\n    out[i] = qn.subgroup.{}",
    "the others": "if qn.subgroup.id() != 0:\n    out[i] = 0\nelse:\n    v = a[n[i]]\n    out[i] = qn.subgroup.{}",
    "loaded before": "v = a[n[i]]\nif qn.subgroup.id() == 0:\n    out[i] = qn.subgroup.{}",
    "by what all agree on": "v = a[n[i]]\nif qn.subgroup.max(v) >= 0 and qn.subgroup.id() < 1:\n"
    "    if qn.uniform(b[0]) > 1:\n        out[i] = qn.subgroup.{}",
    "in a loop": "for k in range(2 - qn.subgroup.id()):\n    v = a[n[i]]\n    out[i] = qn.subgroup.{}",
    "a choice": "v = a[n[i]] if a[i] >= 0 else b[i]\nif qn.subgroup.id() == 0:\n    v = v + 0 * b[i]\n"
    "    out[i] = qn.subgroup.{}",
}


@pytest.mark.quernel_needs("checked", "barriers", "subgroups")
@pytest.mark.parametrize("operation", JOINED)
@pytest.mark.parametrize("place", PLACES)
def test_subgroups_work_together_on_what_was_checked(quernel_device: Any, place: str, operation: str) -> None:
    call, meaning = JOINED[operation]
    kernel = on(quernel_device, written(PLACES[place].format(call), "a, b, n, out", checked=True))
    size = quernel_device.target_info.subgroup_size
    count = 2 * size
    a, b = (np.arange(count, dtype=np.int64) * 7 + 3) % 23, np.full(count, 2, np.int64)
    n = np.arange(count)[::-1].copy()
    out = np.full(count, -1, np.int64)
    kernel[1, count](a, b, n, out)
    taken = a[n].tolist()
    first = [int(value) for value in meaning(taken[:size])]
    others = {"everywhere": meaning(taken[size:]), "the others": [0] * size, "in a loop": meaning(taken[size:])}
    assert out.tolist() == first + [int(value) for value in others.get(place, [-1] * size)]
    n[1 % size] = count + 5
    with pytest.raises(OutOfBoundsError, match=f"{count + 5}"):
        kernel[1, count](a, b, n, out)


@pytest.mark.quernel_needs("f64")
@checked
def test_a_promise_of_a_kernel_over_an_extent_stops_nobody(quernel_device: Any) -> None:
    out = np.zeros(4)
    on(quernel_device, written("out[i] = qn.uniform(a[i])", checked=True)).over(4)(np.arange(4.0), out)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.quernel_needs("f64")
@checked
@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("i < n", "i = 2, n = 2"),
        ("a[i] != 4 and a[i] < n", "a[i] = 7, n = 2"),
        ("0 <= a[i] + 1 < 8", "a[i] + 1 = 8"),
        ("a[i] - 7", ""),
        ("i < 1 or i > 2 or a[i] < 0", ""),
        ("half(a[i]) <= 3", "half(a[i]) = 3.5"),
    ],
)
def test_an_assertion_shows_the_values_that_it_compares(quernel_device: Any, test: str, shown: str) -> None:
    kernel = kernel_of(
        f"@qn.func\ndef half(x):\n    return x * 0.5\n\n"
        f"@qn.kernel(checked=True)\ndef k(a, n: int):\n    i = qn.global_id() + 2\n    assert {test}, 'no'\n"
    )
    told = f": no; {shown} (in thread 0)" if shown else ": no (in thread 0)"
    with pytest.raises(KernelAssertionError, match="does not hold") as caught:
        on(quernel_device, kernel).over(1)(np.array([4, 4, 7]), 2)
    assert told in caught.value.what


@pytest.mark.quernel_needs("f64")
@checked
def test_what_an_assertion_compares_is_evaluated_once(quernel_device: Any) -> None:
    kernel = written("assert 0 <= qn.atomic.add(out, 0, 1) < 4\nassert qn.atomic.add(out, 1, 1) < 4", checked=True)
    out = np.zeros(2, np.int32)
    on(quernel_device, kernel).over(4)(np.zeros(4), out)
    assert out.tolist() == [4, 4]


@pytest.mark.quernel_needs("f64")
def test_prints_are_shown_when_the_launch_is_over(quernel_device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = written('if i == 2:\n    print("value", a[i], i, a[i] > 1, sep="|")\nout[i] = 1')
    out = np.zeros(4)
    on(quernel_device, kernel).over(4)(np.array([0.5, 1.5, 2.5, 3.5], np.float32), out)
    quernel_device.synchronize()
    assert capsys.readouterr().out == "value|2.5|2|True\n"


LOOPS = {
    "for with break": ("for k in range(5):\n    if k == n:\n        break\nelse:\n    r = 100", 3),
    "for without break": ("for k in range(2):\n    r += 1\nelse:\n    r += 100", 3),
    "empty for": ("for k in range(n, 0):\n    r = 1\nelse:\n    r += 100", 3),
    "while": ("while n > 0:\n    n -= 1\n    if n == 2:\n        break\nelse:\n    r = 100", 9),
    "while true": ("while True:\n    n -= 1\n    if n < 0:\n        r = n\n        break\nelse:\n    r = 100", 4),
    "nested": (
        "for c in range(4):\n    for d in range(c):\n        if c * d == n:\n            break\n    else:\n"
        "        r += 1\n        continue\n    break\nelse:\n    r += 100",
        5,
    ),
    "continue": ("for k in range(4):\n    if k % 2 == n % 2:\n        continue\n    r += k\nelse:\n    r += 100", 3),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_else_of_a_loop_is_pythons(quernel_device: Any, name: str) -> None:
    body, count = LOOPS[name]
    python = f"def f(n):\n    r = 0\n{''.join(f'    {line}' + chr(10) for line in body.splitlines())}    return r\n"
    namespace: dict[str, Any] = {}
    exec(python, namespace)
    kernel = written(f"n = a[i]\nr = 0\n{body}\nout[i] = r")
    out = np.zeros(count, np.int64)
    on(quernel_device, kernel).over(count)(np.arange(count), out)
    assert out.tolist() == [namespace["f"](n) for n in range(count)]
