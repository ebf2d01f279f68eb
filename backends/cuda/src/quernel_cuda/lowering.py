"""CUDA C++ as a dialect of the core's C-family lowering."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Final

import attrs

from quernel.codegen.dialect import Dialect
from quernel.codegen.validation import shared_bytes
from quernel.dtypes import (
    DType,
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
from quernel.ir.nodes import AtomicOp, IndexKind, MathFunction, Module, RootKind, SubgroupOp

__all__ = ["CUDA_CPP", "MAX_STATIC_SHARED_BYTES", "cuda_dialect", "has_dynamic_shared"]

MAX_STATIC_SHARED_BYTES: Final = 48 * 1024
"""Shared memory beyond this is asked for at the launch, and laid out by the text itself."""

_SUBGROUP_SIZE: Final = 32

_RESERVED: Final = re.compile(
    r"""
      (alignas|alignof|and|and_eq|asm|bitand|bitor|catch|char8_t|char16_t|char32_t|class|compl|concept|consteval
      |constexpr|constinit|const_cast|co_\w+|decltype|delete|dynamic_cast|explicit|export|friend|mutable|namespace|new
      |noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|reinterpret_cast|requires|static_assert
      |static_cast|template|this|thread_local|throw|try|typeid|typename|using|virtual|wchar_t|xor|xor_eq|final|override)
    | u?(char|short|int|long|longlong)[1-4](_16a|_32a)? | (float|double|half|nv_bfloat16\w*)[1-4]? | dim3 | size_t
    | ptrdiff_t | u?int(8|16|32|64|ptr|max)?_t | clock_t | uchar | ushort | uint | ulong | warpSize | nullptr_t
    | (threadIdx|blockIdx|blockDim|gridDim) | make_\w+ | tex\w* | surf\w* | cuda\w* | std | nv | cub | thrust
    | atomic\w* | acquire | release | __\w+ | memcpy | memset | memmove | malloc | free | printf | assert | trap
    | abs | labs | llabs | fabsf? | floorf? | ceilf? | truncf? | l?l?rintf? | l?l?roundf? | nearbyintf? | sqrtf?
    | rsqrtf? | r?cbrtf? | exp(2|10|m1)?f? | log(2|10|1p|b)?f? | (a?(sin|cos|tan)h?|(sin|cos)pi|sincos(pi)?)f?
    | atan2f? | erfc?x?(inv)?f? | normcdf(inv)?f? | [tl]gammaf? | pow(i?f)? | fmodf? | remainderf? | remquof?
    | r?hypotf? | r?norm\w*f? | copysignf? | fmaf? | fdimf? | fdividef? | fmaxf? | fminf? | frexpf? | ldexpf?
    | scalbl?nf? | modff? | ilogbf? | nanf? | nextafterf? | jn?f? | [jy][01n]f? | cyl_\w+ | u?l?l?(min|max)
    | u?mul\w* | saturate | signbit | fpclassify | clock(64)?
    | is(nan|inf|finite|normal|unordered|(greater|less)(equal)?|lessgreater)
    | (M|FLT|DBL|HUGE|INT|UINT|LONG|ULONG|LLONG|ULLONG|SHRT|USHRT|CHAR|SCHAR|UCHAR|CUDART|NULL|EOF|FP|MATH)_?\w*
    | INFINITY | NAN | NULL | TRUE | FALSE | linux | unix | i386
    """,
    re.VERBOSE,
)
"""Keywords, types, builtins and macros. A user's name that is one of them gets an underscore."""

_INTEGER_ATOMICS: Final = {
    AtomicOp.ADD: "atomicAdd",
    AtomicOp.MIN: "atomicMin",
    AtomicOp.MAX: "atomicMax",
    AtomicOp.AND: "atomicAnd",
    AtomicOp.OR: "atomicOr",
    AtomicOp.XOR: "atomicXor",
    AtomicOp.EXCHANGE: "atomicExch",
    AtomicOp.COMPARE_EXCHANGE: "atomicCAS",
}
_OF_SIGNED_64: Final = frozenset({AtomicOp.MIN, AtomicOp.MAX})
"""The atomics that CUDA has for `long long` itself; of the others the unsigned one does the same to the bits."""


