"""A backend that notes every call with its thread and the state of the target lock, and does as its script says."""

# ruff: noqa: A002 — the parameter names are those of the two halves

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import Artifact, ArtifactHeader, ArtifactId
from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.compiler.halves import ArtifactCompiler, CompilationTarget, LaunchFacts, Signature
from quernel.compiler.loader import KernelLoader
from quernel.compiler.recording import CompilationRecording
from quernel.compiler.telling import RecordSink
from quernel.geometry import LaunchForm
from quernel.identity import BuildId, IrKey, KernelId
from quernel.ir.nodes import Kernel, Module
from quernel.store import CompilationBatchRecord, CompilationRecord, Environment

BUILD = BuildId(hashlib.sha256(b"build").hexdigest())


@attrs.frozen
class ScriptedVariant:
    is_wide: bool = False


@attrs.frozen
class ScriptedLowered:
    name: str
    ir: int
    source: str | None


@attrs.frozen
class ScriptedArtifact(Artifact):
    pass


@attrs.frozen(eq=False)
class ScriptedLoaded:
    payload: bytes


@attrs.frozen
class Call:
    method: str
    subject: str
    thread: str
    is_locked: bool


@attrs.define(eq=False)
class Script:
    """What the backend does: by (method, kernel name) an exception to raise or a function to call first."""

    sources: dict[str, str] = attrs.field(factory=dict)
    acts: dict[tuple[str, str], Exception | Callable[[], object]] = attrs.field(factory=dict)
    calls: list[Call] = attrs.field(factory=list)
    by_id: dict[Any, ScriptedArtifact] = attrs.field(factory=dict)
    by_ir: dict[Any, ScriptedArtifact] = attrs.field(factory=dict)
    by_source: dict[Any, ScriptedArtifact] = attrs.field(factory=dict)
    environments: list[Environment | None] = attrs.field(factory=list)
    why: tuple[str, ...] = ("code",)
    loader: KernelLoader[Any, Any, Any] | None = None

    def note(self, method: str, subject: str = "") -> None:
        is_locked = self.loader is not None and self.loader.target_lock.locked()
        self.calls.append(Call(method, subject, threading.current_thread().name, is_locked))
        act = self.acts.get((method, subject))
        if isinstance(act, Exception):
            raise act
        if act is not None:
            act()

    def log(self) -> list[str]:
        """`method subject` of each call so far."""
        return [f"{call.method} {call.subject}".strip() for call in self.calls]

    def count(self, method: str) -> int:
        return sum(call.method == method for call in self.calls)


class ScriptedCompiler(ArtifactCompiler[ScriptedVariant, ScriptedLowered, ScriptedArtifact]):
    def __init__(self, script: Script) -> None:
        self.script = script
        self.target_info = TargetInfo("scripted", "t1", "fingerprint-1")
        self.build_id = BUILD

    def default_variant(self, signature: Signature) -> ScriptedVariant:
        return ScriptedVariant()

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[ScriptedVariant],
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> ScriptedLowered:
        self.script.note("lower", kernel.name)
        log.warning("lowered %s", kernel.name)
        recording.toolchain("scripted", "1.0")
        ir = 0 if kernel.foreign is not None else kernel.expand().kernel.block[0]
        return ScriptedLowered(kernel.name, ir, self.script.sources.get(kernel.name))

    def source(self, lowered: ScriptedLowered) -> str | None:
        return lowered.source

    def finalize(self, id: ArtifactId[ScriptedVariant], lowered: ScriptedLowered) -> ScriptedArtifact:
        self.script.note("finalize", lowered.name)
        return artifact(lowered.source if lowered.source is not None else lowered.ir)


