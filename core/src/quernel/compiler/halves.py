"""The two halves of a backend: a compiler that may run anywhere, and a target that stays with the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from quernel.values import frozen

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable, Sequence

    from quernel.capabilities import TargetInfo
    from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
    from quernel.compiler.definition import KernelDefinition
    from quernel.compiler.recording import CompilationRecording
    from quernel.dtypes import ParameterType
    from quernel.identity import BuildId, IrKey
    from quernel.ir.nodes import Module
    from quernel.store import Environment

__all__ = [
    "ANY_LAUNCH",
    "ArtifactCompiler",
    "ArtifactOf",
    "CompilationTarget",
    "Compiler",
    "LaunchFacts",
    "Scaling",
    "Signature",
    "VariantOf",
]

Scaling = Literal["threads", "processes"]
"""What lets several kernels compile side by side."""

VariantT = TypeVar("VariantT")
VariantT_contra = TypeVar("VariantT_contra", contravariant=True)
LoweredT = TypeVar("LoweredT")
LoweredT_co = TypeVar("LoweredT_co", covariant=True)
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")


@frozen
class Signature:
    """The types of a specialized kernel's parameters, in order, without `Const` ones."""

    parameters: tuple[tuple[str, ParameterType], ...]


@frozen
class LaunchFacts:
    """What one launch's arguments allow.

    Attributes:
        aligned16: every array starts at a multiple of 16 bytes.
        contiguous: every array is C-contiguous.
        index32: every extent, shape and reachable element offset is below 2**31.
    """

    aligned16: bool
    contiguous: bool
    index32: bool


ANY_LAUNCH = LaunchFacts(aligned16=False, contiguous=False, index32=False)
"""Nothing is known: what holds for every launch."""


class Compiler(Protocol[VariantT_contra, LoweredT_co]):
    """A lowering: IR to a backend's own representation, which prints as text."""

    def __call__(self, module: Module, target: TargetInfo, variant: VariantT_contra) -> LoweredT_co:
        """The module lowered for the target; MUST be a pure function of its arguments."""
        ...


class ArtifactCompiler(ABC, Generic[VariantT, LoweredT, ArtifactT]):
    """The half that may run on any thread, in any process, on any machine. It pickles, and holds no device handle.

    What it must know of the device is in the frozen `target_info` that it was made from.
    """

    target_info: TargetInfo
    build_id: BuildId
    artifact_format: int = 1
    """Version of the payload's layout; part of the store's namespace."""
    shares_by_ir: bool = True
    """Whether equal IR, variant and build make artifacts of which one may stand for the other. False where an artifact
    holds what is outside the IR's content, such as the kernel's place in the user's file."""
    is_reproducible: bool = True
    """Whether equal kernels make equal bytes, on every thread and in every process. False where a vendor's toolchain
    numbers what it makes: no digest tells then that two artifacts are equal, and `source` MUST give the text that does.
    """
    scales_with: Scaling = "threads"
    """On what several kernels compile side by side. With `processes`, the class MUST be one that another process of
    the same interpreter can import."""
    group_size: int = 1
    """How many kernels `finalize_group` takes at best; 1: one by one is as fast."""

    def local_fingerprint(self) -> str:
        """The target's fingerprint as this process's toolchain has it, wherever the compiler was made.

        MUST differ from `target_info.fingerprint` where a toolchain of another version would make other bytes.
        """
        return self.target_info.fingerprint

    @abstractmethod
    def default_variant(self, signature: Signature) -> VariantT:
        """The likely variant: that of most launches, to compile ahead of time when none has been seen. MUST be pure.

        It need not fit every launch; the target's `variant(ANY_LAUNCH)` does.
        """

    @abstractmethod
    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[VariantT],  # noqa: A002 — the design's name
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> LoweredT:
        """Validates the kernel against the target and lowers its IR. Any thread. The result MUST pickle.

        Raises:
            ValidationError: the target cannot run this kernel.
            CompilationError: the toolchain refused it.
        """

    def source(self, lowered: LoweredT) -> str | None:
        """The text by which an artifact may be reused (equal texts, equal artifacts), or `None`."""
        return None

    @abstractmethod
    def finalize(self, id: ArtifactId[VariantT], lowered: LoweredT) -> ArtifactT:  # noqa: A002
        """The artifact of a lowered kernel. Any thread, process or machine.

        Raises:
            CompilationError: the toolchain refused it; its log rides along whole.
        """

    def group_key(self, lowered: LoweredT) -> Hashable:
        """Lowered kernels of equal keys, other than `None`, may go to `finalize_group` together. Any thread."""
        return None

    def finalize_group(
        self,
        ids: Sequence[ArtifactId[VariantT]],
        lowered: Sequence[LoweredT],
    ) -> list[ArtifactT | Exception]:
        """The artifacts of several lowered kernels of one key, in order, made in one call of the toolchain.

        A kernel that cannot be finalized has its error in its place, and MUST NOT cost the others theirs; each artifact
        MUST load without the others. Any thread, process or machine.
        """
        artifacts: list[ArtifactT | Exception] = []
        for id, one in zip(ids, lowered, strict=True):  # noqa: A001
            try:
                artifacts.append(self.finalize(id, one))
            except Exception as error:
                artifacts.append(error)
        return artifacts

    def assembly(self, lowered: LoweredT) -> str | None:
        """The device's assembly of a lowered kernel, for people to read, or `None` where nothing can show it."""
        return None


