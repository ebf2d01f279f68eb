"""A backend whose memory the host cannot reach, and which notes what it is asked to do; and a source of backends."""

# ruff: noqa: A002 — the parameter names are those of the two halves

from __future__ import annotations

import logging
import struct
from hashlib import sha256
from typing import Any

import attrs
import numpy as np

from quernel.api.kernels import Kernel
from quernel.capabilities import Capabilities, Limits, TargetInfo
from quernel.compiler.arguments import argument_slots, header_parameters
from quernel.compiler.artifacts import Artifact, ArtifactHeader, ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.halves import ArtifactCompiler, CompilationTarget, LaunchFacts, Signature
from quernel.compiler.recording import CompilationRecording
from quernel.errors import DeviceError, PluginError
from quernel.geometry import Geometry
from quernel.identity import BuildId, CapturedCode, CapturedValues, Guards, KernelId
from quernel.ir.parser import parse_module
from quernel.ir.passes import optimize
from quernel.ir.printer import print_module
from quernel.ir.sites import num_sites
from quernel.options import DEFAULT_OPTIONS, KernelOptions
from quernel.runtime.launchables import Launchable
from quernel.runtime.operations import Backend, DeviceInfo, DeviceOperations, Memory, Unavailable
from quernel.runtime.parameters import Parameters

NO_DRIVER = Unavailable("no driver", "install it")


@attrs.frozen
class Variant:
    aligned16: bool
    contiguous: bool
    index32: bool


@attrs.frozen
class Launch:
    """One launch as the backend saw it; `cells` are the slots' values as unsigned integers."""

    header: ArtifactHeader
    geometry: Geometry
    arguments: bytes
    stream: Any

    @property
    def cells(self) -> tuple[int, ...]:
        return struct.unpack(f"<{len(self.header.slots)}Q", self.arguments)


class ScriptedCompiler(ArtifactCompiler[Variant, Artifact, Artifact]):
    def __init__(self, target_info: TargetInfo) -> None:
        self.target_info = target_info
        self.build_id = BuildId("0" * 64)
        self.lowered: list[ArtifactId[Variant]] = []

    def default_variant(self, signature: Signature) -> Variant:
        return Variant(False, False, False)

    def lower(
        self,
        kernel: KernelDefinition,
        id: ArtifactId[Variant],
        recording: CompilationRecording,
        log: logging.Logger,
    ) -> Artifact:
        self.lowered.append(id)
        module = kernel.expand()
        slots = argument_slots(module)
        header = ArtifactHeader(
            "entry", header_parameters(module), slots, module.kernel.block, num_sites=num_sites(module)
        )
        return Artifact(header, f"{id}".encode())

    def finalize(self, id: ArtifactId[Variant], lowered: Artifact) -> Artifact:
        return lowered


class ScriptedTarget(CompilationTarget[Variant, Artifact, Artifact]):
    def __init__(self, compiler: ScriptedCompiler) -> None:
        self.compiler = compiler

    def variant(self, launch_facts: LaunchFacts) -> Variant:
        return Variant(launch_facts.aligned16, launch_facts.contiguous, launch_facts.index32)

    def stored(self, id: ArtifactId[Variant]) -> Artifact | None:
        return None

    def load(self, id: ArtifactId[Variant], artifact: Artifact) -> Artifact:
        return artifact

    def store(self, id: ArtifactId[Variant], artifact: Artifact, source: str | None, ir_key: Any = None) -> bool:
        return False


