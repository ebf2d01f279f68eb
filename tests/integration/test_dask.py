"""A compile farm: Dask workers in environments of their own compile, this process refuses, loads and runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.compiler import compile_ahead
from quernel.errors import CompilationError, QuernelError

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install distributed")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "compile-farm.md"
NUM_KERNELS = 40


class Farm:
    """A Dask scheduler in this process, whose workers are processes of virtual environments of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._cluster = distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1")
        self.address: str = self._cluster.scheduler_address
        self.client = distributed.Client(self._cluster, set_as_default=False)

    def add_worker(self, name: str, *, first_on_path: tuple[Path, ...] = ()) -> None:
        """Starts a worker in a new environment; what is on `first_on_path` hides what is installed."""
        home = self._folder / name
        venv.create(home, symlinks=True)
        (packages,) = home.glob("lib/python*/site-packages")
        for installed in (Path(place) for place in sys.path if place.endswith("site-packages")):
            for entry in installed.iterdir():
                if not packages.joinpath(entry.name).exists():
                    packages.joinpath(entry.name).symlink_to(entry)
        sources = [place for place in sys.path if place.endswith("src")]
        first = [*map(str, first_on_path), *sources]
        packages.joinpath("00-first.pth").write_text(f"import sys; sys.path[:0] = {first!r}\n")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "QUERNEL_"))}
        command = [home / "bin" / "python", "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1"]
        worker = subprocess.Popen(
            [*command, "--name", name, "--no-dashboard", "--no-nanny", "--local-directory", home / "scratch"],
            env=kept | {"QUERNEL_ENVIRONMENT": str(home / "environment")},
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / f"{name}.log").open("wb"),
        )
        self._workers.append(worker)
        self.client.wait_for_workers(len(self._workers), timeout=60)

    def environments(self) -> list[Path]:
        return [path for path in self._folder.glob("*/environment") if path.exists()]

    def close(self) -> None:
        self.client.close()
        for worker in self._workers:
            worker.terminate()
            worker.wait(30)
        self._cluster.close()


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    made = Farm(tmp_path_factory.mktemp("farm"))
    try:
        made.add_worker("one")
        made.add_worker("two")
        yield made
    finally:
        made.close()


@pytest.fixture
def other_farm(tmp_path: Path) -> Iterator[Farm]:
    made = Farm(tmp_path / "farm")
    (tmp_path / "farm").mkdir()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path) -> Iterator[None]:
    with qn.environment(tmp_path / "environment"):
        yield


def scaled_by(factor: int) -> Any:
    @qn.kernel
    def scaled(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):  # type: ignore[no-untyped-def]
        i = qn.global_id()
        y[i] = factor * x[i] + y[i]

    return scaled


def device_or_skip(spec: str) -> Any:
    try:
        return qn.device(spec)
    except QuernelError as error:
        pytest.skip(f"needs the device {spec}: {error}")


def cuda_compiler(target: str = "sm_90") -> Any:
    plugin = pytest.importorskip("quernel_cuda.plugin", reason="needs quernel-cuda")
    backend = plugin.CudaBackend()
    return backend.compiler(backend.target_info(target))


def request_all(view: Any, kernels: list[Any]) -> None:
    for kernel in kernels:
        definition = kernel.specialize().definition
        view.request(definition, view.compiler.default_variant(definition.specialization.signature))


@pytest.mark.parametrize("spec", ["cpu", "opencl"])
def test_kernels_compiled_on_the_farm_are_loaded_and_run_here(farm: Farm, spec: str) -> None:
    device = device_or_skip(spec)
    kernels = [scaled_by(factor) for factor in range(NUM_KERNELS)]
    told: list[Any] = []
    view = device.kernels.reporting(told.append)
    num_before = len(view)
    request_all(view, kernels)
    for pending in view.build(executor=farm.client.get_executor()):
        pending.result()
    assert len(view) == num_before + NUM_KERNELS
    processes = {compiled.worker.partition("/")[0] for compiled in told}
    assert len(told) == NUM_KERNELS
    assert len(processes) == 2
    assert str(os.getpid()) not in processes
    x = np.arange(100, dtype=np.float32)
    given = device.asarray(x)
    for factor, kernel in enumerate(kernels):
        y = device.array(np.ones(100, np.float32))
        kernel.over(100, device=device)(given, y)
        assert np.array_equal(y.numpy(), factor * x + 1)
    assert len(view) == num_before + NUM_KERNELS, "a launch compiled once more"
    assert not any(path.joinpath("store").exists() for path in farm.environments()), "a worker kept something"


def test_cubins_for_a_gpu_that_is_not_here_are_those_made_here(farm: Farm) -> None:
    compiler = cuda_compiler()
    definitions = [scaled_by(factor).specialize().definition for factor in range(NUM_KERNELS)]
    results = compile_ahead(compiler, definitions, executor=farm.client.get_executor())
    assert [result.failure for result in results] == [None] * NUM_KERNELS
    assert len({result.worker for result in results}) == 2
    code = {(result.artifact.payload, result.artifact.header.entry) for result in results}
    assert len(code) == NUM_KERNELS
    assert len({payload for payload, _ in code}) == NUM_KERNELS // compiler.group_size
    assert all(result.artifact.payload.startswith(b"\x7fELF") for result in results)
    (here,) = compile_ahead(compiler, definitions[3:4])
    assert here.source == results[3].source
    assert here.artifact.header.slots == results[3].artifact.header.slots


def test_result_of_another_build_is_refused(other_farm: Farm, tmp_path: Path) -> None:
    sources = tmp_path / "other"
    shutil.copytree(Path(qn.__file__).parent, sources / "quernel", ignore=shutil.ignore_patterns("__pycache__"))
    with (sources / "quernel" / "geometry.py").open("a") as file:
        file.write("\n# Another version.\n")
    other_farm.add_worker("other", first_on_path=(sources,))
    device = device_or_skip("cpu")
    here = device.kernels.compiler.build_id.digest
    device.kernels.request(scaled_by(3).specialize())
    (pending,) = device.kernels.build(executor=other_farm.client.get_executor())
    with pytest.raises(
        CompilationError, match=f"compiled .*scaled for build [0-9a-f]{{64}}, this process has build {here}"
    ):
        pending.result()
    (result,) = compile_ahead(
        cuda_compiler(), [scaled_by(3).specialize().definition], executor=other_farm.client.get_executor()
    )
    assert "this process has build" in str(result.failure)


def test_result_of_another_toolchain_is_refused(other_farm: Farm, tmp_path: Path) -> None:
    metadata = tmp_path / "other" / "nvidia_cuda_nvrtc-99.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: 99.1\n")
    other_farm.add_worker("other", first_on_path=(tmp_path / "other",))
    compiler = cuda_compiler()
    (result,) = compile_ahead(
        compiler, [scaled_by(3).specialize().definition], executor=other_farm.client.get_executor()
    )
    assert isinstance(result.failure, CompilationError)
    fingerprint = re.escape(compiler.target_info.fingerprint)
    assert re.search(f"for target sm_90-nvrtc99.1-\\S+, this process has target {fingerprint}", str(result.failure))
    assert result.artifact is None


def test_program_of_the_page_does_what_the_page_says(farm: Farm, tmp_path: Path) -> None:
    cuda_compiler()
    program = tmp_path / "farm.py"
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, program, farm.address],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "QUERNEL_ENVIRONMENT": str(tmp_path / "own"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{1 + sum(range(NUM_KERNELS)):.1f} {NUM_KERNELS}\n"
