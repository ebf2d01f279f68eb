"""What a job notes while it is compiled: times, warnings, toolchain, facts about the code, texts."""

from __future__ import annotations

import time
from types import TracebackType

__all__ = ["CompilationRecording"]


class CompilationRecording:
    """Collects notes of one job; plain values throughout, so that they travel from any worker. One thread at a time.

    Attributes:
        is_full: whether IR and source text are wanted too.
        stage_ns: nanoseconds by stage, in the order in which the stages first ended.
        warnings: what the toolchain or the lowering remarked.
        toolchain_versions: version by component.
        facts: registers, spills, code bytes and the like, by name.
        ir_text: the IR, where `is_full`.
        source_text: the text for the toolchain, where `is_full`.
    """

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self.stage_ns: dict[str, int] = {}
        self.warnings: list[str] = []
        self.toolchain_versions: dict[str, str] = {}
        self.facts: dict[str, int] = {}
        self.ir_text: str | None = None
        self.source_text: str | None = None

    def stage(self, name: str) -> _Stage:
        """A context whose duration is added to the stage `name`, also when it raises. Stages may nest."""
        return _Stage(self.stage_ns, name)

    def warn(self, text: str) -> None:
        """Keeps a remark that the user may want to see; it does not fail the compilation."""
        self.warnings.append(text)

    def toolchain(self, name: str, version: str) -> None:
        """Names a component that took part, for example `LLVM` and `22.1`."""
        self.toolchain_versions[name] = version

    def statistics(self, **values: int) -> None:
        """Keeps facts about the code made: `registers=…, spills=…`."""
        self.facts.update(values)

    def ir(self, text: str) -> None:
        """Keeps the IR's text, if texts are wanted."""
        if self.is_full:
            self.ir_text = text

    def source(self, text: str) -> None:
        """Keeps the source's text, if texts are wanted."""
        if self.is_full:
            self.source_text = text

    def absorb(self, other: CompilationRecording) -> None:
        """Adds what another recording of the same job holds, such as that of a later stage."""
        for name, duration_ns in other.stage_ns.items():
            self.stage_ns[name] = self.stage_ns.get(name, 0) + duration_ns
        self.warnings.extend(other.warnings)
        self.toolchain_versions.update(other.toolchain_versions)
        self.facts.update(other.facts)
        self.ir_text = other.ir_text if other.ir_text is not None else self.ir_text
        self.source_text = other.source_text if other.source_text is not None else self.source_text


class _Stage:
    __slots__ = ("_name", "_stage_ns", "_start_ns")

    def __init__(self, stage_ns: dict[str, int], name: str) -> None:
        self._stage_ns = stage_ns
        self._name = name

    def __enter__(self) -> None:
        self._start_ns = time.perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent_ns = time.perf_counter_ns() - self._start_ns
        self._stage_ns[self._name] = self._stage_ns.get(self._name, 0) + spent_ns