class ScriptedDevice(DeviceOperations[Artifact]):
    """Device memory lives in byte arrays at made-up addresses. `log` notes allocations, copies, streams, launches."""

    def __init__(self, info: DeviceInfo, limits: Limits) -> None:
        self.info = info
        target_info = TargetInfo(info.backend, "scripted", "scripted-1", Capabilities(f64=True), limits)
        self._target = ScriptedTarget(ScriptedCompiler(target_info))
        self.log: list[Any] = []
        self.launches: list[Launch] = []
        self.live: dict[int, bytearray] = {}
        self._next = 1 << 20
        self._streams = 0
        self.native_graphs = False
        self.is_closed = False

    @property
    def target(self) -> ScriptedTarget:
        return self._target

    def allocate(self, nbytes: int) -> Memory:
        address = self._next
        self._next += (nbytes + 63) // 64 * 64 + 64
        self.live[address] = bytearray(nbytes)
        return Memory(address, nbytes, address)

    def free(self, memory: Memory) -> None:
        del self.live[memory.handle]
        self.log.append(("free", memory.nbytes))

    def copy_from_host(self, target: Memory, offset_bytes: int, source: np.ndarray[Any, Any], stream: Any) -> None:
        assert source.flags.c_contiguous
        assert offset_bytes + source.nbytes <= target.nbytes
        self.live[target.handle][offset_bytes : offset_bytes + source.nbytes] = source.tobytes()

    def copy_to_host(self, target: np.ndarray[Any, Any], source: Memory, offset_bytes: int, stream: Any) -> None:
        assert target.flags.c_contiguous
        assert offset_bytes + target.nbytes <= source.nbytes
        data = self.live[source.handle][offset_bytes : offset_bytes + target.nbytes]
        target[:] = np.frombuffer(bytes(data), np.uint8)

    def copy(
        self, target: Memory, target_offset: int, source: Memory, source_offset: int, nbytes: int, stream: Any
    ) -> None:
        for index in range(nbytes):  # as a device may: overlapping ranges come out wrong
            self.live[target.handle][target_offset + index] = self.live[source.handle][source_offset + index]

    def launch(
        self, loaded: Artifact, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any
    ) -> None:
        self.launches.append(Launch(header, geometry, arguments, stream))
        self.log.append("launch")

    def open_stream(self) -> Any:
        self._streams += 1
        self.log.append(("open stream", self._streams))
        return self._streams

    def close_stream(self, stream: Any) -> None:
        self.log.append(("close stream", stream))

    def synchronize(self, stream: Any) -> None:
        self.log.append(("synchronize", stream))

    def begin_graph(self, stream: Any) -> Any:
        return ("capture", stream) if self.native_graphs else None

    def end_graph(self, capture: Any) -> Any:
        return ("graph", len(self.launches))

    def launch_graph(self, graph: Any, stream: Any) -> None:
        self.log.append(("launch graph", graph, stream))

    def close(self) -> None:
        self.is_closed = True


class ScriptedBackend(Backend):
    """Devices by (kind, name); `opened` holds what was opened."""

    def __init__(
        self,
        name: str,
        devices: list[tuple[str, str]] | Unavailable = NO_DRIVER,
        *,
        limits: Limits | None = None,
        targets: tuple[str, ...] = (),
        host_accessible: bool = False,
        broken: bool = False,
    ) -> None:
        self.name = name
        self._devices = devices
        self._limits = limits if limits is not None else Limits()
        self._targets = targets
        self._host_accessible = host_accessible
        self._broken = broken
        self.opened: list[ScriptedDevice] = []

    def devices(self) -> tuple[DeviceInfo, ...] | Unavailable:
        if isinstance(self._devices, Unavailable):
            return self._devices
        return tuple(
            DeviceInfo(self.name, index, name, kind, uuid=f"GPU-{self.name}-000{index}")
            for index, (kind, name) in enumerate(self._devices)
        )

    def target_info(self, target: str) -> TargetInfo:
        if target not in self._targets:
            raise DeviceError(f"no target {target!r}")
        return TargetInfo(self.name, target, target)

    def compiler(self, target: TargetInfo) -> ScriptedCompiler:
        return ScriptedCompiler(target)

    def open(self, info: DeviceInfo) -> ScriptedDevice:
        if self._broken:
            raise DeviceError(f"{self.name} refuses", fix="reboot")
        device = ScriptedDevice(info, self._limits)
        device.host_accessible = self._host_accessible
        self.opened.append(device)
        return device


class Source:
    """Backends by name, as an installation would give them."""

    def __init__(self, *backends: ScriptedBackend) -> None:
        self.backends = {backend.name: backend for backend in backends}
        self.loaded: list[str] = []

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.backends))

    def load(self, name: str) -> Backend:
        self.loaded.append(name)
        if name not in self.backends:
            raise PluginError(f"no backend is named {name!r}", fix="install it")
        return self.backends[name]


class IrOrigin:
    """A kernel given as the text of its IR."""

    def __init__(self, text: str) -> None:
        self.module = parse_module(text)
        self.name = self.module.kernel.name

    def capture(self) -> CapturedCode:
        return CapturedCode((("code", "0" * 64),), Guards())

    def define(self, captured: CapturedCode, values: CapturedValues, made: Specialization) -> KernelDefinition:
        digest = sha256(print_module(self.module).encode()).hexdigest()
        return KernelDefinition(KernelId(self.name, digest), made, expand=lambda: (optimize(self.module), True))


def ir_kernel(text: str, options: KernelOptions = DEFAULT_OPTIONS, **params: Any) -> Kernel:
    """A kernel of the text of its IR, launched as any other; `params` are its parameters' annotations."""
    return Kernel(Launchable(IrOrigin(text), Parameters.declare("k", params), options))
