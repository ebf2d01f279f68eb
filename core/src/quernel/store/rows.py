"""The bytes of a map's row: which payload it names, what a target needs beside it, when it was last used."""

from __future__ import annotations

import struct
import time

from quernel.digests import sha256
from quernel.values import frozen

__all__ = [
    "DAY_SLICE",
    "DIGEST_SLICE",
    "FLAGS_SLICE",
    "MAP_RANGES",
    "PARTS_RANGE",
    "PAYLOAD_RANGE",
    "DamagedRowError",
    "MapRow",
    "today",
]

_MAGIC = b"QnMp"
_FORMAT = 1
_FIXED = struct.Struct(">4sHHI32sQ")
_LENGTH = struct.Struct(">I")
_SEAL_BYTES = 32
_LAST_DAY = 2**32 - 1
_PINNED = 1

# 1-based positions inside the fixed part, for SQL's substr(value, start, length).
FLAGS_SLICE = (7, 2)
DAY_SLICE = (9, 4)
DIGEST_SLICE = (13, 32)

MAP_RANGES = (("i/", "i0"), ("k/", "k0"), ("s/", "s0"))
"""The half-open key ranges of the three maps."""
PAYLOAD_RANGE = ("b/", "b0")
PARTS_RANGE = ("n/", "n0")


class DamagedRowError(ValueError):
    """A row or payload that is not what was stored: it is deleted, and the look-up is a miss."""


def today() -> int:
    """The day of now, counted from the epoch in UTC; the nearest that a row can hold where the clock is odd."""
    now_s = time.time()
    return int(min(max(now_s, 0.0), 86400.0 * _LAST_DAY) // 86400) if now_s == now_s else 0


@frozen(kw_only=True, eq=False, repr=False)  # neither is used, and both would slow the import down
class MapRow:
    """One row of a map.

    `name` echoes the row's own key, so that a row moved to another key is noticed; `statistics` is JSON. A pinned row
    is never collected.
    """

    name: str
    payload_digest: str
    payload_bytes: int
    entry: str
    kernel_name: str
    backend: str
    statistics: bytes
    header: bytes
    day: int
    pinned: bool = False

    def encode(self) -> bytes:
        """The row's bytes: fixed part, fields each preceded by its length, sha256 of all that."""
        fixed = _FIXED.pack(
            _MAGIC,
            _FORMAT,
            _PINNED if self.pinned else 0,
            self.day,
            bytes.fromhex(self.payload_digest),
            self.payload_bytes,
        )
        pieces = [fixed]
        texts = (self.name, self.entry, self.kernel_name, self.backend)
        for field in (*(text.encode("utf-8", "surrogatepass") for text in texts), self.statistics, self.header):
            pieces += (_LENGTH.pack(len(field)), field)
        body = b"".join(pieces)
        return body + sha256(body).digest()

    @classmethod
    def decode(cls, name: str, value: object) -> MapRow:
        """Reads the bytes kept under `name`. On the path of a warm start.

        Raises:
            DamagedRowError: the bytes are not a whole row of this format, or are the row of another key.
        """
        if type(value) is not bytes or len(value) < _FIXED.size + _SEAL_BYTES:
            raise DamagedRowError("not the bytes of a row")
        body, seal = value[:-_SEAL_BYTES], value[-_SEAL_BYTES:]
        if sha256(body).digest() != seal:
            raise DamagedRowError("its digest does not match")
        magic, version, flags, day, digest, payload_bytes = _FIXED.unpack_from(body)
        if magic != _MAGIC or version != _FORMAT:
            raise DamagedRowError(f"not a row of format {_FORMAT}")
        fields, offset = [], _FIXED.size
        try:
            for _ in range(6):
                (length,) = _LENGTH.unpack_from(body, offset)
                offset += _LENGTH.size
                fields.append(body[offset : offset + length])
                offset += length
            echoed, entry, kernel_name, backend = (field.decode("utf-8", "surrogatepass") for field in fields[:4])
        except (struct.error, UnicodeDecodeError) as error:
            raise DamagedRowError(f"its fields cannot be read: {error}") from None
        if offset != len(body):
            raise DamagedRowError("its fields do not fill it")
        if echoed != name:
            raise DamagedRowError(f"it belongs to {echoed}")
        return cls(
            name=name,
            payload_digest=digest.hex(),
            payload_bytes=payload_bytes,
            entry=entry,
            kernel_name=kernel_name,
            backend=backend,
            statistics=fields[4],
            header=fields[5],
            day=day,
            pinned=bool(flags & _PINNED),
        )
