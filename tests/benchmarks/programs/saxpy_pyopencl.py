"""The same by pyopencl alone: the program's binary is kept in a file and loaded from there by hand.

The file is named by `PYOPENCL_KEPT_BINARY`.
"""

import os

import numpy as np
import pyopencl as cl

SOURCE = """
__kernel void saxpy(float a, __global const float *x, __global float *y, long n)
{ long i = get_global_id(0); if (i < n) y[i] = a * x[i] + y[i]; }
"""

path = os.environ["PYOPENCL_KEPT_BINARY"]
device = cl.get_platforms()[0].get_devices()[0]
context = cl.Context([device])
if os.path.exists(path):
    with open(path, "rb") as file:
        program = cl.Program(context, [device], [file.read()]).build()
else:
    program = cl.Program(context, SOURCE).build()
    with open(path, "wb") as file:
        file.write(program.binaries[0])
queue = cl.CommandQueue(context)
kernel = program.saxpy
kernel.set_scalar_arg_dtypes([np.float32, None, None, np.int64])
n = 100_000
x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
dx = cl.Buffer(context, cl.mem_flags.READ_ONLY, x.nbytes)
dy = cl.Buffer(context, cl.mem_flags.READ_WRITE, y.nbytes)
cl.enqueue_copy(queue, dx, x)
cl.enqueue_copy(queue, dy, y)
kernel(queue, (-(-n // 256) * 256,), (256,), 2.0, dx, dy, n)
cl.enqueue_copy(queue, y, dy)
if not np.array_equal(y, 2 * x):
    raise SystemExit("wrong result")
