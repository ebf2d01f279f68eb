"""C as GCC and Clang compile it, as tables: all of the language, and nothing of how a launch runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from quernel.codegen.c_math import C_MATH
from quernel.codegen.dialect import Dialect
from quernel.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from quernel.ir.nodes import AtomicOp, IndexKind

__all__ = ["gnu_c"]

_TYPES: Final = {
    bool_: "bool",
    i8: "int8_t",
    i16: "int16_t",
    i32: "int32_t",
    i64: "int64_t",
    u8: "uint8_t",
    u16: "uint16_t",
    u32: "uint32_t",
    u64: "uint64_t",
    f16: "float",
    bf16: "float",
    f32: "float",
    f64: "double",
}
_VECTOR_LENGTHS: Final = (2, 4)

_RESERVED: Final = re.compile(
    r"""
      \w+_t | \w+_(MAX|MIN|WIDTH|C) | (M|FP|MATH|HUGE|math)_\w+ | NAN | INFINITY | HUGE | MAXFLOAT | signgam
    | (DOMAIN|SING|OVERFLOW|UNDERFLOW|PLOSS|X?_?TLOSS) | linux | unix | i386
    | ("""
    + "|".join(sorted(function.value for function in C_MATH))
    + r"""
      | f(abs|dim|ma|max|min) | l?l?round(even)? | l?l?rint | nearbyint | remainder | remquo | drem | i?logb
      | ldexp | scalb(l?n)? | frexp | modf | nan | next(after|toward|up|down) | exp10 | pow10 | sincos | significand
      | [tl]?gamma | lgammaf?l?_r | finite | [jy][01n] | fpclassify | signbit
      | is(inf|nan|finite|normal|unordered|(less|greater)\w*)
      )[fl]?
    """,
    re.VERBOSE,
)
"""Names that the headers of the preamble, or the compiler by itself, give to something else."""

_PREAMBLE: Final = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
static inline uint32_t qn_bits_f32(float x) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); return bits; }
static inline float qn_f32_bits(uint32_t bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
static inline uint64_t qn_bits_f64(double x) { uint64_t bits; __builtin_memcpy(&bits, &x, 8); return bits; }
static inline double qn_f64_bits(uint64_t bits) { double x; __builtin_memcpy(&x, &bits, 8); return x; }
static inline uint32_t qn_exchanged32(volatile void *place, uint32_t expected, uint32_t desired)
{
    __atomic_compare_exchange_n((volatile uint32_t *)place, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
static inline uint64_t qn_exchanged64(volatile void *place, uint64_t expected, uint64_t desired)
{
    __atomic_compare_exchange_n((volatile uint64_t *)place, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
"""

_FETCH: Final = {AtomicOp.ADD: "add", AtomicOp.SUB: "sub", AtomicOp.AND: "and", AtomicOp.OR: "or", AtomicOp.XOR: "xor"}


def _vectors() -> str:
    scalars = dict.fromkeys(name for dtype, name in _TYPES.items() if dtype is not bool_)
    return "\n".join(
        f"typedef struct {{ {scalar} {', '.join('xyzw'[:length])}; }} qn_{scalar}_{length};"
        for scalar in scalars
        for length in _VECTOR_LENGTHS
    )


def gnu_c(
    *,
    name: str = "C",
    preamble: str = "",
    kernel: str,
    loop: str,
    argument: str,
    indices: Mapping[IndexKind, str],
    shared: str,
    barrier: str = "",
) -> Dialect:
    """The dialect of a backend that compiles C with GCC, Clang or their like, completed by how its launches run.

    The arguments are the fields of `Dialect` of the same names; `preamble` comes behind the language's own.
    `attrs.evolve` replaces any other field of the result. Compile with `-std=gnu11` or later, `-ffp-contract=off`, for
    the rounding that the language promises, `-fno-strict-aliasing`, and `-lm`.
    """
    return Dialect(
        name=name,
        types=_TYPES,
        storage={bool_: "uint8_t", f16: "uint16_t", bf16: "uint16_t"},
        suffixes={i32: "", u32: "u", i64: "LL", u64: "ULL"},
        reserved=_RESERVED,
        preamble=tuple((_PREAMBLE + preamble).splitlines()),
        features={"vectors": _vectors()},
        kernel=kernel,
        loop=loop,
        argument=argument,
        function="static inline",
        spaces={},
        has_one_address_space=True,
        shared=shared,
        aligned="{declaration} __attribute__((aligned({alignment})))",
        indices=indices,
        barrier=barrier,
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
        atomics=_atomics(),
        compare_exchange={32: "qn_exchanged32({place}, {0}, {1})", 64: "qn_exchanged64({place}, {0}, {1})"},
    )


def _atomics() -> dict[tuple[AtomicOp, DType], str]:
    return {
        (op, dtype): f"__atomic_fetch_{word}({{place}}, {{0}}, __ATOMIC_RELAXED)"
        for op, word in _FETCH.items()
        for dtype in (i32, u32, i64, u64)
    }
