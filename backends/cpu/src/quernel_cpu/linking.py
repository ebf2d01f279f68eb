"""From an object file to an image that needs no linker: sections laid out, their references to each other resolved.

Takes what LLVM makes of a kernel on x86-64 systems with ELF: code and constants that refer to each other by distance,
and calls of functions elsewhere. An object with anything else (variables, thread-local storage, exception tables,
absolute addresses) is refused, and stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from quernel_cpu.code_image import encoded_image

__all__ = ["linked_image"]

_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_CLASS64_LITTLE, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOTE, _REL = 1, 2, 4, 7, 9
_WRITE, _ALLOC, _TLS = 1, 2, 0x400
_UNDEFINED = 0
_PC32, _PLT32, _PC64 = 2, 4, 24
_GOTPCREL = frozenset({9, 41, 42})
_JUMP = b"\xff\x25"  # jmp *distance(%rip)
_STUB_BYTES = 8
_LINE_BYTES = 64
_MOST_ALIGNED = 4096  # a mapping starts at a page


class _RefusedError(Exception):
    """The object holds something that an image cannot."""


def linked_image(object_code: bytes, *exports: str) -> bytes | None:
    """The image that defines `exports`; `None` if the object holds what an image cannot."""
    try:
        return _Linker(object_code).image(exports)
    except (_RefusedError, struct.error, IndexError, ValueError, OverflowError):
        return None


@attrs.frozen
class _Section:
    name: str
    type: int
    flags: int
    content: bytes
    link: int
    info: int
    alignment: int


@attrs.frozen
class _Symbol:
    name: str
    type: int
    section: int
    value: int


class _Linker:
    """The parts of one object, and the code as it grows."""

    def __init__(self, data: bytes) -> None:
        head = _FILE.unpack_from(data)
        if not head[0].startswith(_CLASS64_LITTLE) or head[1:3] != (_RELOCATABLE, _X86_64):
            raise _RefusedError("no relocatable object of x86-64")
        self._sections = list(_sections(data, offset=head[6], count=head[12], names=head[13]))
        self._symbols = self._read_symbols()
        self._code = bytearray()
        self._starts: dict[int, int] = {}
        self._stubs: dict[str, int] = {}

    def image(self, exports: tuple[str, ...]) -> bytes:
        for number, section in enumerate(self._sections):
            if _is_kept(section):
                self._align(section.alignment)
                self._starts[number] = len(self._code)
                self._code += section.content
        relocations = list(self._relocations())
        imports = self._imports(relocations)
        self._align(_LINE_BYTES)
        for _, kind, symbol, _ in relocations:
            if symbol.section == _UNDEFINED and kind == _PLT32 and symbol.name not in self._stubs:
                self._stubs[symbol.name] = len(self._code)
                self._code += bytes(_STUB_BYTES)
        self._align(_LINE_BYTES)
        table = len(self._code)
        self._code += bytes(8 * len(imports))
        slots = {name: table + 8 * number for number, name in enumerate(imports)}
        for name, stub in self._stubs.items():
            self._code[stub : stub + len(_JUMP)] = _JUMP
            self._put_distance(stub + len(_JUMP), slots[name] - 4)
        for place, kind, symbol, addend in relocations:
            if kind in _GOTPCREL:
                self._put_distance(place, slots[symbol.name] + addend)
            elif kind == _PC64:
                struct.pack_into("<q", self._code, place, self._address(symbol) + addend - place)
            elif symbol.section == _UNDEFINED:
                self._put_distance(place, self._stubs[symbol.name] + addend)
            else:
                self._put_distance(place, self._address(symbol) + addend)
        return encoded_image(bytes(self._code), self._exports(exports), imports, table)

    def _align(self, alignment: int) -> None:
        self._code += bytes(-len(self._code) % max(alignment, 1))

    def _put_distance(self, place: int, target: int) -> None:
        """A signed 32-bit distance from `place`; refused where it does not fit."""
        struct.pack_into("<i", self._code, place, target - place)

    def _relocations(self) -> Iterator[tuple[int, int, _Symbol, int]]:
        """Place, kind, symbol and addend of each reference within what is kept."""
        for section in self._sections:
            if section.info not in self._starts or section.type not in (_RELA, _REL):
                continue
            if section.type == _REL:
                raise _RefusedError("references without addends")
            start = self._starts[section.info]
            for offset, info, addend in _RELOCATION.iter_unpack(section.content):
                kind, symbol = info & 0xFFFFFFFF, self._symbols[info >> 32]
                is_elsewhere = symbol.section == _UNDEFINED
                if kind not in _GOTPCREL | {_PC32, _PLT32, _PC64}:
                    raise _RefusedError(f"a reference of kind {kind}")
                if is_elsewhere != (kind in _GOTPCREL) and not (is_elsewhere and kind == _PLT32):
                    raise _RefusedError(f"a reference of kind {kind} to {symbol.name}")
                yield start + offset, kind, symbol, addend

    @staticmethod
    def _imports(relocations: list[tuple[int, int, _Symbol, int]]) -> tuple[str, ...]:
        names = {symbol.name for _, _, symbol, _ in relocations if symbol.section == _UNDEFINED}
        if "" in names:
            raise _RefusedError("a reference without a name")
        return tuple(sorted(names))

    def _address(self, symbol: _Symbol) -> int:
        if symbol.section not in self._starts:
            raise _RefusedError(f"{symbol.name} lies elsewhere")
        return self._starts[symbol.section] + symbol.value

    def _exports(self, names: tuple[str, ...]) -> dict[str, int]:
        defined = {symbol.name: symbol for symbol in self._symbols if symbol.name and symbol.section != _UNDEFINED}
        if not defined.keys() >= set(names):
            raise _RefusedError("a name is not defined")
        return {name: self._address(defined[name]) for name in names}

    def _read_symbols(self) -> list[_Symbol]:
        tables = [section for section in self._sections if section.type == _SYMTAB]
        if len(tables) != 1:
            raise _RefusedError("not one table of symbols")
        names = self._sections[tables[0].link].content
        found = []
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(tables[0].content):
            found.append(_Symbol(_text(names, name), info & 15, section, value))
        return found


def _sections(data: bytes, *, offset: int, count: int, names: int) -> Iterator[_Section]:
    heads = [_SECTION.unpack_from(data, offset + _SECTION.size * number) for number in range(count)]
    listed = data[heads[names][4] : heads[names][4] + heads[names][5]]
    for name, kind, flags, _, start, size, link, info, alignment, _ in heads:
        yield _Section(_text(listed, name), kind, flags, data[start : start + size], link, info, alignment)


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()


def _is_kept(section: _Section) -> bool:
    """Whether a section is code or constants; one that is neither and that the code may need is refused."""
    if not section.flags & _ALLOC or not section.content or section.type == _NOTE or section.name == ".eh_frame":
        return False
    is_plain = section.type == _PROGBITS and not section.flags & (_WRITE | _TLS)
    if not is_plain or section.name == ".gcc_except_table" or section.alignment > _MOST_ALIGNED:
        raise _RefusedError(f"a section {section.name}")
    return True
