"""The IR: structured, typed, with named locals and no SSA.

Expressions are total, free of side effects and always evaluated; what must not be evaluated stands under an `If`.
Every expression knows its type. Locations do not count for equality and are not part of the text form.

Semantics of the operators (one meaning on every backend):

* Integer arithmetic wraps. `FLOORDIV` and `MOD` floor; `x // 0` and `x % 0` are 0; `MIN // -1` is `MIN`.
* A shift count is taken by its value: an over-shift gives 0 or the sign, a negative count shifts by 0.
* Float `FLOORDIV` and `MOD` equal Python's for non-zero divisors and give NaN for zero ones; in f32 each step
  that Python takes is rounded to f32.
* `MIN(a, b)` is `b if b < a else a` and `MAX(a, b)` is `b if b > a else a`, NaNs and zeros included.
* `Cast` float to integer truncates and saturates, NaN gives 0; integer to integer wraps; to float rounds once; to bool
  compares with zero.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from quernel.dtypes import ArrayType, DType, ParameterType, ValueType, VectorType, bool_, i64
from quernel.geometry import LaunchForm
from quernel.locations import NOWHERE, Location
from quernel.options import DEFAULT_OPTIONS, KernelOptions

__all__ = [
    "Alloc",
    "ArrayRef",
    "Assert",
    "Assign",
    "Atomic",
    "AtomicOp",
    "Barrier",
    "Binary",
    "BinaryOp",
    "Bitcast",
    "Break",
    "Breakpoint",
    "Call",
    "Cast",
    "Compare",
    "CompareOp",
    "Const",
    "Continue",
    "Expr",
    "Field",
    "Fma",
    "For",
    "Function",
    "If",
    "IndexKind",
    "Kernel",
    "Load",
    "Local",
    "LocalVariable",
    "Loop",
    "Math",
    "MathFunction",
    "Module",
    "Param",
    "Parameter",
    "Place",
    "Print",
    "Return",
    "Root",
    "RootKind",
    "Select",
    "Shape",
    "Space",
    "Stmt",
    "Store",
    "StructMake",
    "Subgroup",
    "SubgroupOp",
    "ThreadIndex",
    "Unary",
    "UnaryOp",
    "VecGet",
    "VecMake",
]


def _loc() -> Location:
    field: Location = attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)
    return field


def _type_of(part: str) -> Any:
    """The type of an operand, kept in the node: asking each operand for its own would recurse over long chains."""
    kept = attrs.Factory(lambda self: getattr(self, part).type, takes_self=True)
    return attrs.field(init=False, default=kept, eq=False, repr=False)


class UnaryOp(enum.Enum):
    """Operators on one value of the operand's type."""

    NEG = "neg"
    INVERT = "invert"
    """Bitwise complement of an integer."""
    NOT = "not"
    """Logical complement of a bool."""
    ABS = "abs"
    UNIFORM = "uniform"
    """The operand itself, promised to be equal for all threads of the block."""


class BinaryOp(enum.Enum):
    """Operators on two values of one type, giving that type."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """True division; floats only."""
    FLOORDIV = "floordiv"
    MOD = "mod"
    POW = "pow"
    """Integers only; a negative exponent does not occur. Float powers are `Math(POW)`."""
    AND = "and"
    OR = "or"
    XOR = "xor"
    """`AND OR XOR` take integers and bools."""
    SHL = "shl"
    SHR = "shr"
    MIN = "min"
    MAX = "max"


class CompareOp(enum.Enum):
    """Comparisons of two values of one type, giving bool. With a NaN, only `NE` holds."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class MathFunction(enum.Enum):
    """Functions of floats, in the type of their operands; `POPCOUNT CLZ CTZ` of integers instead."""

    SQRT = "sqrt"
    RSQRT = "rsqrt"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    RINT = "rint"
    """To the nearest integer, ties to even, in the float type."""
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    ATAN2 = "atan2"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    GAMMA = "gamma"
    LGAMMA = "lgamma"
    CBRT = "cbrt"
    POW = "pow"
    FMOD = "fmod"
    HYPOT = "hypot"
    COPYSIGN = "copysign"
    ISNAN = "isnan"
    ISINF = "isinf"
    ISFINITE = "isfinite"
    """`ISNAN ISINF ISFINITE` give bool."""
    POPCOUNT = "popcount"
    CLZ = "clz"
    CTZ = "ctz"
    """`CLZ CTZ` of 0 give the width."""


