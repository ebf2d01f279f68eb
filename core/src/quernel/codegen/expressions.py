"""Expressions of the IR as C expressions; what nests too deeply for a compiler goes through temporaries."""

from __future__ import annotations

from typing import Final, assert_never

from quernel.codegen.dialect import Dialect
from quernel.codegen.indices import Indices
from quernel.codegen.literals import literal
from quernel.codegen.operators import Operators
from quernel.codegen.own_values import OwnValues
from quernel.codegen.scope import ArrayCode, Scope
from quernel.codegen.text import Binding, Code, Lines, infix, inside, primary, unary
from quernel.codegen.types import WIDEST_ALIGNMENT, Types, alignment_of, view_offset
from quernel.dtypes import DType, StructType, ValueType, VectorType, i64
from quernel.ir.nodes import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Field,
    Fma,
    Load,
    Local,
    Math,
    Param,
    Place,
    Root,
    RootKind,
    Select,
    Shape,
    StructMake,
    ThreadIndex,
    Unary,
    VecGet,
    VecMake,
)
from quernel.ir.walk import fold_expression
from quernel.locations import Location

__all__ = ["Expressions"]

_MAX_DEPTH: Final = 24
"""Deeper expressions are cut by temporaries: compilers take some 200 brackets, and readers fewer."""


