"""OpenCL C as a dialect of the core's C-family lowering."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Final

import attrs

from quernel.codegen.dialect import Dialect
from quernel.dtypes import (
    ArrayType,
    DType,
    StructType,
    VectorType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from quernel.errors import ValidationError
from quernel.ir.analysis import parameter_uses
from quernel.ir.nodes import AtomicOp, IndexKind, MathFunction, Module, RootKind, SubgroupOp
from quernel.locations import known_location

__all__ = [
    "OPENCL_C",
    "SUBGROUP_SIZE",
    "opencl_dialect",
    "types_of_one_memory",
    "uses_subgroups",
    "validate_rows",
]

_RESERVED: Final = re.compile(
    r"""
      kernel|global|local|constant|private|generic|read_only|write_only|read_write|uniform|pipe|linux|unix|i386
    | u?(char|short|int|long)(2|3|4|8|16)? | (float|double|half|quad|bool)(2|3|4|8|16)? | complex | imaginary
    | \w+_t | image\w* | memory_(order|scope)\w* | cl_mem_fence_flags
    | (get|work_group|sub_group|intel|as|convert|native|half|async|atomic|atom|ndrange|enqueue|read|write|fast|to)_\w+
    | v(load|store)\w* | mem_fence | barrier | printf | prefetch | wait_group_events | vec_step | shuffle2?
    | is(equal|notequal|greater|greaterequal|less|lessequal|lessgreater|finite|inf|nan|normal|ordered|unordered)
    | signbit | any | all | bitselect | select | dot | cross | length | distance | normalize | degrees | radians
    | a?(cos|sin|tan)h?(pi)? | atan2(pi)? | cbrt | ceil | copysign | erfc? | exp(2|10|m1)? | fabs | fdim | floor
    | fma | fmax | fmin | fmod | fract | frexp | hypot | ilogb | ldexp | [lt]gamma(_r)? | log(2|10|1p|b)?
    | mad(24|_hi|_sat)? | maxmag | minmag | modf | nan | nextafter | pow[nr]? | remainder | remquo | rint | rootn
    | round | rsqrt | sincos | sqrt | trunc | abs(_diff)? | (add|sub)_sat | r?hadd | clamp | clz | ctz | max | min | mix
    | mul24 | mul_hi | rotate | upsample | popcount | step | smoothstep | sign
    | (CL|CLK|M|FLT|DBL|HALF|U?INT|U?LONG|[SU]?CHAR|U?SHRT|FP|ATOMIC|POCL|DEBUG|HUGE)_\w* | NAN | INFINITY | MAXFLOAT
    | NULL | TRUE | FALSE
    """,
    re.VERBOSE,
)
"""Keywords, types, builtins and macros. A user's name that is one of them gets an underscore."""

_NATIVE: Final = (
    MathFunction.SQRT,
    MathFunction.RSQRT,
    MathFunction.EXP,
    MathFunction.EXP2,
    MathFunction.LOG,
    MathFunction.LOG2,
    MathFunction.LOG10,
    MathFunction.SIN,
    MathFunction.COS,
    MathFunction.TAN,
)
"""Functions with an approximate form for `fast_math`; `pow` keeps its own, as the approximate one has no negatives."""

_INTEGER_ATOMICS: Final = {
    AtomicOp.ADD: "add",
    AtomicOp.SUB: "sub",
    AtomicOp.MIN: "min",
    AtomicOp.MAX: "max",
    AtomicOp.AND: "and",
    AtomicOp.OR: "or",
    AtomicOp.XOR: "xor",
    AtomicOp.EXCHANGE: "xchg",
}


SUBGROUP_SIZE: Final = 16
"""Threads of a subgroup, where the device lets a kernel say so; every device of that kind has this size."""