def _atomics() -> dict[tuple[AtomicOp, DType], str]:
    native: dict[tuple[AtomicOp, DType], str] = {}
    for dtype, c_type in ((i32, "int"), (u32, "unsigned int"), (u64, "unsigned long long"), (i64, "long long")):
        for op, name in _INTEGER_ATOMICS.items():
            through = "unsigned long long" if dtype is i64 and op not in _OF_SIGNED_64 else c_type
            operands = ", ".join(
                f"({through})({{{number}}})" for number in range(2 if op is AtomicOp.COMPARE_EXCHANGE else 1)
            )
            native[op, dtype] = f"(({c_type}){name}(({through} *)({{place}}), {operands}))"
        unsigned = "unsigned int" if dtype.bits == 32 else "unsigned long long"
        negative = f"({unsigned})0 - ({unsigned})({{0}})"
        native[AtomicOp.SUB, dtype] = f"(({c_type})atomicAdd(({unsigned} *)({{place}}), {negative}))"
    for dtype, c_type in ((f32, "float"), (f64, "double")):
        native[AtomicOp.ADD, dtype] = f"atomicAdd(({c_type} *)({{place}}), {{0}})"
        native[AtomicOp.SUB, dtype] = f"atomicAdd(({c_type} *)({{place}}), -({{0}}))"
    native[AtomicOp.EXCHANGE, f32] = "atomicExch((float *)({place}), {0})"
    return native


_VECTORS: Final = """\
template <typename T, int N> struct qn_vector;
template <typename T> struct {align2} qn_vector<T, 2> {{
    T x, y;
    qn_vector() = default;
    __device__ qn_vector(T x, T y) : x(x), y(y) {{}}
}};
template <typename T> struct {align4} qn_vector<T, 4> {{
    T x, y, z, w;
    qn_vector() = default;
    __device__ qn_vector(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {{}}
}};
"""
"""Vectors; where arrays are aligned, up to 16 bytes of one are loaded and stored at once."""

_SUBGROUPS: Final = """\
static __device__ inline unsigned int qn_thread()
{{
    return {thread};
}}
static __device__ inline unsigned int qn_lane()
{{
    return qn_thread() & 31u;
}}
static __device__ inline unsigned int qn_lanes()
{{
    return {lanes};
}}
template <typename T> static __device__ inline T qn_shuffle(T value, long long lane)
{{
    const bool is_there = 0 <= lane && lane < (long long)qn_lanes();
    return __shfl_sync(0xffffffffu, value, is_there ? (int)lane : (int)qn_lane());
}}
template <typename T, typename F> static __device__ inline T qn_reduce(T value, F fold)
{{
    if (qn_lanes() == 32u) {{
        for (int offset = 16; offset > 0; offset >>= 1) {{
            value = fold(value, __shfl_xor_sync(0xffffffffu, value, offset));
        }}
        return value;
    }}
    for (int offset = 16; offset > 0; offset >>= 1) {{
        const T other = __shfl_down_sync(0xffffffffu, value, offset);
        value = qn_lane() + offset < qn_lanes() ? fold(value, other) : value;
    }}
    return __shfl_sync(0xffffffffu, value, 0);
}}
struct qn_least {{ template <typename T> __device__ T operator()(T a, T b) const {{ return b < a ? b : a; }} }};
struct qn_greatest {{ template <typename T> __device__ T operator()(T a, T b) const {{ return b > a ? b : a; }} }};
static __device__ inline int qn_wrapped(int a, int b)
{{
    return (int)((unsigned int)a + (unsigned int)b);
}}
static __device__ inline long long qn_wrapped(long long a, long long b)
{{
    return (long long)((unsigned long long)a + (unsigned long long)b);
}}
template <typename T> static __device__ inline T qn_wrapped(T a, T b)
{{
    return a + b;
}}
struct qn_sum {{ template <typename T> __device__ T operator()(T a, T b) const {{ return qn_wrapped(a, b); }} }};
template <typename T> static __device__ inline T qn_scan(T value)
{{
    for (unsigned int offset = 1u; offset < 32u; offset <<= 1) {{
        const T before = __shfl_up_sync(0xffffffffu, value, offset);
        value = qn_lane() >= offset ? qn_wrapped(before, value) : value;
    }}
    return value;
}}
"""
"""Operations among the lanes of a warp. A block's last warp may have fewer than 32; a missing lane gives one's own."""

