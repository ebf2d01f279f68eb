"""Kernels on the host's cores, beside numba's prange and OpenCL where they are installed: same buffers, interleaved.

    python tests/benchmarks/cpu_kernels.py [--rounds N] [--only NAME] [--threads N]

Prints each program's median time, and the median of the pairwise ratios peer / Quernel (above 1: Quernel is faster).
Results are compared before anything is timed, and every program is run until the cores are warm.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import quernel as qn

Action = Callable[[], Any]


# --- kernels ----------------------------------------------------------------------------------------------------------


@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def matmul(a: qn.Array2[qn.f32], b: qn.Array2[qn.f32], c: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    total = 0.0
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@qn.kernel
def tiled_matmul(a: qn.Array2[qn.f32], b: qn.Array2[qn.f32], c: qn.Array2[qn.f32]):
    row, column = qn.global_id()
    i, j = qn.local_id()
    left = qn.shared((32, 32), qn.f32)
    right = qn.shared((32, 32), qn.f32)
    total = 0.0
    for tile in range(a.shape[1] // 32):
        left[i, j] = a[row, tile * 32 + j]
        right[i, j] = b[tile * 32 + i, column]
        qn.barrier()
        for k in range(32):
            total += left[i, k] * right[k, j]
        qn.barrier()
    c[row, column] = total


@qn.func
def normal_distribution(x):
    k = 1.0 / (1.0 + 0.2316419 * abs(x))
    series = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = 0.3989422804 * math.exp(-0.5 * x * x) * series
    return 1.0 - tail if x > 0.0 else tail


@qn.kernel
def black_scholes(
    call: qn.Array1[qn.f32],
    put: qn.Array1[qn.f32],
    price: qn.Array1[qn.f32],
    strike: qn.Array1[qn.f32],
    years: qn.Array1[qn.f32],
    rate: float,
    volatility: float,
):
    i = qn.global_id()
    root = math.sqrt(years[i])
    d1 = (math.log(price[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / (volatility * root)
    d2 = d1 - volatility * root
    n1, n2 = normal_distribution(d1), normal_distribution(d2)
    discounted = strike[i] * math.exp(-rate * years[i])
    call[i] = price[i] * n1 - discounted * n2
    put[i] = discounted * (1.0 - n2) - price[i] * (1.0 - n1)


@qn.kernel
def mandelbrot(out: qn.Array2[qn.i32], x0: float, y0: float, dx: float, dy: float, limit: int):
    row, column = qn.global_id()
    cx = qn.f32(x0) + qn.f32(column) * qn.f32(dx)
    cy = qn.f32(y0) + qn.f32(row) * qn.f32(dy)
    x = qn.f32(0.0)
    y = qn.f32(0.0)
    count = qn.i32(0)
    for _ in range(limit):
        xx = x * x
        yy = y * y
        if xx + yy > 4.0:
            break
        y = 2.0 * x * y + cy
        x = xx - yy + cx
        count += 1
    out[row, column] = count


@qn.kernel
def stencil(source: qn.Array3[qn.f32], target: qn.Array3[qn.f32]):
    i, j, k = qn.global_id()
    target[i, j, k] = 0.4 * source[i, j, k] + 0.1 * (
        source[i - 1, j, k]
        + source[i + 1, j, k]
        + source[i, j - 1, k]
        + source[i, j + 1, k]
        + source[i, j, k - 1]
        + source[i, j, k + 1]
    )


@qn.kernel(fast_math=True)
def nbody(
    px: qn.Array1[qn.f32],
    py: qn.Array1[qn.f32],
    pz: qn.Array1[qn.f32],
    mass: qn.Array1[qn.f32],
    ax: qn.Array1[qn.f32],
    ay: qn.Array1[qn.f32],
    az: qn.Array1[qn.f32],
):
    i = qn.global_id()
    x, y, z = px[i], py[i], pz[i]
    fx = 0.0
    fy = 0.0
    fz = 0.0
    for j in range(len(px)):
        dx = px[j] - x
        dy = py[j] - y
        dz = pz[j] - z
        inverse = qn.rsqrt(dx * dx + dy * dy + dz * dz + 1e-4)
        scale = mass[j] * inverse * inverse * inverse
        fx += scale * dx
        fy += scale * dy
        fz += scale * dz
    ax[i] = fx
    ay[i] = fy
    az[i] = fz


Vector = qn.vec(qn.f32, 4)


@attrs.frozen
class Body:
    x: qn.f32
    y: qn.f32
    z: qn.f32
    mass: qn.f32


@attrs.frozen
class Acceleration:
    x: qn.f32
    y: qn.f32
    z: qn.f32


@qn.kernel(fast_math=True)
def nbody_of_vectors(bodies: qn.Array1[Vector], accelerations: qn.Array1[Vector]):
    i = qn.global_id()
    own = bodies[i]
    total = Vector(0.0)
    for j in range(len(bodies)):
        body = bodies[j]
        d = body - own
        inverse = qn.rsqrt(d.x * d.x + d.y * d.y + d.z * d.z + 1e-4)
        total += body.w * inverse * inverse * inverse * d
    accelerations[i] = total


@qn.kernel(fast_math=True)
def nbody_of_structs(bodies: qn.Array1[Body], accelerations: qn.Array1[Acceleration]):
    i = qn.global_id()
    own = bodies[i]
    fx = 0.0
    fy = 0.0
    fz = 0.0
    for j in range(len(bodies)):
        body = bodies[j]
        dx = body.x - own.x
        dy = body.y - own.y
        dz = body.z - own.z
        inverse = qn.rsqrt(dx * dx + dy * dy + dz * dz + 1e-4)
        scale = body.mass * inverse * inverse * inverse
        fx += scale * dx
        fy += scale * dy
        fz += scale * dz
    accelerations[i] = Acceleration(fx, fy, fz)


# --- numba ------------------------------------------------------------------------------------------------------------


def numba_peers() -> dict[str, Callable[..., None]]:
    try:
        import numba
    except ImportError:
        return {}
    f32, prange = np.float32, numba.prange

    @numba.njit(parallel=True)
    def saxpy(a, x, y):
        for i in prange(len(x)):
            y[i] = a * x[i] + y[i]

    @numba.njit(parallel=True)
    def matmul(a, b, c):
        for row in prange(c.shape[0]):
            for column in range(c.shape[1]):
                total = f32(0)
                for k in range(a.shape[1]):
                    total += a[row, k] * b[k, column]
                c[row, column] = total

    @numba.njit(parallel=True)
    def tiled_matmul(a, b, c):
        size = a.shape[0] // 32
        for block in prange(size * size):
            first_row, first_column = block // size * 32, block % size * 32
            left, right = np.empty((32, 32), f32), np.empty((32, 32), f32)
            total = np.zeros((32, 32), f32)
            for tile in range(size):
                for i in range(32):
                    for j in range(32):
                        left[i, j] = a[first_row + i, tile * 32 + j]
                        right[i, j] = b[tile * 32 + i, first_column + j]
                for i in range(32):
                    for k in range(32):
                        for j in range(32):
                            total[i, j] += left[i, k] * right[k, j]
            for i in range(32):
                for j in range(32):
                    c[first_row + i, first_column + j] = total[i, j]

    @numba.njit
    def normal_distribution(x):
        k = f32(1) / (f32(1) + f32(0.2316419) * abs(x))
        series = k * (
            f32(0.319381530)
            + k * (f32(-0.356563782) + k * (f32(1.781477937) + k * (f32(-1.821255978) + k * f32(1.330274429))))
        )
        tail = f32(0.3989422804) * math.exp(f32(-0.5) * x * x) * series
        return f32(1) - tail if x > f32(0) else tail

    @numba.njit(parallel=True)
    def black_scholes(call, put, price, strike, years, rate, volatility):
        for i in prange(len(call)):
            root = math.sqrt(years[i])
            d1 = (math.log(price[i] / strike[i]) + (rate + f32(0.5) * volatility * volatility) * years[i]) / (
                volatility * root
            )
            d2 = d1 - volatility * root
            n1, n2 = normal_distribution(d1), normal_distribution(d2)
            discounted = strike[i] * math.exp(-rate * years[i])
            call[i] = price[i] * n1 - discounted * n2
            put[i] = discounted * (f32(1) - n2) - price[i] * (f32(1) - n1)

    @numba.njit(parallel=True)
    def mandelbrot(out, x0, y0, dx, dy, limit):
        for row in prange(out.shape[0]):
            for column in range(out.shape[1]):
                cx, cy = x0 + f32(column) * dx, y0 + f32(row) * dy
                x, y, count = f32(0), f32(0), 0
                for _ in range(limit):
                    xx, yy = x * x, y * y
                    if xx + yy > f32(4):
                        break
                    y = f32(2) * x * y + cy
                    x = xx - yy + cx
                    count += 1
                out[row, column] = count

    @numba.njit(parallel=True)
    def stencil(source, target):
        for i in prange(1, source.shape[0] - 1):
            for j in range(1, source.shape[1] - 1):
                for k in range(1, source.shape[2] - 1):
                    target[i, j, k] = f32(0.4) * source[i, j, k] + f32(0.1) * (
                        source[i - 1, j, k]
                        + source[i + 1, j, k]
                        + source[i, j - 1, k]
                        + source[i, j + 1, k]
                        + source[i, j, k - 1]
                        + source[i, j, k + 1]
                    )

    @numba.njit(parallel=True, fastmath=True)
    def nbody(px, py, pz, mass, ax, ay, az):
        for i in prange(len(px)):
            x, y, z = px[i], py[i], pz[i]
            fx, fy, fz = f32(0), f32(0), f32(0)
            for j in range(len(px)):
                dx, dy, dz = px[j] - x, py[j] - y, pz[j] - z
                inverse = f32(1) / math.sqrt(dx * dx + dy * dy + dz * dz + f32(1e-4))
                scale = mass[j] * inverse * inverse * inverse
                fx += scale * dx
                fy += scale * dy
                fz += scale * dz
            ax[i], ay[i], az[i] = fx, fy, fz

    return {name: function for name, function in locals().items() if name in WORK and callable(function)}


# --- OpenCL -----------------------------------------------------------------------------------------------------------

OPENCL_SOURCE = """
#pragma OPENCL FP_CONTRACT ON
kernel void saxpy(float a, global const float *x, global float *y) {
    size_t i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
kernel void matmul(global const float *a, global const float *b, global float *c, long n) {
    long column = get_global_id(0), row = get_global_id(1);
    float total = 0;
    for (long k = 0; k < n; k++) total += a[row * n + k] * b[k * n + column];
    c[row * n + column] = total;
}
kernel void tiled_matmul(global const float *a, global const float *b, global float *c, long n) {
    local float left[32][32], right[32][32];
    long column = get_global_id(0), row = get_global_id(1), j = get_local_id(0), i = get_local_id(1);
    float total = 0;
    for (long tile = 0; tile < n / 32; tile++) {
        left[i][j] = a[row * n + tile * 32 + j];
        right[i][j] = b[(tile * 32 + i) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 32; k++) total += left[i][k] * right[k][j];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = total;
}
float normal_distribution(float x) {
    float k = 1.0f / (1.0f + 0.2316419f * fabs(x));
    float series = k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f
        + k * 1.330274429f))));
    float tail = 0.3989422804f * exp(-0.5f * x * x) * series;
    return x > 0.0f ? 1.0f - tail : tail;
}
kernel void black_scholes(global float *call, global float *put, global const float *price, global const float *strike,
                          global const float *years, float rate, float volatility) {
    size_t i = get_global_id(0);
    float root = sqrt(years[i]);
    float d1 = (log(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
    float d2 = d1 - volatility * root;
    float n1 = normal_distribution(d1), n2 = normal_distribution(d2);
    float discounted = strike[i] * exp(-rate * years[i]);
    call[i] = price[i] * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - price[i] * (1.0f - n1);
}
kernel void mandelbrot(global int *out, float x0, float y0, float dx, float dy, int limit) {
    size_t column = get_global_id(0), row = get_global_id(1);
    float cx = x0 + (float)column * dx, cy = y0 + (float)row * dy, x = 0, y = 0;
    int count = 0;
    for (int k = 0; k < limit; k++) {
        float xx = x * x, yy = y * y;
        if (xx + yy > 4.0f) break;
        y = 2.0f * x * y + cy;
        x = xx - yy + cx;
        count++;
    }
    out[row * get_global_size(0) + column] = count;
}
kernel void stencil(global const float *source, global float *target, long n) {
    long k = get_global_id(0), j = get_global_id(1), i = get_global_id(2), at = (i * n + j) * n + k;
    target[at] = 0.4f * source[at] + 0.1f * (source[at - n * n] + source[at + n * n] + source[at - n] + source[at + n]
        + source[at - 1] + source[at + 1]);
}
kernel void nbody(global const float *px, global const float *py, global const float *pz, global const float *mass,
                  global float *ax, global float *ay, global float *az, long n) {
    size_t i = get_global_id(0);
    float x = px[i], y = py[i], z = pz[i], fx = 0, fy = 0, fz = 0;
    for (long j = 0; j < n; j++) {
        float dx = px[j] - x, dy = py[j] - y, dz = pz[j] - z;
        float inverse = native_rsqrt(dx * dx + dy * dy + dz * dz + 1e-4f);
        float scale = mass[j] * inverse * inverse * inverse;
        fx += scale * dx;
        fy += scale * dy;
        fz += scale * dz;
    }
    ax[i] = fx;
    ay[i] = fy;
    az[i] = fz;
}
"""


def opencl_peers() -> Iterator[tuple[str, Callable[[str, tuple[Any, ...]], Action | None]]]:
    """(name, makes an action of a kernel's name and Quernel's arguments) of each OpenCL CPU device."""
    _show_intel_runtime()
    try:
        import pyopencl as cl
    except ImportError:
        return
    for platform in cl.get_platforms():
        for device in platform.get_devices(cl.device_type.CPU):
            name = "Intel OpenCL" if "Intel" in platform.name else "PoCL" if "Portable" in platform.name else ""
            if name:
                yield name, partial(_opencl_action, cl, cl.Context([device]))


def _show_intel_runtime() -> None:
    """Makes the runtime of `intel-opencl-rt`, whose own entry names another path, known to the loader."""
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if library.exists() and "OCL_ICD_VENDORS" not in os.environ:
        folder = tempfile.mkdtemp(prefix="icd")
        Path(folder, "intel.icd").write_text(f"{library}\n")
        os.environ["OCL_ICD_VENDORS"] = folder


def _opencl_action(cl: Any, context: Any, name: str, arguments: tuple[Any, ...]) -> Action | None:
    queue = cl.CommandQueue(context)
    options = ["-cl-fast-relaxed-math"] if name == "nbody" else []
    program = cl.Program(context, OPENCL_SOURCE).build(options)
    kernel = cl.Kernel(program, name)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    operands: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            operands.append(cl.Buffer(context, flags, hostbuf=argument))
        elif isinstance(argument, int):
            operands.append(np.int32(argument))
        else:
            operands.append(np.float32(argument))
    first = next(argument for argument in arguments if isinstance(argument, np.ndarray))
    extent: tuple[int, ...] = tuple(reversed(first.shape))
    offset, block = None, None
    if name == "tiled_matmul":
        block = (32, 32)
    if name in ("matmul", "tiled_matmul"):
        operands.append(np.int64(first.shape[1]))
    elif name == "stencil":
        operands.append(np.int64(first.shape[0]))
        extent, offset = tuple(length - 2 for length in extent), (1, 1, 1)
    elif name == "nbody":
        operands.append(np.int64(len(first)))
    kernel.set_args(*operands)
    buffers = [(operand, a) for operand, a in zip(operands, arguments, strict=False) if isinstance(a, np.ndarray)]

    def run(_kept: Any = operands) -> None:  # The kernel holds no reference to its buffers.
        cl.enqueue_nd_range_kernel(queue, kernel, extent, block, offset)
        queue.finish()

    run()
    for buffer, array in buffers:
        cl.enqueue_copy(queue, array, buffer)
    queue.finish()
    return run


# --- the work ---------------------------------------------------------------------------------------------------------


class Work:
    """One kernel with its arguments.

    Attributes:
        launcher: Quernel's.
        arguments: of every program, in order.
        outputs: positions of the arguments that are written.
        tolerance: relative, for comparing results.
    """

    def __init__(self, launcher: Any, arguments: tuple[Any, ...], outputs: tuple[int, ...], tolerance: float) -> None:
        self.launcher = launcher
        self.arguments = arguments
        self.outputs = outputs
        self.tolerance = tolerance


def aligned(shape: Any, fill: np.ndarray | None = None, dtype: Any = np.float32) -> np.ndarray:
    """An array at the start of a page, which every program gets."""
    count = int(np.prod(shape))
    nbytes = count * np.dtype(dtype).itemsize
    buffer = np.zeros(nbytes + 4096, np.uint8)
    start = -buffer.ctypes.data % 4096
    array = buffer[start : start + nbytes].view(dtype).reshape(shape)
    if fill is not None:
        array[...] = fill
    return array


def make_saxpy(generator: np.random.Generator) -> Work:
    n = 1 << 24
    x, y = aligned(n, generator.random(n, np.float32)), aligned(n)
    return Work(saxpy.over(n, device="cpu"), (0.5, x, y), (2,), 1e-6)


def make_matmul(generator: np.random.Generator) -> Work:
    n = 1024
    a, b = (aligned((n, n), generator.random((n, n), np.float32)) for _ in range(2))
    return Work(matmul.over((n, n), device="cpu"), (a, b, aligned((n, n))), (2,), 1e-3)


def make_tiled_matmul(generator: np.random.Generator) -> Work:
    n = 1024
    a, b = (aligned((n, n), generator.random((n, n), np.float32)) for _ in range(2))
    launcher = tiled_matmul.options(device="cpu")[(n // 32, n // 32), (32, 32)]
    return Work(launcher, (a, b, aligned((n, n))), (2,), 1e-3)


def make_black_scholes(generator: np.random.Generator) -> Work:
    n = 10_000_000
    price, strike, years = (
        aligned(n, generator.uniform(low, high, n).astype(np.float32)) for low, high in ((5, 30), (1, 100), (0.25, 10))
    )
    return Work(
        black_scholes.over(n, device="cpu"), (aligned(n), aligned(n), price, strike, years, 0.02, 0.3), (0, 1), 2e-3
    )


def make_mandelbrot(generator: np.random.Generator) -> Work:
    n = 2000
    return Work(
        mandelbrot.over((n, n), device="cpu"),
        (aligned((n, n), dtype=np.int32), -2.0, -1.25, 2.5 / n, 2.5 / n, 200),
        (0,),
        0.0,
    )


def make_stencil(generator: np.random.Generator) -> Work:
    n = 256
    source, target = aligned((n, n, n), generator.random((n, n, n), np.float32)), aligned((n, n, n))
    inner = (range(1, n - 1),) * 3
    return Work(stencil.over(inner, device="cpu"), (source, target), (1,), 1e-5)


def make_nbody(generator: np.random.Generator) -> Work:
    n = 16384
    inputs = tuple(aligned(n, generator.random(n, np.float32)) for _ in range(4))
    outputs = tuple(aligned(n) for _ in range(3))
    return Work(nbody.over(n, device="cpu"), (*inputs, *outputs), (4, 5, 6), 2e-2)


class OtherLayout:
    """The n-body kernel over bodies that lie one behind the other, instead of in an array for each coordinate."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...], width: int, *, as_structs: bool) -> None:
        """`width`: numbers of an acceleration."""
        *inputs, self._ax, self._ay, self._az = arguments
        n = len(self._ax)
        bodies, self._accelerations = aligned((n, 4), np.stack(inputs, axis=1)), aligned((n, width))
        self._arguments = tuple(
            _as_structs(array, names) if as_structs else array
            for array, names in ((bodies, ("x", "y", "z", "mass")), (self._accelerations, ("x", "y", "z")))
        )
        self._launcher = kernel.over(n, device="cpu")

    def __call__(self) -> None:
        self._launcher(*self._arguments)

    def finish(self) -> None:
        """Copies the results to where the other programs have theirs."""
        self._ax[...], self._ay[...], self._az[...] = self._accelerations.T[:3]


def _as_structs(array: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    return array.view([(name, array.dtype) for name in names]).reshape(len(array))


WORK: dict[str, Callable[[np.random.Generator], Work]] = {
    "saxpy": make_saxpy,
    "matmul": make_matmul,
    "tiled_matmul": make_tiled_matmul,
    "black_scholes": make_black_scholes,
    "mandelbrot": make_mandelbrot,
    "stencil": make_stencil,
    "nbody": make_nbody,
}


# --- measuring --------------------------------------------------------------------------------------------------------


def programs(name: str, work: Work, wanted: list[str]) -> dict[str, Action]:
    """Every program that does the work, the first one Quernel's."""
    found: dict[str, Action] = {"quernel": partial(work.launcher, *work.arguments)}
    peers = numba_peers() if "numba" in wanted else {}
    if name in peers:
        typed = tuple(np.float32(a) if isinstance(a, float) else a for a in work.arguments)
        found["numba"] = partial(peers[name], *typed)
    if name == "nbody":
        found["quernel, vec4"] = OtherLayout(nbody_of_vectors, work.arguments, 4, as_structs=False)
        found["quernel, structs"] = OtherLayout(nbody_of_structs, work.arguments, 3, as_structs=True)
    if name == "matmul":
        a, b, c = work.arguments
        found["NumPy"] = partial(np.matmul, a, b, out=c)
    for peer, make in opencl_peers() if "opencl" in wanted else ():
        action = make(name, work.arguments)
        if action is not None:
            found[peer] = action
    return found


def check(work: Work, found: dict[str, Action]) -> None:
    """Every program's results against Quernel's."""
    initial = [work.arguments[position].copy() for position in work.outputs]

    def results(action: Action) -> list[np.ndarray]:
        for position, values in zip(work.outputs, initial, strict=True):
            work.arguments[position][...] = values
        action()
        if isinstance(action, OtherLayout):
            action.finish()
        return [work.arguments[position].copy() for position in work.outputs]

    ours, *others = found.items()
    expected = results(ours[1])
    for name, action in others:
        for mine, theirs in zip(expected, results(action), strict=True):
            if work.tolerance:
                close = np.isclose(mine, theirs, rtol=work.tolerance, atol=work.tolerance * np.abs(mine).max())
                assert close.all(), (name, np.count_nonzero(~close))
            else:
                # Whether products are fused decides where an orbit leaves.
                assert np.mean(mine != theirs) < 2e-2, name


def timed(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, rounds: int, peers: list[str]) -> None:
    work = WORK[name](np.random.default_rng(1))
    found = programs(name, work, peers)
    check(work, found)
    for action in found.values():
        until = time.perf_counter() + 0.15
        while time.perf_counter() < until:
            action()
    times: dict[str, list[float]] = {peer: [] for peer in found}
    for _ in range(rounds):
        for peer, action in found.items():
            times[peer].append(timed(action))
    print(f"{name}: quernel {statistics.median(times['quernel']) * 1e3:.2f} ms")
    for peer, measured in times.items():
        if peer != "quernel":
            ratio = statistics.median(b / a for a, b in zip(times["quernel"], measured, strict=True))
            print(f"    {peer:14} {statistics.median(measured) * 1e3:9.2f} ms   {ratio:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", choices=WORK, default=list(WORK))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--peers", nargs="*", choices=("numba", "opencl"), default=["numba", "opencl"])
    chosen = parser.parse_args()
    if chosen.threads:
        os.environ["QUERNEL_NUM_THREADS"] = str(chosen.threads)
        os.environ["NUMBA_NUM_THREADS"] = str(chosen.threads)
        os.environ["OPENBLAS_NUM_THREADS"] = str(chosen.threads)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.threads])
    for name in chosen.only:
        measure(name, chosen.rounds, chosen.peers)


if __name__ == "__main__":
    main()