_SUBGROUPS: Final = """\
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define QN_OF __attribute__((overloadable)) static
#define QN_SUBGROUP(type) \\
    QN_OF type qn_shuffle(type x, long lane) { \\
        const bool is_there = lane >= 0 && lane < (long)get_sub_group_size(); \\
        return intel_sub_group_shuffle(x, is_there ? (uint)lane : get_sub_group_local_id()); \\
    } \\
    QN_OF type qn_least(type x) { \\
        type least = qn_shuffle(x, 0); \\
        for (uint lane = 1; lane < get_sub_group_size(); lane++) { \\
            const type other = qn_shuffle(x, lane); \\
            least = other < least ? other : least; \\
        } \\
        return least; \\
    } \\
    QN_OF type qn_greatest(type x) { \\
        type greatest = qn_shuffle(x, 0); \\
        for (uint lane = 1; lane < get_sub_group_size(); lane++) { \\
            const type other = qn_shuffle(x, lane); \\
            greatest = other > greatest ? other : greatest; \\
        } \\
        return greatest; \\
    }
QN_SUBGROUP(int)
QN_SUBGROUP(uint)
QN_SUBGROUP(long)
QN_SUBGROUP(ulong)
QN_SUBGROUP(float)
#ifdef cl_khr_fp64
QN_SUBGROUP(double)
#endif
"""


def _atomics() -> dict[tuple[AtomicOp, DType], str]:
    native: dict[tuple[AtomicOp, DType], str] = {(AtomicOp.EXCHANGE, f32): "atomic_xchg({place}, {0})"}
    for dtypes, prefix in (((i32, u32), "atomic"), ((i64, u64), "atom")):
        for dtype in dtypes:
            for op, word in _INTEGER_ATOMICS.items():
                native[op, dtype] = f"{prefix}_{word}({{place}}, {{0}})"
            native[AtomicOp.COMPARE_EXCHANGE, dtype] = f"{prefix}_cmpxchg({{place}}, {{0}}, {{1}})"
    return native


OPENCL_C: Final = Dialect(
    name="OpenCL C",
    types={
        bool_: "bool",
        i8: "char",
        i16: "short",
        i32: "int",
        i64: "long",
        u8: "uchar",
        u16: "ushort",
        u32: "uint",
        u64: "ulong",
        f16: "float",
        bf16: "float",
        f32: "float",
        f64: "double",
    },
    storage={bool_: "uchar", f16: "ushort", bf16: "ushort"},
    suffixes={i32: "", u32: "u", i64: "L", u64: "UL"},
    reserved=_RESERVED,
    preamble=("#pragma OPENCL FP_CONTRACT OFF",),
    features={
        "f64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "int64_atomics": "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
        "#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable",
        "subgroups": _SUBGROUPS,
    },
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {entry}({parameters})",
    function="static",
    spaces={RootKind.PARAM: "__global", RootKind.SHARED: "__local", RootKind.PRIVATE: "__private"},
    shared="__local {type} {name}[{count}] __attribute__((aligned(16)))",
    aligned="{declaration} __attribute__((aligned({alignment})))",
    indices={
        IndexKind.GLOBAL_ID: "get_global_id({axis})",
        IndexKind.LOCAL_ID: "get_local_id({axis})",
        IndexKind.BLOCK_ID: "get_group_id({axis})",
        IndexKind.SUBGROUP_LANE: "get_sub_group_local_id()",
        IndexKind.SUBGROUP_ID: "get_sub_group_id()",
        IndexKind.SUBGROUP_SIZE: str(SUBGROUP_SIZE),
    },
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    infinity={f32: "INFINITY", f64: "(double)INFINITY"},
    nan={f32: "NAN", f64: "(double)NAN"},
    bitcasts={
        (f32, u32): "as_uint({0})",
        (u32, f32): "as_float({0})",
        (f64, u64): "as_ulong({0})",
        (u64, f64): "as_double({0})",
    },
    functions={
        # Some implementations stop one digit short of 1, however large the operand.
        MathFunction.TANH: "{function} {type} {name}({type} x)\n{{\n"
        "    return fabs(x) >= 20 ? copysign(({type})1, x) : tanh(x);\n}}\n",
    },
    fast_math={function: f"native_{function.value}({{0}})" for function in _NATIVE},
    fma="fma({0}, {1}, {2})",
    fabs="fabs({0})",
    popcount={32: "popcount({0})", 64: "popcount({0})"},
    clz={32: "clz({0})", 64: "clz({0})"},
    vector="{scalar}{length}",
    vector_value="({type})({components})",
    atomics=_atomics(),
    compare_exchange={32: "atomic_cmpxchg({place}, {0}, {1})", 64: "atom_cmpxchg({place}, {0}, {1})"},
    subgroup={
        SubgroupOp.SHUFFLE: "qn_shuffle({0}, (int){1})",
        SubgroupOp.SHUFFLE_XOR: "qn_shuffle({0}, (int)get_sub_group_local_id() ^ (int){1})",
        SubgroupOp.SHUFFLE_UP: "qn_shuffle({0}, (long)get_sub_group_local_id() - (int){1})",
        SubgroupOp.SHUFFLE_DOWN: "qn_shuffle({0}, (long)get_sub_group_local_id() + (int){1})",
        SubgroupOp.BROADCAST: "qn_shuffle({0}, (int){1})",
        SubgroupOp.BALLOT: "(ulong)sub_group_reduce_add({0} ? 1u << get_sub_group_local_id() : 0u)",
        SubgroupOp.ANY: "sub_group_any({0})",
        SubgroupOp.ALL: "sub_group_all({0})",
        SubgroupOp.SUM: "sub_group_reduce_add({0})",
        SubgroupOp.MIN: "qn_least({0})",
        SubgroupOp.MAX: "qn_greatest({0})",
        SubgroupOp.SCAN: "sub_group_scan_inclusive_add({0})",
    },
    subgroup_types=frozenset({bool_, i32, u32, i64, u64, f32, f64}),
)


