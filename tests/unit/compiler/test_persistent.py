"""A target on the real local store: a backend writes only `variant` and `load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.unit.compiler.scripted import (
    Records,
    Script,
    ScriptedArtifact,
    ScriptedCompiler,
    ScriptedLoaded,
    ScriptedVariant,
    artifact_id,
    definition,
    once,
)

from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.compiler.loader import KernelLoader
from quernel.compiler.persistent import PersistentTarget
from quernel.errors import DeviceError
from quernel.identity import KernelId
from quernel.store import Environment


class StoringTarget(PersistentTarget[ScriptedVariant, ScriptedArtifact, ScriptedLoaded]):
    artifact_type = ScriptedArtifact

    def __init__(self, script: Script) -> None:
        super().__init__(ScriptedCompiler(script))
        self.script = script

    def variant(self, launch_facts: LaunchFacts) -> ScriptedVariant:
        return ScriptedVariant()

    def load(self, id: ArtifactId[ScriptedVariant], artifact: ScriptedArtifact) -> ScriptedLoaded:  # noqa: A002
        self.script.note("load", id.kernel.name)
        return ScriptedLoaded(artifact.payload)


@attrs.define(eq=False)
class Process:
    """What one process has: a loader, and nothing in memory yet."""

    script: Script
    records: Records
    loader: KernelLoader[Any, Any, Any]


def process(
    environment: Environment | None,
    *,
    fingerprint: str = "fingerprint-1",
    source: str | None = None,
    target: str | None = None,
) -> Process:
    script, records = Script(), Records()
    if source is not None:
        script.sources.update(a=source, b=source)
    storing = StoringTarget(script)
    info = storing.compiler.target_info
    storing.compiler.target_info = attrs.evolve(info, fingerprint=fingerprint, name=target or info.name)
    return Process(script, records, KernelLoader(storing, environment=lambda: environment, records=records))


def test_kernel_compiled_in_one_process_is_loaded_in_the_next(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    following = process(environment)
    kernel = following.loader.load(definition("a", 5), artifact_id("a"))
    assert following.script.log() == ["load a"]
    assert following.records.outcomes() == [("a", "loaded", None)]
    assert kernel.loaded.payload == b"5"
    assert kernel.header.entry == "entry"


def test_kernel_of_equal_ir_is_rekeyed_in_the_next_process_and_loaded_in_the_one_after(
    environment: Environment,
) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    for expected in (("b", "rekeyed", "ir"), ("b", "loaded", None)):
        following = process(environment)
        following.loader.load(definition("b", 5), artifact_id("b"))
        assert following.records.outcomes() == [expected]
        assert following.script.log() == ["load b"]


def test_kernel_of_equal_source_is_rekeyed_without_finalizing(environment: Environment) -> None:
    process(environment, source="text").loader.load(definition("a", 5), artifact_id("a"))
    following = process(environment, source="text")
    following.loader.load(definition("b", 6), artifact_id("b"))
    assert following.records.outcomes() == [("b", "rekeyed", "source")]
    assert following.script.log() == ["lower b", "load b"]


def test_artifact_of_another_fingerprint_is_never_loaded(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    other = process(environment, fingerprint="fingerprint-2")
    other.loader.load(definition("a", 5), artifact_id("a"))
    assert other.records.outcomes() == [("a", "compiled", None)]
    assert other.records.kernels[0].why_missed == ("build of Quernel, of its backend or of the toolchain",)


def test_record_of_a_kernel_kept_for_another_target_names_that(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    other = process(environment, fingerprint="fingerprint-2", target="sm_2")
    other.loader.load(definition("a", 5), artifact_id("a"))
    (record,) = other.records.kernels
    info = process(environment).loader.target.compiler.target_info
    assert record.why_missed == (f"target (kept for {info.backend} {info.name})",)
    assert (record.backend, record.target) == (info.backend, "sm_2")
    third = process(environment, fingerprint="fingerprint-3", target="sm_3")
    third.loader.load(definition("a", 5), artifact_id("a"))
    both = f"target (kept for {info.backend} sm_2 and {info.backend} {info.name})"
    assert third.records.kernels[0].why_missed == (both,)


def test_kernel_kept_before_circumstances_were_remembered_may_differ_in_any(environment: Environment) -> None:
    from quernel.compiler.persistent import _other_circumstance

    wanted = {"kept for target": "cpu x", "kept for variant": "1", "kept for build": "2"}
    assert _other_circumstance(wanted, [{"code": "3"}]) == "target, variant or build"


def test_artifact_of_another_variant_is_another_artifact(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    other = process(environment)
    other.loader.load(definition("a", 5), ArtifactId(artifact_id("a").kernel, ScriptedVariant(is_wide=True)))
    assert other.records.outcomes() == [("a", "compiled", None)]
    assert other.records.kernels[0].why_missed == ("variant (how its arrays are laid out)",)


def test_refused_artifact_is_dropped_and_replaced(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    refusing = process(environment)
    refusing.script.acts["load", "a"] = once(DeviceError("no such image"))
    refusing.loader.load(definition("a", 5), artifact_id("a"))
    assert refusing.records.outcomes() == [("a", "compiled", None)]
    after = process(environment)
    after.loader.load(definition("a", 5), artifact_id("a"))
    assert after.records.outcomes() == [("a", "loaded", None)]


def test_artifact_is_kept_where_the_device_refuses_whatever_there_is(environment: Environment) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    refusing = process(environment)
    refusing.script.acts["load", "a"] = DeviceError("out of memory")
    with pytest.raises(DeviceError, match="out of memory"):
        refusing.loader.load(definition("a", 5), artifact_id("a"))
    after = process(environment)
    after.loader.load(definition("a", 5), artifact_id("a"))
    assert after.records.outcomes() == [("a", "loaded", None)]


def test_record_names_the_parts_that_changed(environment: Environment) -> None:
    def versioned(code: str, constants: str) -> ArtifactId[ScriptedVariant]:
        parts = (("code", code), ("constants", constants))
        digest = artifact_id(code + constants).kernel.digest
        return ArtifactId(KernelId("a", digest, parts), ScriptedVariant())

    running = process(environment)
    for block, (code, constants) in enumerate((("c1", "k1"), ("c1", "k2"), ("c2", "k2")), start=5):
        running.loader.load(definition("a", block), versioned(code, constants))
    assert [record.why_missed for record in running.records.kernels] == [("new",), ("constants",), ("code",)]


def test_nothing_is_kept_without_an_environment(environment: Environment) -> None:
    running = process(None)
    running.loader.load(definition("a", 5), artifact_id("a"))
    assert running.loader.target.persists is False
    assert running.records.outcomes() == [("a", "compiled", None)]


def test_unusable_folder_is_one_warning_and_a_loaded_kernel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    running = process(Environment(tmp_path / "file"))
    running.loader.load(definition("a", 5), artifact_id("a"))
    running.loader.load(definition("b", 6), artifact_id("b"))
    assert len(running.loader) == 2
    assert len([record for record in caplog.records if "not kept in" in record.message]) == 1


def test_header_of_another_version_is_a_miss(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    process(environment).loader.load(definition("a", 5), artifact_id("a"))
    monkeypatch.setattr("quernel.compiler.artifacts.HEADER_FORMAT", 2)
    following = process(environment)
    following.loader.load(definition("a", 5), artifact_id("a"))
    assert following.records.outcomes() == [("a", "compiled", None)]
