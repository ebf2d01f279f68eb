import cupy
import numpy as np

kernel = cupy.RawKernel(
    'extern "C" __global__ void saxpy(float a, const float *x, float *y, long long n)'
    "{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }",
    "saxpy",
)
x = np.arange(100_000, dtype=np.float32)
gx, gy = cupy.asarray(x), cupy.zeros(len(x), cupy.float32)
kernel((-(-len(x) // 256),), (256,), (np.float32(2), gx, gy, np.int64(len(x))))
assert np.array_equal(gy.get(), 2 * x)
