"""From a declared parameter and an argument to the parameter's type; and what is refused on the way."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, final

import numpy as np

from quernel.dtypes import (
    ArrayType,
    ConstAnnotation,
    DType,
    ParameterType,
    ScalarType,
    StructType,
    ValueType,
    VectorType,
    bool_,
    dtype_of,
    f64,
    i64,
)
from quernel.errors import KernelTypeError
from quernel.identity.encoding import Encoder
from quernel.runtime.arrays import DeviceArray, refuse_masked
from quernel.runtime.parameters import Spec
from quernel.runtime.scalars import checked_float, checked_integer, convert_scalar, shown
from quernel.wording import counted

_ARRAY_PROTOCOLS = ("__array__", "__array_interface__")
_DEVICE_PROTOCOLS = ("__dlpack__", "__cuda_array_interface__")

__all__ = [
    "alignment_of",
    "argument_type",
    "constant_key",
    "constant_value",
    "convert_argument",
    "element_type",
    "takes_numbers_of",
    "type_as_declared",
    "unlike_type",
]


def argument_type(spec: Spec, value: Any) -> ParameterType:
    """The type of a parameter for this argument.

    Raises:
        KernelTypeError: the argument does not fit what was declared, or is of a kind that kernels do not take.
    """
    declared = spec.declared
    if isinstance(value, DeviceArray | np.ndarray):
        element = element_type(spec.name, value)
        if declared is None:
            declared = ArrayType(None)
        if not isinstance(declared, ArrayType):
            raise KernelTypeError(
                f"parameter {spec.name!r} is {_described(declared)} and got an array of {element}",
                fix="pass one value, for example array[0].item(), or annotate the parameter as qn.Array[...]",
            )
        return _array_type(spec.name, declared, element, value)
    if isinstance(declared, ArrayType):
        raise KernelTypeError(
            f"parameter {spec.name!r} is {_described(declared)} and got {shown(value)}",
            fix=_instead(spec.name, value)
            if _lies_on_a_device(value)
            else "pass a NumPy array or a device array, for example np.asarray(value)",
        )
    if isinstance(declared, ScalarType):
        convert_argument(spec.name, declared, value)
        return declared
    if not isinstance(declared, TypeVar | NoneType):
        raise KernelTypeError(f"parameter {spec.name!r} is {_described(declared)} and got {shown(value)}")
    inferred = _inferred(spec.name, value)
    convert_argument(spec.name, inferred, value)
    return inferred


def type_as_declared(spec: Spec, given: ScalarType | ArrayType) -> ParameterType:
    """The type of a parameter for arguments of the type `given`: what a launch with them has, so that it finds it.

    A parameter declared a number has the declared type, whatever number it gets; what one of the two leaves open of an
    array's element and rank, the other says, and both leave a rank of 1.

    Raises:
        KernelTypeError: no argument of that type fits what was declared, or nobody says the elements' type.
    """
    declared = spec.declared
    if isinstance(declared, ScalarType):
        if isinstance(given, ArrayType) or not takes_numbers_of(declared, given):
            raise unlike_type(spec, given)
        return declared
    if isinstance(given, ScalarType):
        if isinstance(declared, ArrayType):
            raise unlike_type(spec, given)
        return given
    if isinstance(declared, TypeVar):  # which stands for what a number is
        raise unlike_type(spec, given)
    element, ndim = given.element, given.ndim
    if isinstance(declared, ArrayType):
        if element is None and isinstance(declared.element, ValueType):
            element = declared.element
        elif isinstance(element, ValueType):
            fitted = _fitted(spec.name, declared, element, ndim)
            if fitted is None:
                raise unlike_type(spec, given)
            element, ndim = fitted
        if ndim == 0 or (declared.ndim is not None and ndim not in (None, declared.ndim)):
            raise unlike_type(spec, given)
        ndim = ndim if declared.ndim is None else declared.ndim
    if not isinstance(element, ValueType):
        raise KernelTypeError(
            f"{_described(given)} is no exact type for parameter {spec.name!r}", fix=f"write {_exact_array(ndim)}"
        )
    return ArrayType(element, 1 if ndim is None else ndim)


def takes_numbers_of(declared: ScalarType, given: ScalarType) -> bool:
    """Whether a parameter that is declared a number takes numbers of the type `given`."""
    if not (isinstance(declared.dtype, DType) and isinstance(given.dtype, DType)):
        return declared == given
    if (declared.dtype is bool_) is not (given.dtype is bool_):
        return False
    return declared.dtype.is_float or not given.dtype.is_float


def unlike_type(spec: Spec, given: object) -> KernelTypeError:
    """What to raise where `given` was given for a parameter that is declared otherwise."""
    declared = spec.declared
    if isinstance(declared, ArrayType) and not isinstance(declared.element, ValueType):
        fix = f"give the type of such an array, for example {_exact_array(declared.ndim)}"
    elif isinstance(declared, TypeVar):
        fix = "give the type of a number, for example qn.f32"
    else:
        fix = "leave it out, since the annotation says the type, and give what follows by name"
    return KernelTypeError(
        f"parameter {spec.name!r} is {_described(declared)}, and the type given is {_described(given)}",
        fix=f"{fix}; or annotate it otherwise",
    )


def _exact_array(ndim: int | None) -> str:
    return f"qn.Array{ndim or 1}[qn.f32]"


def convert_argument(name: str, declared: ScalarType, value: Any, bounds: tuple[int, int] | None = None) -> Any:
    """A scalar argument as a plain number of its declared type; `bounds` are those of a weak integer.

    Raises:
        KernelTypeError: it does not fit.
    """
    what = f"parameter {name!r}"
    dtype = declared.dtype
    if not isinstance(dtype, DType):
        raise KernelTypeError(f"{what} is {dtype} and got {shown(value)}", fix="pass its parts")
    if not declared.weak:
        return convert_scalar(value, dtype, what)
    if dtype.is_float:
        return checked_float(value, dtype, what, "float")
    number = checked_integer(value, dtype.min, dtype.max, "int", what)
    if bounds is not None and not bounds[0] <= number <= bounds[1]:
        raise KernelTypeError(
            f"{what} got {number}, which does not fit a type that it meets in the kernel",
            fix=f"pass an integer from {bounds[0]} to {bounds[1]}, or annotate the parameter with a wider type",
        )
    return number


def element_type(name: str, array: DeviceArray | np.ndarray[Any, Any]) -> ValueType:
    """The element type of an array argument; of a structured one, a struct.

    Raises:
        KernelTypeError: its dtype is none of the language's, the array is masked, or has no axes.
    """
    dtype: ValueType
    if isinstance(array, DeviceArray):
        dtype = array.dtype
    else:
        refuse_masked(array, f"parameter {name!r}")
        try:
            dtype = dtype_of(array.dtype) if array.dtype.names is None else _struct_type(array.dtype)
        except KernelTypeError as error:
            fix = "pass its real and imaginary parts" if array.dtype.kind == "c" else error.fix
            raise KernelTypeError(f"parameter {name!r}: {error.what}", fix=fix) from None
    if array.ndim == 0:
        raise KernelTypeError(
            f"parameter {name!r} got a 0-d array", fix="pass array.reshape(1) to write it, or array.item() as a scalar"
        )
    return dtype


@lru_cache
def _struct_type(dtype: np.dtype[Any]) -> ValueType:
    from quernel.structs import struct_of

    return struct_of(dtype)


@lru_cache
def alignment_of(dtype: np.dtype[Any]) -> int:
    """Bytes to which elements must be aligned; whole elements for dtypes that are refused later."""
    if dtype.names is None:
        return dtype.itemsize or 1
    try:
        return _struct_type(dtype).alignment
    except KernelTypeError:
        return 1


def _array_type(
    name: str, declared: ArrayType, element: ValueType, value: DeviceArray | np.ndarray[Any, Any]
) -> ArrayType:
    wanted = declared.element
    fitted = _fitted(name, declared, element, value.ndim)
    if fitted is None:
        assert isinstance(wanted, ValueType)
        fix = "pass a structured array with its fields" if isinstance(wanted, StructType) else _conversion(wanted)
        raise KernelTypeError(f"parameter {name!r} is an array of {wanted} and got one of {element}", fix=fix)
    element, ndim = fitted
    if declared.ndim is not None and declared.ndim != ndim:
        raise KernelTypeError(
            f"parameter {name!r} is an array of {counted(declared.ndim, 'axis')} and got shape {value.shape}",
            fix=f"reshape it, or annotate the parameter as qn.Array{ndim if ndim <= 4 else ''}[...]",
        )
    return ArrayType(element, ndim)


Rank = TypeVar("Rank", int, int | None)


def _fitted(name: str, declared: ArrayType, element: ValueType, ndim: Rank) -> tuple[ValueType, Rank] | None:
    """Element and rank as the kernel sees them of an array of such elements; `None` where others are declared.

    Raises:
        KernelTypeError: the elements are structs that lack what the declared ones have.
    """
    wanted = declared.element
    if isinstance(wanted, VectorType) and wanted.element is element:
        return wanted, None if ndim is None else ndim - 1  # The vectors lie along the last axis.
    if isinstance(wanted, StructType) and isinstance(element, StructType):
        from quernel.runtime.compounds import matched_struct

        return matched_struct(name, wanted, element), ndim
    if isinstance(wanted, ValueType) and wanted != element:
        return None
    return element, ndim


def _conversion(wanted: DType | VectorType) -> str:
    dtype = wanted.element if isinstance(wanted, VectorType) else wanted
    return f"convert it with .astype({'ml_dtypes.bfloat16' if dtype.name == 'bf16' else f'np.{dtype.numpy}'})"


def _inferred(name: str, value: Any) -> ScalarType:
    if isinstance(value, np.generic):
        try:
            return ScalarType(dtype_of(value.dtype))
        except KernelTypeError as error:
            raise KernelTypeError(f"parameter {name!r}: {error.what}", fix=error.fix) from None
    if isinstance(value, bool):
        return ScalarType(bool_)
    if isinstance(value, int):
        return ScalarType(i64, weak=True)
    if isinstance(value, float):
        return ScalarType(f64, weak=True)
    raise KernelTypeError(f"parameter {name!r} got {shown(value)}, which no kernel takes", fix=_instead(name, value))


def _instead(name: str, value: Any) -> str:
    """What to pass for a value of a kind that no kernel takes."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "make its class a struct: a class with @attrs.frozen and annotated fields"
    if isinstance(value, tuple):
        fixed = f"annotate {name}: qn.Const[tuple], for a tuple that is fixed when the kernel is compiled"
        return f"make it an array first: {name} = np.asarray({name}); or {fixed}"
    if hasattr(type(value), "__dataclass_fields__"):
        return f"make {type(value).__name__} a struct: @attrs.frozen in place of @dataclass, with annotated fields"
    if isinstance(value, Mapping):
        return "make it a struct: a class with @attrs.frozen and annotated fields; or pass its values one by one"
    if isinstance(value, complex):
        return f"pass its parts, {name}.real and {name}.imag"
    if _lies_on_a_device(value):
        return f"make it an array of the device first: {name} = device.asarray({name})"
    if isinstance(value, list | range) or _is_like_an_array(value):
        return f"make it an array first: {name} = np.asarray({name})"
    if value is None or isinstance(value, str):
        return f"pass a number or an array; or annotate {name}: qn.Const, for a value to decide by when it is compiled"
    return "pass numbers, NumPy arrays or device arrays; structs are instances of classes with @attrs.frozen"