class IndexKind(enum.Enum):
    """Which index or dimension of the launch; all are i64 in meaning, axes in array order."""

    GLOBAL_ID = "global_id"
    LOCAL_ID = "local_id"
    BLOCK_ID = "block_id"
    GLOBAL_DIM = "global_dim"
    BLOCK_DIM = "block_dim"
    GRID_DIM = "grid_dim"
    SUBGROUP_LANE = "subgroup_lane"
    SUBGROUP_ID = "subgroup_id"
    SUBGROUP_SIZE = "subgroup_size"


class RootKind(enum.Enum):
    """Where the array of a place lives."""

    PARAM = "param"
    SHARED = "shared"
    PRIVATE = "private"


class Space(enum.Enum):
    """Memory that a kernel allocates: one per block, or one per thread. It starts uninitialised."""

    SHARED = "shared"
    PRIVATE = "private"


@attrs.frozen
class Root:
    """The array that a place indexes: an array parameter of this function, or an allocation."""

    kind: RootKind
    name: str


# --- expressions ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Const:
    """A literal of a scalar type: a Python bool, an int within the type, or a float exactly representable in it."""

    value: bool | int | float
    type: DType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Local:
    """The value of a local of this function."""

    name: str
    type: ValueType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Param:
    """The value of a scalar parameter of this function. Parameters are never assigned."""

    name: str
    type: ValueType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Unary:
    """A unary operator."""

    op: UnaryOp
    operand: Expr
    type: ValueType = _type_of("operand")
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Binary:
    """A binary operator on two operands of one type."""

    op: BinaryOp
    left: Expr
    right: Expr
    type: ValueType = _type_of("left")
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Compare:
    """A comparison of two operands of one type."""

    op: CompareOp
    left: Expr
    right: Expr
    loc: Location = _loc()

    @property
    def type(self) -> ValueType:
        """Always bool."""
        return bool_


@attrs.frozen(kw_only=True)
class Select:
    """`then if condition else otherwise`, both sides evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr
    type: ValueType = _type_of("then")
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Cast:
    """A conversion between scalar types."""

    operand: Expr
    type: DType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Bitcast:
    """The operand's bits as another type of the same width."""

    operand: Expr
    type: DType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Fma:
    """`a * b + c` of floats, rounded once."""

    a: Expr
    b: Expr
    c: Expr
    type: ValueType = _type_of("a")
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Math:
    """A mathematical function of operands of one type."""

    function: MathFunction
    operands: tuple[Expr, ...]
    type: DType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class ThreadIndex:
    """An index or dimension of the launch along `axis` (0 for the subgroup kinds)."""

    kind: IndexKind
    axis: int
    loc: Location = _loc()

    @property
    def type(self) -> ValueType:
        """Always i64."""
        return i64


@attrs.frozen(kw_only=True)
class Shape:
    """The length of an array parameter of this function along `axis`."""

    param: str
    axis: int
    loc: Location = _loc()

    @property
    def type(self) -> ValueType:
        """Always i64."""
        return i64