_HALF_HELPERS: Final = {
    "f32_of_f16": """\
{function} float {name}(unsigned short bits)
{{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}}
""",
    "f16_of_f32": """\
{function} unsigned short {name}(float x)
{{
    unsigned int bits;
    asm("{{ .reg .b16 half, none; cvt.rn.f16.f32 half, %1; mov.b16 none, 0; mov.b32 %0, {{half, none}}; }}"
        : "=r"(bits) : "f"(x));
    return (unsigned short)bits;
}}
""",
}
"""The hardware's own conversions, as assembly: the toolkit's header for them takes 150 ms to be found and read.

The bits leave as half of 32, which costs nothing where all of them are stored. CUDA 13.0 takes a byte that is cut from
16 bits which it knows to be an f16 for a conversion of the number: the lower byte of 2.5 was 2.
"""

_LINE: Final = "__launch_bounds__({x} * {y} * {z})"

CUDA_CPP: Final = Dialect(
    name="CUDA C++",
    types={
        bool_: "bool",
        i8: "signed char",
        i16: "short",
        i32: "int",
        i64: "long long",
        u8: "unsigned char",
        u16: "unsigned short",
        u32: "unsigned int",
        u64: "unsigned long long",
        f16: "float",
        bf16: "float",
        f32: "float",
        f64: "double",
    },
    storage={bool_: "unsigned char", f16: "unsigned short", bf16: "unsigned short"},
    suffixes={i32: "", u32: "u", i64: "LL", u64: "ULL"},
    reserved=_RESERVED,
    kernel=f'extern "C" __global__ void {_LINE}\n{{entry}}({{parameters}})',
    function="static __device__ inline",
    spaces={RootKind.PARAM: "", RootKind.SHARED: "", RootKind.PRIVATE: ""},
    has_one_address_space=True,
    shared="__shared__ __align__(16) {type} {name}[{count}]",
    aligned="__align__({alignment}) {declaration}",
    indices={
        IndexKind.LOCAL_ID: "threadIdx.{letter}",
        IndexKind.BLOCK_ID: "blockIdx.{letter}",
        IndexKind.SUBGROUP_LANE: "qn_lane()",
        IndexKind.SUBGROUP_ID: "(qn_thread() >> 5)",
        IndexKind.SUBGROUP_SIZE: str(_SUBGROUP_SIZE),
    },
    linear_block="blockIdx.x",
    barrier="__syncthreads();",
    infinity={f32: "__int_as_float(0x7f800000)", f64: "__longlong_as_double(0x7ff0000000000000LL)"},
    nan={f32: "__int_as_float(0x7fc00000)", f64: "__longlong_as_double(0x7ff8000000000000LL)"},
    bitcasts={
        (f32, u32): "__float_as_uint({0})",
        (u32, f32): "__uint_as_float({0})",
        (f64, u64): "((unsigned long long)__double_as_longlong({0}))",
        (u64, f64): "__longlong_as_double((long long)({0}))",
    },
    math_suffix="f",
    fast_math={
        MathFunction.RSQRT: "rsqrtf({0})",
        MathFunction.EXP: "__expf({0})",
        MathFunction.LOG: "__logf({0})",
        MathFunction.LOG2: "__log2f({0})",
        MathFunction.LOG10: "__log10f({0})",
        MathFunction.SIN: "__sinf({0})",
        MathFunction.COS: "__cosf({0})",
        MathFunction.TAN: "__tanf({0})",
    },
    fma="fma{f}({0}, {1}, {2})",
    fabs="fabs{f}({0})",
    popcount={32: "__popc({0})", 64: "__popcll({0})"},
    clz={32: "__clz((int)({0}))", 64: "__clzll((long long)({0}))"},
    vector="qn_vector<{scalar}, {length}>",
    vector_value="{type}({components})",
    atomics=_atomics(),
    compare_exchange={
        32: "atomicCAS((unsigned int *)({place}), {0}, {1})",
        64: "atomicCAS((unsigned long long *)({place}), {0}, {1})",
    },
    subgroup={
        SubgroupOp.SHUFFLE: "qn_shuffle({0}, {1})",
        SubgroupOp.SHUFFLE_XOR: "qn_shuffle({0}, (long long)qn_lane() ^ {1})",
        SubgroupOp.SHUFFLE_UP: "qn_shuffle({0}, (long long)qn_lane() - {1})",
        SubgroupOp.SHUFFLE_DOWN: "qn_shuffle({0}, (long long)qn_lane() + {1})",
        SubgroupOp.BROADCAST: "qn_shuffle({0}, {1})",
        SubgroupOp.BALLOT: "__ballot_sync(0xffffffffu, {0})",
        SubgroupOp.ANY: "__any_sync(0xffffffffu, {0})",
        SubgroupOp.ALL: "__all_sync(0xffffffffu, {0})",
        SubgroupOp.SUM: "qn_reduce({0}, qn_sum())",
        SubgroupOp.MIN: "qn_reduce({0}, qn_least())",
        SubgroupOp.MAX: "qn_reduce({0}, qn_greatest())",
        SubgroupOp.SCAN: "qn_scan({0})",
    },
    subgroup_types=frozenset({bool_, i32, u32, i64, u64, f32, f64}),
    lane=i64,
    helpers=_HALF_HELPERS,
)
"""The dialect, but for what depends on the launch's variant and block."""