class Expressions:
    """Writes the expressions of one function; temporaries go to the lines that are written at the moment."""

    def __init__(
        self,
        dialect: Dialect,
        types: Types,
        operators: Operators,
        indices: Indices,
        scope: Scope,
        lines: Lines,
        own: OwnValues | None,
    ) -> None:
        self._dialect = dialect
        self._types = types
        self._operators = operators
        self._indices = indices
        self._scope = scope
        self._lines = lines
        self._own = own

    def value(self, expr: Expr, loc: Location) -> Code:
        """The expression's value, for a statement at `loc`."""

        def combined(node: Expr, values: tuple[Code, ...]) -> Code:
            code = self._combined(node, values)
            return self.kept(code, node.type, loc) if code.depth > _MAX_DEPTH else code

        return fold_expression(expr, combined)

    def kept(self, code: Code, type_: ValueType, loc: Location) -> Code:
        """A temporary that holds the value."""
        name = self._scope.names.fresh("t")
        self._lines.add(f"const {self._types.value(type_)} {name} = {code};", loc)
        return primary(name)

    def _combined(self, expr: Expr, values: tuple[Code, ...]) -> Code:
        operators = self._operators
        match expr:
            case Const():
                self._types.value(expr.type)
                return literal(self._dialect, expr.value, expr.type)
            case Local():
                return primary(self._scope.locals[expr.name])
            case Param():
                return self._scope.scalars[expr.name]
            case ThreadIndex():
                return self._indices.value(expr.kind, expr.axis, self._scope.indices)
            case Shape():
                return self._scope.arrays[Root(RootKind.PARAM, expr.param)].shape[expr.axis]
            case Load():
                return self._load(expr.place, values)
            case Unary():
                return operators.unary(expr.op, scalar(expr.type), values[0])
            case Binary():
                return operators.binary(expr.op, scalar(expr.type), *values)
            case Compare():
                return operators.compare(expr.op, *values)
            case Fma():
                return operators.fma(scalar(expr.type), *values)
            case Select():
                if self._own is not None and self._own.has_select(expr):
                    return operators.select(values[0], values[1], self._types.own(values[2], expr.type))
                return operators.select(*values)
            case Cast():
                return operators.cast(scalar(expr.operand.type), expr.type, values[0])
            case Bitcast():
                return operators.bitcast(scalar(expr.operand.type), expr.type, values[0])
            case Math():
                return operators.math(expr.function, scalar(expr.operands[0].type), values)
            case VecMake():
                return self._types.make_vector(expr.type, values)
            case VecGet():
                return self._types.component(values[0], expr.type, expr.index)
            case StructMake():
                assert isinstance(expr.type, StructType)
                return self._types.make_struct(expr.type, values)
            case Field():
                assert isinstance(expr.operand.type, StructType)
                return self._types.field(values[0], expr.operand.type, expr.name)
            case _:
                assert_never(expr)

    # --- places -------------------------------------------------------------------------------------------------------

    def _load(self, place: Place, indices: tuple[Code, ...]) -> Code:
        array = self._scope.arrays[place.root]
        if _is_wide(array, place):
            assert isinstance(array.element, VectorType)
            scalars, element = self._scalars(array, indices), array.element.element
            parts = (self._types.loaded(primary(f"{scalars}[{n}]"), element) for n in range(array.element.length))
            return self._types.make_vector(array.element, tuple(parts))
        if _is_plain(array, place):
            assert not isinstance(place.type, StructType)
            found = self._element(array, indices)
            return self._types.loaded(found, place.type)
        address = self._byte_address(array, place, indices)
        code = self._types.load_at(address, place.type, array.kind, self._alignment(array, place))
        return Code(code.text, code.binding, 1 + max((index.depth for index in indices), default=0))

    def store(self, place: Place, indices: tuple[Code, ...], value: Code) -> str:
        """The statement that writes a value to a place."""
        array = self._scope.arrays[place.root]
        if _is_wide(array, place):
            assert isinstance(array.element, VectorType)
            return self._types.store_parts(self._scalars(array, indices), value, array.element, array.kind)
        if _is_plain(array, place):
            assert not isinstance(place.type, StructType)
            return f"{self._element(array, indices)} = {self._types.stored(value, place.type)};"
        address = self._byte_address(array, place, indices)
        return self._types.store_at(address, value, place.type, array.kind, self._alignment(array, place))

    def address(self, place: Place, indices: tuple[Code, ...]) -> str:
        """The address of a scalar, for an atomic."""
        array = self._scope.arrays[place.root]
        if _is_plain(array, place):
            return f"&{self._element(array, indices)}"
        pointer = self._types.pointer(place.type, array.kind, is_written=True)
        return f"({pointer})({self._byte_address(array, place, indices)})"

    def _alignment(self, array: ArrayCode, place: Place) -> int:
        return alignment_of(array.element, array.kind, self._dialect, place.view)

    def _element(self, array: ArrayCode, indices: tuple[Code, ...]) -> Code:
        offset = self._offset(array, indices)
        return Code(f"{array.pointer}[{offset}]", Binding.PRIMARY, offset.depth + 1)

    def _offset(self, array: ArrayCode, indices: tuple[Code, ...]) -> Code:
        """Where an element is, counted in elements.

        It is inside its array, and so is each of the sum's terms and partial sums: signed arithmetic does not overflow.
        """
        terms = [(index, array.strides[axis]) for axis, index in enumerate(indices) if axis in array.strides]
        if len(terms) == 1 and terms[0][1] is None:  # There is nothing to compute.
            index = terms[0][0]
            return index if self._types.offset is i64 else index.narrow or index
        total: Code | None = None
        for index, stride in terms:
            term = self._types.as_offset(index)
            term = term if stride is None else infix(Binding.PRODUCT, "*", term, stride)
            total = term if total is None else infix(Binding.SUM, "+", total, term)
        return primary("0") if total is None else Code(total.text, total.binding, total.depth)

    def _byte_address(self, array: ArrayCode, place: Place, indices: tuple[Code, ...]) -> str:
        bytes_before = view_offset(array.element, place.view)
        offset = self._offset(array, indices)
        before = f" + {bytes_before}" if bytes_before else ""
        if isinstance(array.element, StructType):
            if self._types.offset is not i64:  # Bytes may be more than elements.
                offset = unary(f"({self._dialect.types[i64]})", offset)
            return f"{array.pointer} + {inside(offset, Binding.PRODUCT)} * {array.element.itemsize}{before}"
        # A component of a vector: its address is counted in scalars of the vector's element type.
        assert isinstance(array.element, VectorType)
        number = bytes_before // array.element.element.itemsize
        after = f" + {number}" if number else ""
        return f"{self._scalars(array, indices)}{after}"

    def _scalars(self, array: ArrayCode, indices: tuple[Code, ...]) -> str:
        """The address of a vector's first component."""
        assert isinstance(array.element, VectorType)
        scalar_type = self._types.pointer(array.element.element, array.kind, is_written=True)
        return f"(({scalar_type})&{self._element(array, indices)})"


def scalar(type_: ValueType) -> DType:
    """The type of an operand that the verifier found to be a scalar."""
    assert isinstance(type_, DType)
    return type_


def _is_wide(array: ArrayCode, place: Place) -> bool:
    """Whether a whole vector is meant that is wider than memory is sure to be aligned: it goes by its components."""
    return isinstance(array.element, VectorType) and not place.view and array.element.itemsize > WIDEST_ALIGNMENT


def _is_plain(array: ArrayCode, place: Place) -> bool:
    """Whether the place is a whole element that is no struct."""
    return not place.view and not isinstance(array.element, StructType)