def _lies_on_a_device(value: Any) -> bool:
    """Whether it is another library's array, in memory that NumPy does not read."""
    place = getattr(value, "__dlpack_device__", None)
    if place is not None:
        from quernel.runtime.dlpack import HOST

        return place()[0] not in HOST
    return any(hasattr(value, protocol) for protocol in _DEVICE_PROTOCOLS)


def _is_like_an_array(value: Any) -> bool:
    """Whether NumPy makes an array of it without going through its elements one by one."""
    if any(hasattr(value, protocol) for protocol in _ARRAY_PROTOCOLS):
        return True
    try:
        return memoryview(value).ndim > 0
    except TypeError:
        return False


def _described(declared: object) -> str:
    if isinstance(declared, type | TypeVar):
        return declared.__name__
    if isinstance(declared, ArrayType):
        rank = "" if declared.ndim is None else f" of {counted(declared.ndim, 'axis')}"
        return f"an array of {declared.element}{rank}" if declared.element is not None else f"an array{rank}"
    if isinstance(declared, ScalarType) and declared.weak:
        return "float" if declared.dtype is f64 else "int"
    return str(declared)


# --- compile-time values ----------------------------------------------------------------------------------------------


def constant_value(spec: Spec, value: Any) -> Any:
    """The value of a `Const` parameter, converted by the type in its annotation if it has one.

    Raises:
        KernelTypeError: it does not fit, is an array, or may change.
    """
    if isinstance(value, np.ndarray | DeviceArray | list | dict):
        raise KernelTypeError(
            f"Const parameter {spec.name!r} got {shown(value)}", fix="take it as an ordinary parameter, or pass a tuple"
        )
    try:
        hash(value)
    except TypeError:
        raise KernelTypeError(
            f"Const parameter {spec.name!r} got {shown(value)}, which may change after it was compiled in",
            fix="pass numbers, or tuples of them",
        ) from None
    declared = spec.declared
    wanted = declared.type if isinstance(declared, ConstAnnotation) else None
    if wanted is None:
        return value
    what = f"Const parameter {spec.name!r}"
    if isinstance(wanted, DType):
        return wanted(convert_scalar(value, wanted, what))
    if wanted is int:
        return checked_integer(value, i64.min, i64.max, "int", what)
    if wanted is float:
        return checked_float(value, f64, what, "float")
    if wanted is bool:
        return bool(convert_scalar(value, bool_, what))
    if isinstance(wanted, type) and not isinstance(value, wanted):
        raise KernelTypeError(f"{what} is {wanted.__name__} and got {shown(value)}", fix=f"pass a {wanted.__name__}")
    return value


