"""What tells one C-family language from another, as tables; a third party adds a language by making one more."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from quernel.codegen.c_math import C_MATH
from quernel.dtypes import DType, u32
from quernel.ir.nodes import AtomicOp, IndexKind, MathFunction, RootKind, SubgroupOp

__all__ = ["Dialect"]


@attrs.frozen(kw_only=True, eq=False)
class Dialect:
    """One language: templates are filled by `str.format`, an operand is already in parentheses where it needs them.

    f16 and bf16 are values of f32 and 16-bit patterns in memory in every dialect; `helpers` may replace the integer
    code that converts between the two.

    Attributes:
        name: what errors call the language.
        types: the type of a value of each scalar type.
        storage: the type of an element in memory, where it is another one; of bool, f16 and bf16.
        suffixes: of integer literals of i32, u32, i64 and u64.
        reserved: matches the names that users' names must stay clear of: keywords, types, builtins, macros.
        preamble: lines at the start of every text.
        features: lines that a text needs which uses `f64`, `int64_atomics`, `vectors`, `subgroups` or `own`, by those
            names.
        kernel: heads a kernel, with `{entry}`, `{parameters}` and the block as `{x}` (the fastest axis), `{y}`, `{z}`.
        function: what a device function starts with.
        spaces: the qualifier of a pointer to parameters' arrays, shared and private memory.
        has_one_address_space: whether those qualifiers may be left out, so that one function takes any array.
        shared: declares shared memory, aligned to 16 bytes, with `{type}`, `{name}`, `{count}`, and `{offset}`, where
            it starts among all of the kernel's shared bytes.
        aligned: `{declaration}`, of a thread's own array, with the word that places it at a multiple of `{alignment}`
            bytes; empty where there is none, and structs in such arrays are read and written byte by byte.
        indices: local, block and subgroup indices, with `{axis}` counted from the fastest and `{letter}` x, y, z.
        linear_block: the number of the block among all of an `over` launch, where such a launch has one row of blocks
            whatever its rank; empty where the toolchain counts blocks along each axis.
        loop: what calls the kernel for the threads of a launch, where the language has no launch of its own: a text
            behind the kernel, with `{entry}`, `{parameters}`, `{arguments}`, and the block as `{x}`, `{y}`, `{z}`.
            Arrays are passed as addresses then.
        argument: an argument that such a text passes on, of `{type}` and in slot `{number}`.
        barrier: the call that lets the block wait; empty where there is none.
        infinity: of f32 and f64.
        nan: of f32 and f64.
        bitcasts: from one scalar type to another of the same width, with `{0}`.
        math: functions of f32 and f64, with `{0}`, `{1}` and `{f}`, the suffix of a function of f32; C's unless said.
        math_suffix: that suffix.
        functions: whole functions of one operand where the language's own is wrong somewhere, with `{name}`, `{type}`
            and `{function}`, as `function` above.
        fast_math: replacements for f32 under `fast_math`.
        negated: the negative of a float; also spells -1 and -0 then. Empty where the language's own minus is right.
        own: an equal value that the compiler cannot take for alike in all threads; needs the feature `own`. Empty where
            compilers know by themselves which values are (see `quernel.codegen.own_values`).
        truncated: an integer that was a float, as one that the compiler does not know to have been one; needs the
            feature `own`. Empty where compilers know that integers have no negative zero.
        loop_start: a statement with which a loop starts that may branch inside; empty where none is needed.
        fma: `{0} * {1} + {2}` rounded once.
        fabs: the magnitude of a float.
        popcount: of an unsigned value, by width.
        clz: leading zeros of an unsigned value, by width; the width for 0.
        vector: the type of a vector, with `{scalar}` and `{length}`.
        vector_value: a vector of `{components}`, with `{type}` and `{name}`, its type's name.
        atomics: native operations that give the old value, with `{place}` (an address), `{0}`, `{space}`.
        compare_exchange: of the unsigned integer of each width, with `{place}`, `{0}` expected, `{1}` desired and
            `{space}`; gives the old value.
        subgroup: operations with `{0}` and `{1}`, for the types in `subgroup_types`.
        subgroup_types: what they take as it is.
        lane: the type in which they take a lane or a distance of lanes.
        helpers: texts that replace functions of `quernel.codegen.helpers`, by name.
    """

    name: str
    types: Mapping[DType, str]
    storage: Mapping[DType, str]
    suffixes: Mapping[DType, str]
    reserved: re.Pattern[str]
    preamble: tuple[str, ...] = ()
    features: Mapping[str, str] = attrs.field(factory=dict)
    kernel: str
    function: str
    spaces: Mapping[RootKind, str]
    has_one_address_space: bool = False
    shared: str
    aligned: str = ""
    indices: Mapping[IndexKind, str]
    linear_block: str = ""
    loop: str = ""
    argument: str = ""
    barrier: str = ""
    infinity: Mapping[DType, str]
    nan: Mapping[DType, str]
    bitcasts: Mapping[tuple[DType, DType], str]
    math: Mapping[MathFunction, str] = C_MATH
    math_suffix: str = ""
    functions: Mapping[MathFunction, str] = attrs.field(factory=dict)
    fast_math: Mapping[MathFunction, str] = attrs.field(factory=dict)
    negated: str = ""
    own: str = ""
    truncated: str = ""
    loop_start: str = ""
    fma: str
    fabs: str
    popcount: Mapping[int, str]
    clz: Mapping[int, str]
    vector: str
    vector_value: str
    atomics: Mapping[tuple[AtomicOp, DType], str]
    compare_exchange: Mapping[int, str]
    subgroup: Mapping[SubgroupOp, str] = attrs.field(factory=dict)
    subgroup_types: frozenset[DType] = frozenset()
    lane: DType = u32
    helpers: Mapping[str, str] = attrs.field(factory=dict)

    def memory_type(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return self.storage.get(dtype, self.types[dtype])

    def space(self, kind: RootKind) -> str:
        """The qualifier of a pointer, with a space behind it where there is one."""
        qualifier = "" if self.has_one_address_space else self.spaces[kind]
        return f"{qualifier} " if qualifier else ""