@attrs.frozen(kw_only=True)
class VecMake:
    """A vector of its components."""

    components: tuple[Expr, ...]
    type: VectorType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class VecGet:
    """One component of a vector, by a constant index."""

    operand: Expr
    index: int
    type: DType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class StructMake:
    """A struct of its fields' values, in the order of the type."""

    values: tuple[Expr, ...]
    type: ValueType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Field:
    """One field of a struct value."""

    operand: Expr
    name: str
    type: ValueType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Place:
    """An element of an array, or a part of it.

    Attributes:
        root: the array.
        indices: one i64 expression per axis, never wrapped: a negative value is out of bounds.
        type: the type of what is read or written there (the element's, or that of the part which `view` names).
        view: the static path within the element: field names and component numbers; empty for the whole element.
    """

    root: Root
    indices: tuple[Expr, ...]
    type: ValueType
    view: tuple[str | int, ...] = ()
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Load:
    """The value at a place."""

    place: Place
    loc: Location = _loc()

    @property
    def type(self) -> ValueType:
        """The place's type."""
        return self.place.type


Expr = (
    Const
    | Local
    | Param
    | Unary
    | Binary
    | Compare
    | Select
    | Cast
    | Bitcast
    | Fma
    | Math
    | ThreadIndex
    | Shape
    | VecMake
    | VecGet
    | StructMake
    | Field
    | Load
)
"""An expression: has a `type` and a place in the source, and no side effects."""


# --- statements -------------------------------------------------------------------------------------------------------


class AtomicOp(enum.Enum):
    """What an atomic does to its place; all are relaxed, device-wide, and give the old value.

    `MIN` and `MAX` give what `BinaryOp` of that name gives of the old value and the operand, in this order.
    """

    ADD = "add"
    SUB = "sub"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    XOR = "xor"
    EXCHANGE = "exchange"
    COMPARE_EXCHANGE = "compare_exchange"
    """Operands: expected, desired. Compares as `CompareOp.EQ` does, so floats by value: a zero is found by either
    zero, a NaN by nothing."""


class SubgroupOp(enum.Enum):
    """Operations among the threads of a subgroup."""

    SHUFFLE = "shuffle"
    SHUFFLE_XOR = "shuffle_xor"
    SHUFFLE_UP = "shuffle_up"
    SHUFFLE_DOWN = "shuffle_down"
    BROADCAST = "broadcast"
    BALLOT = "ballot"
    ANY = "any"
    ALL = "all"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    SCAN = "scan"


@attrs.frozen(kw_only=True)
class Assign:
    """`name = value`; the local's declared type is the value's type."""

    name: str
    value: Expr
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Store:
    """Writes a value of the place's type to a place."""

    place: Place
    value: Expr
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Atomic:
    """An atomic operation; the old value goes to the local `result`, if it is named."""

    op: AtomicOp
    place: Place
    operands: tuple[Expr, ...]
    result: str | None = None
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Subgroup:
    """A subgroup operation; its value goes to the local `result`."""

    op: SubgroupOp
    operands: tuple[Expr, ...]
    result: str
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Barrier:
    """Every thread of the block arrives before any goes on; orders shared and global memory within the block."""

    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class ArrayRef:
    """An array handed to a device function."""

    root: Root
    type: ArrayType
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Call:
    """A call of a function of this module; its returned values go to the locals `results`, in order."""

    results: tuple[str, ...]
    function: str
    arguments: tuple[Expr | ArrayRef, ...]
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class If:
    """Runs one of two bodies by a bool."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class For:
    """`for variable in range(start, stop, step)`; the three are evaluated once, before the loop.

    The trip count is computed once, so assigning the variable in the body does not change the flow. A step of zero runs
    nothing. The variable is an i64 local, assigned at the start of each trip, and keeps its value afterwards.
    """

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Loop:
    """Runs its body until a `Break` or `Return` leaves it."""

    body: tuple[Stmt, ...]
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Break:
    """Leaves the innermost loop."""

    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Continue:
    """Goes on with the innermost loop's next trip."""

    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Return:
    """Leaves the function; in a kernel, ends this thread. `values` match the function's results."""

    values: tuple[Expr, ...] = ()
    loc: Location = _loc()


