"""Twenty kernels of one line each, launched once and checked, by Taichi."""

import numpy as np
import taichi as ti

ti.init(arch=ti.cpu, offline_cache=False, log_level=ti.ERROR)


def made(number: int):
    @ti.kernel
    def scaled(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        for i in x:
            y[i] = x[i] * number + y[i]

    return scaled


x = np.arange(1000, dtype=np.float32)
for number in range(20):
    y = np.ones_like(x)
    made(number)(x, y)
    assert np.array_equal(y, x * number + 1)
