"""Checked launches, assertions and prints; loops with `else`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import KernelAssertionError, OutOfBoundsError
from quernel.testing.fuzz.programs import kernel_of

checked = pytest.mark.quernel_needs("checked")


def written(body: str, parameters: str = "a, out", **settings: bool) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel = kernel_of(f"@qn.kernel\ndef k({parameters}):\n    i = qn.global_id()\n{lines}")
    return kernel.options(**settings)


@checked
@pytest.mark.parametrize("index", [5, -1, 2**31, -(2**40), 2**62])
@pytest.mark.parametrize("access", ["out[0] = a[n[i]]", "a[n[i]] = 1", "a[n[i]] += 1", "qn.atomic.add(a, n[i], 1)"])
def test_an_index_outside_raises_at_its_line_with_index_and_shape(quernel_device: Any, index: int, access: str) -> None:
    a, out = np.zeros(5, np.int32), np.zeros(1)
    kernel = written(f"out[0] = 1\n{access}", "a, n, out", checked=True)
    with pytest.raises(OutOfBoundsError, match=str(index)) as caught:
        kernel.over(3, device=quernel_device)(a, np.array([0, index, 1]), out)
    error = caught.value
    assert isinstance(error, IndexError)
    assert error.where.line == 5
    assert "5" in error.what
    assert "^" in str(error)


@checked
def test_every_axis_is_checked_and_named(quernel_device: Any) -> None:
    kernel = written("out[i] = a[i, j + i]", "a, out, j: int", checked=True)
    with pytest.raises(OutOfBoundsError, match=r"\(1, 7\)") as caught:
        kernel.over(2, device=quernel_device)(np.zeros((2, 7)), np.zeros(2), 6)
    assert "(2, 7)" in str(caught.value)


@checked
def test_an_access_that_is_not_reached_is_not_checked(quernel_device: Any) -> None:
    kernel = written("if i < len(a) and a[i] >= 0:\n    out[0] += 0\nout[i] = a[i] if i < len(a) else -1", checked=True)
    out = np.zeros(8)
    kernel.over(8, device=quernel_device)(np.arange(4.0), out)
    assert out.tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


@checked
def test_a_checked_launch_that_is_right_gives_what_an_unchecked_one_gives(quernel_device: Any) -> None:
    body = "total = 0\nfor k in range(len(a)):\n    total += a[k] * (k + i)\nout[i] = total"
    a, plain, careful = np.arange(9), np.zeros(5, np.int64), np.zeros(5, np.int64)
    written(body).over(5, device=quernel_device)(a, plain)
    written(body, checked=True).over(5, device=quernel_device)(a, careful)
    assert plain.tolist() == careful.tolist()
    assert plain[1] == sum(k * (k + 1) for k in range(9))


@checked
def test_an_assertion_that_fails_raises_with_its_text_and_line(quernel_device: Any) -> None:
    kernel = written('assert a[i] < 3, "too large"\nout[i] = 1', checked=True)
    with pytest.raises(KernelAssertionError, match="too large") as caught:
        kernel.over(5, device=quernel_device)(np.arange(5), np.zeros(5))
    assert isinstance(caught.value, AssertionError)
    assert caught.value.where.line == 4


def test_an_assertion_is_nothing_in_a_launch_that_is_not_checked(quernel_device: Any) -> None:
    out = np.zeros(5)
    written('assert a[i] < 3, "too large"\nout[i] = 1').over(5, device=quernel_device)(np.arange(5), out)
    assert out.tolist() == [1] * 5


@checked
def test_a_broken_promise_of_uniformity_raises_in_a_checked_launch(quernel_device: Any) -> None:
    kernel = written("if qn.uniform(a[i]) > 0:\n    qn.barrier()\nout[i] = 1", checked=True)
    out = np.zeros(4)
    kernel.options(device=quernel_device)[1, 4](np.ones(4), out)
    assert out.tolist() == [1] * 4
    with pytest.raises(qn.errors.QuernelError, match="uniform"):
        kernel.options(device=quernel_device)[1, 4](np.array([1.0, 0, 1, 1]), out)


def test_prints_are_shown_when_the_launch_is_over(quernel_device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = written('if i == 2:\n    print("value", a[i], i, a[i] > 1, sep="|")\nout[i] = 1')
    out = np.zeros(4)
    kernel.over(4, device=quernel_device)(np.array([0.5, 1.5, 2.5, 3.5], np.float32), out)
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
    kernel.over(count, device=quernel_device)(np.arange(count), out)
    assert out.tolist() == [namespace["f"](n) for n in range(count)]
