"""The parameters of an entry point, which follow the slots that a launch fills."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from quernel.codegen.pointers import Pointers
from quernel.codegen.scope import ArrayCode, Scope
from quernel.codegen.text import Code, primary
from quernel.codegen.types import Types
from quernel.dtypes import ArrayType, DType, ValueType, i64, u8, u64
from quernel.ir.analysis import ParameterUses
from quernel.ir.nodes import Parameter, Root, RootKind

__all__ = ["EntryParameters", "EntrySlot"]


class EntrySlot(Protocol):
    """One argument of the entry point, as the artifact's header has it: the words of `kind` are its enumeration's."""

    @property
    def kind(self) -> enum.Enum: ...  # noqa: D102
    @property
    def param(self) -> int: ...  # noqa: D102
    @property
    def axis(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> DType: ...  # noqa: D102


class EntryParameters:
    """Declares the parameters of a kernel, and says in its scope what they stand for.

    Attributes:
        listed: the declarations.
        types: the types of what the slots pass, in their order, where arrays are passed as addresses.
        prologue: lines at the kernel's start that make arrays of buffers and offsets.
    """

    def __init__(
        self, types: Types, params: tuple[Parameter, ...], uses: ParameterUses, pointers: Pointers, scope: Scope
    ) -> None:
        self._types = types
        self._params = params
        self._uses = uses
        self._pointers = pointers
        self._scope = scope
        self._names = [scope.names.fresh(param.name) for param in params]
        self._shapes: dict[int, dict[int, Code]] = {}
        self._strides: dict[int, dict[int, Code | None]] = {}
        self.listed: list[str] = []
        self.types: list[str] = []
        self.prologue: list[str] = []

    def declare(self, slots: Sequence[EntrySlot]) -> None:
        """Declares what the slots pass."""
        for slot in slots:
            match slot.kind.value:
                case "pointer":
                    self._pointer(self._params[slot.param], self._names[slot.param])
                case "scalar":
                    self._scalar(self._params[slot.param].name, self._names[slot.param], slot.dtype)
                case "shape":
                    wanted = f"{self._names[slot.param]}_shape{slot.axis}"
                    self._shapes.setdefault(slot.param, {})[slot.axis] = self._integer(wanted)
                case "stride":
                    wanted = f"{self._names[slot.param]}_stride{slot.axis}"
                    stride = self._types.as_offset(self._integer(wanted))
                    self._strides.setdefault(slot.param, {})[slot.axis] = stride
                case "extent" | "start" | "grid" as kind:
                    self._scope.indices[kind, slot.axis] = self._integer(f"{kind}{slot.axis}")
                case "diagnostics":
                    name = self._scope.names.fresh("diagnostics")
                    self._array_pointer(u64, name, is_written=True)
                    self._scope.diagnostics.append(name)
                case other:
                    raise AssertionError(f"a slot of unknown kind {other}")

    def define_arrays(self, *, contiguous: bool) -> None:
        """Puts the arrays into the scope; the last stride of contiguous ones is 1."""
        for number, param in enumerate(self._params):
            if not isinstance(param.type, ArrayType):
                continue
            assert param.type.element is not None
            strides = self._strides.get(number, {})
            if contiguous and param.type.ndim:
                strides[param.type.ndim - 1] = None
            self._scope.arrays[Root(RootKind.PARAM, param.name)] = ArrayCode(
                param.type.element, RootKind.PARAM, self._names[number], strides, self._shapes.get(number, {})
            )

    def _integer(self, wanted: str) -> Code:
        name = self._scope.names.fresh(wanted)
        self._declare(f"const {self._types.value(i64)} ", name)
        return primary(name)

    def _pointer(self, param: Parameter, name: str) -> None:
        assert isinstance(param.type, ArrayType)
        element = param.type.element
        assert element is not None
        self._array_pointer(element, name, is_written=self._uses.array(param.name).is_written)

    def _array_pointer(self, element: ValueType, name: str, *, is_written: bool) -> None:
        pointer = self._types.pointer(element, RootKind.PARAM, is_written=is_written)
        if self._pointers is Pointers.ADDRESS:
            self._declare(pointer, name)
            return
        buffer, offset = self._scope.names.fresh(f"{name}_buffer"), self._scope.names.fresh(f"{name}_offset")
        self.listed += [f"{pointer}{buffer}", f"const {self._types.value(i64)} {offset}"]
        start = f"({self._types.pointer(u8, RootKind.PARAM, is_written=is_written)}){buffer} + {offset}"
        self.prologue.append(f"{pointer}{name} = ({pointer.rstrip()})({start});")

    def _scalar(self, param: str, name: str, dtype: DType) -> None:
        self._declare(f"const {self._types.memory(dtype)} ", name)
        self._scope.scalars[param] = self._types.loaded(primary(name), dtype)

    def _declare(self, c_type: str, name: str) -> None:
        self.types.append(c_type)
        self.listed.append(f"{c_type}{name}")
