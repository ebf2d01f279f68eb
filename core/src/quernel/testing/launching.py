"""NumPy arrays as arguments on any device: in place where it reaches the host's memory, else copied there and back."""

from __future__ import annotations

import ast
from ctypes import c_uint8
from typing import Any, Final, final

import attrs
import numpy as np

import quernel as qn
from quernel.reference.device import ReferenceDevice
from quernel.runtime.arrays import DeviceArray, element_of
from quernel.runtime.devices import Device

__all__ = ["On", "OnLauncher", "is_interpreted", "on", "run_text"]

_ALIGNMENT: Final = 64


def on(device: Device | str, kernel: Any) -> On:
    """A kernel as `device` runs it: `on(device, k).over(n)(x)`, `on(device, k)[grid, block](x)`."""
    return On(qn.device(device) if isinstance(device, str) else device, kernel)


@final
class On:
    """A kernel on a device. What it is not asked for here, the kernel answers."""

    def __init__(self, device: Device, kernel: Any) -> None:
        self._device = device
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the kernel: it refuses, and says how to launch."""
        return self._kernel(*args, **kwargs)

    def options(self, **options: Any) -> On:
        """The kernel with other settings, on the same device."""
        return On(self._device, self._kernel.options(**options))

    def over(self, extent: Any, *, block: Any = None) -> OnLauncher:
        """One thread per point of an extent."""
        return OnLauncher(self._device, self._kernel.over(extent, block=block, device=self._device))

    def __getitem__(self, key: Any) -> OnLauncher:
        return OnLauncher(self._device, self._kernel.options(device=self._device)[key])


@final
@attrs.frozen
class OnLauncher:
    """A launcher that takes NumPy arrays on any device.

    Attributes:
        device: where it launches.
        launcher: what launches.
    """

    device: Device
    launcher: Any

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launches, waits, and leaves in the arrays what the kernel wrote."""
        if self.device.is_host_accessible:
            self.launcher(*args, **kwargs)
            return
        lent = _Lent(self.device, [*args, *kwargs.values()])
        try:
            self.launcher(
                *[lent.there(value) for value in args], **{name: lent.there(value) for name, value in kwargs.items()}
            )
            self.device.synchronize()
        finally:
            lent.give_back()


@attrs.define(eq=False)
class _Piece:
    """Host memory from `low` to `high`, and its copy on the device, which starts at a like alignment."""

    low: int
    high: int
    is_writeable: bool
    copy: DeviceArray

    @property
    def host(self) -> np.ndarray[Any, Any]:
        return np.asarray((c_uint8 * (self.high - self.low)).from_address(self.low))

    @property
    def shift(self) -> int:
        return self.low % _ALIGNMENT


class _Lent:
    """The memory behind NumPy arrays, copied once for all its views, so that they overlap there as they do here."""

    def __init__(self, device: Device, values: list[Any]) -> None:
        self._device = device
        self._arrays = [array for value in values for array in _arrays_in(value)]
        self._pieces: list[_Piece] = []
        for low, high, is_writeable in _joined([_reach(array) for array in self._arrays if array.size]):
            copy = device.empty(low % _ALIGNMENT + high - low, qn.u8)
            piece = _Piece(low, high, is_writeable, copy)
            copy[piece.shift :].copy_from(piece.host)
            self._pieces.append(piece)

    def there(self, value: Any) -> Any:
        """What stands on the device for an argument."""
        if isinstance(value, np.ndarray):
            if not value.size:
                return self._device.empty(value.shape, element_of(value.dtype))
            address = value.__array_interface__["data"][0]
            piece = next(piece for piece in self._pieces if piece.low <= address < piece.high)
            offset = address - piece.low + piece.shift
            return DeviceArray(piece.copy.allocation, element_of(value.dtype), value.shape, value.strides, offset)
        if attrs.has(type(value)):
            names = [field.name for field in attrs.fields(type(value))]
            return attrs.evolve(value, **{name: self.there(getattr(value, name)) for name in names})
        return value

    def give_back(self) -> None:
        """Copies all memory that may be written back to the host."""
        for piece in self._pieces:
            if piece.is_writeable:
                piece.copy[piece.shift :].copy_to(piece.host)


def _arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    """The NumPy arrays in an argument: itself, or the fields of a struct."""
    if isinstance(value, np.ndarray):
        return [value]
    if attrs.has(type(value)):
        return [array for field in attrs.fields(type(value)) for array in _arrays_in(getattr(value, field.name))]
    return []


def _reach(array: np.ndarray[Any, Any]) -> tuple[int, int, bool]:
    """First byte and end of an array and of the arrays that it is a view of, and whether any may be written."""
    low, high = np.lib.array_utils.byte_bounds(array)
    is_writeable = array.flags.writeable
    while isinstance(array.base, np.ndarray):
        array = array.base
        first, last = np.lib.array_utils.byte_bounds(array)
        low, high, is_writeable = min(low, first), max(high, last), is_writeable or array.flags.writeable
    return int(low), int(high), is_writeable


def _joined(reaches: list[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """The same memory without overlaps."""
    joined: list[tuple[int, int, bool]] = []
    for low, high, is_writeable in sorted(reaches):
        if joined and low < joined[-1][1]:
            first, last, could = joined[-1]
            joined[-1] = first, max(high, last), could or is_writeable
        else:
            joined.append((low, high, is_writeable))
    return joined


def is_interpreted(device: Device) -> bool:
    """Whether the reference interpreter runs the threads, thousands of times as slowly as a compiled kernel."""
    return isinstance(device.operations, ReferenceDevice)


def run_text(text: str, name: str, device: Device, names: dict[str, Any]) -> None:
    """Runs a module's text, whose kernels take NumPy arrays, on any device; `names` are its globals."""
    tree = ast.parse(text, name)
    if not device.is_host_accessible:
        tree = ast.fix_missing_locations(_KernelsOn().visit(tree))
    names["__on__"] = lambda kernel: on(device, kernel)
    with qn.use(device):
        exec(compile(tree, name, "exec", dont_inherit=True), names)


class _KernelsOn(ast.NodeTransformer):
    """Binds each kernel's name to the kernel on a device."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        if not any("qn.kernel" in ast.unparse(decorator) for decorator in node.decorator_list):
            return self.generic_visit(node)
        bound = ast.parse(f"{node.name} = __on__({node.name})").body[0]
        return [node, bound]

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 — the visitor's name