@cache
def cuda_dialect(*, is_aligned: bool, block: tuple[int, ...], is_dynamic: bool) -> Dialect:
    """The dialect for one kernel.

    `is_aligned`: arrays start at multiples of 16 bytes. `is_dynamic`: shared memory is asked for at the launch.
    """
    num_threads = math.prod(block)
    thread = "threadIdx.x"
    if len(block) > 1:
        above = "threadIdx.y" if len(block) == 2 else f"(threadIdx.z * {block[-2]}u + threadIdx.y)"
        thread = f"{above} * {block[-1]}u + threadIdx.x"
    if num_threads % _SUBGROUP_SIZE == 0:
        lanes = f"{_SUBGROUP_SIZE}u"
    else:
        lanes = f"min({_SUBGROUP_SIZE}u, {num_threads}u - (qn_thread() & ~31u))"
    features = {
        "vectors": _VECTORS.format(
            align2="alignas(2 * sizeof(T))" if is_aligned else "",
            align4="alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16)" if is_aligned else "",
        ),
        "subgroups": _SUBGROUPS.format(lanes=lanes, thread=thread),
    }
    if not is_dynamic:
        return attrs.evolve(CUDA_CPP, features=features)
    return attrs.evolve(
        CUDA_CPP,
        features=features,
        preamble=("extern __shared__ __align__(16) unsigned char qn_shared[];",),
        shared="{type} *const {name} = ({type} *)(qn_shared + {offset})",
    )


def has_dynamic_shared(module: Module) -> bool:
    """Whether the kernel's shared memory is more than a text may declare."""
    return shared_bytes(module) > MAX_STATIC_SHARED_BYTES
