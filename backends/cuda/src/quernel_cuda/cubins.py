"""What a cubin says of its kernels: the registers and the memory that each takes.

A cubin is an ELF file. Its section `.nv.info` holds attributes of functions, each a format, a kind, a size and, for the
kinds read here, a symbol's number and a value; static shared memory is the size of a section of the kernel's own. So
the facts do not hang on the words of the assembler's log, which change from version to version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["resources"]

_MAGIC: Final = b"\x7fELF\x02\x01"
"""An ELF file of 64 bits, little-endian."""
_SECTION_TABLE: Final = struct.Struct("<Q")
_SECTION_TABLE_AT: Final = 0x28
_SECTION_SIZES: Final = struct.Struct("<HHH")
"""Of the section table: bytes of an entry, how many, and which of them holds the names."""
_SECTION_SIZES_AT: Final = 0x3A
_SECTION: Final = struct.Struct("<II16xQQI")
"""An entry: where its name stands, its kind, its place, its bytes, and the section that it goes with."""
_SYMBOL: Final = struct.Struct("<I20x")
_ATTRIBUTE: Final = struct.Struct("<BBH")
_OF_FUNCTION: Final = struct.Struct("<II")

_SIZED: Final = 4
"""The format of an attribute whose size follows it; of all others a value of at most two bytes does."""
_FRAME_SIZE: Final = 0x11
_REGISTER_COUNT: Final = 0x2F
_NAMES: Final = {_REGISTER_COUNT: "registers", _FRAME_SIZE: "stack_bytes"}

_RESERVED: Final = ".nv.shared.reserved.0"
_RESERVED_BYTES: Final = 1024
"""Where there is such a section, from architecture 9.0 on, a block's own shared memory comes behind the system's."""


class _Section(NamedTuple):
    name: str
    data: bytes
    num_bytes: int
    link: int


def resources(cubin: bytes, entry: str) -> dict[str, int]:
    """What a block or thread of the kernel `entry` takes: `registers`, `stack_bytes`, `static_shared_bytes`.

    Raises:
        ValueError: the bytes are no cubin, or have no such kernel.
    """
    try:
        sections = _sections(cubin)
        taken: dict[str, int] = {}
        for section in sections:
            if section.name == ".nv.info":
                names = _symbol_names(sections, section.link)
                for kind, symbol, value in _attributes(section.data):
                    if names[symbol] == entry and kind in _NAMES:
                        taken[_NAMES[kind]] = value
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a damaged cubin: {error}") from error
    if "registers" not in taken:
        raise ValueError(f"the cubin has no kernel {entry!r}")
    sizes = {section.name: section.num_bytes for section in sections}
    shared = sizes.get(f".nv.shared.{entry}", 0)
    if shared and _RESERVED in sizes:
        shared -= _RESERVED_BYTES
    return {"stack_bytes": 0, **taken, "static_shared_bytes": shared}


def _sections(cubin: bytes) -> list[_Section]:
    if not cubin.startswith(_MAGIC):
        raise ValueError("no cubin: it is no ELF file of 64 bits")
    (table,) = _SECTION_TABLE.unpack_from(cubin, _SECTION_TABLE_AT)
    size, count, names = _SECTION_SIZES.unpack_from(cubin, _SECTION_SIZES_AT)
    entries = [_SECTION.unpack_from(cubin, table + size * number) for number in range(count)]
    titles = entries[names][2]
    return [
        _Section(_text(cubin, titles + name), cubin[start : start + num_bytes], num_bytes, link)
        for name, _, start, num_bytes, link in entries
    ]


def _symbol_names(sections: list[_Section], number: int) -> list[str]:
    """The names of the symbols in the symbol table of that number."""
    table = sections[number]
    names = sections[table.link].data
    return [_text(names, start) for (start,) in _SYMBOL.iter_unpack(table.data)]


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The attributes of functions: kind, the symbol's number, value."""
    at = 0
    while at < len(data):
        form, kind, size = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if form == _SIZED:
            if size == _OF_FUNCTION.size:
                yield kind, *_OF_FUNCTION.unpack_from(data, at)
            at += size


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
