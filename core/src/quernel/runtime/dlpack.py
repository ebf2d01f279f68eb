"""DLPack's capsules: a device array described for other libraries, and what they describe read.

The structures are those of DLPack 1.x, with and without a version; both stay as they are within a major version.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from quernel.dtypes import DType, DTypeKind, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from quernel.errors import KernelTypeError

if TYPE_CHECKING:
    from quernel.runtime.arrays import DeviceArray

__all__ = ["HOST", "VERSION", "Received", "capsule_of", "numpy_capsule"]

HOST: Final = (1, 3)
"""Kinds of memory that the host reads: its own, and what it has pinned for CUDA."""
VERSION: Final = (1, 0)
"""The newest version that is asked of others. Later minor ones add types that kernels do not have."""
_READ_ONLY, _COPIED = 1, 2
_CODES: Final = {DTypeKind.INT: 0, DTypeKind.UINT: 1, DTypeKind.FLOAT: 2, DTypeKind.BOOL: 6}
_BFLOAT: Final = 4
_NAMES: Final = {0: "int", 1: "uint", 2: "float", 3: "opaque", _BFLOAT: "bfloat", 5: "complex", 6: "bool"}

_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_FRESH, _FRESH_VERSIONED = b"dltensor", b"dltensor_versioned"
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"  # Capsules keep no copy of their names.

_is_named: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)


def _content(capsule: object) -> _Managed | _ManagedVersioned | None:
    """What a capsule holds that nobody has taken yet."""
    if _is_named(capsule, _FRESH_VERSIONED):
        return _ManagedVersioned.from_address(_pointer(capsule, _FRESH_VERSIONED))
    if _is_named(capsule, _FRESH):
        return _Managed.from_address(_pointer(capsule, _FRESH))
    return None


# --- given ------------------------------------------------------------------------------------------------------------


class _Described:
    """A device array's memory for NumPy, which describes it and never looks inside; it keeps the array alive."""

    def __init__(self, array: DeviceArray, dtype: np.dtype[Any]) -> None:
        self.array = array
        self.steps = (ctypes.c_int64 * array.ndim)(*array.steps)
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides if array.size else None,
            "typestr": dtype.str,
            "data": (array.address or 64, array.allocation.is_read_only),  # At address 0 NumPy would allocate.
        }


def numpy_capsule(array: np.ndarray[Any, Any], max_version: tuple[int, int] | None) -> object:
    """A capsule with an array of NumPy's, of the newest version that its consumer and NumPy know."""
    try:
        return array.__dlpack__() if max_version is None else array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1 knows capsules without a version only.
        return array.__dlpack__()


def capsule_of(
    array: DeviceArray, place: tuple[int, int], max_version: tuple[int, int] | None, *, is_copy: bool = False
) -> object:
    """A capsule with the array, which lives until whoever takes the capsule calls its deleter, or nobody has taken it.

    NumPy makes it, and then it is told where the memory really is: NumPy's deleter and destructor may be called by any
    thread, with an error pending, and after the interpreter's end, which none written in Python could be.

    Raises:
        BufferError: DLPack cannot say what the array is, in that version.
    """
    dtype = array.dtype
    if not isinstance(dtype, DType):
        raise BufferError(f"DLPack has no type for {dtype}")
    described = _Described(array, np.dtype(np.uint16) if dtype is bf16 else dtype.numpy)
    view = np.asarray(described)
    capsule = numpy_capsule(view, max_version)
    held = _content(capsule)
    assert held is not None
    tensor = held.tensor
    tensor.data = array.address if array.size else None
    tensor.device.kind, tensor.device.number = place
    tensor.strides = described.steps
    if dtype is bf16:
        tensor.dtype.code = _BFLOAT
    if is_copy and isinstance(held, _ManagedVersioned):
        held.flags |= _COPIED
    return capsule


# --- taken ------------------------------------------------------------------------------------------------------------


_TYPES: Final[dict[tuple[int, int], DType]] = {
    (_CODES[dtype.kind], dtype.bits): dtype for dtype in (i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64, bool_)
} | {(_BFLOAT, 16): bf16}


@final
class Received:
    """A tensor of another library, taken out of its capsule; the library gets it back when this object goes.

    Attributes:
        place: DLPack's kind and number of its device.
        address: of element (0, …, 0).
        dtype: type of its elements.
        shape: length along each axis.
        strides: in bytes.
        is_read_only: whether it must not be written.
    """

    def __init__(self, capsule: object) -> None:
        """Takes what the capsule holds.

        Raises:
            KernelTypeError: it is no capsule of DLPack's that nobody has taken, or holds what no kernel takes.
        """
        held = self._held = _content(capsule)
        self._address = 0 if held is None else ctypes.addressof(held)
        if held is None:
            raise KernelTypeError(
                f"{capsule!r} is no DLPack capsule that may still be taken",
                fix="pass the array itself, not its capsule",
            )
        _rename(capsule, _USED_VERSIONED if isinstance(held, _ManagedVersioned) else _USED)
        if isinstance(held, _ManagedVersioned) and held.major != VERSION[0]:
            raise KernelTypeError(
                f"the array comes by DLPack {held.major}.{held.minor}, which is not understood here",
                fix="update quernel, or the library that the array is of",
            )
        tensor = held.tensor
        self.place = (int(tensor.device.kind), int(tensor.device.number))
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.dtype = _type_of(tensor.dtype)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.is_read_only = isinstance(held, _ManagedVersioned) and bool(held.flags & _READ_ONLY)
        itemsize = self.dtype.itemsize
        if tensor.strides:
            self.strides = tuple(step * itemsize for step in tensor.strides[: tensor.ndim])
        else:
            from quernel.runtime.arrays import contiguous_strides

            self.strides = contiguous_strides(self.shape, itemsize)

    def __del__(self) -> None:
        held = self._held
        if held is not None and held.deleter:
            held.deleter(self._address)


def _type_of(given: _DataType) -> DType:
    dtype = _TYPES.get((given.code, given.bits))
    if dtype is None or given.lanes != 1:
        name = f"{_NAMES.get(given.code, f'type {given.code} of DLPack with ')}{given.bits}"
        raise KernelTypeError(
            f"kernels have no {name if given.lanes == 1 else f'{name} in vectors of {given.lanes}'}",
            fix="pass its real and imaginary parts" if _NAMES.get(given.code) == "complex" else "convert it first",
        )
    return dtype
