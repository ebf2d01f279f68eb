"""Vectors and structs as C types, and how they are read from memory and written to it.

A vector is the language's own. A struct is a C struct of values; in memory it is bytes at the offsets that its type
says, so functions take it apart and put it together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from quernel.codegen.dialect import Dialect
from quernel.codegen.helpers import Helpers
from quernel.codegen.names import HELPER_PREFIX, Names
from quernel.codegen.text import Binding, Code, call, infix, primary, unary
from quernel.dtypes import DType, StructType, ValueType, VectorType, bf16, f16, i64, u8, u16, u32, u64
from quernel.ir.nodes import RootKind

__all__ = ["NARROW", "WIDEST_ALIGNMENT", "Types", "alignment_of", "view_offset"]

NARROW = (f16, bf16)
"""Float types that are values of f32, and 16 bits in memory."""

WIDEST_ALIGNMENT: Final = 16
"""Bytes to which memory is sure to be aligned, arguments' and the kernel's own, also where what it holds is wider."""

_LETTERS = "xyzw"
_UNSIGNED = {1: u8, 2: u16, 4: u32, 8: u64}


class Types:
    """The types of one text, and the conversions between values and memory.

    Attributes:
        offset: of places in arrays, counted in elements: i64, or i32 where all are known to fit.
    """

    def __init__(
        self, dialect: Dialect, helpers: Helpers, names: Names, structs: dict[StructType, str], offset: DType = i64
    ) -> None:
        self.offset = offset
        self._dialect = dialect
        self._helpers = helpers
        self._structs = {struct: names.fresh(name) for struct, name in structs.items()}
        self._fields = {struct: _field_names(dialect, names, struct) for struct in structs}
        self.definitions = [self._definition(struct) for struct in structs]
        self.functions: dict[str, str] = {}
        """Functions that load and store structs, each after those that it calls."""
        self._function_names: dict[str, str] = {}

    def value(self, type_: ValueType) -> str:
        """The type of a value."""
        if isinstance(type_, StructType):
            return self._structs[type_]
        if isinstance(type_, VectorType):
            scalar = type_.element
            self._helpers.note(scalar)
            return self._vector(
                self._dialect.memory_type(scalar) if scalar.is_bool else self._dialect.types[scalar], type_
            )
        self._helpers.note(type_)
        return self._dialect.types[type_]

    def memory(self, type_: ValueType) -> str:
        """The type of an element in memory, as pointers have it."""
        if isinstance(type_, StructType):
            return self._dialect.types[u8]
        if isinstance(type_, VectorType):
            return self._vector(self._dialect.memory_type(type_.element), type_)
        self._helpers.note(type_)
        return self._dialect.memory_type(type_)

    def _vector(self, scalar: str, type_: VectorType) -> str:
        self._helpers.features["vectors"] = None
        return self._dialect.vector.format(scalar=scalar, length=type_.length)

    def as_offset(self, integer: Code) -> Code:
        """An i64 that is an offset or part of one."""
        if self.offset is i64:
            return integer
        return integer.narrow or unary(f"({self._dialect.types[self.offset]})", integer)

    # --- values -------------------------------------------------------------------------------------------------------

    def make_vector(self, type_: VectorType, components: tuple[Code, ...]) -> Code:
        """A vector of its components."""
        return self._make(self.value(type_), components)

    def _make(self, name: str, components: tuple[Code, ...]) -> Code:
        listed = ", ".join(component.text for component in components)
        text = self._dialect.vector_value.format(type=name, name=name, components=listed)
        return Code(text, Binding.PRIMARY, 1 + max(component.depth for component in components))

    def component(self, vector: Code, type_: DType, index: int) -> Code:
        """One component of a vector value."""
        text = vector.text if vector.binding is Binding.PRIMARY else f"({vector.text})"
        found = Code(f"{text}.{_LETTERS[index]}", Binding.PRIMARY, vector.depth)
        return infix(Binding.EQUALITY, "!=", found, primary("0")) if type_.is_bool else found

    def make_struct(self, type_: StructType, values: tuple[Code, ...]) -> Code:
        """A struct of its fields' values."""
        name = self._structs[type_]
        maker = self.functions_for(f"make {name}", lambda full: self._maker(full, type_))
        listed = ", ".join(f"{{{number}}}" for number in range(len(values)))
        return call(f"{maker}({listed})", *values)

    def _maker(self, full: str, type_: StructType) -> str:
        fields = self._fields[type_]
        params = ", ".join(f"{self.value(field.type)} {name}" for field, name in zip(type_.fields, fields, strict=True))
        lines = [f"{self._dialect.function} {self.value(type_)} {full}({params})", "{"]
        lines.append(f"    {self.value(type_)} qn_value;")
        lines += [f"    qn_value.{name} = {name};" for name in fields]
        return "\n".join([*lines, "    return qn_value;", "}", ""])

    def field(self, struct: Code, type_: StructType, name: str) -> Code:
        """One field of a struct value."""
        position = next(number for number, field in enumerate(type_.fields) if field.name == name)
        text = struct.text if struct.binding is Binding.PRIMARY else f"({struct.text})"
        return Code(f"{text}.{self._fields[type_][position]}", Binding.PRIMARY, struct.depth)

    def own(self, value: Code, type_: ValueType) -> Code:
        """The value as one that the compiler takes for the thread's own; needs a dialect with a form for that."""
        self._helpers.features["own"] = None
        if not isinstance(type_, StructType):
            return call(self._dialect.own, value)
        name = self.functions_for(f"own {self._structs[type_]}", lambda full: self._owner(full, type_))
        return call(f"{name}({{0}})", value)

    def _owner(self, full: str, type_: StructType) -> str:
        lines = [f"{self._dialect.function} {self.value(type_)} {full}({self.value(type_)} qn_value)", "{"]
        for field, name in zip(type_.fields, self._fields[type_], strict=True):
            part = primary(f"qn_value.{name}")
            lines.append(f"    {part} = {self.own(part, field.type)};")
        return "\n".join([*lines, "    return qn_value;", "}", ""])

    # --- memory -------------------------------------------------------------------------------------------------------

    def loaded(self, stored: Code, type_: DType | VectorType) -> Code:
        """The value of what stands in memory."""
        if isinstance(type_, VectorType):
            if type_.element not in NARROW:
                return stored
            name = self.functions_for(f"load {type_}", lambda full: self._vector_converter(full, type_, loads=True))
            return call(f"{name}({{0}})", stored)
        if type_.is_bool:
            return infix(Binding.EQUALITY, "!=", stored, primary("0"))
        return call(f"{self._helpers.of_bits(type_)}({{0}})", stored) if type_ in NARROW else stored

    def stored(self, value: Code, type_: DType | VectorType) -> Code:
        """What is written to memory for a value."""
        if isinstance(type_, VectorType):
            if type_.element not in NARROW:
                return value
            name = self.functions_for(f"store {type_}", lambda full: self._vector_converter(full, type_, loads=False))
            return call(f"{name}({{0}})", value)
        return call(f"{self._helpers.to_bits(type_)}({{0}})", value) if type_ in NARROW else value

    def _vector_converter(self, full: str, type_: VectorType, *, loads: bool) -> str:
        source, target = (self.memory(type_), self.value(type_))[:: 1 if loads else -1]
        convert = self._helpers.of_bits(type_.element) if loads else self._helpers.to_bits(type_.element)
        parts = tuple(primary(f"{convert}(v.{letter})") for letter in _LETTERS[: type_.length])
        made = self._make(target, parts)
        return f"{self._dialect.function} {target} {full}({source} v)\n{{\n    return {made};\n}}\n"

    def pointer(self, type_: ValueType, kind: RootKind, *, is_written: bool) -> str:
        """The type of a pointer to elements, up to and with the star."""
        return f"{self._dialect.space(kind)}{'' if is_written else 'const '}{self.memory(type_)} *"

    def load_at(self, address: str, type_: ValueType, kind: RootKind, alignment: int) -> Code:
        """The value at an address in bytes.

        `alignment`: what the address is sure to be a multiple of. A vector that needs more is put together from its
        components, a scalar from bytes.
        """
        if isinstance(type_, StructType):
            # One function serves every address that is aligned as the type asks.
            sure = math.gcd(alignment, type_.alignment)
            key = f"load {self._structs[type_]}{_less(sure, type_)} {kind.value}"
            loader = self.functions_for(key, lambda full: self._loader(full, type_, kind, sure))
            return primary(f"{loader}({address})")
        if alignment % type_.alignment == 0:
            pointer = self.pointer(type_, kind, is_written=False)
            return self.loaded(Code(f"*({pointer})({address})", Binding.UNARY), type_)
        if isinstance(type_, VectorType):
            element = type_.element
            starts = (number * element.itemsize for number in range(type_.length))
            parts = [
                self.load_at(f"{address} + {start}", element, kind, math.gcd(alignment, start)) for start in starts
            ]
            return self.make_vector(type_, tuple(parts))
        return self._of_unsigned(self._bytes_loaded(address, type_.itemsize, kind), type_)

    def store_at(self, address: str, value: Code, type_: ValueType, kind: RootKind, alignment: int) -> str:
        """The statement that writes a value to an address in bytes. `alignment` is as for a load."""
        if isinstance(type_, StructType):
            sure = math.gcd(alignment, type_.alignment)
            key = f"store {self._structs[type_]}{_less(sure, type_)} {kind.value}"
            storer = self.functions_for(key, lambda full: self._storer(full, type_, kind, sure))
            return f"{storer}({address}, {value});"
        if alignment % type_.alignment == 0:
            pointer = self.pointer(type_, kind, is_written=True)
            return f"*({pointer})({address}) = {self.stored(value, type_)};"
        if isinstance(type_, VectorType):
            key = f"store {type_}{_less(alignment, type_)} {kind.value}"
            storer = self.functions_for(key, lambda full: self._vector_storer(full, type_, kind, alignment))
            return f"{storer}({address}, {value});"
        return self._bytes_stored(address, self._to_unsigned(value, type_), type_.itemsize, kind)

    def store_parts(self, address: str, value: Code, type_: VectorType, kind: RootKind) -> str:
        """The statement that writes a vector's components one by one, the first one to an address of its type."""
        element = type_.element

        def make(full: str) -> str:
            parts = (self.component(primary("v"), element, number) for number in range(type_.length))
            lines = (f"p[{number}] = {self.stored(part, element)};" for number, part in enumerate(parts))
            return self._of_whole_value(full, type_, self.pointer(element, kind, is_written=True), lines)

        return f"{self.functions_for(f'store parts of {type_} {kind.value}', make)}({address}, {value});"

    def _vector_storer(self, full: str, type_: VectorType, kind: RootKind, alignment: int) -> str:
        element = type_.element
        starts = [number * element.itemsize for number in range(type_.length)]
        parts = (self.component(primary("v"), element, number) for number in range(type_.length))
        lines = (
            self.store_at(f"p + {start}", part, element, kind, math.gcd(alignment, start))
            for start, part in zip(starts, parts, strict=True)
        )
        return self._of_whole_value(full, type_, self.pointer(u8, kind, is_written=True), lines)

    def _of_whole_value(self, full: str, type_: VectorType, pointer: str, lines: Iterable[str]) -> str:
        """A function, so that the value is whole before its first component is written, which it may read."""
        body = "".join(f"    {line}\n" for line in lines)
        return f"{self._dialect.function} void {full}({pointer}p, {self.value(type_)} v)\n{{\n{body}}}\n"

    def _bytes_loaded(self, address: str, size: int, kind: RootKind) -> Code:
        """An unsigned integer put together from bytes."""
        c_type = self.value(_UNSIGNED[size])
        parts = " | ".join(f"({c_type})p[{n}]{f' << {8 * n}' if n else ''}" for n in range(size))

        def make(full: str) -> str:
            head = f"{self._dialect.function} {c_type} {full}({self.pointer(u8, kind, is_written=False)}p)"
            return f"{head}\n{{\n    return ({c_type})({parts});\n}}\n"

        return primary(f"{self.functions_for(f'load {size} bytes {kind.value}', make)}({address})")

    def _bytes_stored(self, address: str, value: Code, size: int, kind: RootKind) -> str:
        """The statement that writes an unsigned integer byte by byte."""
        c_type, byte = self.value(_UNSIGNED[size]), self.value(u8)

        def make(full: str) -> str:
            pointer = self.pointer(u8, kind, is_written=True)
            lines = "".join(f"    p[{n}] = ({byte})(x >> {8 * n});\n" for n in range(size))
            return f"{self._dialect.function} void {full}({pointer}p, {c_type} x)\n{{\n{lines}}}\n"

        return f"{self.functions_for(f'store {size} bytes {kind.value}', make)}({address}, {value});"

    def _of_unsigned(self, bits: Code, type_: DType) -> Code:
        """The value whose bytes make that unsigned integer."""
        if type_.is_bool or type_ in NARROW:
            return self.loaded(bits, type_)
        if type_.is_float:
            return call(self._dialect.bitcasts[_UNSIGNED[type_.itemsize], type_], bits)
        return unary(f"({self.value(type_)})", bits)

    def _to_unsigned(self, value: Code, type_: DType) -> Code:
        """The unsigned integer that a value's bytes make."""
        if type_ in NARROW:
            return self.stored(value, type_)
        if type_.is_float:
            return call(self._dialect.bitcasts[type_, _UNSIGNED[type_.itemsize]], value)
        return unary(f"({self.value(_UNSIGNED[type_.itemsize])})", value)

    def _loader(self, full: str, type_: StructType, kind: RootKind, alignment: int) -> str:
        lines = [
            f"{self._dialect.function} {self.value(type_)} {full}({self.pointer(type_, kind, is_written=False)}p)",
            "{",
        ]
        lines.append(f"    {self.value(type_)} qn_value;")
        for field, name in zip(type_.fields, self._fields[type_], strict=True):
            start = field.offset_bytes
            value = self.load_at(f"p + {start}", field.type, kind, math.gcd(alignment, start))
            lines.append(f"    qn_value.{name} = {value};")
        return "\n".join([*lines, "    return qn_value;", "}", ""])

    def _storer(self, full: str, type_: StructType, kind: RootKind, alignment: int) -> str:
        pointer = self.pointer(type_, kind, is_written=True)
        lines = [f"{self._dialect.function} void {full}({pointer}p, {self.value(type_)} qn_value)", "{"]
        for field, name in zip(type_.fields, self._fields[type_], strict=True):
            value, start = primary(f"qn_value.{name}"), field.offset_bytes
            stored = self.store_at(f"p + {start}", value, field.type, kind, math.gcd(alignment, start))
            lines.append(f"    {stored}")
        return "\n".join([*lines, "}", ""])

    def functions_for(self, key: str, make: Callable[[str], str]) -> str:
        """The name of a function of this text, whose definition `make(name)` gives when it is first asked for."""
        if key not in self._function_names:
            name = HELPER_PREFIX + "".join(letter if letter.isalnum() else "_" for letter in key)
            taken, full, number = self._function_names.values(), name, 1
            while full in taken:  # Users' structs may be called what parts of keys become.
                number += 1
                full = f"{name}_{number}"
            self._function_names[key] = full
            self.functions[full] = make(full)
        return self._function_names[key]

    def _definition(self, struct: StructType) -> str:
        lines = ["typedef struct {"]
        for field, name in zip(struct.fields, self._fields[struct], strict=True):
            lines.append(f"    {self.value(field.type)} {name};")
        return "\n".join([*lines, f"}} {self._structs[struct]};", ""])


