"""The same by the bindings alone: a cubin from NVRTC, or, given a path, one that was kept there."""

import ctypes
import os
import sys

import numpy as np
from cuda.bindings import driver

SOURCE = (
    b'extern "C" __global__ void saxpy(float a, const float *x, float *y, long long n)'
    b"{ long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }"
)


def cubin() -> bytes:
    from cuda.bindings import nvrtc

    program = nvrtc.nvrtcCreateProgram(SOURCE, b"k.cu", 0, None, None)[1]
    assert not int(nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=sm_90", b"--minimal"])[0])
    data = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, data)
    return bytes(data)


def kept() -> bytes:
    path = sys.argv[1] if len(sys.argv) > 1 else ""
    if path and os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    made = cubin()
    if path:
        with open(path, "wb") as file:
            file.write(made)
    return made


driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
function = driver.cuModuleGetFunction(driver.cuModuleLoadData(kept())[1], b"saxpy")[1]
n = 100_000
x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
gx, gy = driver.cuMemAlloc(4 * n)[1], driver.cuMemAlloc(4 * n)[1]
driver.cuMemcpyHtoD(gx, x.ctypes.data, 4 * n)
driver.cuMemcpyHtoD(gy, y.ctypes.data, 4 * n)
values = (2.0, int(gx), int(gy), n)
types = (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong)
driver.cuLaunchKernel(function, -(-n // 256), 1, 1, 256, 1, 1, 0, 0, (values, types), 0)
driver.cuMemcpyDtoH(y.ctypes.data, gy, 4 * n)
if not np.array_equal(y, 2 * x) and "QUERNEL_BENCHMARK_UNCHECKED" not in os.environ:
    raise SystemExit("wrong result")
