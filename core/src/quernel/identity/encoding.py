"""The one canonical encoding: tagged, length-prefixed, versioned; equal bytes mean equal values of equal types.

It never looks at `hash`, `id`, `repr`, `marshal`, paths, lines or times, so it is the same in every process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from types import CodeType
from typing import Any, ClassVar

from quernel.errors import KernelTypeError
from quernel.identity.bytecode import meaningful_flags, normalized_code, without_generated
from quernel.values import compared_fields

__all__ = ["SCHEMA", "Encoder", "StrictEncoder", "encode", "frame"]

SCHEMA = 1
"""The version of the encoding and of every formula that makes an id or a key of it."""

_HEADER = b"quernel\0" + SCHEMA.to_bytes(2, "little")
_pack_double = struct.Struct("<d").pack
_pack_doubles = struct.Struct("<dd").pack
_pack_code_head = struct.Struct("<10I").pack


def frame(tag: bytes, payload: bytes) -> bytes:
    """`payload` behind its one-byte tag and its length, so that concatenated frames can be told apart."""
    return tag + len(payload).to_bytes(8, "little") + payload


def text_frame(tag: bytes, text: str) -> bytes:
    """The frame of a text as UTF-8; lone surrogates, which Python allows, keep encodings of their own."""
    return frame(tag, text.encode("utf-8", "surrogatepass"))


def names_frame(names: tuple[str, ...]) -> bytes:
    """The frame of a sequence of names: their lengths, then all of them in one text."""
    return text_frame(b"w", ",".join(map(str, map(len, names))) + ":" + "".join(names))


def type_name(cls: type) -> str:
    """The name by which a class is known wherever it is imported: module and qualified name."""
    module = cls.__module__
    return f"{module}.{cls.__qualname__}" if isinstance(module, str) else cls.__qualname__


class Encoder:
    """Turns values into bytes. A value that has no content here is encoded as opaque, by its type's name alone.

    Types of Quernel take part through a method `__quernel_identity__(self) -> object`, whose result, something
    encodable, stands for them behind their class's qualified name.
    """

    writers: ClassVar[dict[type, Callable[[Any, Any], bytes]]] = {}

    def body(self, value: object) -> bytes:
        """The encoding of `value` without the version that `encode` puts before it."""
        writer = self.writers.get(type(value))
        return writer(self, value) if writer is not None else self.other(value)

    def other(self, value: object) -> bytes:
        """The encoding of a value whose exact type has no writer."""
        identity = getattr(type(value), "__quernel_identity__", None)
        if identity is not None:
            return text_frame(b"q", type(value).__qualname__) + self.body(identity(value))
        if isinstance(value, Enum):
            return text_frame(b"e", type_name(type(value))) + self.sequence(b"m", (value._name_, value._value_))
        if isinstance(value, type):
            return text_frame(b"C", type_name(value))
        return self._numpy_scalar(value) or self._subclass(value) or self.opaque(value)

    def opaque(self, value: object) -> bytes:
        """The encoding of a value that cannot be looked into."""
        return text_frame(b"?", type_name(type(value)))

    def unordered(self) -> Encoder:
        """The encoder of the elements of a set, which come in no particular order."""
        return self

    def sequence(self, tag: bytes, values: tuple[object, ...] | list[object]) -> bytes:
        """The encodings of `values` behind a tag and their number."""
        return b"".join([tag, len(values).to_bytes(8, "little"), *map(self.body, values)])

    def _numpy_scalar(self, value: object) -> bytes | None:
        from numpy import generic

        if not isinstance(value, generic) or value.dtype.hasobject or value.dtype.names is not None:
            return None
        described = text_frame(b"n", type_name(type(value))) + text_frame(b"s", value.dtype.str)
        return described + frame(b"b", value.tobytes())

    def _subclass(self, value: object) -> bytes | None:
        # A subclass may redefine any method, so its content is read through those of the builtin type.
        for base, plain in _PLAIN.items():
            if isinstance(value, base):
                return text_frame(b"u", type_name(type(value))) + self.body(plain(value))
        return None

    def _none(self, value: None) -> bytes:
        return b"N"

    def _ellipsis(self, value: object) -> bytes:
        return b"."

    def _bool(self, value: bool) -> bytes:
        return b"T" if value else b"F"

    def _int(self, value: int) -> bytes:
        return frame(b"i", value.to_bytes((value.bit_length() + 8) >> 3, "little", signed=True))

    def _float(self, value: float) -> bytes:
        return b"f" + _pack_double(value)

    def _complex(self, value: complex) -> bytes:
        return b"c" + _pack_doubles(value.real, value.imag)

    def _str(self, value: str) -> bytes:
        return text_frame(b"s", value)

    def _bytes(self, value: bytes) -> bytes:
        return frame(b"b", value)

    def _tuple(self, value: tuple[object, ...]) -> bytes:
        return self.sequence(b"t", value)

    def _list(self, value: list[object]) -> bytes:
        return self.sequence(b"l", value)

    def _dict(self, value: Mapping[object, object]) -> bytes:
        keys = [key for key in value if type(key) is str]
        if len(keys) != len(value):
            return self.opaque(value)
        return self.sequence(b"d", [part for key in sorted(keys) for part in (key, value[key])])

    def _frozenset(self, value: frozenset[object]) -> bytes:
        encoded = sorted(map(self.unordered().body, value))
        return b"".join([b"z", len(encoded).to_bytes(8, "little"), *encoded])

    def _code(self, code: CodeType) -> bytes:
        opcodes, arguments, constants = normalized_code(code)
        names, variables = without_generated(code.co_names), without_generated(code.co_varnames)
        handlers = code.co_exceptiontable
        head = _pack_code_head(
            meaningful_flags(code),
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            len(names),
            len(variables),
            len(code.co_freevars),
            len(code.co_cellvars),
            len(opcodes),
            len(handlers),
        )
        all_names = names_frame((code.co_name, *names, *variables, *code.co_freevars, *code.co_cellvars))
        return b"".join([b"o", head, opcodes, arguments, handlers, all_names, self.sequence(b"t", constants)])


Encoder.writers.update(
    {
        type(None): Encoder._none,
        type(...): Encoder._ellipsis,
        bool: Encoder._bool,
        int: Encoder._int,
        float: Encoder._float,
        complex: Encoder._complex,
        str: Encoder._str,
        bytes: Encoder._bytes,
        tuple: Encoder._tuple,
        list: Encoder._list,
        dict: Encoder._dict,
        frozenset: Encoder._frozenset,
        CodeType: Encoder._code,
    }
)

_PLAIN: dict[type, Callable[[Any], object]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


class StrictEncoder(Encoder):
    """Encodes what Quernel itself passes, where an opaque value would make two different things look the same.

    Frozen attrs objects (options, variants) are their class's qualified name and their compared fields.
    """

    def opaque(self, value: object) -> bytes:
        """Encodes an attrs object, refuses the rest.

        Raises:
            KernelTypeError: the value has no canonical encoding.
        """
        cls = type(value)
        fields = compared_fields(cls)
        if fields is None or cls.__hash__ is None:  # attrs takes the hash away from what may change
            raise KernelTypeError(
                f"a value of type {type_name(cls)} has no canonical encoding",
                fix="make it a frozen attrs class, or give it a method __quernel_identity__ that returns plain values",
            )
        named = [part for name in fields for part in (name, getattr(value, name))]
        return text_frame(b"v", cls.__qualname__) + self.sequence(b"d", named)


def encode(value: object) -> bytes:
    """The canonical encoding of `value`, versioned."""
    return _HEADER + Encoder().body(value)
