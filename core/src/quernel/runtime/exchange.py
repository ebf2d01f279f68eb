"""What a backend says so that its arrays and those of other libraries are one memory: places, streams, and release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

__all__ = ["MemoryExchange"]


class MemoryExchange(ABC):
    """How one device shares its memory with other libraries of the process. Every method MAY be called by any thread.

    Streams of other libraries are the numbers by which DLPack knows them on this kind of device.
    """

    cuda_interface: ClassVar[bool] = False
    """Whether arrays have `__cuda_array_interface__`, and objects with it are taken."""
    dlpack_kinds: tuple[int, ...]
    """DLPack's numbers of the kinds of memory that kernels reach; the first is that of the arrays allocated here."""
    number: int
    """The device's number, as DLPack counts devices of these kinds."""
    stream: int
    """The default stream, for others to wait in or to be waited for."""

    @abstractmethod
    def give(self, stream: int | None) -> bool:
        """Makes a stream of another library wait for all that this device's streams were given so far.

        `None` is what DLPack takes as the default, and -1 asks for no order at all.

        Returns:
            Whether that stream and the default one keep order with each other anyway.

        Raises:
            BufferError: it is no stream.
        """

    @abstractmethod
    def take(self, stream: int | None) -> None:
        """Makes all streams of this device wait for what a stream of another library was given so far.

        `None`: the default stream waits already.
        """

    @abstractmethod
    def settle(self) -> None:
        """Makes the default stream wait for all work in the device's memory, whoever gave it; called before a free."""

    @abstractmethod
    def let_go(self, owner: object) -> None:
        """Holds `owner`, to whom memory belongs that was used here, until the work given so far is done. Waits not."""

    def current(self) -> AbstractContextManager[object]:
        """Within it, the device is the one that other libraries take as current. Here there is no such thing."""
        return nullcontext()

    @abstractmethod
    def number_of(self, address: int) -> int:
        """The number of the device in whose memory an address is.

        Raises:
            DeviceError: it is in no device's.
        """
