"""What the cpu compiler takes from IR to object code, as processor time.

    python tests/benchmarks/compiling.py [--target NAME] [--rounds N] [KERNEL …]

Prints for each kernel the least of so many rounds, in milliseconds, and the bytes of its object code.
"""

from __future__ import annotations

import argparse
import itertools
import linecache
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import attrs

import quernel as qn
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, ScalarType
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.lang import expand
from quernel.options import KernelOptions
from quernel.structs import struct_of
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.targets import named_target
from quernel_cpu.types import CpuVariant

FLOATS, DOUBLES, NUMBERS = (ArrayType(of, 1) for of in (qn.f32, qn.f64, qn.i64))
IMAGE, COUNT = ArrayType(qn.f32, 2), ScalarType(qn.i64)
Body = attrs.make_class("Body", {name: attrs.field(type=qn.f32) for name in ("x", "y", "z", "mass")}, frozen=True)
Wide = attrs.make_class("Wide", {f"f{n}": attrs.field(type=qn.f32) for n in range(70)}, frozen=True)
BODIES, WIDES = ArrayType(struct_of(Body), 1), ArrayType(struct_of(Wide), 1)
_numbers = itertools.count()

EDGES = """
def k(x, y):
    row, column = qn.global_id()
    height, width = x.shape
    left = max(column - 1, 0)
    right = column + 1 if column + 1 < width else width - 1
    total = 0.0
    for d in range(-1, 2):
        near = min(max(row + d, 0), height - 1)
        total += x[near, left] + x[near, column] + x[near, right]
    y[row, column] = total / 9.0
"""
MANDELBROT = """
def k(out, limit):
    y, x = qn.global_id()
    height, width = qn.global_dim()
    cr = x * 3.0 / width - 2.0
    ci = y * 2.0 / height - 1.0
    zr = 0.0
    zi = 0.0
    n = 0
    while n < limit and zr * zr + zi * zi <= 4.0:
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        n += 1
    out[y, x] = n
"""
NBODY = """
def k(bodies, out):
    i = qn.global_id()
    own = bodies[i]
    ax = qn.f32(0.0)
    ay = qn.f32(0.0)
    az = qn.f32(0.0)
    for j in range(len(bodies)):
        other = bodies[j]
        dx = other.x - own.x
        dy = other.y - own.y
        dz = other.z - own.z
        r2 = dx * dx + dy * dy + dz * dz + qn.f32(0.01)
        inverse = qn.f32(1.0) / math.sqrt(r2)
        pull = other.mass * inverse * inverse * inverse
        ax += pull * dx
        ay += pull * dy
        az += pull * dz
    out[i] = Body(ax, ay, az, own.mass)
"""
STENCIL = """
def k(x, y):
    row, column = qn.global_id()
    height, width = x.shape
    if row >= 2 and row < height - 2 and column >= 2 and column < width - 2:
        total = 0.0
        for i in range(-2, 3):
            for j in range(-2, 3):
                total += x[row + i, column + j]
        y[row, column] = total / 25.0
"""
STRUCT = f"""
def k(s, x):
    i = qn.global_id()
    a = s[i]
    if x[i] > 0:
        a = Wide({", ".join(f"a.f{n} * x[i]" for n in range(70))})
    elif x[i] < -1:
        a = s[i + 1]
    s[i] = a
"""
FIELDS = "def k(s, x):\n    i = qn.global_id()\n" + "".join(
    f"    if x[i] > {n}.0:\n        s[i].f{n} = s[i].f{(n + 1) % 70} + x[i]\n" for n in range(70)
)
CALLS = "\n".join(
    [
        "@qn.func\ndef f12(x, s):\n    return x * 3 + s\n",
        *(
            f"@qn.func\ndef f{n}(x, s):\n    y = f{n + 1}(x + {n}, s) % 10007\n"
            f"    if y % 2 == 1:\n        return f{n + 1}(y, s) % 10009\n    return y - s\n"
            for n in reversed(range(12))
        ),
        "def k(out, s):\n    i = qn.global_id()\n    out[i] = f0(i, s)\n",
    ]
)


def chain(condition: str, value: str) -> str:
    """A chain of 200 branches."""
    lines = ["def k(x, out):", "    i = qn.global_id()", "    v = x[i]"]
    for number in range(200):
        lines.append(f"    {'elif' if number else 'if'} {condition.format(number)}:")
        lines.append(f"        out[i] = {value.format(number)}")
    return "\n".join([*lines, "    else:", "        out[i] = -1\n"])


KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "filter to the edges": (EDGES, {"x": IMAGE, "y": IMAGE}),
    "Mandelbrot": (MANDELBROT, {"out": ArrayType(qn.i32, 2), "limit": COUNT}),
    "n-body over structs": (NBODY, {"bodies": BODIES, "out": BODIES}),
    "stencil of 5 x 5": (STENCIL, {"x": IMAGE, "y": IMAGE}),
    "200 elif": (chain("x[i] == {}.0", "{}.5"), {"x": DOUBLES, "out": DOUBLES}),
    "200 elif of v % 10007": (chain("v % 10007 == {}", "v * {} % 10007"), {"x": NUMBERS, "out": NUMBERS}),
    "struct of 70 fields": (STRUCT, {"s": WIDES, "x": FLOATS}),
    "70 fields one by one": (FIELDS, {"s": WIDES, "x": FLOATS}),
    "12 functions": (CALLS, {"out": NUMBERS, "s": COUNT}),
}


def definition(text: str, types: dict[str, Any]) -> KernelDefinition:
    """The kernel `k` of a text, over points."""
    name = f"<compiling {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn, "math": math, "Body": Body, "Wide": Wide, "__name__": "compiling"}
    exec(compile(text, name, "exec"), namespace)
    block = (1, 256) if "row" in text or "height" in text else (256,)
    module, _ = expand(
        namespace["k"],
        name="k",
        parameter_types=types,
        constants={},
        form=LaunchForm.OVER,
        block=block,
        options=KernelOptions(),
    )
    kernel = module.kernel
    parameters = tuple((param.name, param.type) for param in kernel.params)
    specialization = Specialization(parameters, (), kernel.form, kernel.block, kernel.options)
    return KernelDefinition(KernelId("k", "0" * 64), specialization, expand=lambda: (module, True))


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}")
    parser.add_argument("--target", default="x86-64-v3")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    compiler, log = CpuCompiler(named_target(chosen.target)), logging.getLogger("compiling")

    def lowered(made: KernelDefinition) -> Any:
        identity = ArtifactId(made.id, CpuVariant(contiguous=True))
        return compiler.lower(made, identity, CompilationRecording(), log)

    lowered(definition(*KERNELS["Mandelbrot"]))  # LLVM starts.
    for name in chosen.kernels or KERNELS:
        made = definition(*KERNELS[name])
        times, results = zip(*(timed(lambda: lowered(made)) for _ in range(chosen.rounds)), strict=True)  # noqa: B023
        print(f"{name}: {min(times) * 1e3:.0f} ms, {len(results[0].object_code)} bytes", flush=True)


if __name__ == "__main__":
    main()