_ALIASING: Final = " ".join(
    f"typedef {{name}}{length} __attribute__((may_alias)) qn_stored_{{name}}{length};" for length in ("", "2", "4")
)
"""A type, and its vectors, of memory that may be written as another one. Drivers refuse `-fno-strict-aliasing`."""

_INTEL_LOOP: Final = '__asm__ volatile("");'
"""Intel's compiler for CPUs (2026.22) makes two loops of one in which threads branch by what stays the same in it, and
then takes what was computed from values that are alike in all threads for alike behind them, whichever of the two a
thread was in. It leaves a loop in one piece that holds this statement, which is no instruction."""

_INTEL_OWN: Final = """\
#define QN_OWN __attribute__((overloadable)) static
#define QN_OWN_INTEGER(type) \\
    QN_OWN type qn_own(type x) { return x ^ (type)(get_global_id(0) >> 40); } \\
    QN_OWN type##2 qn_own(type##2 x) { return x ^ (type)(get_global_id(0) >> 40); } \\
    QN_OWN type##4 qn_own(type##4 x) { return x ^ (type)(get_global_id(0) >> 40); }
#define QN_OWN_FLOAT(type, bits) \\
    QN_OWN type qn_own(type x) { return as_##type(qn_own(as_##bits(x))); } \\
    QN_OWN type##2 qn_own(type##2 x) { return as_##type##2(qn_own(as_##bits##2(x))); } \\
    QN_OWN type##4 qn_own(type##4 x) { return as_##type##4(qn_own(as_##bits##4(x))); }
QN_OWN_INTEGER(char) QN_OWN_INTEGER(short) QN_OWN_INTEGER(int) QN_OWN_INTEGER(long)
QN_OWN_INTEGER(uchar) QN_OWN_INTEGER(ushort) QN_OWN_INTEGER(uint) QN_OWN_INTEGER(ulong)
QN_OWN bool qn_own(bool x) { return x != (get_global_id(0) >> 40 != 0); }
QN_OWN_FLOAT(float, uint)
#ifdef cl_khr_fp64
QN_OWN_FLOAT(double, ulong)
#endif"""
"""Where a branch or a choice decides which of two values goes on that are alike in all threads, that compiler takes the
one that goes on for alike too, if the ways to them are long: a whole vector gets the value of its first thread. A
launch has fewer than 2**40 threads along an axis, which the compiler does not know.

For processors with AVX-512 it rounds a float instead of making an integer of it and a float of that: -0.3 became -0."""

_INTEL_SIGNS: Final = """\
#define QN_OF __attribute__((overloadable)) static
QN_OF float qn_negated(float x) {
    return x * as_float(0xbf800000u ^ ((uint)(get_global_size(0) >> 32) & 0x80000000u));
}
QN_OF uint qn_bits(float x) { return as_uint(x) + (uint)(get_global_size(0) >> 63); }
QN_OF float qn_float(uint x) { return as_float(x + (uint)(get_global_size(0) >> 63)); }
#ifdef cl_khr_fp64
QN_OF double qn_negated(double x) {
    return x * as_double(0xbff0000000000000UL ^ (get_global_size(0) & 0x8000000000000000UL));
}
QN_OF ulong qn_bits(double x) { return as_ulong(x) + (get_global_size(0) >> 63); }
QN_OF double qn_float(ulong x) { return as_double(x + (get_global_size(0) >> 63)); }
#endif"""
"""Over a barrier that compiler keeps one negated float for the whole block, and one of all that was computed from
nothing else: each thread goes on with the last one's. It finds negations in products with -1, in -0 minus a value and
in changed sign bits too, but not where the sign is of a number that it cannot know."""

