"""Other libraries as they stand beside us: structures of DLPack written down independently, a consumer, a producer."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


api = ctypes.pythonapi
name_of: Any = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
content_of: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
rename: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", api))
new_capsule: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", api)
)
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}


class Consumed:
    """What a consumer keeps of a capsule, until `done`."""

    def __init__(self, capsule: Any) -> None:
        self.is_versioned = name_of(capsule) == b"dltensor_versioned"
        name = NAMES[self.is_versioned]
        assert name_of(capsule) == name
        self.address = content_of(capsule, name)
        self.held: Any = (Versioned if self.is_versioned else Managed).from_address(self.address)
        self.tensor: Tensor = self.held.tensor
        rename(capsule, USED[self.is_versioned])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[: self.tensor.ndim])

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.tensor.strides[: self.tensor.ndim])

    def done(self) -> None:
        self.held.deleter(self.address)
        gc.collect()


_kept: list[Any] = []
"""Memory of producers, which outlives them."""


class Producer:
    """An array of another library, in memory that stands for a device's.

    Attributes:
        asked: the keywords of each `__dlpack__`.
        num_live: capsules and tensors that nobody has given back.
    """

    def __init__(self, array: np.ndarray[Any, Any], *, place: tuple[int, int] = (2, 0), versions: bool = True) -> None:
        self.array = array
        self.place = place
        self.versions = versions
        self.asked: list[dict[str, Any]] = []
        self.num_live = 0
        self.change: Callable[[Any], object] = lambda held: None
        self.strides: tuple[int, ...] | None = tuple(step // array.itemsize for step in array.strides)
        self.read_only = False

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if not self.versions and options:
            raise TypeError("unexpected keyword")
        self.asked.append({"stream": stream, **options})
        array = self.array
        held: Any = Versioned(1, 0) if self.versions else Managed()
        tensor = held.tensor
        codes = {"i": 0, "u": 1, "f": 2, "b": 6, "c": 5}
        tensor.data = array.__array_interface__["data"][0]
        tensor.device_type, tensor.device_id = self.place
        tensor.ndim, tensor.code, tensor.bits, tensor.lanes = array.ndim, codes[array.dtype.kind], array.itemsize * 8, 1
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor.shape = shape
        strides = None
        if self.strides is not None:
            strides = (ctypes.c_int64 * array.ndim)(*self.strides)
            tensor.strides = strides

        def deleted(address: int) -> None:
            assert address == ctypes.addressof(held)
            self.num_live -= 1

        held.deleter = Deleter(deleted)
        if self.read_only:
            held.flags = 1
        self.change(held)
        self.num_live += 1
        _kept.append((held, shape, strides, array))
        return new_capsule(ctypes.addressof(held), NAMES[self.versions], None)
