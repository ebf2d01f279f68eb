"""Twenty kernels of one line each, launched once and checked, by numba on all cores."""

import numba
import numpy as np


def made(number: int):
    @numba.njit(["void(f4[::1], f4[::1])"], cache=False, parallel=True)
    def scaled(x, y):
        for i in numba.prange(x.shape[0]):
            y[i] = x[i] * number + y[i]

    return scaled


x = np.arange(1000, dtype=np.float32)
for number in range(20):
    y = np.ones_like(x)
    made(number)(x, y)
    assert np.array_equal(y, x * number + 1)
