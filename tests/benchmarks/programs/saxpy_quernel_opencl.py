"""From process start to a checked saxpy through OpenCL, with Quernel."""

import numpy as np

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


device = qn.device("opencl")
x = np.arange(100_000, dtype=np.float32)
dx, dy = device.array(x), device.zeros(len(x), qn.f32)
saxpy.over(len(x))(2.0, dx, dy)
if not np.array_equal(dy.numpy(), 2 * x):
    raise SystemExit("wrong result")
