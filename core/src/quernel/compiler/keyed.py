"""A device's kernels by keys of the caller's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from quernel.compiler.definition import KernelDefinition
from quernel.compiler.inflight import LoadedKernel
from quernel.compiler.kernels import Defined, Kernels

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quernel.compiler.pending import Pending
    from quernel.compiler.reporting import Progress

__all__ = ["KeyedKernels"]

KeyT = TypeVar("KeyT")
VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")


class KeyedKernels(Generic[KeyT, VariantT, ArtifactT, LoadedT]):
    """Kernels named by hashable keys, such as the settings that a library makes its kernels from.

    A key's definition is made when the key is first used, and kept; the kernels are the device's, so different keys of
    equal kernels share what is loaded. Its length is the number of keys used. Copies share the keys. Any thread.
    """

    def __init__(
        self,
        kernels: Kernels[VariantT, ArtifactT, LoadedT],
        define: Callable[[KeyT], KernelDefinition | Defined],
        variant: VariantT | None = None,
    ) -> None:
        """Keys of `kernels`; `define(key)` MAY be called twice for a key that two threads use first at once."""
        self._kernels = kernels
        self._define = define
        self._variant = variant
        self._definitions: dict[KeyT, KernelDefinition] = {}

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, key: object) -> bool:
        return key in self._definitions

    def __repr__(self) -> str:
        return f"<{len(self)} keys of {self._kernels!r}>"

    def get(self, key: KeyT) -> LoadedKernel[VariantT, LoadedT]:
        """The kernel of that key, loaded; a hit takes no lock.

        Raises:
            QuernelError: as `Kernels.get`.
            Exception: whatever `define` raises; it is asked again the next time.
        """
        return self._kernels.get(self._definition(key), self._variant)

    def request(self, key: KeyT) -> Pending[VariantT, LoadedT]:
        """Asks for the kernel of that key without compiling it yet."""
        return self._kernels.request(self._definition(key), self._variant)

    def build(
        self, *, executor: Executor | None = None, progress: Progress | None = None
    ) -> tuple[Pending[VariantT, LoadedT], ...]:
        """Compiles all that was requested, as `Kernels.build`."""
        return self._kernels.build(executor=executor, progress=progress)

    def _definition(self, key: KeyT) -> KernelDefinition:
        known = self._definitions.get(key)
        if known is None:
            made = self._define(key)
            definition = made if isinstance(made, KernelDefinition) else made.definition
            known = self._definitions.setdefault(key, definition)
        return known
