"""Twenty kernels of one line each, launched once and checked."""

import numpy as np

import quernel as qn


def made(number: int):
    @qn.kernel
    def scaled(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
        y[qn.global_id()] = x[qn.global_id()] * number + y[qn.global_id()]

    return scaled


x = np.arange(1000, dtype=np.float32)
for number in range(20):
    y = np.ones_like(x)
    made(number).over(len(x), device="cpu")(x, y)
    assert np.array_equal(y, x * number + 1)