class CompilationTarget(ABC, Generic[VariantT, ArtifactT, LoadedT]):
    """The half that stays with the device and holds the store.

    The loader calls every method except `variant` and `open_store` under its target lock, one at a time, never while it
    waits. A method makes its driver context current and restores the previous one.
    """

    compiler: ArtifactCompiler[VariantT, Any, ArtifactT]
    persists: bool = False
    """Whether `stored…` and `store` reach anything that outlives the process."""

    def open_store(self, environment: Environment | None) -> Any:
        """What this target keeps artifacts in there, or `None`; handed to `use_environment`.

        Called without the target lock, from any thread, since opening a store calls plugins.

        Raises:
            StoreError: it cannot be opened; the loader warns once, goes on without and tries again after a while.
        """
        return None

    def use_environment(self, environment: Environment | None, store: Any) -> None:
        """The environment that the following calls belong to, and what `open_store` gave for it.

        Called only when it differs from the last one's. `None`: nothing is kept. A target that persists MUST look and
        store there.
        """
        return None

    @abstractmethod
    def variant(self, launch_facts: LaunchFacts) -> VariantT:
        """The variant for a launch. MUST be pure; called without the lock, on a launcher miss.

        Its code MUST be right for every launch of which those facts hold; so that for `ANY_LAUNCH` fits all launches.
        """

    @abstractmethod
    def stored(self, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002
        """The kept artifact of that id, checked against its digest, or `None`."""

    def stored_meanwhile(self, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002
        """What another process may have kept under that id since `stored` missed it. The default asks `stored`."""
        return self.stored(id)

    def stored_for_source(self, source: str) -> ArtifactT | None:
        """A kept artifact that was made from that text, or `None`."""
        return None

    def stored_for_ir(self, ir_key: IrKey) -> ArtifactT | None:
        """A kept artifact of equal IR, variant and build, or `None`."""
        return None

    @abstractmethod
    def load(self, id: ArtifactId[VariantT], artifact: ArtifactT) -> LoadedT:  # noqa: A002
        """Makes the artifact launchable.

        Raises:
            CompilationError, DeviceError: the device refuses it.
        """

    @abstractmethod
    def store(
        self,
        id: ArtifactId[VariantT],  # noqa: A002
        artifact: ArtifactT,
        source: str | None,
        ir_key: IrKey | None = None,
    ) -> bool:
        """Keeps the artifact, called after `load` and never before. Whether it was kept.

        Raises:
            StoreError: the store cannot be used; the loader warns once and goes on. It logs any other exception, and
                the kernel, which is loaded by now, is launched all the same.
        """

    def drop(self, id: ArtifactId[VariantT]) -> None:  # noqa: A002
        """Forgets a kept artifact that the device refused.

        Raises:
            StoreError: the store still holds it; the loader warns once and goes on.
        """
        return None

    def lock_name(self, id: ArtifactId[VariantT]) -> str | None:  # noqa: A002
        """Hexadecimal digits, equal where processes would compile and keep the same, or `None`: no need to wait.

        MUST be pure; called on any thread, without the loader's lock.
        """
        return None

    def why_missed(self, id: ArtifactId[VariantT]) -> tuple[str, ...]:  # noqa: A002
        """The parts in which the kernel differs from the kept ones of its name, for the record of a miss."""
        return ()

    def header(self, artifact: ArtifactT) -> ArtifactHeader:
        """The artifact's header. The default reads its attribute `header`."""
        header: ArtifactHeader = artifact.header  # type: ignore[attr-defined]  # Artifact or a type with the same field
        return header

    def digest(self, artifact: ArtifactT) -> str:
        """A digest by which equal artifacts are recognised. The default hashes header and payload.

        Artifacts of equal digests share what one of them became when it was loaded. Equal kernels MUST have equal ones
        where the compiler is reproducible; elsewhere each is loaded by itself, which costs memory and nothing else.
        """
        from quernel.digests import sha256

        payload: bytes = artifact.payload  # type: ignore[attr-defined]  # Artifact or a type with the same field
        hasher = sha256(len(payload).to_bytes(8, "little"))
        hasher.update(payload)
        hasher.update(self.header(artifact).to_bytes())
        return hasher.hexdigest()


VariantOf: TypeAlias = ArtifactCompiler[VariantT, Any, Any] | CompilationTarget[VariantT, Any, Any]
"""Either half, by its variants: a function that takes a `VariantOf[V]` takes or gives that half's own `V`.

Python's types cannot name the variant of a given half; a parameter of this type binds it.
"""

ArtifactOf: TypeAlias = ArtifactCompiler[Any, Any, ArtifactT] | CompilationTarget[Any, ArtifactT, Any]
"""Either half, by its artifacts, likewise."""
