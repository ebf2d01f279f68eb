"""Hypothesis strategies of valid IR modules that reach every node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from quernel.dtypes import (
    NUMERIC,
    SCALARS,
    ArrayType,
    DType,
    ScalarType,
    StructField,
    StructType,
    ValueType,
    VectorType,
    bool_,
    f32,
    f64,
    i32,
    i64,
)
from quernel.geometry import LaunchForm
from quernel.ir.math_functions import INTEGER_FUNCTIONS, PREDICATES, num_operands
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Bitcast,
    Break,
    Call,
    Cast,
    Compare,
    CompareOp,
    Const,
    Continue,
    Expr,
    Field,
    Fma,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Loop,
    Math,
    MathFunction,
    Module,
    Param,
    Parameter,
    Place,
    Print,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Space,
    Stmt,
    Store,
    StructMake,
    Subgroup,
    SubgroupOp,
    ThreadIndex,
    Unary,
    UnaryOp,
    VecGet,
    VecMake,
)
from quernel.ir.rounding import round_float
from quernel.ir.verifier import subgroup_result_type
from quernel.options import KernelOptions

VEC4 = VectorType(f32, 4)
VEC2 = VectorType(i32, 2)
INNER = StructType("Pair", (StructField("loop", f64, 0), StructField("ϕ", i32, 8)), 16, 8)
POINT = StructType(
    "Point", (StructField("x", f32, 0), StructField("v", VEC4, 16), StructField("pair", INNER, 32)), 48, 16
)
OTHER_POINT = StructType("Point", (StructField("shape", i64, 0),), 8, 8)
COMPOSITES: tuple[ValueType, ...] = (VEC4, VEC2, INNER, POINT, OTHER_POINT)
FLOAT_OPS = ("add", "sub", "mul", "div", "floordiv", "mod", "min", "max")
BOOL_OPS = ("and", "or", "xor", "min", "max")

AWKWARD_NAMES = (
    "if",
    "loop",
    "inf",
    "nan",
    "true",
    "range",
    "i32",
    "f32",
    "min",
    "pow",
    "select",
    "shape",
    "weak",
    "struct",
    "inff32",
    "bitcast",
    "at",
    "č",
    "ϕ",
    "数",
    "a·b",
    "two words",
    "x.0",
    "ba`ck",
    'quo"te',
    "\\",
    "",
    "é\n",
    "_",
    "global_id",
    "atomic",
    "call",
    "pass",
    "local",
    "over",
    "in",
    "1st",
    "e5",
    "not",
    "vec",
    "\u2028",
)


def floats_of(dtype: DType) -> st.SearchStrategy[float]:
    """Values of a float type, with the special ones and small integers often."""
    special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, math.inf, -math.inf, math.nan]
    return st.one_of(st.sampled_from(special), st.floats().map(lambda x: round_float(x, dtype)))


def values_of(dtype: DType) -> st.SearchStrategy[Any]:
    """Values of a scalar type, with its edges often."""
    if dtype.is_bool:
        return st.booleans()
    if dtype.is_float:
        return floats_of(dtype)
    edges = sorted({dtype.min, dtype.max, 0, 1, 2, dtype.bits - 1, dtype.bits, dtype.max - 1, max(dtype.min, -1)})
    return st.one_of(st.sampled_from([e for e in edges if e <= dtype.max]), st.integers(dtype.min, dtype.max))


class _Owner:
    """Draws the body of one kernel or device function."""

    def __init__(self, draw: Callable[..., Any], ndim: int, functions: list[Function], *, plain: bool) -> None:
        self.draw = draw
        self.ndim = ndim
        self.functions = functions
        self.plain = plain
        self.names = self._names()
        self.types: tuple[ValueType, ...] = SCALARS if plain else (*SCALARS, *COMPOSITES)
        self.arrays: dict[str, tuple[Root, ArrayType]] = {}
        self.scalars: dict[str, ValueType] = {}
        self.locals: dict[str, ValueType] = {}
        self.results: tuple[ValueType, ...] = ()

    def _names(self) -> list[str]:
        plain = st.text("abcxyzÉλ_", min_size=1, max_size=4)
        awkward = plain if self.plain else st.one_of(plain, st.sampled_from(AWKWARD_NAMES))
        return self.draw(st.lists(awkward, min_size=16, max_size=16, unique=True))

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    # --- declarations ---

    def params(self) -> tuple[Parameter, ...]:
        params = []
        for _ in range(self.draw(st.integers(1, 3))):
            name = self.names.pop()
            type_ = ArrayType(self.pick(self.types), self.draw(st.integers(1, 3)))
            self.arrays[name] = (Root(RootKind.PARAM, name), type_)
            params.append(Parameter(name=name, type=type_))
        for _ in range(self.draw(st.integers(0, 2))):
            name, dtype = self.names.pop(), self.pick(self.types)
            weak = dtype in (i64, f64) and self.draw(st.booleans())
            self.scalars[name] = dtype
            bounds = (-(1 << 31), 7) if weak and dtype is i64 and self.draw(st.booleans()) else None
            params.append(Parameter(name=name, type=ScalarType(dtype, weak), bounds=bounds))
        return tuple(params)

    def variables(self) -> tuple[LocalVariable, ...]:
        for _ in range(self.draw(st.integers(1, 4))):
            self.locals[self.names.pop()] = self.pick(self.types)
        self.locals[self.names.pop()] = i64
        return tuple(LocalVariable(name=name, type=type_) for name, type_ in self.locals.items())

    def allocs(self) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for _ in range(0 if self.plain else self.draw(st.integers(0, 2))):
            name, space = self.names.pop(), self.pick(Space)
            alloc = Alloc(name=name, space=space, element=self.pick(self.types), shape=self.pick([(4,), (2, 3)]))
            self.arrays[name] = (Root(RootKind(space.value), name), ArrayType(alloc.element, len(alloc.shape)))
            made.append(alloc)
        return tuple(made)

    # --- expressions ---

    def const(self, dtype: DType) -> Const:
        return Const(value=self.draw(values_of(dtype)), type=dtype)

    def leaf(self, type_: ValueType) -> Expr:
        options: list[Expr] = [Local(name=n, type=t) for n, t in self.locals.items() if t == type_]
        options += [Param(name=n, type=t) for n, t in self.scalars.items() if t == type_]
        if type_ is i64:
            options += [ThreadIndex(kind=kind, axis=self.ndim - 1) for kind in list(IndexKind)[:6]]
            for name, (root, array) in self.arrays.items():
                if root.kind is RootKind.PARAM:
                    options.append(Shape(param=name, axis=(array.ndim or 1) - 1))
            if not self.plain:
                options.append(ThreadIndex(kind=self.pick(list(IndexKind)[6:]), axis=0))
        if options and self.draw(st.booleans()):
            return self.pick(options)
        if isinstance(type_, DType):
            return self.const(type_)
        if isinstance(type_, VectorType):
            return VecMake(components=tuple(self.const(type_.element) for _ in range(type_.length)), type=type_)
        return StructMake(values=tuple(self.leaf(field.type) for field in type_.fields), type=type_)

    def expr(self, type_: ValueType, depth: int = 3) -> Expr:
        if depth == 0:
            return self.leaf(type_)
        makers = [lambda: self.leaf(type_), lambda: self.select(type_, depth - 1)]
        places = [(root, array, view) for root, array, view in self.parts() if _part(array.element, view) == type_]
        if places:
            makers.append(lambda: Load(place=self.place(self.pick(places), depth - 1)))
        if isinstance(type_, DType):
            makers += [lambda: self.operation(type_, depth - 1)] * 3
            makers += [lambda: self.conversion(type_, depth - 1)]
            for composite in () if self.plain else COMPOSITES:
                makers += self.gets(composite, type_, depth - 1)
        elif isinstance(type_, VectorType):
            made = type_
            makers.append(
                lambda: VecMake(
                    components=tuple(self.expr(made.element, depth - 1) for _ in range(made.length)), type=made
                )
            )
        return self.pick(makers)()

    def gets(self, composite: ValueType, type_: DType, depth: int) -> list[Callable[[], Expr]]:
        if isinstance(composite, VectorType) and composite.element is type_:
            return [lambda: VecGet(operand=self.expr(composite, depth), index=composite.length - 1, type=type_)]
        if isinstance(composite, StructType):
            return [
                lambda field=field: Field(operand=self.expr(composite, depth), name=field.name, type=type_)
                for field in composite.fields
                if field.type is type_
            ]
        return []

    def select(self, type_: ValueType, depth: int) -> Expr:
        condition = self.expr(bool_, depth)
        return Select(condition=condition, then=self.expr(type_, depth), otherwise=self.expr(type_, depth))

    def operation(self, dtype: DType, depth: int) -> Expr:
        def operand() -> Expr:
            return self.expr(dtype, depth)

        if dtype.is_bool:
            kind = self.pick(["unary", "binary", "compare", "predicate"])
            if kind == "unary":
                return Unary(op=UnaryOp.NOT, operand=operand())
            if kind == "binary":
                return Binary(op=BinaryOp(self.pick(BOOL_OPS)), left=operand(), right=operand())
            other = self.pick([dtype for dtype in NUMERIC if kind == "compare" or dtype.is_float])
            if kind == "compare":
                op = self.pick(CompareOp)
                return Compare(op=op, left=self.expr(other, depth), right=self.expr(other, depth))
            return Math(function=self.pick(sorted_enum(PREDICATES)), operands=(self.expr(other, depth),), type=bool_)
        if dtype.is_float:
            kind = self.pick(["unary", "binary", "binary", "product", "fma", "math"])
            if kind == "unary":
                return Unary(op=self.pick([UnaryOp.NEG, UnaryOp.ABS]), operand=operand())
            if kind == "binary":
                return Binary(op=BinaryOp(self.pick(FLOAT_OPS)), left=operand(), right=operand())
            if kind == "product":
                product = Binary(op=BinaryOp.MUL, left=operand(), right=operand())
                sides = [product, operand()] if self.draw(st.booleans()) else [operand(), product]
                return Binary(op=self.pick([BinaryOp.ADD, BinaryOp.SUB]), left=sides[0], right=sides[1])
            if kind == "fma":
                return Fma(a=operand(), b=operand(), c=operand())
            function = self.pick([f for f in MathFunction if f not in PREDICATES | INTEGER_FUNCTIONS])
            return Math(function=function, operands=tuple(operand() for _ in range(num_operands(function))), type=dtype)
        kind = self.pick(["unary", "binary", "binary", "binary", "math"])
        if kind == "unary":
            return Unary(op=self.pick([UnaryOp.NEG, UnaryOp.ABS, UnaryOp.INVERT]), operand=operand())
        if kind == "math":
            return Math(function=self.pick(sorted_enum(INTEGER_FUNCTIONS)), operands=(operand(),), type=dtype)
        op = self.pick([op for op in BinaryOp if op is not BinaryOp.DIV])
        right = operand()
        if op is BinaryOp.POW:
            right = Const(value=self.draw(st.integers(0, 9)), type=dtype)
        return Binary(op=op, left=operand(), right=right)

    def conversion(self, dtype: DType, depth: int) -> Expr:
        same_width = [other for other in NUMERIC if other.bits == dtype.bits and not dtype.is_bool]
        if same_width and self.draw(st.integers(0, 2)) == 0:
            return Bitcast(operand=self.expr(self.pick(same_width), depth), type=dtype)
        return Cast(operand=self.expr(self.pick(SCALARS), depth), type=dtype)

    def parts(self) -> list[tuple[Root, ArrayType, tuple[str | int, ...]]]:
        found: list[tuple[Root, ArrayType, tuple[str | int, ...]]] = []
        for root, array in self.arrays.values():
            found += [(root, array, view) for view in _views(array.element)]
        return found

    def place(self, part: tuple[Root, ArrayType, tuple[str | int, ...]], depth: int) -> Place:
        root, array, view = part
        indices = tuple(self.expr(i64, min(depth, 1)) for _ in range(array.ndim or 1))
        return Place(root=root, indices=indices, type=_part(array.element, view), view=view)

    # --- statements ---

    def body(self, depth: int, in_loop: bool) -> tuple[Stmt, ...]:
        return tuple(self.statement(depth, in_loop) for _ in range(self.draw(st.integers(0, 3))))

    def statement(self, depth: int, in_loop: bool) -> Stmt:
        makers: list[Callable[[], Stmt]] = [self.assign, self.assign, self.store, self.store, self.atomic]
        if not self.plain:
            makers += [self.subgroup, self.print_]
            makers += [Barrier, lambda: Assert(condition=self.expr(bool_, 1), site=self.draw(st.integers(0, 99)))]
        if self.functions:
            makers.append(self.call)
        if in_loop:
            makers += [Break, Continue]
        if depth < 3:
            makers.append(lambda: Return(values=tuple(self.expr(result, 1) for result in self.results)))
        if depth:
            makers += [lambda: self.if_(depth - 1, in_loop)] * 2 + [lambda: self.for_(depth - 1)]
            makers += [lambda: Loop(body=(*self.body(depth - 1, True), Break()))]
        return self.pick(makers)()

    def if_(self, depth: int, in_loop: bool) -> Stmt:
        condition = self.expr(bool_, 2)
        return If(condition=condition, then=self.body(depth, in_loop), otherwise=self.body(depth, in_loop))

    def for_(self, depth: int) -> Stmt:
        variable = self.pick(name for name, type_ in self.locals.items() if type_ is i64)
        bounds = st.integers(-3, 3).map(lambda value: Const(value=value, type=i64))
        start, stop, step = self.draw(bounds), self.draw(bounds), self.draw(bounds)
        if not self.plain and self.draw(st.booleans()):
            stop = self.expr(i64, 2)
        return For(variable=variable, start=start, stop=stop, step=step, body=self.body(depth, True))

    def assign(self) -> Stmt:
        name = self.pick(self.locals)
        return Assign(name=name, value=self.expr(self.locals[name]))

    def store(self) -> Stmt:
        place = self.place(self.pick(self.parts()), 2)
        return Store(place=place, value=self.expr(place.type))

    def atomic(self) -> Stmt:
        parts = [p for p in self.parts() if (t := _part(p[1].element, p[2])) in NUMERIC and isinstance(t, DType)]
        if not parts:
            return self.assign()
        place = self.place(self.pick(parts), 1)
        assert isinstance(place.type, DType)
        bits = (AtomicOp.AND, AtomicOp.OR, AtomicOp.XOR)
        op = self.pick([op for op in AtomicOp if not (place.type.is_float and op in bits)])
        count = 2 if op is AtomicOp.COMPARE_EXCHANGE else 1
        operands = tuple(self.expr(place.type, 1) for _ in range(count))
        results = [None, *(name for name, type_ in self.locals.items() if type_ == place.type)]
        return Atomic(op=op, place=place, operands=operands, result=self.pick(results))

    def subgroup(self) -> Stmt:
        op = self.pick(SubgroupOp)
        names = [n for n, t in self.locals.items() if isinstance(t, DType)]
        dtype = bool_ if op in (SubgroupOp.BALLOT, SubgroupOp.ANY, SubgroupOp.ALL) else self.locals[self.pick(names)]
        lane = op.value.startswith("shuffle") or op is SubgroupOp.BROADCAST
        operands = (self.expr(dtype, 1), self.expr(i32, 1)) if lane else (self.expr(dtype, 1),)
        wanted = subgroup_result_type(op, operands)
        results = [name for name, type_ in self.locals.items() if type_ == wanted]
        return Subgroup(op=op, operands=operands, result=self.pick(results)) if results else Barrier()

    def print_(self) -> Stmt:
        values = tuple(self.expr(self.pick(SCALARS), 1) for _ in range(self.draw(st.integers(0, 2))))
        return Print(values=values, site=self.draw(st.integers(0, 99)))

    def call(self) -> Stmt:
        function = self.pick(self.functions)
        arguments: list[Expr | ArrayRef] = []
        for param in function.params:
            if isinstance(param.type, ScalarType):
                arguments.append(self.expr(param.type.dtype, 1))
                continue
            roots = [root for root, array in self.arrays.values() if array == param.type]
            if not roots:
                return self.assign()
            arguments.append(ArrayRef(root=self.pick(roots), type=param.type))
        results = []
        for result in function.results:
            names = [name for name, type_ in self.locals.items() if type_ == result and name not in results]
            if not names:
                return self.assign()
            results.append(self.pick(names))
        return Call(results=tuple(results), function=function.name, arguments=tuple(arguments))


def sorted_enum(members: Any) -> list[Any]:
    return sorted(members, key=lambda member: member.value)


def _views(type_: ValueType | None) -> list[tuple[str | int, ...]]:
    views: list[tuple[str | int, ...]] = [()]
    if isinstance(type_, VectorType):
        views += [(index,) for index in range(type_.length)]
    if isinstance(type_, StructType):
        views += [(field.name, *rest) for field in type_.fields for rest in _views(field.type)]
    return views


def _part(type_: ValueType | None, view: tuple[str | int, ...]) -> ValueType:
    for step in view:
        if isinstance(type_, StructType):
            field = type_.field(str(step))
            assert field is not None
            type_ = field.type
        elif isinstance(type_, VectorType):
            type_ = type_.element
    assert type_ is not None
    return type_


@st.composite
def modules(draw: Callable[..., Any], *, plain: bool = False) -> Module:
    """Valid modules. `plain` ones hold scalars and plain names only, and no statement by which threads meet."""
    ndim = draw(st.integers(1, 3))
    functions: list[Function] = []
    for number in range(draw(st.integers(0, 2))):
        owner = _Owner(draw, ndim, list(functions), plain=plain)
        params, variables = owner.params(), owner.variables()
        owner.results = tuple(draw(st.lists(st.sampled_from(list(owner.types)), max_size=2)))
        body = owner.body(2, False)
        if owner.results:
            body = (*body, Return(values=tuple(owner.expr(result, 1) for result in owner.results)))
        name = draw(st.sampled_from(["f", "call", "ψ", "over"])) + str(number)
        functions.append(Function(name=name, params=params, results=owner.results, locals=variables, body=body))
    owner = _Owner(draw, ndim, functions, plain=plain)
    params, variables, allocs = owner.params(), owner.variables(), owner.allocs()
    return Module(
        kernel=Kernel(
            name=draw(st.sampled_from(["k", "kernel", "double", "č"])),
            form=draw(st.sampled_from(LaunchForm)),
            block=tuple(draw(st.lists(st.integers(1, 64), min_size=ndim, max_size=ndim))),
            params=params,
            locals=variables,
            body=(*allocs, *owner.body(3, False), *((owner.store(), owner.store()) if plain else ())),
            options=KernelOptions(*draw(st.tuples(*[st.booleans()] * 4))),
        ),
        functions=tuple(functions),
    )