class ScriptedTarget(CompilationTarget[ScriptedVariant, ScriptedArtifact, ScriptedLoaded]):
    def __init__(self, script: Script, *, persists: bool = True) -> None:
        self.script = script
        self.compiler = ScriptedCompiler(script)
        self.persists = persists

    def use_environment(self, environment: Environment | None, store: Any) -> None:
        self.script.environments.append(environment)
        self.script.note("use_environment")

    def variant(self, launch_facts: LaunchFacts) -> ScriptedVariant:
        return ScriptedVariant()

    def stored(self, id: ArtifactId[ScriptedVariant]) -> ScriptedArtifact | None:
        self.script.note("stored", id.kernel.name)
        return self.script.by_id.get(id)

    def stored_for_ir(self, ir_key: IrKey) -> ScriptedArtifact | None:
        self.script.note("stored_for_ir")
        return self.script.by_ir.get(ir_key)

    def stored_for_source(self, source: str) -> ScriptedArtifact | None:
        self.script.note("stored_for_source", source)
        return self.script.by_source.get(source)

    def load(self, id: ArtifactId[ScriptedVariant], artifact: ScriptedArtifact) -> ScriptedLoaded:
        self.script.note("load", id.kernel.name)
        return ScriptedLoaded(artifact.payload)

    def store(
        self,
        id: ArtifactId[ScriptedVariant],
        artifact: ScriptedArtifact,
        source: str | None,
        ir_key: IrKey | None = None,
    ) -> bool:
        self.script.note("store", id.kernel.name)
        self.script.by_id[id] = artifact
        if source is not None:
            self.script.by_source[source] = artifact
        if ir_key is not None:
            self.script.by_ir[ir_key] = artifact
        return True

    def drop(self, id: ArtifactId[ScriptedVariant]) -> None:
        self.script.note("drop", id.kernel.name)
        self.script.by_id.pop(id, None)

    def why_missed(self, id: ArtifactId[ScriptedVariant]) -> tuple[str, ...]:
        return self.script.why


def once(error: Exception) -> Callable[[], None]:
    """An act that raises the first time only: what was kept is to blame, and not the device."""
    errors = [error]

    def act() -> None:
        if errors:
            raise errors.pop()

    return act


def artifact(content: object) -> ScriptedArtifact:
    return ScriptedArtifact(ArtifactHeader("entry", (), (), (1,)), repr(content).encode())


def kernel_id(name: str) -> KernelId:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return KernelId(name, digest, (("code", digest[:16]),))


def artifact_id(name: str) -> ArtifactId[ScriptedVariant]:
    return ArtifactId(kernel_id(name), ScriptedVariant())


def module(name: str, ir: int) -> Module:
    return Module(kernel=Kernel(name=name, form=LaunchForm.GRID, block=(ir,), params=(), locals=(), body=()))


def definition(
    name: str, ir: int | None = None, *, is_storable: bool = True, expand: Callable[[], object] | None = None
) -> KernelDefinition:
    """A kernel whose IR is told by a number; by default each name has its own. `expand` is called before expanding."""
    number = ir if ir is not None else 1 + int(hashlib.sha256(name.encode()).hexdigest()[:4], 16)

    def expanded() -> tuple[Module, bool]:
        if expand is not None:
            expand()
        return module(name, number), is_storable

    return KernelDefinition(kernel_id(name), Specialization((), (), LaunchForm.GRID, (number,)), expand=expanded)


def foreign_definition(name: str) -> KernelDefinition:
    return KernelDefinition(
        kernel_id(name),
        Specialization((), (), LaunchForm.GRID, (1,)),
        foreign=ForeignSource("scripted", f"text of {name}", "entry", ()),
    )


class Hold:
    """Stops a compilation until it is told to go on."""

    def __init__(self) -> None:
        self.started, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.started.set()
        assert self.go_on.wait(30)


@attrs.define(eq=False)
class Records:
    """Takes the records of closed batches."""

    kernels: list[CompilationRecord] = attrs.field(factory=list)
    batches: list[CompilationBatchRecord] = attrs.field(factory=list)

    def __call__(
        self,
        environment: Environment | None,
        records: Sequence[CompilationRecord],
        batch: CompilationBatchRecord,
        level: str,
    ) -> None:
        self.kernels.extend(records)
        self.batches.append(batch)

    def outcomes(self) -> list[tuple[str, str, str | None]]:
        return [(record.kernel, record.outcome.value, record.rekeyed_by) for record in self.kernels]


@attrs.define(eq=False)
class Bench:
    """A loader over the scripted backend, with what it is given."""

    script: Script
    environment: Environment | None
    records: Records
    loader: KernelLoader[Any, Any, Any]

    @staticmethod
    def of(
        environment: Environment | None,
        *,
        persists: bool = True,
        workers: Any = None,
        records: RecordSink | None = None,
    ) -> Bench:
        script = Script()
        kept = Records()
        bench = Bench(script, environment, kept, None)  # type: ignore[arg-type]  # follows at once
        bench.loader = KernelLoader(
            ScriptedTarget(script, persists=persists),
            workers=workers,
            environment=lambda: bench.environment,
            records=records if records is not None else kept,
        )
        script.loader = bench.loader
        return bench

    def load(self, name: str, kernel: KernelDefinition | None = None) -> Any:
        return self.loader.load(kernel if kernel is not None else definition(name), artifact_id(name))

    def enqueue(self, name: str, kernel: KernelDefinition | None = None) -> bool:
        return self.loader.enqueue(kernel if kernel is not None else definition(name), artifact_id(name))
