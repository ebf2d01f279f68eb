"""Loops beyond the plain ones: `else`, and loops that are written out, with `break` and `continue`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.lang.kernels import kernel_of, over, run

LOOPS = {
    "for else with break": "for k in range(n):\n    if k == i: break\n    acc += k\nelse:\n    acc += 100",
    "for else without break": "for k in range(3):\n    acc += k\nelse:\n    acc += 100",
    "for else with continue": "for k in range(4):\n    if k == i: continue\n    acc += k\nelse:\n    acc += 100",
    "for else that never runs": "for k in range(0):\n    break\nelse:\n    acc += 100",
    "while else with break": "k = 0\nwhile k < n:\n    k += 1\n    if k == i: break\nelse:\n    k = 50\nacc += k",
    "while else without break": "while acc < 10:\n    acc += 4\nelse:\n    acc *= 2",
    "while else of a constant": "while False:\n    acc += 1\nelse:\n    acc += 7",
    "nested else": (
        "for k in range(3):\n    for j in range(3):\n        if j + k == i: break\n        acc += j\n"
        "    else:\n        continue\n    acc += 10\n    break\nelse:\n    acc += 100"
    ),
    "else in an else": (
        "for k in range(2):\n    if k == i: break\nelse:\n    for j in range(3):\n        if j == 1: break\n"
        "    else:\n        acc += 1\n    acc += 1000"
    ),
    "assigned in both": "for k in range(3):\n    if k == i:\n        v = 1\n        break\nelse:\n    v = 2\nacc += v",
    "tuple": "for v in (1, 2, n):\n    acc = acc * 3 + v",
    "enumerate": "for j, v in enumerate((5, n, 7)):\n    acc += j * v",
    "enumerate with a start": "for j, v in enumerate((5, n), start=3):\n    acc += j * v",
    "zip": "for a, b in zip((1, 2, 3), (n, 5)):\n    acc = acc * 10 + a * b",
    "nested pairs": "for j, (a, b) in enumerate(zip((1, 2), (3, 4))):\n    acc += j + a * b",
    "enumerate a range": "for j, v in enumerate(range(3, 9, 2)):\n    acc += j * v",
    "local that holds a tuple": "t = (n, 4)\nt = (t[1], t[0])\nfor v in t:\n    acc = acc * 10 + v",
    "break": "for v in (1, 2, 3):\n    if v == i: break\n    acc += v",
    "continue": "for v in (1, 2, 3):\n    if v == i: continue\n    acc += v",
    "break and continue": "for v in (1, 2, 3, 4):\n    if v == i: continue\n    if v == n - 1: break\n    acc += v",
    "unrolled else": "for v in (1, 2, 3):\n    if v == i: break\nelse:\n    acc += 100",
    "unrolled else with both": (
        "for v in (1, 2, 3):\n    if v == n: continue\n    if v == i: break\n    acc += v\nelse:\n    acc += 100"
    ),
    "constant break": "for v in (1, 2, 3):\n    if v == 2: break\n    acc += v",
    "last value": "for v in (1, 2, 3):\n    if v == i: break\nacc += v",
    "break of an inner loop": "for v in (1, 2, 3):\n    for k in range(5):\n        if k == v: break\n        acc += 1",
    "assigned variable": "for v in (1, 2, 3):\n    v += i\n    acc += v",
    "return": "for v in (1, 2, 3):\n    if v == i:\n        out[i] = -v\n        return\n    acc += v",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_loop_does_what_pythons_does(body: str) -> None:
    lines = "\n".join("    " + line for line in body.splitlines())
    kernel = kernel_of(f"def kernel(out, n, i):\n    acc = 0\n{lines}\n    out[i] = acc\n")
    for i in range(5):
        expected, found = [0] * 5, np.zeros(5, np.int64)
        kernel(expected, 3, i)

        run(kernel, 1, found, 3, i)

        assert found.tolist() == expected


UNROLLED = {
    "plain": "for k in qn.unroll(range(3)):\n    acc += k",
    "enumerate": "for j, k in qn.unroll(enumerate(range(3, 6))):\n    acc += j * k",
    "inside": "for j, k in enumerate(qn.unroll(range(3, 6))):\n    acc += j * k",
    "zip": "for a, b in qn.unroll(zip(range(3), (5, 6, 7))):\n    acc += a * b",
    "break": "for k in qn.unroll(range(5)):\n    if k == i: break\n    acc += k",
    "continue": "for k in qn.unroll(range(5)):\n    if k == i: continue\n    acc += k",
}


@pytest.mark.parametrize("body", UNROLLED.values(), ids=UNROLLED)
def test_unrolled_loop_does_what_a_plain_one_does(body: str) -> None:
    lines = "\n".join("    " + line for line in body.splitlines())
    kernel = kernel_of(f"def kernel(out, i):\n    acc = 0\n{lines}\n    out[i] = acc\n")
    for i in range(4):
        expected, found = [0] * 4, np.zeros(4, np.int64)
        kernel(expected, i)

        run(kernel, 1, found, i)

        assert found.tolist() == expected


def test_unrolled_loop_goes_over_arrays_and_functions() -> None:
    kernel = kernel_of(
        """
@qn.func
def twice(v):
    return v * 2

def kernel(x, y, out):
    i = qn.global_id()
    for a, f in ((x, twice), (y, qn.f32), (x, math.sqrt)):
        out[i] += f(a[i])
"""
    )
    x, y, out = np.array([4.0, 9.0], np.float32), np.array([1, 2], np.int32), np.zeros(2, np.float32)

    over(kernel, 2, x, y, out)

    assert out.tolist() == [8 + 1 + 2, 18 + 2 + 3]
