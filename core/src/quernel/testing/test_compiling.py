"""The compile half: on any thread, in any process, without a device, and each time with the same result."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel as qn
from quernel.compiler import ArtifactCompiler, ArtifactHeader, CompilationProcesses, SlotKind, run_job
from quernel.compiler.results import JobStage, checked_result
from quernel.errors import QuernelError, ValidationError
from quernel.testing.compiling import artifact_of, content_of, definition_of, digest_of, finalized, id_of, lowered
from quernel.testing.processes import said_by


@qn.kernel
def scales(x: qn.Array[qn.f32], y: qn.Array[qn.f32], n: qn.i32):
    i = qn.global_id()
    if i < n:
        y[i] = x[i] * 2


@qn.kernel
def shifts(x: qn.Array[qn.i32], by: qn.Const[int]):
    i = qn.global_id()
    x[i] += by


@qn.kernel
def wide(x: qn.Array[qn.i32]):
    x[qn.global_id()] = qn.local_id()


@pytest.fixture(scope="module")
def processes() -> Iterator[CompilationProcesses]:
    with CompilationProcesses(1) as pool:
        yield pool


@pytest.fixture
def made(quernel_device: Any) -> tuple[Any, Any, str]:
    """A definition as a worker has it, its id, and what each artifact made of it has in common with one made here."""
    definition = pickle.loads(pickle.dumps(definition_of(quernel_device, scales)))
    content = content_of(quernel_device, artifact_of(quernel_device, definition))
    return definition, id_of(quernel_device, definition), content


def test_the_compiler_makes_the_same_each_time(quernel_device: Any, made: Any) -> None:
    definition, _, content = made
    assert content_of(quernel_device, artifact_of(quernel_device, definition)) == content


def test_one_thread_lowers_and_another_finalizes(quernel_device: Any, made: Any) -> None:
    definition, key, content = made
    compiler = quernel_device.operations.target.compiler
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        low = first.submit(lowered, compiler, definition, key).result()
        artifact = second.submit(finalized, compiler, key, low).result()
    assert content_of(quernel_device, artifact) == content


def test_compiler_lowered_and_artifact_pickle(quernel_device: Any, made: Any) -> None:
    definition, key, content = made
    compiler = pickle.loads(pickle.dumps(quernel_device.operations.target.compiler))
    assert isinstance(compiler, ArtifactCompiler)
    low = pickle.loads(pickle.dumps(lowered(compiler, definition, key)))
    artifact = pickle.loads(pickle.dumps(finalized(compiler, key, low)))
    assert content_of(quernel_device, artifact) == content


@pytest.mark.parametrize("stage", [JobStage.COMPILE, JobStage.FINALIZE], ids=lambda stage: stage.value)
def test_a_worker_process_makes_the_same(quernel_device: Any, made: Any, processes: Executor, stage: JobStage) -> None:
    definition, key, content = made
    compiler = quernel_device.operations.target.compiler
    work = definition if stage is JobStage.COMPILE else lowered(compiler, definition, key)
    result = checked_result(compiler, processes.submit(run_job, compiler, work, key, stage).result(), "scales")
    assert result.failure is None
    assert content_of(quernel_device, result.artifact) == content
    assert quernel_device.operations.target.load(key, result.artifact) is not None


def test_a_refusal_comes_back_from_a_worker_whole(quernel_device: Any, processes: Executor) -> None:
    limit = quernel_device.target_info.limits.max_block_threads
    definition = definition_of(quernel_device, wide.options(block=limit + 1))
    key, compiler = id_of(quernel_device, definition), quernel_device.operations.target.compiler
    with pytest.raises(ValidationError, match=str(limit)) as caught:
        lowered(compiler, definition, key)
    result = processes.submit(run_job, compiler, definition, key, JobStage.COMPILE).result()
    assert isinstance(result.failure, ValidationError)
    assert (result.failure.what, result.failure.fix) == (caught.value.what, caught.value.fix)
    assert result.failure.fix
    assert result.artifact is None


WITHOUT_DEVICE = """
import hashlib, json, sys
import quernel as qn
from quernel.api.wiring import catalog
from quernel.runtime.directory import directory
from quernel.testing.compiling import finalized, lowered
from quernel.compiler import ArtifactId, KernelDefinition
import pickle

backend = catalog().load(sys.argv[1])
def refuse(*_):
    raise SystemExit("a device was opened")
