"""Arrays on a device: typed, strided views of memory that is freed when the last view goes."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import numpy as np

from quernel.dtypes import DType, StructType, bf16, dtype_of
from quernel.errors import KernelTypeError, LaunchError
from quernel.runtime.interceptors import before_reading, has_modes, standing
from quernel.runtime.layouts import ArrayKind, kind_of

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.runtime.operations import Memory

__all__ = [
    "Allocation",
    "DeviceArray",
    "contiguous_strides",
    "element_of",
    "is_alike",
    "reach_of",
    "refuse_masked",
]

HostArray = np.ndarray[Any, np.dtype[Any]]


def element_of(dtype: Any) -> DType | StructType:
    """The element type that `dtype` names: as `dtype_of`, and structs by a class or a structured NumPy dtype.

    Raises:
        KernelTypeError: it names none.
    """
    if isinstance(dtype, StructType):
        return dtype
    if getattr(dtype, "names", None) or "__attrs_attrs__" in getattr(dtype, "__dict__", ()):
        from quernel.structs import struct_of

        return struct_of(dtype)
    return dtype_of(dtype)


@final
class Allocation:
    """Memory of a device that its arrays share; gives it back when the last of them is gone.

    Attributes:
        device: where it is.
        memory: the backend's block.
        lent_by: whose memory this is, a NumPy array or an object of another library; then it is not freed here.
        host: its bytes as the host sees them, or `None`.
        is_read_only: whether nobody may write it.
        is_shared: whether another library may use it in streams that keep no order with the device's own.
    """

    __slots__ = ("device", "host", "is_read_only", "is_shared", "lent_by", "memory")

    def __init__(
        self,
        device: Device,
        memory: Memory,
        host: HostArray | None,
        lent_by: object = None,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.device = device
        self.memory = memory
        self.host = host
        self.lent_by = lent_by
        self.is_read_only = is_read_only
        self.is_shared = False

    def __del__(self) -> None:
        if self.device.is_closed:
            return
        operations = self.device.operations
        exchange = operations.exchange
        if exchange is not None and self.is_shared:
            exchange.settle()
        if self.lent_by is None:
            operations.free(self.memory)
        elif exchange is not None:
            exchange.let_go(self.lent_by)


class _HostBytes:
    """The bytes of an allocation for NumPy, which keeps this object, and so the allocation, as long as a view of it."""

    def __init__(self, allocation: Allocation) -> None:
        assert allocation.host is not None
        self._allocation = allocation
        self.__array_interface__ = allocation.host.__array_interface__


@final
class DeviceArray:
    """An array on a device. Indexing gives views; nothing is copied but by the methods that say so.

    Its attributes never change. It hashes by identity, and is compared by its elements only once they are on the host.

    Attributes:
        device: where it is.
        dtype: type of its elements.
        shape: length along each axis.
        strides: bytes from one element to the next along each axis; may be negative or zero.
        address: of element (0, …, 0), as kernels see it.
    """

    __slots__ = (
        "__weakref__",
        "_allocation",
        "_offset",
        "address",
        "device",
        "dtype",
        "launch_kind",
        "shape",
        "steps",
        "strides",
    )

    _allocation: Allocation
    _offset: int
    device: Device
    dtype: DType | StructType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    steps: tuple[int, ...]
    """Strides in elements."""
    launch_kind: ArrayKind
    """What a launch depends on; arrays that are launched alike share it."""

    def __init__(
        self,
        allocation: Allocation,
        dtype: DType | StructType,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset_bytes: int,
    ) -> None:
        put = object.__setattr__
        put(self, "_allocation", allocation)
        put(self, "_offset", offset_bytes)
        put(self, "device", allocation.device)
        put(self, "dtype", dtype)
        put(self, "shape", shape)
        put(self, "strides", strides)
        put(self, "address", allocation.memory.address + offset_bytes)
        kind, steps = kind_of(
            allocation.device, dtype, shape, strides, self.address, is_read_only=allocation.is_read_only
        )
        put(self, "launch_kind", kind)
        put(self, "steps", steps)

    def __setattr__(self, name: str, value: object) -> None:
        # Launches trust these attributes; plain ones are read faster than properties.
        raise AttributeError(f"{name!r} of a device array cannot be assigned; make a view, as a[2:5] or a.reshape(...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name!r} of a device array cannot be deleted")

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in _ELSEWHERE]

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise KernelTypeError("device arrays are not compared on the device", fix="compare a.numpy() == b.numpy()")

    __hash__ = object.__hash__

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def allocation(self) -> Allocation:
        """The memory that this array shares with its views."""
        return self._allocation

    @property
    def offset_bytes(self) -> int:
        """Where element (0, …, 0) stands in that memory."""
        return self._offset

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte and end of what the elements span in that memory."""
        return self._bounds() if self.size else (self._offset, self._offset)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements.

        Raises:
            KernelTypeError: they are `bf16`, without the package `ml_dtypes`.
        """
        if isinstance(self.dtype, DType):
            return self.dtype.numpy
        from quernel.structs import numpy_of

        return numpy_of(self.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        expected = self.dtype.itemsize
        if 0 in self.shape:
            return True
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != expected:
                return False
            expected *= length
        return True

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d device array has no len()")
        return self.shape[0]

    def __repr__(self) -> str:
        what = f"{self.dtype}, shape {self.shape}, on {self.device.name}"
        if self.device.is_closed:
            return f"<device array of {what}, closed>"
        if self.size > 1000 or (standing and has_modes()):
            return f"<device array of {what}>"
        values = np.array2string(self.numpy(), separator=", ", prefix="device_array(")
        return f"device_array({values}, {what})"

    # --- views --------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> DeviceArray:
        from quernel.runtime.indexing import view_of

        offset, shape, strides = view_of(key, self.shape, self.strides)
        return self._view(shape, strides, offset)

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if isinstance(value, np.ndarray | DeviceArray):
            target.copy_from(value)
        else:
            target.fill(value)

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[index] for index in range(len(self)))

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of another shape with the same elements in C order; one length may be -1.

        Raises:
            KernelTypeError: the lengths do not multiply to the size, or the elements are not contiguous.
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        lengths = [_index(length, "a length") for length in wanted]
        known = math.prod(length for length in lengths if length != -1)
        if lengths.count(-1) == 1 and known and self.size % known == 0:
            lengths[lengths.index(-1)] = self.size // known
        if min(lengths, default=0) < 0 or math.prod(lengths) != self.size:
            raise KernelTypeError(
                f"shape {self.shape} cannot become {tuple(wanted)}", fix=f"give lengths that multiply to {self.size}"
            )
        if not self.is_contiguous:
            raise KernelTypeError("a strided view cannot be reshaped in place", fix="reshape its .copy()")
        result = tuple(lengths)
        return self._view(result, contiguous_strides(result, self.dtype.itemsize), 0)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 — NumPy's name
        """A view with its axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> DeviceArray:
        """A view with its axes in another order, given as numbers or one tuple of them; by default the reverse one.

        Raises:
            KernelTypeError: not every axis is named once.
        """
        given = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes or None
        order = range(self.ndim)[::-1] if given is None else [_index(axis, "an axis") for axis in given]
        found = [axis + self.ndim if axis < 0 else axis for axis in order]
        if sorted(found) != list(range(self.ndim)):
            raise KernelTypeError(
                f"the axes {tuple(order)} are no order of those of an array of shape {self.shape}",
                fix=f"name each of the {self.ndim} axes once, counted from 0",
            )
        return self._view(tuple(self.shape[axis] for axis in found), tuple(self.strides[axis] for axis in found), 0)

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> DeviceArray:
        return DeviceArray(self._allocation, self.dtype, shape, strides, self._offset + offset)

    # --- copies -------------------------------------------------------------------------------------------------------

    def numpy(self, out: HostArray | None = None) -> HostArray:
        """The elements in a new NumPy array, or in `out`. Waits for the device's work, then copies.

        Raises:
            KernelTypeError: `out` has another shape or dtype.
        """
        self._check_usable("copied to the host")
        if out is None:
            out = np.empty(self.shape, self.numpy_dtype)
        elif out.shape != self.shape or out.dtype != self.numpy_dtype:
            raise KernelTypeError(
                f"out is {out.dtype} of shape {out.shape}, the array {self.dtype} of shape {self.shape}",
                fix="pass an array of the same dtype and shape",
            )
        self.copy_to(out)
        return out

    def copy_from(self, source: HostArray | DeviceArray) -> None:
        """Copies every element of `source`, of the same shape and dtype, into this array. Blocks.

        Raises:
            KernelTypeError: another shape or dtype.
        """
        self._check_fits(source)
        self._check_writable()
        if isinstance(source, DeviceArray):
            source._check_readable()
            if source.device is self.device and self._copy_within(source):
                return
            if source.device is not self.device and self._copy_between(source):
                return
            source = source.numpy()
        self._check_usable("copied from the host")
        host = self._host_array()
        if host is not None:
            host[...] = source
        elif self.is_contiguous:
            self._write(self._offset, np.ascontiguousarray(source, self.numpy_dtype))
        elif self.size:
            low, data, view = self._span()
            view[...] = source
            self._write(low, data)

    def _copy_between(self, source: DeviceArray) -> bool:
        """Copies from another device without the host, where both arrays are contiguous and the devices can."""
        if not (self.is_contiguous and source.is_contiguous and self.size):
            return False
        self._check_usable("copied from another device")
        source._check_usable("copied to another device")
        return self.device.operations.copy_from_peer(
            self._allocation.memory,
            self._offset,
            source.device.operations,
            source._allocation.memory,
            source._offset,
            self.nbytes,
        )

    def copy_to(self, target: HostArray | DeviceArray) -> None:
        """Copies every element into `target`, of the same shape and dtype. Blocks.

        Raises:
            KernelTypeError: another shape or dtype.
        """
        if isinstance(target, DeviceArray):
            target.copy_from(self)
            return
        self._check_readable()
        self._check_fits(target)
        self._check_usable("copied to the host")
        host = self._host_array()
        if host is not None:
            target[...] = host
        elif self.is_contiguous and target.flags.c_contiguous:
            self._read(self._offset, target)
        elif self.size:
            target[...] = self._span()[2]

    def to(self, device: Any) -> DeviceArray:
        """A copy on another device, which may be given by its string; this array itself where it is there already."""
        from quernel.runtime.directory import directory

        there = directory.device(device)
        return self if there is self.device else there.array(self)

    def copy(self) -> DeviceArray:
        """A contiguous copy on the same device."""
        result = self.device.empty(self.shape, self.dtype)
        result.copy_from(self)
        return result

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> DeviceArray:
        return self.copy()

    def astype(self, dtype: Any) -> DeviceArray:
        """A copy with elements of another type, by the language's cast rules."""
        from quernel.runtime.casts import cast_array

        wanted = element_of(dtype)
        if isinstance(wanted, StructType):
            return self.device.array(self, wanted)
        if isinstance(self.dtype, StructType):
            raise KernelTypeError(
                f"elements of {self.dtype} do not become {wanted}",
                fix="take a field of the NumPy array that .numpy() gives",
            )
        return self.copy() if wanted is self.dtype else self.device.array(cast_array(self.numpy(), wanted))

    def fill(self, value: Any) -> None:
        """Sets every element to `value`, converted as an argument of the element type is.

        Raises:
            KernelTypeError: the value does not fit.
        """
        self._check_writable()
        element = _element(value, self.dtype)
        if self.is_contiguous and (self._allocation.host is None or self.device.is_intercepted):
            self.device.fill(self._allocation.memory, self._offset, element.tobytes(), self.size, self)
            return
        if self.device.is_capturing:
            raise LaunchError("a strided array cannot be filled in a graph", fix="fill a contiguous array")
        self._check_usable("filled")
        host = self._host_array(element.dtype)
        if host is not None:
            host[...] = element
        elif self.size:
            low, data, view = self._span(element.dtype)
            view[...] = element
            self._write(low, data)

    def item(self) -> Any:
        """The value of an array of one element, as a Python number."""
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __bool__(self) -> bool:
        return bool(self.numpy())

    # --- other libraries' protocols -----------------------------------------------------------------------------------

    @property
    def __array_interface__(self) -> dict[str, Any]:
        host = self._exported()
        if host is None:
            raise AttributeError(f"the host does not see the memory of {self.device.name}")
        interface: dict[str, Any] = host.__array_interface__
        return interface

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        host = self._exported()
        if host is None:
            raise KernelTypeError(
                f"an array on {self.device.name} is not copied to the host unasked", fix="call its method .numpy()"
            )
        return np.array(host, dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        exchange = self.device.operations.exchange
        if exchange is not None:
            from quernel.runtime.handing import as_capsule

            return as_capsule(self, exchange, stream, max_version, dl_device, copy)
        given: dict[str, Any] = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._numpy_shared().__dlpack__(**{name: value for name, value in given.items() if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        exchange = self.device.operations.exchange
        if exchange is not None:
            return exchange.dlpack_kinds[0], exchange.number
        kind, number = self._numpy_shared().__dlpack_device__()
        return int(kind), number

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        exchange = self.device.operations.exchange
        if exchange is None or not exchange.cuda_interface:
            raise AttributeError(f"arrays of {self.device.name} have no __cuda_array_interface__")
        from quernel.runtime.handing import as_cuda_interface

        return as_cuda_interface(self, exchange)

    def _numpy_shared(self) -> HostArray:
        host = self._exported()
        if host is None:
            raise BufferError(f"the host does not see the memory of {self.device.name}")
        return host

    def _exported(self) -> HostArray | None:
        """This array for strangers to keep, as NumPy sees the same memory, or `None`; it keeps the memory alive."""
        self._check_readable()
        host = self._host_array()
        if host is None or not self.size:
            return host
        held = np.asarray(_HostBytes(self._allocation))
        return np.ndarray(host.shape, host.dtype, held, self._offset, self.strides)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _host_array(self, dtype: np.dtype[Any] | None = None) -> HostArray | None:
        """This array as NumPy sees the same memory, once the device's work is done, or `None`."""
        self.device._wait()
        host = self._allocation.host
        if host is None:
            return None
        if not self.size:  # NumPy checks the strides of what has no elements too.
            return np.empty(self.shape, dtype or self.numpy_dtype)
        return np.ndarray(self.shape, dtype or self.numpy_dtype, host, self._offset, self.strides)

    def _bounds(self) -> tuple[int, int]:
        """First byte and end of what the elements span; the array is not empty."""
        low = high = self._offset
        for length, stride in zip(self.shape, self.strides, strict=True):
            reach = (length - 1) * stride
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
        return low, high + self.dtype.itemsize

    def _span(self, dtype: np.dtype[Any] | None = None) -> tuple[int, HostArray, HostArray]:
        """The first byte that a strided array spans, a host copy of all the bytes, and the array's view of the copy."""
        low, high = self._bounds()
        data = np.empty(high - low, np.uint8)
        self._read(low, data)
        return low, data, np.ndarray(self.shape, dtype or self.numpy_dtype, data, self._offset - low, self.strides)

    def _read(self, offset: int, target: HostArray) -> None:
        if target.size:
            flat = target.reshape(-1).view(np.uint8)
            self.device.operations.copy_to_host(flat, self._allocation.memory, offset, None)
            self.device.show_reports(None)

    def _write(self, offset: int, source: HostArray) -> None:
        if source.size:
            flat = source.reshape(-1).view(np.uint8)
            self.device.operations.copy_from_host(self._allocation.memory, offset, flat, None)

    def _copy_within(self, source: DeviceArray) -> bool:
        """Copies on the device itself where both sides are contiguous and apart."""
        if not (self.is_contiguous and source.is_contiguous) or self._allocation is source._allocation:
            if self.device.is_capturing:
                raise LaunchError(
                    "a copy between strided or overlapping arrays cannot be part of a graph",
                    fix="copy contiguous arrays",
                )
            return False
        self.device.copy_memory(
            self._allocation.memory,
            self._offset,
            source._allocation.memory,
            source._offset,
            self.nbytes,
            (self, source),
        )
        return True

    def _check_fits(self, other: HostArray | DeviceArray) -> None:
        if not isinstance(other, np.ndarray | DeviceArray):
            raise KernelTypeError(
                f"a copy between {self.dtype} of shape {self.shape} and a {type(other).__name__}",
                fix="pass a NumPy or device array; one value is written to all elements by .fill(value)",
            )
        refuse_masked(other, "a copy")
        dtype = other.dtype if isinstance(other, DeviceArray) else element_of(np.asarray(other).dtype)
        is_typed, is_shaped = is_alike(dtype, self.dtype), other.shape == self.shape
        if not is_typed or not is_shaped:
            fixes = []
            if isinstance(dtype, StructType) != isinstance(self.dtype, StructType):
                fixes.append("copy numbers to one field of a NumPy array, or from it: array['name']")
            elif not is_typed:
                fixes.append("convert one of them first, with .astype(...)")
            if not is_shaped:
                fixes.append("take the part that fits, such as array[:n], or .reshape(...)")
            raise KernelTypeError(
                f"a copy between {self.dtype} of shape {self.shape} and {dtype} of shape {other.shape}",
                fix="; ".join(fixes),
            )

    def _check_readable(self) -> None:
        """Raises where a launch that was queued, and does not run, would have written the elements."""
        if standing:
            before_reading(self)

    def _check_writable(self) -> None:
        if self._allocation.is_read_only:
            raise LaunchError("the array is read-only", fix="write to a copy of it, array.copy()")

    def _check_usable(self, done: str) -> None:
        self.device.check_open()
        if self.device.is_capturing:
            raise LaunchError(f"an array cannot be {done} while a graph is captured", fix="do it before or after")


def refuse_masked(array: Any, what: str) -> None:
    """Refuses an array with a mask, which elements on a device do not have.

    Raises:
        KernelTypeError: it has one.
    """
    if _is_masked(array):
        raise KernelTypeError(f"{what} got a masked array", fix="pass its .data or .filled(...)")


def _is_masked(array: Any) -> bool:
    """Whether an array has a mask; `numpy.ma` takes milliseconds to import, and without it there is none."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(array, masked.MaskedArray)


def _index(given: Any, what: str) -> int:
    try:
        return operator.index(given)
    except TypeError:
        raise KernelTypeError(f"{what} is {given!r}, which is no integer", fix="give integers") from None


_WITHOUT = {
    "+": "add radd",
    "-": "sub rsub neg",
    "*": "mul rmul",
    "/": "truediv rtruediv",
    "//": "floordiv rfloordiv",
    "%": "mod rmod",
    "**": "pow rpow",
    "@": "matmul rmatmul",
    "&": "and rand",
    "|": "or ror",
    "^": "xor rxor",
    "~": "invert",
    "<<": "lshift rlshift",
    ">>": "rshift rrshift",
    "abs": "abs",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}
"""Operators of NumPy's arrays that a device array does not have, and Python's names of them."""


def _without(sign: str) -> Callable[..., NoReturn]:
    def refuse(self: DeviceArray, *other: object) -> NoReturn:
        raise KernelTypeError(
            f"device arrays have no `{sign}`: kernels compute with their elements",
            fix="write a kernel, or compute on the host with a.numpy()",
        )

    return refuse


for _sign, _names in _WITHOUT.items():
    for _name in _names.split():
        setattr(DeviceArray, f"__{_name}__", _without(_sign))


@final
class _Elsewhere:
    """An attribute that other arrays have; reading it says what to write for this one.

    A `__getattr__` of the class would make Python 3.11 take twice as long for the attributes that are there, which
    launches read.
    """

    __slots__ = ("_fix", "_name")

    def __init__(self, name: str, fix: str) -> None:
        self._name = name
        self._fix = fix

    def __get__(self, array: DeviceArray | None, owner: type | None = None) -> NoReturn:
        shown = f"'DeviceArray' object has no attribute {self._name!r}\n  fix: {self._fix}"
        raise AttributeError(shown, name=self._name, obj=DeviceArray if array is None else array)


_TO_HOST: Final = ("asnumpy", "copy_to_host", "cpu", "detach", "get", "to_host", "to_numpy", "tolist")
_ELSEWHERE: Final = {
    **{
        name: f"write a kernel, or compute on the host: host = a.numpy() has host.{name}"
        for name in dir(np.ndarray)
        if not name.startswith("_") and not hasattr(DeviceArray, name)
    },
    **dict.fromkeys(_TO_HOST, "write a.numpy(), which waits and copies to the host"),
    **dict.fromkeys(("flatten", "ravel"), "write a.reshape(-1)"),
    "itemsize": "write a.dtype.itemsize",
    "squeeze": "write a.reshape(...), or a[0] for one axis of length 1",
    "swapaxes": "write a.transpose(...)",
}
"""Attributes of NumPy's arrays and of other libraries' arrays on devices, and what to write instead."""

for _name, _fix in _ELSEWHERE.items():
    setattr(DeviceArray, _name, _Elsewhere(_name, _fix))


def is_alike(left: DType | StructType, right: DType | StructType) -> bool:
    """Whether elements of the two types are the same bytes."""
    if left == right or isinstance(left, DType) or isinstance(right, DType):
        return left == right
    from quernel.runtime.elements import is_same_layout

    return is_same_layout(left, right)


def _element(value: Any, dtype: DType | StructType) -> HostArray:
    """One element as NumPy holds it; NumPy alone has no bf16, so of that its bits."""
    if isinstance(dtype, StructType):
        from quernel.runtime.elements import struct_element

        return struct_element(value, dtype)
    from quernel.runtime.scalars import convert_scalar

    number = convert_scalar(value, dtype, "the elements' type")
    if dtype is bf16:
        from quernel.compiler.arguments import bf16_bits

        return np.asarray(bf16_bits(number), np.uint16)
    return np.asarray(number).astype(dtype.numpy)


def reach_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """How many bytes below and above element (0, …, 0) the others begin at most."""
    if 0 in shape:
        return 0, 0
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return -sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of a C-contiguous array."""
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))
