"""Device functions: how each is called, and its definition.

An array parameter becomes its address, and the lengths and strides that the function uses; the thread indices that it
reads, itself or through calls, follow the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from quernel.dtypes import ArrayType, DType
from quernel.ir.analysis import ArrayUse, ParameterUses, function_uses
from quernel.ir.nodes import ArrayRef, Call, Function, IndexKind, Module, RootKind
from quernel.ir.walk import walk_statements
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.values import register_type, scalar

__all__ = ["DeviceFunction", "device_functions", "passes_private_arrays"]


@attrs.frozen
class DeviceFunction:
    """A device function as its callers see it.

    Attributes:
        symbol: its name in the LLVM module; the user's may hold anything.
        function: its IR.
        uses: what it uses of its parameters and of the launch.
    """

    symbol: str
    function: Function
    uses: ParameterUses

    @property
    def results(self) -> tuple[DType, ...]:
        """The types of what it returns."""
        return tuple(scalar(result) for result in self.function.results)

    @property
    def result_type(self) -> str:
        """The LLVM type of what it returns: nothing, a value, or a structure of several."""
        types = [register_type(result) for result in self.results]
        return "void" if not types else types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"

    @property
    def indices(self) -> tuple[tuple[IndexKind, int], ...]:
        """The thread indices that a caller passes."""
        return self.uses.indices

    def array_operands(self, name: str, array: ArrayOperands) -> Iterator[tuple[str, str]]:
        """Type and operand of each piece of an array argument."""
        use: ArrayUse = self.uses.array(name)
        yield "ptr", array.pointer
        yield from (("i64", array.shape[axis]) for axis in use.shape_axes)
        yield from (("i64", array.strides[axis]) for axis in use.stride_axes)

    def own_array(self, position: int, element: DType, metadata: str) -> ArrayOperands:
        """The operands of the array parameter at `position`, inside the function."""
        use = self.uses.array(self.function.params[position].name)
        return ArrayOperands(
            element=element,
            pointer=f"%a{position}",
            shape={axis: f"%a{position}.shape{axis}" for axis in use.shape_axes},
            strides={axis: f"%a{position}.stride{axis}" for axis in use.stride_axes},
            metadata=metadata,
        )

    def signature(self) -> str:
        """The head of its definition."""
        operands = ", ".join(f"{llvm} {name}" for llvm, name in self._operands())
        return f"internal {self.result_type} @{self.symbol}({operands}) nounwind alignstack(64)"

    def declaration(self) -> str:
        """What stands for it in a module that does not define it."""
        return f"declare {self.result_type} @{self.symbol}({', '.join(llvm for llvm, _ in self._operands())})"

    def type_text(self) -> str:
        """Its type, as LLVM prints it."""
        return f"{self.result_type} ({', '.join(llvm for llvm, _ in self._operands())})"

    def _operands(self) -> Iterator[tuple[str, str]]:
        for position, param in enumerate(self.function.params):
            if isinstance(param.type, ArrayType):
                own = self.own_array(position, scalar(param.type.element), "")
                yield from self.array_operands(param.name, own)
            else:
                yield register_type(scalar(param.type.dtype)), f"%a{position}"
        yield from (("i64", index_operand(kind, axis)) for kind, axis in self.indices)


def index_operand(kind: IndexKind, axis: int) -> str:
    """The name of a thread index inside a device function."""
    return f"%{kind.value}{axis}"


def device_functions(module: Module) -> dict[str, DeviceFunction]:
    """The device functions of a module by their names."""
    uses = function_uses(module)
    return {
        function.name: DeviceFunction(f"q.function{number}", function, uses[function.name])
        for number, function in enumerate(module.functions)
    }


def passes_private_arrays(module: Module) -> bool:
    """Whether any call hands a thread's own array to a device function."""
    bodies = (module.kernel.body, *(function.body for function in module.functions))
    return any(
        isinstance(argument, ArrayRef) and argument.root.kind is RootKind.PRIVATE
        for body in bodies
        for stmt in walk_statements(body)
        if isinstance(stmt, Call)
        for argument in stmt.arguments
    )
