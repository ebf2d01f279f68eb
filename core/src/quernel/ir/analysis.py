"""What a module uses: which parameters, in which way, and which indices; for launching and for lowering.

All results are ordered by the parameters or by the enumeration, so they are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from quernel.dtypes import ArrayType
from quernel.ir.nodes import (
    ArrayRef,
    Assign,
    Atomic,
    Barrier,
    Call,
    Const,
    For,
    Function,
    IndexKind,
    Kernel,
    Load,
    Local,
    Module,
    Param,
    Place,
    RootKind,
    Shape,
    Stmt,
    Store,
    Subgroup,
    ThreadIndex,
)
from quernel.ir.walk import walk_expressions, walk_statements

__all__ = ["ArrayUse", "ParameterUses", "assigned_names", "function_uses", "parameter_uses", "read_names"]


@attrs.frozen
class ArrayUse:
    """What a function does with one of its array parameters, device functions that it calls included.

    Attributes:
        name: the parameter.
        is_read: whether elements are loaded; an atomic reads and writes.
        is_written: whether elements are stored.
        has_atomics: whether an atomic updates it.
        shape_axes: axes whose length is asked for, ascending.
        stride_axes: axes whose stride an address needs, ascending; an axis only ever indexed by a literal 0 needs none.
    """

    name: str
    is_read: bool = False
    is_written: bool = False
    has_atomics: bool = False
    shape_axes: tuple[int, ...] = ()
    stride_axes: tuple[int, ...] = ()

    @property
    def is_accessed(self) -> bool:
        """Whether any element is read or written, so that the array's address is needed."""
        return self.is_read or self.is_written

    @property
    def is_used(self) -> bool:
        """Whether anything of the array is needed at all."""
        return self.is_accessed or bool(self.shape_axes)


@attrs.frozen
class ParameterUses:
    """What a kernel, or a device function, uses.

    Attributes:
        arrays: one entry per array parameter, in the order of the parameters.
        scalars: the scalar parameters whose value is read, in the order of the parameters.
        indices: the thread indices and dimensions read, as (kind, axis), in the order of the enumeration.
        has_barrier: whether a barrier is reached.
        has_subgroup: whether a subgroup operation is reached.
    """

    arrays: tuple[ArrayUse, ...]
    scalars: tuple[str, ...]
    indices: tuple[tuple[IndexKind, int], ...]
    has_barrier: bool
    has_subgroup: bool

    @property
    def written(self) -> tuple[str, ...]:
        """The array parameters that are written."""
        return tuple(array.name for array in self.arrays if array.is_written)

    @property
    def read(self) -> tuple[str, ...]:
        """The array parameters that are read."""
        return tuple(array.name for array in self.arrays if array.is_read)

    @property
    def index_kinds(self) -> tuple[IndexKind, ...]:
        """The kinds of index read along any axis."""
        return tuple(dict.fromkeys(kind for kind, _ in self.indices))

    def array(self, name: str) -> ArrayUse:
        """The use of the array parameter called `name`."""
        return next(array for array in self.arrays if array.name == name)


def parameter_uses(module: Module) -> ParameterUses:
    """What the kernel of a module uses, device functions included."""
    return _Uses(module).of_kernel()


def function_uses(module: Module) -> dict[str, ParameterUses]:
    """What each device function of a module uses, by name, in the module's order."""
    uses = _Uses(module)
    return {function.name: uses.of_function(function.name) for function in module.functions}


def assigned_names(body: Iterable[Stmt]) -> tuple[str, ...]:
    """The locals that `body` may assign, in the order of their first assignment."""
    names: dict[str, None] = {}
    for stmt in walk_statements(body):
        match stmt:
            case Assign():
                names[stmt.name] = None
            case For():
                names[stmt.variable] = None
            case Subgroup():
                names[stmt.result] = None
            case Atomic() if stmt.result is not None:
                names[stmt.result] = None
            case Call():
                names.update(dict.fromkeys(stmt.results))
            case _:
                pass
    return tuple(names)