type(backend).open = refuse
with open(sys.argv[2], "rb") as file:
    definition = pickle.load(file)
compiler = backend.compiler(backend.target_info(sys.argv[3]))
id = ArtifactId(definition.id, compiler.default_variant(definition.specialization.signature))
artifact = finalized(compiler, id, lowered(compiler, definition, id))
print(json.dumps({"payload": hashlib.sha256(artifact.payload).hexdigest(), "entry": artifact.header.entry}))
"""


def test_a_target_string_compiles_without_opening_a_device(quernel_device: Any, made: Any, tmp_path: Path) -> None:
    definition = tmp_path / "definition"
    definition.write_bytes(pickle.dumps(made[0]))
    name = quernel_device.target_info.name
    said = said_by(tmp_path, "compiles.py", WITHOUT_DEVICE, quernel_device.info.backend, str(definition), name)
    assert said["entry"] == quernel_device.operations.target.header(artifact_of(quernel_device, made[0])).entry


def test_where_bytes_differ_each_time_there_is_a_text_to_find_equal_kernels_by(quernel_device: Any, made: Any) -> None:
    definition, key, _ = made
    compiler = quernel_device.operations.target.compiler
    assert compiler.is_reproducible or compiler.source(lowered(compiler, definition, key))


def test_the_source_is_a_text_that_says_all(quernel_device: Any, made: Any) -> None:
    definition, key, _ = made
    compiler = quernel_device.operations.target.compiler
    first, second = (compiler.source(lowered(compiler, definition, key)) for _ in range(2))
    assert first == second
    assert first is None or (isinstance(first, str) and first)
    other = definition_of(quernel_device, shifts, by=3)
    another = compiler.source(lowered(compiler, other, id_of(quernel_device, other)))
    assert (another is None) == (first is None)
    assert another is None or another != first


def test_the_header_tells_a_launch_all_that_it_needs(quernel_device: Any, made: Any) -> None:
    header = quernel_device.operations.target.header(artifact_of(quernel_device, made[0]))
    assert ArtifactHeader.from_bytes(header.to_bytes()) == header
    assert header.entry
    assert [(parameter.name, parameter.dtype, parameter.ndim) for parameter in header.params] == [
        ("x", "f32", 1),
        ("y", "f32", 1),
        ("n", "i32", -1),
    ]
    assert [parameter.is_written for parameter in header.params] == [False, True, False]
    assert [parameter.is_read for parameter in header.params[:2]] == [True, False]
    pointers = {slot.param for slot in header.slots if slot.kind is SlotKind.POINTER}
    assert pointers == {0, 1}
    assert [slot.param for slot in header.slots if slot.kind is SlotKind.SCALAR] == [2]
    assert len(header.block) == 1
    assert header.points_per_thread >= 1


def test_a_group_is_finalized_in_order_each_whole_by_itself(quernel_device: Any) -> None:
    compiler, target = quernel_device.operations.target.compiler, quernel_device.operations.target
    definitions = [definition_of(quernel_device, shifts, by=by) for by in (1, 2, 3)]
    ids = [id_of(quernel_device, definition) for definition in definitions]
    low = [lowered(compiler, definition, key) for definition, key in zip(definitions, ids, strict=True)]
    together = compiler.finalize_group(ids, low)
    assert len(together) == 3
    assert not [artifact for artifact in together if isinstance(artifact, Exception)]
    headers = [target.header(artifact) for artifact in together]
    alone = [target.header(finalized(compiler, key, one)) for key, one in zip(ids, low, strict=True)]
    # In one unit they may need names that differ.
    assert [attrs.evolve(header, entry="", statistics=()) for header in headers] == [
        attrs.evolve(header, entry="", statistics=()) for header in alone
    ]
    assert len({digest_of(quernel_device, artifact) for artifact in together}) == 3


def test_a_batch_of_kernels_compiles_and_one_that_fails_costs_no_other(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_block_threads
    kernels = quernel_device.kernels
    wanted = [definition_of(quernel_device, shifts, by=by) for by in (11, 12, 13)]
    wanted.insert(1, definition_of(quernel_device, wide.options(block=limit + 1)))
    pending = [kernels.request(definition) for definition in wanted]
    kernels.build()
    with pytest.raises(QuernelError, match=str(limit)):
        pending.pop(1).result()
    assert [one.result().id.kernel for one in pending] == [
        definition.id for definition in wanted if definition.name == "shifts"
    ]
