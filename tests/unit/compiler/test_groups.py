"""Lowered kernels that go to the toolchain together: when, in what company, and what a failure costs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from tests.unit.compiler.scripted import (
    Bench,
    ScriptedArtifact,
    ScriptedTarget,
    ScriptedVariant,
    artifact,
    artifact_id,
    definition,
)
from tests.unit.compiler.test_workers import Broken, Elsewhere, Pickling

from quernel.compiler import executors, groups
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.job import JobResult, JobStage, run_group
from quernel.errors import CompilationError
from quernel.store import Environment

together: list[list[str]] = []


@attrs.frozen
class Grouping(Elsewhere):
    """Finalizes four at a time; kernels by certain names fail, go alone, or keep company of their own."""

    group_size = 4

    def group_key(self, lowered: str) -> str | None:
        block = int(lowered.split()[-1])
        return None if block >= 1000 else "large" if block >= 500 else "small"

    def finalize_group(
        self,
        ids: Sequence[ArtifactId[ScriptedVariant]],
        lowered: Sequence[str],
    ) -> list[ScriptedArtifact | Exception]:
        names = [id.kernel.name for id in ids]  # noqa: A001
        together.append(names)
        if "spoiler" in names:
            raise CompilationError("the whole unit failed")
        made: list[ScriptedArtifact | Exception] = [artifact(text) for text in lowered]
        for number, name in enumerate(names):
            if name.startswith("refused"):
                made[number] = CompilationError(f"{name} is refused")
        return made[:-1] if "short" in names else made

    def finalize(self, id: ArtifactId[ScriptedVariant], lowered: str) -> ScriptedArtifact:  # noqa: A002
        together.append([id.kernel.name])
        return super().finalize(id, lowered)


@pytest.fixture(autouse=True)
def _forget() -> None:
    together.clear()


@pytest.fixture(params=["threads", "elsewhere"])
def bench(request: pytest.FixtureRequest, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(groups, "num_cores", lambda: 2)
    return bench_on(environment, None if request.param == "threads" else Pickling())


def bench_on(environment: Environment | None, executor: Any) -> Bench:
    made = Bench.of(environment, workers=executor)
    target = made.loader.target
    assert isinstance(target, ScriptedTarget)
    target.compiler = Grouping()
    return made


def queue(bench: Bench, *names: str, first_block: int = 3) -> None:
    for number, name in enumerate(names):
        bench.enqueue(name, definition(name, first_block + number))


def sizes() -> list[int]:
    return sorted(map(len, together), reverse=True)


def test_full_groups_go_together_and_the_rest_is_shared_out(bench: Bench) -> None:
    names = [f"k{number}" for number in range(11)]
    queue(bench, *names)
    assert bench.loader.compile_queued() == 11
    assert sizes() == [4, 4, 2, 1]
    assert sorted(name for group in together for name in group) == sorted(names)
    for number, name in enumerate(names):
        assert bench.load(name).loaded.payload == f"'lowered {3 + number}'".encode()
    assert {name for record in bench.records.kernels for name, _ in record.stages} >= {"lower", "finalize", "store"}


def test_lone_kernel_goes_alone_at_once(bench: Bench) -> None:
    assert bench.load("a", definition("a", 5)).loaded.payload == b"'lowered 5'"
    assert together == [["a"]]


def test_kernels_of_different_keys_are_not_put_together(bench: Bench) -> None:
    queue(bench, "a", "b", "c", "d")
    queue(bench, "e", "f", "g", "h", first_block=500)
    queue(bench, "i", "j", first_block=1000)
    assert bench.loader.compile_queued() == 10
    assert sorted(map(sorted, together)) == [["a", "b", "c", "d"], ["e", "f", "g", "h"], ["i"], ["j"]]


def test_kernel_that_is_refused_costs_no_other(bench: Bench) -> None:
    queue(bench, "a", "refused1", "b", "refused2")
    assert bench.loader.compile_queued() == 2
    for name in ("refused1", "refused2"):
        with pytest.raises(CompilationError, match=f"{name} is refused"):
            bench.load(name)
    assert bench.load("a").loaded.payload == b"'lowered 3'"


@pytest.mark.parametrize(
    ("spoiler", "message"),
    [("spoiler", "the whole unit failed"), ("short", "4 kernels were to be finalized, .* gave 3")],
)
def test_compiler_that_breaks_its_word_fails_its_group_and_no_other(bench: Bench, spoiler: str, message: str) -> None:
    queue(bench, "a", spoiler, "b", "c", "d", "e", "f", "g")
    loaded = bench.loader.compile_queued()
    assert loaded == 4
    (group,) = [names for names in together if spoiler in names]
    for name in group:
        with pytest.raises(CompilationError, match=message):
            bench.load(name)


def test_equal_sources_of_a_group_are_finalized_once(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.enqueue(name, definition(name, 7, is_storable=True))
    queue(bench, "d", "e", first_block=8)
    assert bench.loader.compile_queued() == 5
    assert sum(map(len, together)) == 3


def test_groups_are_made_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "num_cores", lambda: 2)
    bench = bench_on(None, None)
    queue(bench, "a", "b", "c", "d")
    assert bench.loader.compile_queued() == 4
    assert sizes() == [4]


def test_lost_group_costs_its_kernels_only(environment: Environment) -> None:
    class Losing(Pickling):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            is_fatal = fn is run_group and any(id.kernel.name == "fatal" for id, _ in args[1])  # noqa: A001
            return (Broken() if is_fatal else super()).submit(fn, *args, **kwargs)

    bench = bench_on(environment, Losing())
    queue(bench, "a", "fatal", "b", "c", "d", "e", "f", "g")
    assert bench.loader.compile_queued() == 4
    with pytest.raises(CompilationError, match="a worker failed while compiling fatal: BrokenProcessPool"):
        bench.load("fatal")


def test_result_of_a_group_by_another_build_is_refused(environment: Environment) -> None:
    def other(result: Any) -> Any:
        if isinstance(result, list):
            return [attrs.evolve(one, fingerprint="f2") for one in result]
        return result

    bench = bench_on(environment, Pickling(other))
    queue(bench, "a", "b", "c", "d")
    assert bench.loader.compile_queued() == 0
    with pytest.raises(CompilationError, match="compiled a for target f2, this process has target fingerprint-1"):
        bench.load("a")


def test_run_group_gives_a_result_for_each_and_shares_the_time() -> None:
    results = run_group(Grouping(), [(artifact_id("a"), "lowered 5"), (artifact_id("refused"), "lowered 6")])
    first, second = pickle.loads(pickle.dumps(results))
    assert isinstance(first, JobResult)
    assert (first.stage, first.artifact, first.failure) == (JobStage.FINALIZE, artifact("lowered 5"), None)
    assert second.artifact is None
    assert str(second.failure) == "refused is refused"
    assert first.recording.stage_ns.keys() == {"finalize"}
    assert first.recording.stage_ns == second.recording.stage_ns


def test_finalize_group_of_a_compiler_without_one_goes_one_by_one() -> None:
    made = Elsewhere().finalize_group([artifact_id("a"), artifact_id("b")], ["lowered 5", "lowered 6"])
    assert made == [artifact("lowered 5"), artifact("lowered 6")]


def test_inline_batch_while_the_process_ends_makes_groups_too(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "compilation_threads", lambda: None)
    bench = bench_on(environment, None)
    queue(bench, "a", "b", "c", "d")
    assert bench.loader.compile_queued() == 4
    assert sizes() == [4]