def read_names(body: tuple[Stmt, ...]) -> tuple[str, ...]:
    """The locals whose value `body` may read, in the order of their first mention."""
    return tuple(dict.fromkeys(expr.name for expr in walk_expressions(body) if isinstance(expr, Local)))


_KIND_ORDER: Final = {kind: number for number, kind in enumerate(IndexKind)}


class _Gathered:
    """The uses of one function while its body is walked."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.atomic: set[str] = set()
        self.shape_axes: set[tuple[str, int]] = set()
        self.stride_axes: set[tuple[str, int]] = set()
        self.scalars: set[str] = set()
        self.indices: set[tuple[IndexKind, int]] = set()
        self.has_barrier = False
        self.has_subgroup = False

    def access(self, place: Place, *kinds: set[str]) -> None:
        if place.root.kind is not RootKind.PARAM:
            return
        for kind in kinds:
            kind.add(place.root.name)
        for axis, index in enumerate(place.indices):
            if not (isinstance(index, Const) and index.value == 0):
                self.stride_axes.add((place.root.name, axis))

    def result(self, owner: Kernel | Function) -> ParameterUses:
        arrays = tuple(
            ArrayUse(
                name=param.name,
                is_read=param.name in self.read,
                is_written=param.name in self.written,
                has_atomics=param.name in self.atomic,
                shape_axes=_axes(self.shape_axes, param.name),
                stride_axes=_axes(self.stride_axes, param.name),
            )
            for param in owner.params
            if isinstance(param.type, ArrayType)
        )
        return ParameterUses(
            arrays=arrays,
            scalars=tuple(param.name for param in owner.params if param.name in self.scalars),
            indices=tuple(sorted(self.indices, key=lambda index: (_KIND_ORDER[index[0]], index[1]))),
            has_barrier=self.has_barrier,
            has_subgroup=self.has_subgroup,
        )


def _axes(pairs: set[tuple[str, int]], name: str) -> tuple[int, ...]:
    return tuple(sorted(axis for owner, axis in pairs if owner == name))


class _Uses:
    """Works out uses callee first, each function once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._functions = {function.name: function for function in module.functions}
        self._known: dict[str, ParameterUses] = {}

    def of_kernel(self) -> ParameterUses:
        return self._of(self._module.kernel)

    def of_function(self, name: str) -> ParameterUses:
        if name not in self._known:
            self._known[name] = self._of(self._functions[name])
        return self._known[name]

    def _of(self, owner: Kernel | Function) -> ParameterUses:
        gathered = _Gathered()
        for expr in walk_expressions(owner.body):
            match expr:
                case Load():
                    gathered.access(expr.place, gathered.read)
                case Param():
                    gathered.scalars.add(expr.name)
                case Shape():
                    gathered.shape_axes.add((expr.param, expr.axis))
                case ThreadIndex():
                    gathered.indices.add((expr.kind, expr.axis))
                case _:
                    pass
        for stmt in walk_statements(owner.body):
            match stmt:
                case Store():
                    gathered.access(stmt.place, gathered.written)
                case Atomic():
                    gathered.access(stmt.place, gathered.read, gathered.written, gathered.atomic)
                case Barrier():
                    gathered.has_barrier = True
                case Subgroup():
                    gathered.has_subgroup = True
                case Call():
                    self._call(stmt, gathered)
                case _:
                    pass
        return gathered.result(owner)

    def _call(self, call: Call, gathered: _Gathered) -> None:
        callee = self._functions[call.function]
        uses = self.of_function(call.function)
        gathered.indices.update(uses.indices)
        gathered.has_barrier |= uses.has_barrier
        gathered.has_subgroup |= uses.has_subgroup
        for param, argument in zip(callee.params, call.arguments, strict=True):
            if isinstance(argument, ArrayRef) and argument.root.kind is RootKind.PARAM:
                use, name = uses.array(param.name), argument.root.name
                for holds, names in (
                    (use.is_read, gathered.read),
                    (use.is_written, gathered.written),
                    (use.has_atomics, gathered.atomic),
                ):
                    if holds:
                        names.add(name)
                gathered.shape_axes.update((name, axis) for axis in use.shape_axes)
                gathered.stride_axes.update((name, axis) for axis in use.stride_axes)