_INTEL_BITCASTS: Final = {
    (f32, u32): "qn_bits({0})",
    (u32, f32): "qn_float({0})",
    (f64, u64): "qn_bits({0})",
    (u64, f64): "qn_float({0})",
}


def uses_subgroups(module: Module) -> bool:
    """Whether threads of a subgroup work together, or one asks for its lane."""
    uses = parameter_uses(module)
    return uses.has_subgroup or any(kind.value.startswith("subgroup") for kind in uses.index_kinds)


def types_of_one_memory(module: Module) -> frozenset[DType]:
    """The types as which the kernel may read and write one and the same memory, where they are more than one.

    Arrays may share memory, whatever their types. C allows one type for it, or chars, which every compiler knows to be
    anything; and signed and unsigned integers of one width are one type in this.
    """
    uses = parameter_uses(module)
    accessed = {use.name for use in uses.arrays if use.is_accessed}
    found: set[DType] = set()
    pending = [p.type.element for p in module.kernel.params if isinstance(p.type, ArrayType) and p.name in accessed]
    while pending:
        match pending.pop():
            case StructType() as struct:
                pending += [field.type for field in struct.fields]
            case VectorType() as vector:
                found.add(vector.element)
            case DType() as dtype:
                found.add(dtype)
            case None:
                pass
    wide = {dtype for dtype in found if dtype.itemsize > 1}
    kinds = {(dtype.itemsize, dtype in (f32, f64)) for dtype in wide}
    return frozenset(wide) if uses.written and len(kinds) > 1 else frozenset()


@cache
def opencl_dialect(
    *, has_subgroups: bool, has_barrier: bool, is_intel_cpu: bool, of_one_memory: frozenset[DType] = frozenset()
) -> Dialect:
    """The dialect for one kernel, by what it uses, and for Intel's driver for CPUs or another.

    `of_one_memory`: see `types_of_one_memory`.
    """
    dialect = OPENCL_C
    if of_one_memory:
        names = {dtype: dialect.memory_type(dtype) for dtype in sorted(of_one_memory, key=lambda dtype: dtype.name)}
        storage = {**dialect.storage, **{dtype: f"qn_stored_{name}" for dtype, name in names.items()}}
        lines = [_ALIASING.format(name=name) for name in dict.fromkeys(names.values())]
        if f64 in of_one_memory:
            lines.insert(0, dialect.features["f64"])
        dialect = attrs.evolve(dialect, storage=storage, preamble=(*dialect.preamble, *lines))
    if has_subgroups:
        attribute = f"__attribute__((intel_reqd_sub_group_size({SUBGROUP_SIZE})))"
        dialect = attrs.evolve(dialect, kernel=dialect.kernel.replace("__kernel ", f"__kernel {attribute}\n", 1))
    if is_intel_cpu:
        features = {**dialect.features, "own": _INTEL_OWN}
        dialect = attrs.evolve(
            dialect, loop_start=_INTEL_LOOP, own="qn_own({0})", truncated="qn_own({0})", features=features
        )
    if is_intel_cpu and has_barrier:
        preamble = (*dialect.preamble, *_INTEL_SIGNS.splitlines())
        dialect = attrs.evolve(
            dialect, preamble=preamble, negated="qn_negated({0})", bitcasts={**dialect.bitcasts, **_INTEL_BITCASTS}
        )
    return dialect


def validate_rows(module: Module) -> None:
    """Refuses a block in which a subgroup would have to go on in the next row: drivers end one with its row.

    Raises:
        ValidationError: the last axis is no multiple of a subgroup.
    """
    block, where = module.kernel.block, module.kernel.loc
    if uses_subgroups(module) and math.prod(block[:-1]) > 1 and block[-1] % SUBGROUP_SIZE:
        raise ValidationError(
            f"subgroups of {SUBGROUP_SIZE} threads do not fill the rows of block {block}",
            where=known_location(where),
            fix=f"use a block whose last axis is a multiple of {SUBGROUP_SIZE}, or one axis",
        )
