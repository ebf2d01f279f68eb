"""Native launches made callable: the code, kept for other processes, and the record of each launch's form.

There are some only where what the code takes for granted holds: CPython of 64 bits with its lock, objects without
fields for debugging. A trial on arrays of several layouts decides; where it fails, launches are read in Python.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from quernel import settings
from quernel.compiler.artifacts import HeaderParameter, Slot, SlotKind
from quernel.dtypes import BY_NAME, f32, f64
from quernel.errors import DeviceError
from quernel.forks import in_child
from quernel.runtime.argument_types import alignment_of
from quernel.runtime.scalars import LARGEST_FLOAT
from quernel_cpu import native_launch as native
from quernel_cpu.code_image import MappedCode, is_image, map_image
from quernel_cpu.host import host
from quernel_cpu.host_store import keep, kept

if TYPE_CHECKING:
    from logging import Logger

    from quernel.runtime.operations import Operand
    from quernel.store import Environment

__all__ = ["native_launch", "native_repeat"]

NativeLaunch = Callable[..., Any]
"""`launch(*arguments)`: `True` if it has launched, the cells if it has not, `None` for arguments of other kinds."""

_CONTIGUOUS, _WRITABLE, _WARNS = 0x1, 0x400, 0x80000000
_METH_FASTCALL = 0x80
_NAN = struct.unpack("<q", struct.pack("<d", math.nan))[0]


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Native:
    """The native function of this process. Its code stays for as long as the process: functions refer to it."""

    def __init__(self, address: int, keep_alive: object) -> None:
        self._keep_alive = keep_alive
        self._method = _MethodDef(b"launch", address, _METH_FASTCALL, None)
        make = ctypes.pythonapi["PyCMethod_New"]
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
        self._make: Any = make
        self._api = tuple(
            ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p).value or 0
            for name in ("Py_IncRef", "PyLong_AsLongLongAndOverflow", "PyBytes_FromStringAndSize")
        )

    def made(
        self,
        operands: list[list[int]],
        cells: list[list[int]],
        placing: int,
        entry: int,
        geometry: bytes,
        num_items: int,
        state: ctypes.Array[ctypes.c_char],
        keep_alive: object,
    ) -> NativeLaunch:
        """A function for launches of one form, which holds on to all that its record points to."""
        start = ctypes.cast(ctypes.c_char_p(geometry), ctypes.c_void_p).value or 0
        head = [len(operands), len(cells), entry, start, num_items, ctypes.addressof(state), id(None), id(True)]
        words = [*head, *self._api, placing, 0]
        for operand in operands:
            words += operand + [0] * (native.OPERAND_WORDS - len(operand))
        for cell in cells:
            words += cell
        record = struct.pack(f"<{len(words)}q", *words)
        held = (geometry, state, keep_alive)
        launch: NativeLaunch = self._make(ctypes.addressof(self._method), record, held, None)
        return launch


_TRIED: Final[list[_Native | None]] = []
_lock = threading.Lock()


def native_launch(
    operands: tuple[Operand, ...],
    params: tuple[HeaderParameter, ...],
    slots: tuple[Slot, ...],
    aligned16: bool,
    entry: int,
    geometry: bytes,
    num_items: int,
    state: ctypes.Array[ctypes.c_char],
    keep_alive: object,
) -> NativeLaunch | None:
    """A function that reads arguments of these kinds and launches; `None` where there is none for them.

    It launches as often as `state` says (`native_launch.STATE`), and gives the packed cells when that is used up.
    """
    if not settings.native_launches():
        return None
    made = _native()
    if made is None:
        return None
    # Equal dtypes may be several objects, and it is objects that are compared.
    form = _form(operands, tuple([id(dtype) for _, dtype, _ in operands]), params, slots)
    if form is None:
        return None
    described, cells, has_arrays = form
    placing = int(aligned16) if has_arrays else 2
    return made.made(described, cells, placing, entry, geometry, num_items, state, (operands, keep_alive))


@lru_cache(maxsize=512)
def _form(
    operands: tuple[Operand, ...],
    dtype_ids: tuple[int, ...],
    params: tuple[HeaderParameter, ...],
    slots: tuple[Slot, ...],
) -> tuple[list[list[int]], list[list[int]], bool] | None:
    """The words of all operands and cells, which launches of every shape share, and whether there are host arrays."""
    described = [_described(operand, parameter) for operand, parameter in zip(operands, params, strict=True)]
    cells = [_cell(slot, operands) for slot in slots]
    if len(described) > native.MAX_OPERANDS or len(cells) > native.MAX_CELLS:
        return None
    known = [operand for operand in described if operand is not None]
    written = [cell for cell in cells if cell is not None]
    if len(known) < len(described) or len(written) < len(cells):
        return None
    return known, written, any(dtype is not None for _, dtype, _ in operands)


def native_repeat(
    arguments: bytes,
    entry: int,
    geometry: bytes,
    num_items: int,
    state: ctypes.Array[ctypes.c_char],
    keep_alive: object,
) -> NativeLaunch | None:
    """The same for one launch whose cells are known: it takes no arguments."""
    made = _native() if settings.native_launches() else None
    if made is None or len(arguments) > 8 * native.MAX_CELLS:
        return None
    cells = [[native.CONSTANT, cell, 0] for (cell,) in struct.iter_unpack("<q", arguments)]
    return made.made([], cells, 2, entry, geometry, num_items, state, keep_alive)


def _described(operand: Operand, parameter: HeaderParameter) -> list[int] | None:
    """The words of one operand; `None` for what the code does not read."""
    cls, dtype, ndim = operand
    if dtype is not None:
        alignment = alignment_of(dtype)
        if cls is not np.ndarray or dtype.names is not None or alignment & (alignment - 1):
            return None
        wanted = _CONTIGUOUS | (_WRITABLE if parameter.is_written else 0)
        looked_at = wanted | (_WARNS if parameter.is_written else 0)
        return [native.ARRAY, id(cls), id(dtype), ndim, looked_at, wanted, alignment - 1]
    if parameter.is_array:
        return [native.INT, id(int), 0, (1 << 63) - 1, -1] if cls is int else None
    to = BY_NAME.get(parameter.dtype)
    if to is None:
        return None
    if to in (f32, f64) and cls in (float, int):
        largest = _NAN if to is f64 else struct.unpack("<q", struct.pack("<d", LARGEST_FLOAT[to]))[0]
        return [native.FLOAT if cls is float else native.FLOAT_OF_INT, id(cls), largest, int(to is f32)]
    if to.is_integer and cls is int:
        least, greatest = max(to.min, -(1 << 63)), min(to.max, (1 << 63) - 1)
        if parameter.bounds is not None:
            least, greatest = max(least, parameter.bounds[0]), min(greatest, parameter.bounds[1])
        bits = (1 << 8 * to.itemsize) - 1
        return [native.INT, id(int), least, greatest, bits if to.itemsize < 8 else -1]
    if to.name == "bool" and cls is bool:
        return [native.BOOL, id(bool)]
    return None


def _cell(slot: Slot, operands: tuple[Operand, ...]) -> list[int] | None:
    """The words of one cell."""
    if slot.param < 0:
        return None
    is_host_array = operands[slot.param][1] is not None
    match slot.kind:
        case SlotKind.POINTER | SlotKind.SCALAR:
            return [native.VALUE, slot.param, 0]
        case SlotKind.SHAPE if is_host_array:
            return [native.SHAPE, slot.param, slot.axis]
        case SlotKind.STRIDE if is_host_array:
            return [native.STRIDE, slot.param, slot.axis]
        case _:
            return None


def _start_over() -> None:
    global _lock
    _lock = threading.Lock()


in_child(_start_over)


# --- the code ---------------------------------------------------------------------------------------------------------


def _native() -> _Native | None:
    """The native function of this process, if it has passed its trial.

    Whoever asks while that is found out does without: a signal's handler too that has interrupted this very work.
    """
    if not _TRIED and _lock.acquire(blocking=False):
        try:
            if not _TRIED:
                _TRIED.append(_tried())
        finally:
            _lock.release()
    return _TRIED[0] if _TRIED else None


def _tried() -> _Native | None:
    if not _is_known_python():
        return None
    from quernel.compiler.loader import caching_environment

    try:
        found = _loaded(caching_environment())
        return found if found is not None and _stands_trial(found) else None
    except Exception:
        _log().debug("native launches cannot be made here; Python reads the arguments", exc_info=True)
        return None


def _is_known_python() -> bool:
    """Whether objects of this interpreter look as the code takes them to."""
    return (
        sys.implementation.name == "cpython"
        and sys.byteorder == "little"
        and ctypes.sizeof(ctypes.c_void_p) == 8
        and not getattr(sys, "abiflags", "")  # neither without the lock nor for debugging
        and (object.__basicsize__, bytes.__basicsize__, float.__basicsize__) == (16, 33, 24)
        and np.ndarray.__basicsize__ >= 72
    )


def _loaded(environment: Environment | None) -> _Native | None:
    """The function of kept code, or of code made now if LLVM is here already; else that is made for later processes."""
    text = native.launch_ir()
    payload = kept(text, environment)
    if payload is not None and is_image(payload):
        try:
            return _mapped(map_image(payload))
        except DeviceError:
            _log().debug("the kept code of native launches cannot be used", exc_info=True)
    if "llvmlite.binding" not in sys.modules:
        # Not while the interpreter ends: a thread that is cut off within LLVM keeps the process from ending.
        if environment is not None and environment.unusable is None and threading.main_thread().is_alive():
            threading.Thread(target=_make, args=(text, environment), name="quernel-cpu-launch").start()
        return None
    return _make(text, environment)


def _make(text: str, environment: Environment | None) -> _Native | None:
    from quernel_cpu import _toolchain
    from quernel_cpu.linking import linked_image

    here = host()
    object_code = _toolchain.compile_ir(text, here.triple, here.cpu, here.features, is_vector_code=True)
    image = linked_image(object_code, native.LAUNCH)
    if image is not None:
        keep(text, image, environment)
        return _mapped(map_image(image))
    library = _toolchain.load_symbols(object_code, native.LAUNCH)[0]
    return _Native(library.address, library)


def _mapped(code: MappedCode) -> _Native:
    return _Native(code.address_of(native.LAUNCH), code)


def _stands_trial(made: _Native) -> bool:
    """Whether the function reads arrays and numbers of every kind as Python does, and refuses what it must."""
    state = ctypes.create_string_buffer(native.STATE.size)
    whole = np.zeros((2, 3, 5), np.float32)
    locked = np.zeros((4, 6, 7), np.float32)
    locked.flags.writeable = False
    dtype = whole.dtype
    array = [native.ARRAY, id(np.ndarray), id(dtype), 3, _CONTIGUOUS | _WRITABLE, _CONTIGUOUS | _WRITABLE, 3]
    numbers = [[native.FLOAT, id(float), _NAN, 0], [native.INT, id(int), -9, 1 << 40, -1], [native.BOOL, id(bool)]]
    cells = [[native.VALUE, 0, 0], *([kind, 0, axis] for kind in (native.SHAPE, native.STRIDE) for axis in range(3))]
    cells += [[native.VALUE, number, 0] for number in (1, 2, 3)] + [[native.CONSTANT, -7, 0]]
    launch = made.made([array, *numbers], cells, 2, 0, b"", 0, state, dtype)
    wanted = struct.pack("<qqqqqqqdqqq", whole.__array_interface__["data"][0], 2, 3, 5, 15, 5, 1, 0.7, 1 << 33, 1, -7)
    refused = [
        (locked, 0.7, 1, True),
        (np.zeros((2, 5, 3), np.float32).swapaxes(1, 2), 0.7, 1, True),
        (np.zeros((2, 3), np.float32), 0.7, 1, True),
        (np.zeros((2, 0, 3), np.float32), 0.7, 1, True),
        (np.zeros((2, 3, 5), np.int32), 0.7, 1, True),
        (whole, 7, 1, True),
        (whole, 0.7, -10, True),
        (whole, 0.7, 1 << 70, True),
        (whole, 0.7, 1, 1),
        (whole, 0.7, 1),
    ]
    return launch(whole, 0.7, 1 << 33, True) == wanted and all(launch(*given) is None for given in refused)


def _log() -> Logger:
    """Imported when there is something to say: a warm start has nothing."""
    import logging

    return logging.getLogger(__name__)
