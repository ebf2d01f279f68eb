"""What a compiler hands to a device: the header that holds all that a launch needs, and the ids of artifacts."""

from __future__ import annotations

import enum
from typing import Any, Generic, TypeVar

from quernel.dtypes import BY_NAME, ArrayType, DType, i64
from quernel.identity import KernelId
from quernel.values import frozen

__all__ = [
    "ANY_RANK",
    "HEADER_FORMAT",
    "Artifact",
    "ArtifactHeader",
    "ArtifactId",
    "HeaderParameter",
    "Slot",
    "SlotKind",
]

HEADER_FORMAT = 1
"""Version of the header's byte form; headers of another version are misses."""

ANY_RANK = -2
"""The rank of an array that a ready-made source takes as its pointer alone: it is C-contiguous, its rank any."""

VariantT_co = TypeVar("VariantT_co", covariant=True)


@frozen
class ArtifactId(Generic[VariantT_co]):
    """The key of everything in memory: a specialized kernel and the variant that one launch decides."""

    kernel: KernelId
    variant: VariantT_co


class SlotKind(enum.Enum):
    """What the entry point receives in one argument slot."""

    POINTER = "pointer"
    """Address of element (0, …, 0) of an array."""
    SHAPE = "shape"
    """Length of an array along an axis."""
    STRIDE = "stride"
    """Stride of an array along an axis, in elements; may be negative or zero."""
    SCALAR = "scalar"
    """A scalar parameter's value."""
    EXTENT = "extent"
    """Points (`over`) or threads (`grid`) of the launch along an axis."""
    START = "start"
    """First `global_id` of the launch along an axis."""
    GRID = "grid"
    """Blocks of the launch along an axis."""
    DIAGNOSTICS = "diagnostics"
    """Address of the launch's diagnostics buffer."""


@frozen
class Slot:
    """One argument of the entry point.

    Attributes:
        kind: what it is.
        param: index of the parameter in the header's `params`; -1 for `EXTENT START GRID DIAGNOSTICS`.
        axis: the axis, in array order; 0 for pointers and scalars.
        dtype: type of the value as passed (pointers: u64).
    """

    kind: SlotKind
    param: int = -1
    axis: int = 0
    dtype: DType = i64


@frozen
class HeaderParameter:
    """A parameter as a launch sees it.

    Attributes:
        name: the user's name.
        dtype: the scalar type's name, or that of an array's element, such as `f32`, `vec<f32, 2>`, `struct<Pair>`.
            `dtype_named` finds scalar types alone: a launch that has to know the size of others keeps it elsewhere.
        ndim: rank of an array; `ANY_RANK` for one that is passed as its pointer alone; -1 for a scalar.
        weak: a Python number that adapted to what it met.
        bounds: least and greatest value that a weak integer may have, or `None`.
        is_read: an array whose elements the kernel reads.
        is_written: an array whose elements the kernel writes.
    """

    name: str
    dtype: str
    ndim: int = -1
    weak: bool = False
    bounds: tuple[int, int] | None = None
    is_read: bool = False
    is_written: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.ndim != -1

    @staticmethod
    def of_array(name: str, array: ArrayType, *, is_read: bool, is_written: bool) -> HeaderParameter:
        """An array of that type."""
        ndim = ANY_RANK if array.ndim is None else array.ndim
        return HeaderParameter(name, str(array.element), ndim, is_read=is_read, is_written=is_written)


@frozen
class ArtifactHeader:
    """All that a launch needs besides the loaded code, so that a warm start sees no IR.

    Attributes:
        entry: name of the entry point in the payload.
        params: the kernel's parameters without `Const` ones, in order.
        slots: what the entry point receives, in order.
        block: threads of a block along each axis that the code was compiled for.
        points_per_thread: points of an `over` launch that one thread of the device handles.
        shared_bytes: shared memory of a block.
        features: flags that the backend's own launch reads, sorted.
        num_sites: number of asserts and prints, bounds checks included.
        statistics: facts for the record (registers, spills, code bytes), as sorted pairs.
    """

    entry: str
    params: tuple[HeaderParameter, ...]
    slots: tuple[Slot, ...]
    block: tuple[int, ...]
    points_per_thread: int = 1
    shared_bytes: int = 0
    features: tuple[str, ...] = ()
    num_sites: int = 0
    statistics: tuple[tuple[str, int], ...] = ()

    def to_bytes(self) -> bytes:
        """The canonical bytes of this header; equal headers have equal bytes."""
        import json

        tree = {
            "format": HEADER_FORMAT,
            "entry": self.entry,
            "params": [[p.name, p.dtype, p.ndim, p.weak, p.bounds, p.is_read, p.is_written] for p in self.params],
            "slots": [[s.kind.value, s.param, s.axis, s.dtype.name] for s in self.slots],
            "block": self.block,
            "points_per_thread": self.points_per_thread,
            "shared_bytes": self.shared_bytes,
            "features": self.features,
            "num_sites": self.num_sites,
            "statistics": self.statistics,
        }
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> ArtifactHeader:
        """The header that `to_bytes` wrote.

        Raises:
            ValueError: the bytes are no header of this version.
        """
        import json

        try:
            tree: dict[str, Any] = json.loads(data)
            if tree["format"] != HEADER_FORMAT:
                raise ValueError(f"header format {tree['format']}, this core reads {HEADER_FORMAT}")
            return ArtifactHeader(
                entry=str(tree["entry"]),
                params=tuple(
                    HeaderParameter(name, dtype, ndim, weak, tuple(bounds) if bounds else None, reads, writes)
                    for name, dtype, ndim, weak, bounds, reads, writes in tree["params"]
                ),
                slots=tuple(
                    Slot(SlotKind(kind), param, axis, BY_NAME[dtype]) for kind, param, axis, dtype in tree["slots"]
                ),
                block=tuple(tree["block"]),
                points_per_thread=tree["points_per_thread"],
                shared_bytes=tree["shared_bytes"],
                features=tuple(tree["features"]),
                num_sites=tree["num_sites"],
                statistics=tuple((name, value) for name, value in tree["statistics"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"damaged header: {error!r}") from error


@frozen
class Artifact:
    """What a device loads and the store keeps. A backend subclasses it, to have a type of its own."""

    header: ArtifactHeader
    payload: bytes
