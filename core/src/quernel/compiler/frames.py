"""How this process and a compile worker talk over pipes: length-prefixed frames, whose content is pickled.

A worker greets first. Whatever else a start prints (a `sitecustomize`, a plugin) comes before the greeting and is
passed over; after it, the worker's own output goes elsewhere, so that only frames are on the pipe.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["GREETING", "read_frame", "skip_to_greeting", "write_all", "write_frame"]

GREETING: Final = b"\0quernel compile worker 1\0"

_LENGTH_BYTES: Final = 8
_CHUNK_BYTES: Final = 1 << 20


def write_frame(handle: int, content: bytes) -> None:
    """Writes one frame whole. Blocks.

    Raises:
        OSError: nobody reads any more.
    """
    write_all(handle, len(content).to_bytes(_LENGTH_BYTES, "little") + content)


def read_frame(handle: int) -> bytes | None:
    """The next frame, or `None` where the other side has ended, even amid a frame. Blocks."""
    length = _read(handle, _LENGTH_BYTES)
    return None if length is None else _read(handle, int.from_bytes(length, "little"))


def skip_to_greeting(handle: int) -> bool:
    """Reads up to and with the greeting; `False` where the other side ended without one. Blocks."""
    seen = b""
    while not seen.endswith(GREETING):
        more = os.read(handle, 1)  # by bytes: what follows is a frame's
        if not more:
            return False
        seen = (seen + more)[-len(GREETING) :]
    return True


def write_all(handle: int, content: bytes) -> None:
    """Writes all bytes. Blocks."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _read(handle: int, num_bytes: int) -> bytes | None:
    content = bytearray()
    while len(content) < num_bytes:
        more = os.read(handle, min(num_bytes - len(content), _CHUNK_BYTES))
        if not more:
            return None
        content += more
    return bytes(content)
