"""The running side of pyopencl: queues, memory, kernel objects, events; and what a driver's status means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from quernel.errors import DeviceError, LaunchError, QuernelError
from quernel_opencl import _toolchain
from quernel_opencl._toolchain import DeviceKey
from quernel_opencl.types import Loaded

__all__ = [
    "address_argument",
    "allocate",
    "copy",
    "end_ns",
    "enqueue",
    "error_type",
    "failure",
    "fill",
    "finish",
    "kernel",
    "marker",
    "max_threads",
    "open_queue",
    "program",
    "read",
    "set_value",
    "translated",
    "wait_in",
    "write",
]

_MENDS: Final = {
    "MEM_OBJECT_ALLOCATION_FAILURE": "free arrays, or use smaller ones",
    "OUT_OF_RESOURCES": "a kernel reached outside its arrays, or took too long: try it with interpret=True",
    "OUT_OF_HOST_MEMORY": "free memory of the host",
    "INVALID_BUFFER_SIZE": "use smaller arrays: the driver bounds the size of one",
    "INVALID_WORK_GROUP_SIZE": "use a smaller block",
    "DEVICE_NOT_AVAILABLE": "another process holds the device, or it was switched off",
    "INVALID_COMMAND_QUEUE": "an earlier launch failed and took the queue with it: close the device and open it again",
}
"""What to do about a status, by its name in the specification."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raises a driver's failure within as one of ours: what was being done, what the driver said, and the mend.

    Raises:
        DeviceError: the driver failed.
    """
    cl = _toolchain.opencl()
    try:
        yield
    except cl.Error as error:
        raise failure(doing, error) from error


def error_type() -> type[Exception]:
    """What pyopencl raises for every status but success."""
    found: type[Exception] = _toolchain.opencl().Error
    return found


def failure(doing: str, error: Any) -> QuernelError:
    """The one place where a status becomes an error."""
    name = _toolchain.status_name(error)
    return DeviceError(f"{doing} failed: the driver says {name}", fix=_MENDS.get(name, "see quernel doctor"))


# --- programs and kernels ---------------------------------------------------------------------------------------------


def program(key: DeviceKey, binary: bytes) -> Any:
    """The program of a binary, built for the device.

    Raises:
        CompilationError: the driver refuses it.
    """
    return _toolchain.load_binary(key, binary)


def kernel(loaded: Loaded) -> Any:
    """A kernel object of one thread's own: its arguments are state."""
    try:
        return loaded.spare.pop()
    except IndexError:
        return _new_kernel(loaded)


def _new_kernel(loaded: Loaded) -> Any:
    cl = _toolchain.opencl()
    with translated(f"making a kernel object of {loaded.entry}"):
        return cl._cl.Kernel(loaded.program, loaded.entry)


def max_threads(key: DeviceKey, loaded: Loaded) -> int:
    """The most threads of a block with which the driver runs the kernel.

    NVIDIA's driver (580.159) names 256 for every kernel, and yet makes each fit the block that its text asks for.
    """
    cl = _toolchain.opencl()
    made = _new_kernel(loaded)
    loaded.spare.append(made)
    device = _toolchain.device_of(key)
    if key.platform.startswith("NVIDIA"):
        return int(device.max_work_group_size)
    with translated(f"asking for the limits of {loaded.entry}"):
        size: int = made.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
    return size


def enqueue() -> Any:
    """The function that launches: `enqueue(queue, kernel, global size, local size)`."""
    return _toolchain.opencl()._cl.enqueue_nd_range_kernel


def set_value(kernel: Any, number: int, value: bytes) -> None:
    """Sets an argument that is passed by value: pyopencl's own `set_arg` tries what else it might be for 8 µs."""
    kernel._set_arg_buf(number, value)


def address_argument(address: int) -> Any:
    """What a kernel object takes for a pointer into the memory of this process; it keeps nothing alive."""
    import ctypes

    return _toolchain.opencl().SVM((ctypes.c_char * 1).from_address(address))


# --- queues and events ------------------------------------------------------------------------------------------------


def open_queue(key: DeviceKey, *, is_timed: bool = False) -> Any:
    """A queue that runs in order; a timed one knows when its events ended, and may take longer for each launch."""
    cl = _toolchain.opencl()
    context = _toolchain.context_of(key)
    properties = cl.command_queue_properties.PROFILING_ENABLE if is_timed else 0
    with translated("opening a queue"):
        return cl.CommandQueue(context, properties=properties)


def finish(queue: Any) -> None:
    """Waits for the queue's work."""
    with translated("waiting for the device"):
        queue.finish()


def marker(queue: Any) -> Any:
    """An event that ends once the work given to the queue before is done."""
    with translated("recording an event"):
        return _toolchain.opencl()._cl._enqueue_marker_with_wait_list(queue)


def wait_in(queue: Any, event: Any) -> None:
    """Makes later work of the queue wait for the event."""
    with translated("waiting for an event in a queue"):
        _toolchain.opencl()._cl._enqueue_barrier_with_wait_list(queue, [event])


def end_ns(event: Any) -> int:
    """When the event ended, on the device's clock."""
    info = _toolchain.opencl().profiling_info
    with translated("reading the time of an event"):
        end: int = event.get_profiling_info(info.END)
    return end


# --- buffers ----------------------------------------------------------------------------------------------------------


def allocate(key: DeviceKey, nbytes: int, *, is_host_memory: bool) -> Any:
    """A buffer, in memory that the host maps without a copy where both share it."""
    cl = _toolchain.opencl()
    flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if is_host_memory else 0)
    with translated(f"allocating {nbytes} bytes"):
        return cl.Buffer(_toolchain.context_of(key), flags, nbytes)


def rest_of(buffer: Any, offset: int) -> Any:
    """A buffer from an offset on, as one of its own.

    Raises:
        LaunchError: the device's buffers do not start at such offsets.
    """
    try:
        return buffer.get_sub_region(offset, buffer.size - offset)
    except error_type() as error:
        raise LaunchError(
            f"an array that is passed as its pointer alone starts {offset} bytes into a buffer, where "
            f"the device's buffers cannot start: {error}",
            fix="pass a copy, array.copy()",
        ) from error


def write(queue: Any, buffer: Any, offset: int, source: np.ndarray[Any, Any]) -> None:
    """Copies host bytes into a buffer, and waits."""
    with translated(f"copying {source.nbytes} bytes to the device"):
        _toolchain.opencl()._cl._enqueue_write_buffer(queue, buffer, source, offset, None, True)


def read(queue: Any, buffer: Any, offset: int, target: np.ndarray[Any, Any]) -> None:
    """Copies from a buffer to host bytes, and waits."""
    with translated(f"copying {target.nbytes} bytes to the host"):
        _toolchain.opencl()._cl._enqueue_read_buffer(queue, buffer, target, offset, None, True)


def copy(queue: Any, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
    """Copies between buffers, or within one where the ranges do not overlap."""
    with translated(f"copying {nbytes} bytes on the device"):
        _toolchain.opencl()._cl._enqueue_copy_buffer(queue, source, target, nbytes, source_offset, target_offset)


def fill(queue: Any, buffer: Any, offset: int, pattern: bytes, count: int) -> None:
    """Fills a part of a buffer with a pattern of 1, 2, 4, … 128 bytes, from a multiple of its size on."""
    with translated(f"filling {len(pattern) * count} bytes"):
        given = np.frombuffer(pattern, np.uint8)
        _toolchain.opencl()._cl._enqueue_fill_buffer(queue, buffer, given, offset, len(pattern) * count)