def view_offset(element: ValueType, view: tuple[str | int, ...]) -> int:
    """Bytes from the start of an element to the part that the view names."""
    offset, type_ = 0, element
    for step in view:
        if isinstance(step, int):
            assert isinstance(type_, VectorType)
            type_ = type_.element
            offset += step * type_.itemsize
        else:
            assert isinstance(type_, StructType)
            field = type_.field(step)
            assert field is not None
            offset += field.offset_bytes
            type_ = field.type
    return offset


def alignment_of(element: ValueType, kind: RootKind, dialect: Dialect, view: tuple[str | int, ...] = ()) -> int:
    """What the address of a part of an array's element is sure to be a multiple of, in bytes."""
    is_anywhere = kind is RootKind.PRIVATE and isinstance(element, StructType) and not dialect.aligned
    alignment = 1 if is_anywhere else min(element.alignment, WIDEST_ALIGNMENT)
    return math.gcd(alignment, view_offset(element, view))


def _less(alignment: int, type_: ValueType) -> str:
    """Of a function's name, where it takes addresses that the type is not aligned to."""
    return "" if alignment % type_.alignment == 0 else f" aligned to {alignment}"


def _field_names(dialect: Dialect, outer: Names, struct: StructType) -> tuple[str, ...]:
    names = Names(dialect.reserved, outer)  # clear of the types' names too, as the fields become parameters
    return tuple(names.fresh(field.name) for field in struct.fields)
