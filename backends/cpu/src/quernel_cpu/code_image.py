"""Machine code that is mapped as it is: position-independent, without relocations, so that no linker is needed.

An image is a head that names what it defines and what it calls, and the code. What it calls in shared libraries it
finds in a table of addresses within the code, which is filled before the mapping becomes executable; from then on
nothing of it is writable.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import weakref
from contextlib import suppress
from typing import Any, Final

from quernel.errors import DeviceError

__all__ = ["MappedCode", "encoded_image", "is_image", "map_image"]

_MAGIC: Final = b"\x90quernel code 1\n"
_HEAD_BYTES = struct.Struct("<I")
_ADDRESS_BYTES: Final = 8


def encoded_image(code: bytes, exports: dict[str, int], imports: tuple[str, ...], table: int) -> bytes:
    """The bytes of an image. `exports`: offsets of what it defines; `table`: where addresses of `imports` belong."""
    tree = {"exports": exports, "imports": imports, "table": table}
    head = json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
    return _MAGIC + _HEAD_BYTES.pack(len(head)) + head + code


def is_image(payload: bytes) -> bool:
    """Whether these are the bytes of an image, and not of an object file."""
    return payload.startswith(_MAGIC)


class MappedCode:
    """An image in memory, until nothing refers to it; what a process still has when it ends stays mapped."""

    def __init__(self, address: int, num_bytes: int, exports: dict[str, int]) -> None:
        self._address = address
        self._exports = exports
        # A daemon thread may still run the code while the interpreter ends, which calls no finalizer of this kind.
        weakref.finalize(self, _unmap, address, num_bytes).atexit = False

    def address_of(self, name: str) -> int:
        """Where what the image calls `name` lies.

        Raises:
            DeviceError: it defines no such thing.
        """
        if name not in self._exports:
            raise DeviceError(f"the code image defines no {name}", fix="compile the kernel anew here")
        return self._address + self._exports[name]


def map_image(payload: bytes, library: str | None = None) -> MappedCode:
    """The code of an image, executable. `library`: a shared library that it may call, beside the C library.

    Raises:
        DeviceError: the image is damaged, calls what is not here, or may not be made executable.
    """
    code, exports, imports, table = _decoded(payload)
    addresses = struct.pack(f"<{len(imports)}Q", *_resolved(imports, library))
    num_bytes = -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = _libc()
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, num_bytes, writable, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise DeviceError(f"there is no memory for {num_bytes} bytes of code: {os.strerror(ctypes.get_errno())}")
    ctypes.memmove(address, code, len(code))
    ctypes.memmove(address + table, addresses, len(addresses))
    if libc.mprotect(address, num_bytes, mmap.PROT_READ | mmap.PROT_EXEC):
        reason = os.strerror(ctypes.get_errno())
        _unmap(address, num_bytes)
        raise DeviceError(
            f"the system does not let memory be made executable: {reason}", fix="allow it for this process"
        )
    return MappedCode(address, num_bytes, exports)


def _decoded(payload: bytes) -> tuple[bytes, dict[str, int], list[str], int]:
    """Code, exports, imports and the table's offset.

    Raises:
        DeviceError: the head is none, or points beyond the code.
    """
    start = len(_MAGIC) + _HEAD_BYTES.size
    try:
        (length,) = _HEAD_BYTES.unpack_from(payload, len(_MAGIC))
        tree = json.loads(payload[start : start + length])
        exports, imports, table = tree["exports"], tree["imports"], tree["table"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(repr(error)) from None
    code = payload[start + length :]
    if not code or not isinstance(exports, dict) or not isinstance(imports, list):
        raise _damaged("it has no code, or its head is none")
    if not all(isinstance(name, str) and name.isascii() for name in imports):
        raise _damaged("it calls what is no name")
    last_table = len(code) - _ADDRESS_BYTES * len(imports)
    if not all(_is_within(offset, len(code) - 1) for offset in exports.values()) or not _is_within(table, last_table):
        raise _damaged("it points beyond its end")
    return code, exports, imports, table


def _is_within(offset: object, last: int) -> bool:
    return type(offset) is int and 0 <= offset <= last


def _damaged(why: str) -> DeviceError:
    return DeviceError(f"the code image is damaged: {why}", fix="compile the kernel anew here")


def _resolved(names: list[str], library: str | None) -> list[int]:
    """The addresses of functions in the named library, in this process or in the C library's mathematics."""
    if not names:
        return []
    libraries = [ctypes.CDLL(None)]
    if library is not None:
        try:
            libraries.insert(0, ctypes.CDLL(library))
        except OSError as error:
            raise DeviceError(f"{library} cannot be loaded: {error}", fix="compile the kernel anew here") from error
    with suppress(OSError):
        libraries.append(ctypes.CDLL("libm.so.6"))
    return [_address(name, libraries) for name in names]


def _address(name: str, libraries: list[ctypes.CDLL]) -> int:
    for library in libraries:
        try:
            found = ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
        if found:
            return found
    raise DeviceError(f"the code calls {name}, which no library here has", fix="compile the kernel anew here")


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, size, number]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc


def _unmap(address: int, num_bytes: int) -> None:
    _libc().munmap(address, num_bytes)
