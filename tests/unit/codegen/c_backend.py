"""C as a third language of the C family: tables, `finalize` by the system's compiler, and a device that calls it.

It is what a third party would write, with nothing but the core's public names.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import attrs

from quernel.capabilities import Capabilities, TargetInfo
from quernel.codegen.c_math import C_MATH
from quernel.codegen.dialect import Dialect
from quernel.compiler import (
    AlignedVariant,
    Artifact,
    ArtifactHeader,
    ArtifactId,
    CFamilyCompiler,
    CompilationError,
    LaunchFacts,
    LoweredText,
    PersistentTarget,
)
from quernel.dtypes import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from quernel.geometry import Geometry
from quernel.ir.nodes import AtomicOp, IndexKind, Module
from quernel.runtime.host_memory import HostMemoryOperations
from quernel.runtime.operations import Backend, DeviceInfo, Unavailable

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

_EXACT = ("-ffp-contract=off", "-fno-strict-aliasing", "-mfma")
_FETCH = {AtomicOp.ADD: "add", AtomicOp.SUB: "sub", AtomicOp.AND: "and", AtomicOp.OR: "or", AtomicOp.XOR: "xor"}

_PREAMBLE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
static _Thread_local int64_t qn_block[3], qn_thread[3];
static inline uint32_t qn_bits_f32(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
static inline float qn_f32_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint64_t qn_bits_f64(double x) { uint64_t bits; memcpy(&bits, &x, 8); return bits; }
static inline double qn_f64_bits(uint64_t bits) { double x; memcpy(&x, &bits, 8); return x; }
static inline uint32_t qn_exchanged32(volatile void *place, uint32_t expected, uint32_t desired)
{
    __atomic_compare_exchange_n((volatile uint32_t *)place, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
static inline uint64_t qn_exchanged64(volatile void *place, uint64_t expected, uint64_t desired)
{
    __atomic_compare_exchange_n((volatile uint64_t *)place, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}"""

_LOOP = """
void {entry}(const unsigned char *cells, const int64_t *grid)
{{
    for (qn_block[2] = 0; qn_block[2] < grid[2]; qn_block[2]++)
    for (qn_block[1] = 0; qn_block[1] < grid[1]; qn_block[1]++)
    for (qn_block[0] = 0; qn_block[0] < grid[0]; qn_block[0]++)
    for (qn_thread[2] = 0; qn_thread[2] < {z}; qn_thread[2]++)
    for (qn_thread[1] = 0; qn_thread[1] < {y}; qn_thread[1]++)
    for (qn_thread[0] = 0; qn_thread[0] < {x}; qn_thread[0]++)
        qn_body({arguments});
}}
"""

_INTEGERS = {i8: "int8_t", i16: "int16_t", i32: "int32_t", i64: "int64_t"} | {
    u8: "uint8_t",
    u16: "uint16_t",
    u32: "uint32_t",
    u64: "uint64_t",
}

_VECTORS = "\n".join(
    f"typedef struct {{ {scalar} {', '.join('xyzw'[:length])}; }} qn_{scalar}_{length};"
    for scalar in [
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "float",
        "double",
    ]
    for length in (2, 4)
)

_RESERVED = re.compile(
    r"\w+_t | M_\w+ | (u?int|INT|UINT)\w* | [A-Z]+ | main | mem\w+ | __\w+ | y[01n]f? | j[01n]f?"
    f"| ({'|'.join(function.value for function in C_MATH)}|tgamma|fma|fabs|fmin|fmax|round|remainder)[fl]?",
    re.VERBOSE,
)

