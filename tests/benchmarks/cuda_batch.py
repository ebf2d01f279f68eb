"""32 different kernels compiled for one GPU: as one batch, which groups them, and one by one, beside NVRTC alone.

    python tests/benchmarks/cuda_batch.py [--rounds N]

Needs no GPU with `--target sm_90`; then the kernels are compiled and not loaded. NVRTC keeps what it compiled, in files
too, so no text is compiled twice, in this run or, most probably, in another.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.halves import CompilationTarget, LaunchFacts
from quernel.compiler.loader import KernelLoader
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, f32, i64
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.ir.nodes import (
    Binary,
    BinaryOp,
    Const,
    IndexKind,
    Kernel,
    Load,
    Math,
    MathFunction,
    Module,
    Parameter,
    Place,
    Root,
    RootKind,
    Store,
    ThreadIndex,
)
from quernel_cuda import _toolchain
from quernel_cuda.compiler import CudaCompiler
from quernel_cuda.targets import named_target
from quernel_cuda.types import CudaArtifact, CudaVariant

NUM_KERNELS = 32
FIRST_OF_SET = itertools.count(random.SystemRandom().randrange(1 << 18) * NUM_KERNELS, NUM_KERNELS)
"""Numbers of kernels that were not compiled before; an f32 holds each exactly."""
LOG = logging.getLogger(__name__)


def different(number: int) -> KernelDefinition:
    """`y[i] = sin(x[i]) * number + y[i]`, so that each is another kernel."""
    here = ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=0)

    def place(name: str) -> Place:
        return Place(root=Root(RootKind.PARAM, name), indices=(here,), type=f32)

    sine = Math(function=MathFunction.SIN, operands=(Load(place=place("x")),), type=f32)
    scaled = Binary(op=BinaryOp.MUL, left=sine, right=Const(value=float(number), type=f32))
    value = Binary(op=BinaryOp.ADD, left=scaled, right=Load(place=place("y")))
    params = tuple(Parameter(name=name, type=ArrayType(f32, 1)) for name in ("x", "y"))
    assert i64 is not None
    kernel = Kernel(
        name=f"kernel{number}",
        form=LaunchForm.OVER,
        block=(256,),
        params=params,
        locals=(),
        body=(Store(place=place("y"), value=value),),
    )
    types = tuple((param.name, param.type) for param in params)
    specialization = Specialization(types, (), LaunchForm.OVER, (256,))
    identity = KernelId(kernel.name, f"{number:064x}")
    return KernelDefinition(identity, specialization, expand=lambda: (Module(kernel=kernel), True))


def fresh_set() -> range:
    first = next(FIRST_OF_SET)
    return range(first, first + NUM_KERNELS)


class Unloaded(CompilationTarget[CudaVariant, CudaArtifact, bytes]):
    """Keeps nothing and loads nothing, so that a batch is all compiling."""

    def __init__(self, compiler: CudaCompiler) -> None:
        self.compiler = compiler

    def variant(self, launch_facts: LaunchFacts) -> CudaVariant:
        return CudaVariant.of(launch_facts)

    def stored(self, id: ArtifactId[CudaVariant]) -> None:  # noqa: A002
        return None

    def load(self, id: ArtifactId[CudaVariant], artifact: CudaArtifact) -> bytes:  # noqa: A002
        return artifact.payload

    def store(self, *what: object, **more: object) -> bool:
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default="sm_90")
    options = parser.parse_args()
    compiler = CudaCompiler(named_target(options.target))

    def compiled(number: int) -> bytes:
        made = different(number)
        identity = ArtifactId(made.id, compiler.default_variant(made.specialization.signature))
        lowered = compiler.lower(made, identity, CompilationRecording(), LOG)
        return compiler.finalize(identity, lowered).payload

    def alone(number: int) -> bytes:
        text = f"""extern "C" __global__ void k{number}(const float *x, float *y, long long n)
        {{ long long i = blockIdx.x * 256LL + threadIdx.x; if (i < n) y[i] = fmaf(sinf(x[i]), {number}.0f, y[i]); }}"""
        return _toolchain.compile_text(text, (f"--gpu-architecture={options.target}",), f"k{number}").payload

    def batch(threads: int) -> float:
        kernels = [different(number) for number in fresh_set()]
        variant = compiler.default_variant(kernels[0].specialization.signature)
        with ThreadPoolExecutor(threads) as pool:
            loader = KernelLoader(Unloaded(compiler), workers=pool, environment=lambda: None)
            for made in kernels:
                loader.enqueue(made, ArtifactId(made.id, variant))
            started = time.perf_counter()
            assert loader.compile_queued() == NUM_KERNELS
            return time.perf_counter() - started

    def on_threads(work: Callable[[int], bytes], threads: int) -> float:
        numbers = fresh_set()
        started = time.perf_counter()
        if threads == 1:
            made = [work(number) for number in numbers]
        else:
            with ThreadPoolExecutor(threads) as pool:
                made = list(pool.map(work, numbers))
        assert all(payload.startswith(b"\x7fELF") for payload in made)
        return time.perf_counter() - started

    compiled(100)
    batch(2)
    taken: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for threads in (1, 2, 4, 8, 16):
            taken.setdefault(f"quernel, one batch, {threads:2} threads", []).append(batch(threads))
            for name, work in (("quernel, one by one", compiled), ("NVRTC alone, plain text", alone)):
                label = f"{name}, {threads:2} threads"
                taken.setdefault(label, []).append(on_threads(work, threads))
    best = min(statistics.median(seconds) for label, seconds in taken.items() if label.startswith("NVRTC"))
    for label, seconds in taken.items():
        median = statistics.median(seconds)
        spread = f"{median:6.3f} s ({min(seconds):.3f} .. {max(seconds):.3f})"
        print(f"{label:36} {median / best:5.2f} of NVRTC's best  {spread}")


if __name__ == "__main__":
    main()
