import os

import numpy as np

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


gpu = qn.device("cuda")
x = np.arange(100_000, dtype=np.float32)
gx, gy = gpu.array(x), gpu.zeros(len(x), qn.f32)
saxpy.over(len(x))(2.0, gx, gy)
if not np.array_equal(gy.numpy(), 2 * x) and "QUERNEL_BENCHMARK_UNCHECKED" not in os.environ:
    raise SystemExit("wrong result")
