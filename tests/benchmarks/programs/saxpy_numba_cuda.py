import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


x = np.arange(100_000, dtype=np.float32)
gx, gy = cuda.to_device(x), cuda.to_device(np.zeros_like(x))
saxpy[-(-len(x) // 256), 256](np.float32(2), gx, gy)
assert np.array_equal(gy.copy_to_host(), 2 * x)
