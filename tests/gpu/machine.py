"""What the machine is: driver, device, versions; then one kernel from start to end."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import numpy as np

import quernel as qn


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


def main() -> int:
    print(platform.platform(), "Python", platform.python_version())
    for name in ("cuda-bindings", "cuda-core", "cupy-cuda13x", "torch", "triton", "jax", "numba-cuda", "numpy"):
        try:
            print(name, version(name))
        except PackageNotFoundError:
            print(name, "not installed")
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    if shutil.which("nvidia-smi"):
        print(subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip())
    for backend in qn.backends():
        print(backend)
    for info in qn.devices("cuda"):
        print(info)
    gpu = qn.device("cuda")
    print(gpu, gpu.target_info)
    x = np.arange(1000, dtype=np.float32)
    gx, gy = gpu.array(x), gpu.full(1000, 1.0, qn.f32)
    saxpy.over(1000)(2.0, gx, gy)
    right = bool(np.array_equal(gy.numpy(), 2 * x + 1))
    print("saxpy is", "right" if right else f"WRONG: {gy.numpy()}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
