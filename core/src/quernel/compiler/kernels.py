"""A device's kernels as users and libraries see them: a view over its loader that owns no kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.definition import KernelDefinition
from quernel.compiler.halves import ANY_LAUNCH, ArtifactCompiler
from quernel.compiler.loader import KernelLoader, LoadedKernel
from quernel.forks import renewed
from quernel.wording import counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from quernel.compiler.keyed import KeyedKernels
    from quernel.compiler.pending import Pending
    from quernel.compiler.reporting import Progress, Reporter

__all__ = ["Defined", "Kernels"]

VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")
KeyT = TypeVar("KeyT")


class Defined(Protocol):
    """What stands for a kernel with everything fixed, such as what `kernel.specialize(...)` gives."""

    @property
    def definition(self) -> KernelDefinition:
        """The kernel."""
        ...


class Kernels(Generic[VariantT, ArtifactT, LoadedT]):
    """The kernels of one device; its length is the number of those loaded.

    It owns requests and reporters, no kernels: two requests for one artifact share one loaded kernel, whichever view
    they came by. Copies of a view, and those that `reporting` gives, share its requests. Any thread may call; from
    inside a worker or a reporter, what might compile is refused with `LaunchError`.
    """

    def __init__(self, loader: KernelLoader[VariantT, ArtifactT, LoadedT]) -> None:
        self._loader = loader
        self._reporters: tuple[Reporter, ...] = ()
        self._requests: _Requests[VariantT, LoadedT] = _Requests()

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'kernel')} loaded on {self._loader.name}>"

    @property
    def compiler(self) -> ArtifactCompiler[VariantT, Any, ArtifactT]:
        """The half that may be taken elsewhere to compile."""
        return self._loader.target.compiler

    def get(
        self, kernel: KernelDefinition | Defined, variant: VariantT | None = None
    ) -> LoadedKernel[VariantT, LoadedT]:
        """The kernel loaded on this device, compiled if need be, together with all that was requested.

        Args:
            kernel: what to load.
            variant: what a launch would decide; by default the one that fits every launch.

        Raises:
            QuernelError: why it cannot be lowered, compiled or loaded.
            LaunchError: the calling thread is part of a compilation, or its context compiles nothing.
        """
        definition, id = self._named(kernel, variant)  # noqa: A001
        return self._loader.load(definition, id, reporters=self._reporters)

    def request(
        self, kernel: KernelDefinition | Defined, variant: VariantT | None = None
    ) -> Pending[VariantT, LoadedT]:
        """Asks for a kernel without compiling it yet: the next batch does, at `build`, `get`, a launch or its result.

        Never blocks for long and compiles nothing, so a worker or reporter may call it.
        """
        from quernel.compiler.pending import Pending

        definition, id = self._named(kernel, variant)  # noqa: A001
        found, _ = self._loader.request(definition, id, reporters=self._reporters)
        pending = Pending(self._loader, id, found)
        self._requests.add(pending)
        return pending

    def build(
        self, *, executor: Executor | None = None, progress: Progress | None = None
    ) -> tuple[Pending[VariantT, LoadedT], ...]:
        """Compiles all that was requested, as one batch, and waits; gives what was requested since the last `build`.

        That is what was requested by way of this view, its copies, and those that share its requests.

        A failure costs its own kernel only, and is raised by that kernel's `result()`.

        Args:
            executor: where to compile, instead of the device's own workers.
            progress: is told as each kernel of the batch is found, compiled or has failed.

        Raises:
            LaunchError: the calling thread is part of a compilation, or its context compiles nothing.
        """
        self._loader.compile_queued(workers=executor, progress=progress)
        requests = self._requests.take()
        for pending in requests:
            if not pending.is_done:  # another thread's batch has it
                _wait(pending)
        return requests

    def keyed(
        self, define: Callable[[KeyT], KernelDefinition | Defined], variant: VariantT | None = None
    ) -> KeyedKernels[KeyT, VariantT, ArtifactT, LoadedT]:
        """These kernels by keys of the caller's own; `define(key)` says once which kernel a key stands for."""
        from quernel.compiler.keyed import KeyedKernels

        return KeyedKernels(self, define, variant)

    def reporting(self, reporter: Reporter) -> Kernels[VariantT, ArtifactT, LoadedT]:
        """These kernels, with one more reporter: it is told of each artifact that is compiled for what is asked by way
        of the view given back, once, before the artifact is loaded, and never of hits.

        A kernel that several views asked for before it was compiled is told to the reporters of all of them.
        """
        made: Kernels[VariantT, ArtifactT, LoadedT] = Kernels(self._loader)
        made._reporters = (*self._reporters, reporter)
        made._requests = self._requests
        return made

    def check(self, kernel: LoadedKernel[Any, Any]) -> None:
        """Raises unless the kernel was loaded on this device.

        Raises:
            LaunchError: it belongs to another one; the error names both.
        """
        self._loader.check(kernel)

    def _named(
        self, kernel: KernelDefinition | Defined, variant: VariantT | None
    ) -> tuple[KernelDefinition, ArtifactId[VariantT]]:
        definition = kernel if isinstance(kernel, KernelDefinition) else kernel.definition
        if variant is None:
            variant = self._loader.target.variant(ANY_LAUNCH)
        return definition, ArtifactId(definition.id, variant)


class _Requests(Generic[VariantT, LoadedT]):
    """What was requested since the last build, in order. Those that ended and that nobody holds are let go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Pending[VariantT, LoadedT]] = []
        self._most = 64
        renewed(self)

    def add(self, pending: Pending[VariantT, LoadedT]) -> None:
        with self._lock:
            self._pending.append(pending)
            if len(self._pending) > self._most:
                self._pending = [known for known in self._pending if not known.is_done]
                self._most = max(64, 2 * len(self._pending))

    def take(self) -> tuple[Pending[VariantT, LoadedT], ...]:
        with self._lock:
            taken, self._pending = self._pending, []
            return tuple(taken)

    def renew_after_fork(self) -> None:
        self._lock = threading.Lock()


def _wait(pending: Pending[Any, Any]) -> None:
    try:
        pending.result()
    except Exception:  # its own, told to whoever asks for its result
        return
