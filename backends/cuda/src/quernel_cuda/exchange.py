"""One memory with PyTorch, CuPy and whoever else works in the device's primary context."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from quernel.errors import DeviceError
from quernel.runtime.exchange import MemoryExchange
from quernel_cuda import _driver
from quernel_cuda._driver import Context, LostContextError, call
from quernel_cuda.streams import CudaEvent

if TYPE_CHECKING:
    from quernel_cuda.device import CudaDevice

__all__ = ["CudaExchange"]

_CUDA: Final = 2
_CUDA_MANAGED: Final = 13
_LEGACY: Final = 1
"""DLPack's number of the legacy default stream, and the driver's; 2 is the per-thread default stream of both."""
_UNORDERED: Final = -1
_UNTIMED: Final = 2


class CudaExchange(MemoryExchange):
    """The exchange of one device.

    The default stream keeps order with the legacy one by itself. With all other streams of other libraries order is
    made by events; memory that went there is freed once all that the context was given is done.
    """

    cuda_interface = True
    dlpack_kinds = (_CUDA, _CUDA_MANAGED)

    def __init__(self, device: CudaDevice, default: Any) -> None:
        self.number = device.info.index
        self.stream = int(default)
        self._device = device
        self._default = default
        self._parting: deque[tuple[CudaEvent, object]] = deque()
        """Owners of memory that was used here, each with the event after which it is not."""

    def give(self, stream: int | None) -> bool:
        """Makes a stream wait for ours; -1 asks for no order, and 0 could be two streams.

        Raises:
            BufferError: it is no stream.
        """
        number = _LEGACY if stream is None else stream
        if type(number) is not int or number < _UNORDERED or number == 0:
            raise BufferError(
                f"stream {stream!r} is none of CUDA's: pass 1 for the legacy default stream, 2 for the per-thread one, "
                "-1 for no order, or a stream's handle"
            )
        if number != _UNORDERED:
            device = self._device
            with device._context:
                for ours in self._ours():
                    event = device._mark(ours, _UNTIMED)
                    call("cuStreamWaitEvent", number, event.handle, 0, doing="handing an array to another library")
        return number in (_LEGACY, self.stream)

    def take(self, stream: int | None) -> None:
        """Makes our streams wait for another library's."""
        self.collect()
        device = self._device
        with device._context:
            if stream is not None and stream != self.stream:
                event = device._mark(stream, _UNTIMED)
                call("cuStreamWaitEvent", self._default, event.handle, 0, doing="taking an array of another library")
            device._others_wait()

    def settle(self) -> None:
        """Makes the default stream wait for all that the context was given, by an event where the driver has such."""
        context = self._device._context
        if context.is_lost:
            return
        with suppress(LostContextError), context:
            event = CudaEvent(context, _UNTIMED)
            try:
                call("cuCtxRecordEvent", context.handle, event.handle)
            except (AttributeError, RuntimeError, DeviceError) as error:  # bindings or driver from before CUDA 12.5
                if isinstance(error, LostContextError):
                    raise
                call("cuCtxSynchronize", doing="waiting for what other libraries do with an array")
            else:
                call("cuStreamWaitEvent", self._default, event.handle, 0)

    def let_go(self, owner: object) -> None:
        """Keeps the owner until an event behind all work that our streams were given has come, unless they are idle."""
        device = self._device
        if device._is_closed or device._context.is_lost:
            return
        query = _driver.driver().cuStreamQuery
        with suppress(LostContextError), device._context:
            if not any(int(query(ours)[0]) for ours in self._ours()):
                return
            device._wait_for_others()
            self._parting.append((device._mark(self._default, _UNTIMED), owner))
            self.collect()

    def collect(self) -> None:
        """Lets go of the owners whose memory is not used here any more. Any thread, at any time; waits for nothing."""
        query = _driver.driver().cuEventQuery if self._parting else None
        while query is not None:
            try:
                first = self._parting.popleft()
            except IndexError:
                return
            with self._device._context:
                status, *_ = query(first[0].handle)
            if int(status):  # not yet, or somebody captures a graph and nobody may ask
                self._parting.appendleft(first)
                return

    def _ours(self) -> tuple[Any, ...]:
        """The default stream and those that users opened, without any that becomes a graph."""
        return self._default, *(each.handle for each in self._device._streams if not each.is_capturing)

    def current(self) -> Context:
        """The device's context: PyTorch hands over what is on its current device only."""
        return self._device._context

    def number_of(self, address: int) -> int:
        """The device whose memory it is.

        Raises:
            DeviceError: the driver does not know the address.
        """
        attribute = _driver.driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        with self._device._context:
            return int(call("cuPointerGetAttribute", attribute, address, doing="looking where an array is"))

    def close(self) -> None:
        """Lets go of all owners; nothing runs any more."""
        self._parting.clear()
