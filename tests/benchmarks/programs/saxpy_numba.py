"""From process start to a checked saxpy, with numba's cache."""

import numba
import numpy as np


@numba.njit(cache=True)
def saxpy(a, x, y):
    for i in range(len(x)):
        y[i] = a * x[i] + y[i]


x = np.arange(100_000, dtype=np.float32)
y = np.ones_like(x)
saxpy(np.float32(2.0), x, y)
if not np.array_equal(y, 2 * x + 1):
    raise SystemExit("wrong result")
