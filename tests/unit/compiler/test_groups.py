"""Lowered kernels that go to the toolchain together: when, in what company, and what a failure costs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

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
from quernel.compiler.ahead import compile_ahead
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.job import run_group
from quernel.compiler.results import JobResult, JobStage
from quernel.errors import CompilationError
from quernel.store import Environment

together: list[list[str]] = []


@attrs.frozen
class Grouping(Elsewhere):
    """Finalizes four at a time; kernels by certain names fail, go alone, or keep company of their own."""

    group_size = 4
    unfinalizable: ClassVar[tuple[str, ...]] = ()

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
        if id.kernel.name in self.unfinalizable:
            raise CompilationError(f"{id.kernel.name} alone failed")
        return super().finalize(id, lowered)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    together.clear()
    monkeypatch.setattr(Grouping, "unfinalizable", ())


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


@pytest.mark.parametrize("spoiler", ["spoiler", "short"])
def test_kernels_of_a_unit_that_fails_as_a_whole_are_finalized_alone(bench: Bench, spoiler: str) -> None:
    queue(bench, "a", spoiler, "b", "c", "d", "e", "f", "g")
    assert bench.loader.compile_queued() == 8
    (group,) = [names for names in together if spoiler in names and len(names) > 1]
    assert sorted(name for names in together if len(names) == 1 for name in names) == sorted(group)
    assert bench.load(spoiler).loaded.payload == b"'lowered 4'"


@pytest.mark.parametrize("spoiler", ["spoiler", "short"])
def test_kernel_that_spoils_its_unit_and_cannot_be_finalized_costs_no_other(bench: Bench, spoiler: str) -> None:
    Grouping.unfinalizable = (spoiler,)
    queue(bench, "a", spoiler, "b", "c")
    assert bench.loader.compile_queued() == 3
    with pytest.raises(CompilationError, match=f"{spoiler} alone failed"):
        bench.load(spoiler)


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


class Losing(Pickling):
    """Loses the worker that finalizes a kernel of the name `fatal`."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        ids = [id for id, _ in args[1]] if fn is run_group else [args[2]] if args[3] is JobStage.FINALIZE else []  # noqa: A001
        is_fatal = any(id.kernel.name == "fatal" for id in ids)  # noqa: A001
        return (Broken() if is_fatal else super()).submit(fn, *args, **kwargs)


def test_kernel_whose_group_is_lost_with_its_worker_costs_no_other(environment: Environment) -> None:
    bench = bench_on(environment, Losing())
    queue(bench, "a", "fatal", "b", "c", "d", "e", "f", "g")
    assert bench.loader.compile_queued() == 7
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


def test_kernel_whose_group_cannot_be_told_costs_no_other(environment: Environment) -> None:
    bench = bench_on(environment, Pickling())
    compiler = bench.loader.target.compiler
    key = compiler.group_key

    def refuse(self: Grouping, lowered: str) -> str | None:
        if lowered == "lowered 4":
            raise ZeroDivisionError("in group_key")
        return key(lowered)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grouping, "group_key", refuse)
        queue(bench, "a", "odd", "b")
        assert bench.loader.compile_queued() == 2
    with pytest.raises(ZeroDivisionError, match="in group_key"):
        bench.load("odd")


# --- without a device -------------------------------------------------------------------------------------------------


def test_kernels_compiled_ahead_are_finalized_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "num_cores", lambda: 2)
    kernels = [definition(f"k{number}", number + 3) for number in range(11)]
    results = compile_ahead(Grouping(), kernels, executor=Pickling())
    assert [result.artifact for result in results] == [artifact(f"lowered {number + 3}") for number in range(11)]
    assert [result.source for result in results] == [f"lowered {number + 3}" for number in range(11)]
    assert sizes() == [4, 4, 2, 1]
    assert {"expand", "lower", "finalize"} <= results[0].recording.stage_ns.keys()
    assert results[0].recording.warnings == ["a remark"]


def test_lone_kernel_compiled_ahead_goes_alone() -> None:
    (result,) = compile_ahead(Grouping(), [definition("a", 5)])
    assert (result.artifact, together) == (artifact("lowered 5"), [["a"]])


def test_kernels_compiled_ahead_fail_alone_though_their_group_is_lost() -> None:
    kernels = [definition(name, number + 3) for number, name in enumerate(("a", "fatal", "refused", "b", "invalid"))]
    results = compile_ahead(Grouping(), kernels, executor=Losing())
    assert [type(result.failure).__name__ for result in results] == [
        "NoneType", "CompilationError", "NoneType", "NoneType", "ValidationError"
    ]  # fmt: skip
    assert "a worker failed while compiling fatal" in str(results[1].failure)
