from __future__ import annotations

import pickle

import pytest

from quernel.compiler.recording import CompilationRecording


def test_recording_times_stages_also_when_they_raise() -> None:
    recording = CompilationRecording()
    with pytest.raises(KeyError, match="x"), recording.stage("lower"):
        raise KeyError("x")
    with recording.stage("finalize"), recording.stage("link"):
        pass
    assert list(recording.stage_ns) == ["lower", "link", "finalize"]
    assert all(duration >= 0 for duration in recording.stage_ns.values())
    assert recording.stage_ns["link"] <= recording.stage_ns["finalize"]


def test_recording_adds_up_a_stage_that_runs_twice() -> None:
    recording = CompilationRecording()
    with recording.stage("lower"):
        pass
    first = recording.stage_ns["lower"]
    with recording.stage("lower"):
        pass
    assert recording.stage_ns["lower"] > first


def test_recording_keeps_texts_only_where_it_is_full() -> None:
    brief, full = CompilationRecording(), CompilationRecording(is_full=True)
    for recording in (brief, full):
        recording.ir("ir")
        recording.source("source")
    assert (brief.ir_text, brief.source_text) == (None, None)
    assert (full.ir_text, full.source_text) == ("ir", "source")


def test_recording_absorbs_another_of_the_same_job() -> None:
    first, second = CompilationRecording(is_full=True), CompilationRecording(is_full=True)
    first.stage_ns["lower"] = 3
    first.warn("one")
    first.ir("ir")
    second.stage_ns.update(lower=4, finalize=5)
    second.warn("two")
    second.toolchain("LLVM", "22.1")
    second.statistics(registers=8)
    second.source("text")
    first.absorb(second)
    assert first.stage_ns == {"lower": 7, "finalize": 5}
    assert first.warnings == ["one", "two"]
    assert first.toolchain_versions == {"LLVM": "22.1"}
    assert first.facts == {"registers": 8}
    assert (first.ir_text, first.source_text) == ("ir", "text")


def test_recording_pickles_with_all_it_holds() -> None:
    recording = CompilationRecording(is_full=True)
    recording.statistics(spills=2)
    recording.warn("one")
    assert vars(pickle.loads(pickle.dumps(recording))) == vars(recording)