def constant_key(value: Any) -> object:
    """What tells compile-time values apart in a launcher's table, as finely as a kernel's id does. On the launch path.

    It is type and content, floats by their bits; objects of other kinds are told apart by who they are.
    """
    cls = type(value)
    if cls is int or cls is str or cls is bool or value is None:
        return (cls, value)
    if cls is tuple:
        return (cls, *map(constant_key, value))
    if cls is float:
        return (cls, _bits(value))
    if isinstance(value, _WITH_CONTENT):
        try:
            return (cls, _ContentEncoder().body(value))
        except _NoContentError:
            pass
    return _Same(value)


_bits = struct.Struct("<d").pack
_WITH_CONTENT = (np.generic, int, float, complex, str, bytes, tuple, frozenset)


class _NoContentError(Exception):
    """There is something inside that no bytes stand for."""


class _ContentEncoder(Encoder):
    """Encodes numbers, texts and what is made of them, subclasses included; two equal results mean equal content."""

    def other(self, value: object) -> bytes:
        """A subclass of a builtin type, by its own name and the builtin's content."""
        if not isinstance(value, _WITH_CONTENT) or isinstance(value, Enum):
            raise _NoContentError
        return super().other(value)

    def opaque(self, value: object) -> bytes:
        """Nothing that could tell two such values apart."""
        raise _NoContentError


@final
class _Same:
    """Stands for one object and keeps it alive, so that no other one gets its address."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value
