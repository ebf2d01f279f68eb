"""From process start to a checked saxpy, with Quernel."""

import numpy as np

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


x = np.arange(100_000, dtype=np.float32)
y = np.ones_like(x)
saxpy.over(len(x), device="cpu")(2.0, x, y)
if not np.array_equal(y, 2 * x + 1):
    raise SystemExit("wrong result")