C = Dialect(
    name="C",
    types={bool_: "bool", **_INTEGERS, f16: "float", bf16: "float", f32: "float", f64: "double"},
    storage={bool_: "uint8_t", f16: "uint16_t", bf16: "uint16_t"},
    suffixes={i32: "", u32: "u", i64: "LL", u64: "ULL"},
    reserved=_RESERVED,
    preamble=tuple(_PREAMBLE.splitlines()),
    features={"vectors": _VECTORS},
    kernel="static void qn_body({parameters})",
    loop=_LOOP,
    argument="*({type}*)(cells + 8 * {number})",
    function="static inline",
    spaces={},
    has_one_address_space=True,
    shared="static _Thread_local {type} {name}[{count}] __attribute__((aligned(16)))",
    indices={IndexKind.LOCAL_ID: "qn_thread[{axis}]", IndexKind.BLOCK_ID: "qn_block[{axis}]"},
    infinity={f32: "INFINITY", f64: "(double)INFINITY"},
    nan={f32: "NAN", f64: "(double)NAN"},
    bitcasts={
        (f32, u32): "qn_bits_f32({0})",
        (u32, f32): "qn_f32_bits({0})",
        (f64, u64): "qn_bits_f64({0})",
        (u64, f64): "qn_f64_bits({0})",
    },
    math_suffix="f",
    fma="fma{f}({0}, {1}, {2})",
    fabs="fabs{f}({0})",
    popcount={32: "__builtin_popcount({0})", 64: "__builtin_popcountll({0})"},
    clz={32: "({0} ? __builtin_clz({0}) : 32)", 64: "({0} ? __builtin_clzll({0}) : 64)"},
    vector="qn_{scalar}_{length}",
    vector_value="({type}){{{components}}}",
    atomics={
        (op, dtype): f"__atomic_fetch_{word}({{place}}, {{0}}, __ATOMIC_RELAXED)"
        for op, word in _FETCH.items()
        for dtype in (i32, u32, i64, u64)
    },
    compare_exchange={32: "qn_exchanged32({place}, {0}, {1})", 64: "qn_exchanged64({place}, {0}, {1})"},
)

TARGET = TargetInfo(
    backend="c",
    name="host",
    fingerprint="host",
    capabilities=Capabilities(
        exact_f32=True,
        exact_f64=True,
        f64=True,
        f16=True,
        bf16=True,
        int64_atomics=True,
        f64_atomics=True,
        checked=True,
        source_languages=("c",),
    ),
)


@attrs.frozen(eq=False)
class Loaded:
    library: ctypes.CDLL
    function: Any


class CCompiler(CFamilyCompiler[AlignedVariant, Artifact]):
    language = "c"
    variant_type = AlignedVariant

    def dialect(self, module: Module, variant: AlignedVariant) -> Dialect:
        return C

    def finalize(self, id: ArtifactId[AlignedVariant], lowered: LoweredText) -> Artifact:  # noqa: A002
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            source.write_text(lowered.text)
            macros = [f"-D{name}={value}" for name, value in lowered.macros]
            flags = [
                "-std=gnu11",
                "-O1",
                "-w",
                "-shared",
                "-fPIC",
                "-ffp-contract=off",
                "-fno-strict-aliasing",
                "-mfma",
            ]
            command = [str(CC), *flags, *macros, "-o", str(library), str(source), "-lm"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                error = CompilationError("cc refuses the text", chain=tuple(ran.stderr.splitlines()))
                raise self.located(error, id.kernel.name, lowered)
            return Artifact(lowered.header, library.read_bytes())


class CTarget(PersistentTarget[AlignedVariant, Artifact, Loaded]):
    artifact_type = Artifact

    def variant(self, launch_facts: LaunchFacts) -> AlignedVariant:
        return AlignedVariant.of(launch_facts)

    def load(self, id: ArtifactId[AlignedVariant], artifact: Artifact) -> Loaded:  # noqa: A002
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(artifact.payload)
            file.flush()
            library = ctypes.CDLL(file.name)
        function = library[artifact.header.entry]
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_void_p), None
        return Loaded(library, function)


class CDevice(HostMemoryOperations[Loaded]):
    def __init__(self) -> None:
        self.info = DeviceInfo("c", 0, "host", "cpu")
        self._target = CTarget(CCompiler(TARGET))

    @property
    def target(self) -> CTarget:
        return self._target

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        grid = (ctypes.c_int64 * 3)(*(*reversed(geometry.grid), 1, 1)[:3])
        loaded.function(arguments, grid)


class CBackend(Backend):
    name = "c"

    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        return (DeviceInfo("c", 0, "host", "cpu"),) if CC else Unavailable("there is no C compiler", "install gcc")

    def target_info(self, target: str) -> TargetInfo:
        return TARGET

    def compiler(self, target: TargetInfo) -> CCompiler:
        return CCompiler(target)

    def open(self, info: DeviceInfo) -> CDevice:
        return CDevice()


QUERNEL_PLUGIN_API = 1


def quernel_backend() -> Backend:
    return CBackend()
