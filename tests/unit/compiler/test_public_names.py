from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.compiler.scripted import Bench, ScriptedVariant, artifact, artifact_id, definition

import quernel.compiler
from quernel.compiler import own_workers
from quernel.compiler.artifacts import ArtifactHeader
from quernel.compiler.kernels import Kernels
from quernel.store import Environment


def test_every_public_name_can_be_imported() -> None:
    for name in quernel.compiler.__all__:
        assert getattr(quernel.compiler, name) is not None
    assert set(quernel.compiler.__all__) <= set(dir(quernel.compiler))


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Promise'"):
        _ = quernel.compiler.Promise


def test_names_say_where_they_are_from() -> None:
    assert quernel.compiler._MODULE_OF.keys() == set(quernel.compiler.__all__)


def test_stored_hit_imports_neither_ir_nor_executors_nor_the_writing_store(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    first = f"""
from tests.unit.compiler.test_persistent import process, definition, artifact_id
from quernel.store import Environment
process(Environment({str(tmp_path)!r})).loader.load(definition("a", 5), artifact_id("a"))
"""
    subprocess.run([sys.executable, "-c", first], cwd=root, check=True)
    second = f"""
import sys
import numpy, attrs
before = set(sys.modules)
from hashlib import sha256
from quernel.capabilities import TargetInfo
from quernel.compiler import Artifact, ArtifactId, KernelDefinition, KernelLoader, PersistentTarget, Specialization
from quernel.geometry import LaunchForm
from quernel.identity import BuildId, KernelId
from quernel.store import Environment
import attrs

@attrs.frozen
class ScriptedVariant:
    is_wide: bool = False

class Compiler:
    target_info = TargetInfo("scripted", "t1", "fingerprint-1")
    build_id = BuildId(sha256(b"build").hexdigest())
    artifact_format = 1

class Target(PersistentTarget):
    artifact_type = Artifact
    def variant(self, facts): return ScriptedVariant()
    def load(self, id, artifact): return artifact.payload

def expand():
    raise AssertionError("expanded")

kernel = KernelDefinition(
    KernelId("a", sha256(b"a").hexdigest()), Specialization((), (), LaunchForm.GRID, (5,)), expand=expand
)
opened = Environment({str(tmp_path)!r})
loader = KernelLoader(Target(Compiler()), environment=lambda: opened)
assert loader.load(kernel, ArtifactId(kernel.id, ScriptedVariant())).loaded == b"5"
for name in sorted(set(sys.modules) - before):
    print(name)
"""
    shown = subprocess.run([sys.executable, "-c", second], cwd=root, check=True, capture_output=True, text=True)
    imported = set(shown.stdout.split())
    unwanted = {"ast", "click", "rich", "filelock", "diskcache", "concurrent.futures.thread", "platformdirs"}
    unwanted |= {"quernel.lang", "quernel.ir", "quernel.compiler.job", "quernel.compiler.executors"}
    assert "quernel.compiler.loader" in imported
    assert imported & unwanted == set()


@pytest.fixture
def ending() -> Iterator[None]:
    own_workers._end()
    yield
    own_workers._is_ending = False
    own_workers._threads = None


@pytest.mark.usefixtures("ending")
def test_batch_compiles_on_the_calling_thread_while_the_process_ends(environment: Environment) -> None:
    bench = Bench.of(environment)
    bench.enqueue("a")
    bench.load("b")
    assert len({call.thread for call in bench.script.calls}) == 1


def test_launch_at_exit_compiles() -> None:
    code = """
import atexit
from tests.unit.compiler.scripted import Bench
bench = Bench.of(None)
def late():
    for name in "cd":
        bench.enqueue(name)
    print(bench.loader.compile_queued())
atexit.register(late)
bench.enqueue("a")
bench.enqueue("b")
print(bench.loader.compile_queued())
"""
    root = Path(__file__).parents[3]
    shown = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert shown.stdout.split() == ["2", "2"]


def test_kernels_views_the_loader(bench: Bench) -> None:
    kernels = Kernels(bench.loader)
    assert len(kernels) == 0
    kernel = kernels.get(definition("a"))
    assert kernel is bench.load("a")
    assert kernels.get(definition("a"), ScriptedVariant(is_wide=True)) is not kernel
    assert len(kernels) == 2
    assert kernels.compiler is bench.loader.target.compiler
    assert repr(kernels) == "<2 kernels loaded on scripted t1>"


def test_loaded_kernel_carries_header_and_digest(bench: Bench) -> None:
    bench.script.by_id[artifact_id("a")] = artifact("kept")
    kernel = bench.load("a")
    assert kernel.header == ArtifactHeader("entry", (), (), (1,))
    assert kernel.digest == bench.loader.target.digest(artifact("kept"))
    assert repr(kernel) == f"<loaded kernel a {kernel.digest[:12]}>"