def _told(default: Any) -> Any:
    """A field for whoever reads a record: outside equality and outside the text form, as locations are."""
    return attrs.field(default=default, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Assert:
    """Where the condition is false, the thread claims the launch's one violation record and fills it.

    The first thread to claim it, by compare-and-swap, writes `site`, its global ids and the values; others write
    nothing. What the thread does afterwards is explicit in the statements that follow.

    Attributes:
        condition: what should hold.
        site: number of the statement among the module's asserts and prints.
        values: scalars that the record keeps; of a bounds check the indices, then the lengths.
        message: what the user says about it.
        texts: what each value is called; empty, or one for each value.
        array: the array whose bounds this checks; `None` for a user's own assertion.
    """

    condition: Expr
    site: int
    values: tuple[Expr, ...] = ()
    message: str = _told("")
    texts: tuple[str, ...] = _told(())
    array: str | None = _told(None)
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Print:
    """Writes raw values to the launch's print buffer.

    Attributes:
        values: scalars.
        site: number of the statement among the module's asserts and prints.
        format: the pieces of text before, between and after the values; empty for values with spaces between.
    """

    values: tuple[Expr, ...]
    site: int
    format: tuple[str, ...] = _told(())
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Breakpoint:
    """Where the interpreter hands its thread to Python's debugger; nothing on any other device."""

    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Alloc:
    """Allocates an uninitialised array of a constant shape; at the top level of a function's body only."""

    name: str
    space: Space
    element: ValueType
    shape: tuple[int, ...]
    loc: Location = _loc()


Stmt = (
    Assign
    | Store
    | Atomic
    | Subgroup
    | Barrier
    | Call
    | If
    | For
    | Loop
    | Break
    | Continue
    | Return
    | Assert
    | Print
    | Breakpoint
    | Alloc
)
"""A statement."""


# --- functions --------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Parameter:
    """A parameter after specialization.

    Attributes:
        name: the user's name, or a path of several, as in `world.heights`; so no identifier in every language.
        type: an array (with element type and rank) or a scalar.
        bounds: for a weak integer, the least and greatest value that fits every type it meets; the launcher refuses
            others. `None` where every value of the type does.
    """

    name: str
    type: ParameterType
    bounds: tuple[int, int] | None = None
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class LocalVariable:
    """A local of a function: one name, one type.

    Parts of tuples are locals of their own, called as in `pair.0`: a name is no identifier in every language.
    """

    name: str
    type: ValueType


@attrs.frozen(kw_only=True)
class Function:
    """A device function, monomorphic. Every way through its body ends in a `Return` if it has results."""

    name: str
    params: tuple[Parameter, ...]
    results: tuple[ValueType, ...]
    locals: tuple[LocalVariable, ...]
    body: tuple[Stmt, ...]
    loc: Location = _loc()


@attrs.frozen(kw_only=True)
class Kernel:
    """The kernel of a module.

    Attributes:
        name: the user's name; outside the IR digest.
        form: how it is launched. Under `OVER` a thread is a point, and `GLOBAL_DIM` is the extent.
        block: threads of a block along each axis, fixed at compile time; its length is the rank of the launch.
        params: array and scalar parameters, in the user's order, without `Const` ones.
        locals: every local, declared once.
        options: settings that change the code.
        guarded: whether the checks that the option `checked` asks for already stand in the body.
    """

    name: str
    form: LaunchForm
    block: tuple[int, ...]
    params: tuple[Parameter, ...]
    locals: tuple[LocalVariable, ...]
    body: tuple[Stmt, ...]
    options: KernelOptions = DEFAULT_OPTIONS
    guarded: bool = False
    loc: Location = _loc()

    @property
    def ndim(self) -> int:
        """Rank of the launch, 1 to 3."""
        return len(self.block)


@attrs.frozen(kw_only=True)
class Module:
    """A kernel and the device functions that it reaches, in the order of their first call."""

    kernel: Kernel
    functions: tuple[Function, ...] = ()
