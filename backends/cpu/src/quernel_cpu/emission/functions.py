"""Device functions: how each is called, and its definition.

An array parameter becomes its address, and the lengths and strides that the function uses; a vector or struct becomes
its scalars. The thread indices that it reads, itself or through calls, follow the parameters; then the address of the
diagnostics buffer, where it reports anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from quernel.dtypes import ArrayType, DType, ValueType
from quernel.ir.analysis import ArrayUse, ParameterUses, function_uses
from quernel.ir.nodes import ArrayRef, Assert, Call, Function, IndexKind, Module, Print, RootKind
from quernel.ir.walk import walk_statements
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.leaves import leaves
from quernel_cpu.emission.values import register_type

__all__ = ["DIAGNOSTICS", "DeviceFunction", "device_functions", "index_operand", "passes_own_arrays"]

DIAGNOSTICS = "%diagnostics"
"""The address of the launch's diagnostics buffer, inside a device function."""


@attrs.frozen
class DeviceFunction:
    """A device function as its callers see it.

    Attributes:
        symbol: its name in the LLVM module; the user's may hold anything.
        function: its IR.
        uses: what it uses of its parameters and of the launch.
        reports: whether it, or a function that it calls, asserts or prints.
    """

    symbol: str
    function: Function
    uses: ParameterUses
    reports: bool = False

    @property
    def results(self) -> tuple[DType, ...]:
        """The types of the scalars that it returns."""
        return tuple(leaf.dtype for result in self.function.results for leaf in leaves(result))

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

    def own_array(self, position: int, element: ValueType, metadata: str) -> ArrayOperands:
        """The operands of the array parameter at `position`, inside the function."""
        use = self.uses.array(self.function.params[position].name)
        return ArrayOperands(
            element=element,
            pointer=f"%a{position}",
            shape={axis: f"%a{position}.shape{axis}" for axis in use.shape_axes},
            strides={axis: f"%a{position}.stride{axis}" for axis in use.stride_axes},
            metadata=metadata,
        )

    def own_scalars(self, position: int, value_type: ValueType) -> tuple[str, ...]:
        """The operands of the value parameter at `position`, inside the function."""
        count = len(leaves(value_type))
        return (f"%a{position}",) if count == 1 else tuple(f"%a{position}.{number}" for number in range(count))

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
                assert param.type.element is not None
                yield from self.array_operands(param.name, self.own_array(position, param.type.element, ""))
            else:
                own = self.own_scalars(position, param.type.dtype)
                for leaf, operand in zip(leaves(param.type.dtype), own, strict=True):
                    yield register_type(leaf.dtype), operand
        yield from (("i64", index_operand(kind, axis)) for kind, axis in self.indices)
        if self.reports:
            yield "ptr", DIAGNOSTICS


def index_operand(kind: IndexKind, axis: int) -> str:
    """The name of a thread index inside a device function."""
    return f"%{kind.value}{axis}"


def device_functions(module: Module) -> dict[str, DeviceFunction]:
    """The device functions of a module by their names."""
    uses = function_uses(module)
    reporting = _reporting_functions(module)
    found = {}
    for number, function in enumerate(module.functions):
        own, reports = uses[function.name], function.name in reporting
        if reports:  # A record names the thread.
            own_id = ((IndexKind.GLOBAL_ID, axis) for axis in range(module.kernel.ndim))
            own = attrs.evolve(own, indices=tuple(dict.fromkeys((*own_id, *own.indices))))
        found[function.name] = DeviceFunction(f"q.function{number}", function, own, reports)
    return found


def _reporting_functions(module: Module) -> set[str]:
    """Names of the functions that assert or print, themselves or in what they call."""
    reporting: set[str] = set()
    while True:
        found = {
            function.name
            for function in module.functions
            if any(
                isinstance(stmt, Assert | Print) or (isinstance(stmt, Call) and stmt.function in reporting)
                for stmt in walk_statements(function.body)
            )
        }
        if found == reporting:
            return reporting
        reporting = found


def passes_own_arrays(module: Module) -> bool:
    """Whether any call hands an array of the thread, or of the block, to a device function."""
    bodies = (module.kernel.body, *(function.body for function in module.functions))
    return any(
        isinstance(argument, ArrayRef) and argument.root.kind is not RootKind.PARAM
        for body in bodies
        for stmt in walk_statements(body)
        if isinstance(stmt, Call)
        for argument in stmt.arguments
    )
