"""Vectors and structs taken apart, for backends whose values are scalars.

Every local, parameter and result of a device function that is a vector or a struct becomes one for each scalar inside
it, called as in `point.x` or `pair.0.1`; so does every private or shared array that no call is handed. What is left of
composites is the memory that others lay out: an array argument keeps its elements, of which loads read single scalars
(their place has a view), and a whole element is written by one `Store` of a `VecMake` or `StructMake` of scalars.

An index or a condition that several scalars have in common is worked out once, in a local of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TypeVar, assert_never

import attrs

from quernel.dtypes import ArrayType, DType, ScalarType, StructType, ValueType, VectorType
from quernel.ir.names import FreshNames
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assign,
    Atomic,
    Call,
    Const,
    Expr,
    Field,
    Function,
    Kernel,
    Load,
    Local,
    LocalVariable,
    Module,
    Param,
    Parameter,
    Place,
    Return,
    Root,
    RootKind,
    Select,
    Shape,
    Stmt,
    Store,
    StructMake,
    ThreadIndex,
    VecGet,
    VecMake,
)
from quernel.ir.walk import (
    Body,
    expressions_of,
    fold_expression,
    map_statements,
    walk_expressions,
    walk_statements,
    with_children,
    with_expressions,
)
from quernel.locations import Location

__all__ = ["scalars_made", "split_composites"]

_Path = tuple[str | int, ...]
"""The way to a scalar inside a value: field names and component numbers."""


def split_composites(module: Module) -> Module:
    """The module with scalars for its vectors and structs; itself where it has none."""
    owners: tuple[Kernel | Function, ...] = (module.kernel, *module.functions)
    if not any(map(_has_composites, owners)):
        return module
    kernel = module.kernel
    return attrs.evolve(
        module,
        kernel=_Splitting(kernel).split(kernel),
        functions=tuple(map(_split_function, module.functions)),
    )


def _split_function(function: Function) -> Function:
    results = tuple(dtype for result in function.results for _, dtype in _scalars(result))
    return attrs.evolve(_Splitting(function).split(function), results=results)


def _has_composites(owner: Kernel | Function) -> bool:
    declared: list[object] = [local.type for local in owner.locals]
    declared += [p.type.element if isinstance(p.type, ArrayType) else p.type.dtype for p in owner.params]
    declared += [stmt.element for stmt in walk_statements(owner.body) if isinstance(stmt, Alloc)]
    return any(isinstance(one, VectorType | StructType) for one in declared) or any(
        isinstance(expr.type, VectorType | StructType) for expr in walk_expressions(owner.body)
    )


@cache
def _scalars(value_type: ValueType) -> tuple[tuple[_Path, DType], ...]:
    """The way to each scalar of a value, and its type, in order; the empty way to a scalar itself."""
    match value_type:
        case DType():
            return (((), value_type),)
        case VectorType():
            return tuple(((number,), value_type.element) for number in range(value_type.length))
        case StructType():
            return tuple(
                ((field.name, *path), dtype) for field in value_type.fields for path, dtype in _scalars(field.type)
            )
        case _:
            assert_never(value_type)


_Hoist = Callable[[Expr], Expr]
"""What stands for an expression that several scalars have in common."""


@attrs.frozen
class _Composite:
    """A vector or struct that is not there as such: `at(path, hoist)` gives one of its scalars."""

    type: ValueType
    at: Callable[[_Path, _Hoist], Expr]

    def scalars(self, hoist: _Hoist) -> list[Expr]:
        """All of them, in order."""
        return [self.at(path, hoist) for path, _ in _scalars(self.type)]


_Value = Expr | _Composite
_OwnerT = TypeVar("_OwnerT", Kernel, Function)


class _Splitting:
    """Takes one kernel or device function apart."""

    def __init__(self, owner: Kernel | Function) -> None:
        allocs = [stmt for stmt in walk_statements(owner.body) if isinstance(stmt, Alloc)]
        self._fresh = FreshNames(owner).fresh
        self._locals: list[LocalVariable] = []
        self._params: list[Parameter] = []
        self._names: dict[str, dict[_Path, str]] = {}
        """The scalars of each composite, by its name."""
        for local in owner.locals:
            named = self._named(local.name, local.type)
            self._locals += [LocalVariable(name=name, type=dtype) for name, dtype in named]
        for param in owner.params:
            if isinstance(param.type, ArrayType) or isinstance(param.type.dtype, DType):
                self._params.append(param)
            else:
                named = self._named(param.name, param.type.dtype)
                self._params += [Parameter(name=name, type=ScalarType(dtype), loc=param.loc) for name, dtype in named]
        handed = {
            item.root.name
            for stmt in walk_statements(owner.body)
            if isinstance(stmt, Call)
            for item in stmt.arguments
            if isinstance(item, ArrayRef)
        }
        for alloc in allocs:
            if alloc.name not in handed:
                self._named(alloc.name, alloc.element)
        self._before: list[Stmt] = []
        """What the statement at hand needs to have run."""
        self._hoisted: dict[int, tuple[Expr, Local]] = {}

    def split(self, owner: _OwnerT) -> _OwnerT:
        """The owner of this object, taken apart."""
        body = map_statements(owner.body, self._statement)
        return attrs.evolve(owner, params=tuple(self._params), locals=tuple(self._locals), body=body)

    # --- names --------------------------------------------------------------------------------------------------------

    def _named(self, name: str, value_type: ValueType) -> list[tuple[str, DType]]:
        """The names of the scalars of what is declared under `name`, and their types."""
        if isinstance(value_type, DType):
            return [(name, value_type)]
        paths = _scalars(value_type)
        names = {path: self._fresh(".".join([name, *map(str, path)])) for path, _ in paths}
        self._names[name] = names
        return [(names[path], dtype) for path, dtype in paths]

    def _temporary(self, value: Expr) -> Local:
        """A local of its own that holds a scalar from here on."""
        assert isinstance(value.type, DType)
        name = self._fresh("part")
        self._locals.append(LocalVariable(name=name, type=value.type))
        self._before.append(Assign(name=name, value=value, loc=value.loc))
        return Local(name=name, type=value.type, loc=value.loc)

    def _hoist(self, expr: Expr) -> Expr:
        if isinstance(expr, Const | Local | Param | ThreadIndex | Shape):
            return expr
        if id(expr) not in self._hoisted:
            self._hoisted[id(expr)] = (expr, self._temporary(expr))
        return self._hoisted[id(expr)][1]

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statement(self, stmt: Stmt) -> Body:
        """What stands for a statement, whose bodies are taken apart already."""
        self._before, self._hoisted = [], {}
        after = self._apart(stmt)
        return (*self._before, *after)

    def _apart(self, stmt: Stmt) -> Body:
        match stmt:
            case Alloc() if stmt.name in self._names:
                return tuple(
                    Alloc(
                        name=self._names[stmt.name][path],
                        space=stmt.space,
                        element=dtype,
                        shape=stmt.shape,
                        loc=stmt.loc,
                    )
                    for path, dtype in _scalars(stmt.element)
                )
            case Assign() if stmt.name in self._names:
                return self._assigned(list(self._names[stmt.name].values()), self._flat(stmt.value), stmt.loc)
            case Store():
                return self._stored(stmt)
            case Atomic():
                operands = tuple(self._scalar(operand) for operand in stmt.operands)
                indices = tuple(self._scalar(index) for index in stmt.place.indices)
                return (attrs.evolve(stmt, place=self._place(stmt.place, indices, ()), operands=operands),)
            case Call():
                arguments = ([item] if isinstance(item, ArrayRef) else self._flat(item) for item in stmt.arguments)
                results = (self._names[name].values() if name in self._names else (name,) for name in stmt.results)
                return (attrs.evolve(stmt, arguments=_joined(arguments), results=_joined(results)),)
            case Return():
                return (attrs.evolve(stmt, values=_joined(map(self._flat, stmt.values))),)
            case _:
                return (with_expressions(stmt, tuple(map(self._scalar, expressions_of(stmt)))),)

    def _assigned(self, names: list[str], values: list[Expr], loc: Location) -> Body:
        """The values for these locals, all of them worked out before any local changes that another one reads."""
        behind: list[set[str]] = [set()]
        for value in reversed(values[1:]):
            read = {node.name for node in walk_expressions(value) if isinstance(node, Local)}
            behind.append(behind[-1] | read)
        now: list[Stmt] = []
        later: list[Stmt] = []
        for name, value, read_later in zip(names, values, reversed(behind), strict=True):
            if isinstance(value, Local) and value.name == name:
                continue
            if name in read_later:
                self._before += now
                now.clear()
                value = self._temporary(value)
            (later if name in read_later else now).append(Assign(name=name, value=value, loc=loc))
        return (*now, *later)

    def _stored(self, stmt: Store) -> Body:
        place = stmt.place
        indices = tuple(self._scalar(index) for index in place.indices)
        if isinstance(place.type, DType):
            return (attrs.evolve(stmt, place=self._place(place, indices, ()), value=self._scalar(stmt.value)),)
        values = self._flat(stmt.value)
        if place.root.name not in self._names:
            whole = _made(place.type, iter(values), stmt.loc)
            return (attrs.evolve(stmt, place=attrs.evolve(place, indices=indices), value=whole),)
        indices = tuple(map(self._hoist, indices))
        if any(isinstance(node, Load) for value in values for node in walk_expressions(value)):
            values = list(map(self._hoist, values))
        return tuple(
            attrs.evolve(stmt, place=self._place(place, indices, path), value=value)
            for (path, _), value in zip(_scalars(place.type), values, strict=True)
        )

    # --- expressions --------------------------------------------------------------------------------------------------

    def _flat(self, expr: Expr) -> list[Expr]:
        """The scalars of an expression."""
        value = fold_expression(expr, self._combined)
        return value.scalars(self._hoist) if isinstance(value, _Composite) else [value]

    def _scalar(self, expr: Expr) -> Expr:
        """The same expression, of a scalar, without composites inside."""
        (found,) = self._flat(expr)
        return found

    def _combined(self, expr: Expr, below: tuple[_Value, ...]) -> _Value:
        match expr:
            case Local() | Param() if expr.name in self._names:
                names, kind = self._names[expr.name], type(expr)
                types = dict(_scalars(expr.type))
                return _Composite(expr.type, lambda path, _: kind(name=names[path], type=types[path], loc=expr.loc))
            case VecGet() | Field():
                step = expr.index if isinstance(expr, VecGet) else expr.name
                return self._part(below[0], step, expr.type)
            case Load():
                indices = tuple(map(_known, below))
                if isinstance(expr.type, DType):
                    return attrs.evolve(expr, place=self._place(expr.place, indices, ()))
                return self._loaded(expr, indices)
            case Select() if not isinstance(expr.type, DType):
                return _chosen(expr, *below)
            case VecMake() | StructMake():
                steps: list[str | int] = list(range(len(below)))
                if isinstance(expr.type, StructType):
                    steps = [field.name for field in expr.type.fields]
                return _Composite(expr.type, _Made(dict(zip(steps, below, strict=True))))
            case _:
                return with_children(expr, tuple(map(_known, below)))

    def _part(self, value: _Value, step: str | int, part_type: ValueType) -> _Value:
        assert isinstance(value, _Composite)
        if isinstance(part_type, DType):
            return value.at((step,), _same)
        return _Composite(part_type, lambda path, hoist: value.at((step, *path), hoist))

    def _loaded(self, load: Load, indices: tuple[Expr, ...]) -> _Composite:
        def at(path: _Path, hoist: _Hoist) -> Expr:
            return attrs.evolve(load, place=self._place(load.place, tuple(map(hoist, indices)), path))

        return _Composite(load.type, at)

    def _place(self, place: Place, indices: tuple[Expr, ...], path: _Path) -> Place:
        """A scalar at a place: in the array of its like, where the array is split."""
        dtype = dict(_scalars(place.type))[path]
        view, root = (*place.view, *path), place.root
        if root.kind is not RootKind.PARAM and root.name in self._names:
            root, view = Root(root.kind, self._names[root.name][view]), ()
        return attrs.evolve(place, root=root, indices=indices, type=dtype, view=view)


@attrs.frozen
class _Made:
    """A composite of parts that are known one by one."""

    parts: dict[str | int, _Value]

    def __call__(self, path: _Path, hoist: _Hoist) -> Expr:
        value = self.parts[path[0]]
        return value.at(path[1:], hoist) if isinstance(value, _Composite) else value


def _chosen(expr: Select, condition: _Value, then: _Value, otherwise: _Value) -> _Composite:
    assert isinstance(then, _Composite)
    assert isinstance(otherwise, _Composite)

    def at(path: _Path, hoist: _Hoist) -> Expr:
        sides = then.at(path, hoist), otherwise.at(path, hoist)
        return Select(condition=hoist(_known(condition)), then=sides[0], otherwise=sides[1], loc=expr.loc)

    return _Composite(expr.type, at)


def _known(value: _Value) -> Expr:
    assert not isinstance(value, _Composite)
    return value


def _same(expr: Expr) -> Expr:
    return expr


def _made(value_type: ValueType, values: Iterator[Expr], loc: Location) -> Expr:
    """A value of these scalars."""
    match value_type:
        case DType():
            return next(values)
        case VectorType():
            return VecMake(components=tuple(next(values) for _ in range(value_type.length)), type=value_type, loc=loc)
        case StructType():
            parts = tuple(_made(field.type, values, loc) for field in value_type.fields)
            return StructMake(values=parts, type=value_type, loc=loc)
        case _:
            assert_never(value_type)


def scalars_made(value: Expr) -> Iterator[Expr]:
    """The scalars of a value as `split_composites` leaves it to a `Store`, in order."""
    match value:
        case VecMake():
            yield from value.components
        case StructMake():
            for part in value.values:
                yield from scalars_made(part)
        case _:
            yield value


_ItemT = TypeVar("_ItemT")


def _joined(parts: Iterable[Iterable[_ItemT]]) -> tuple[_ItemT, ...]:
    return tuple(item for part in parts for item in part)
