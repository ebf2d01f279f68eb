"""The guides to single devices: their examples run there, and as far as possible where no such device is."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.cli import main
from quernel.testing.pages import Block, blocks_of

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
RUN_BY = {
    "docs/explanation/comparison.md": "tests/integration/test_pages.py",
    "docs/explanation/halves.md": "tests/integration/test_pages.py",
    "docs/explanation/over.md": "tests/integration/test_pages.py",
    "docs/explanation/spmd-on-simd.md": "tests/integration/test_device_pages.py",
    "docs/howto/compile-farm.md": "tests/integration/test_dask.py",
    "docs/howto/cuda.md": "tests/integration/test_device_pages.py",
    "docs/howto/opencl.md": "tests/integration/test_device_pages.py",
    "docs/howto/reductions-on-the-cpu.md": "tests/integration/test_pages.py",
    "docs/howto/test-your-kernels.md": "tests/unit/testing/test_howto_page.py",
    "docs/howto/write-a-backend.md": "tests/unit/test_backends_page.py",
    "docs/index.md": "tests/integration/test_pages.py",
    "docs/reference/api.md": "tests/unit/api/test_api_page.py",
    "docs/reference/backends.md": "tests/unit/test_backends_page.py",
    "docs/reference/compatibility.md": "tests/integration/test_pages.py",
    "docs/reference/errors.md": "tests/conformance/test_errors_page.py",
    "docs/reference/language.md": "tests/conformance/test_language_page.py",
    "docs/tutorial/backend-c/index.md": "tests/integration/test_backend_c.py",
    "docs/tutorial/first-steps.md": "tests/integration/test_pages.py",
}
"""Each page that has Python, and the tests that run it."""


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "python"]


def run(page: Path, block: Block, text: str, names: dict[str, Any]) -> None:
    file = f"<{page.name}:{block.line}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), names)


def test_every_page_with_examples_has_a_test_that_runs_it() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md" and python_of(page)]
    assert sorted(page.relative_to(ROOT).as_posix() for page in pages) == sorted(RUN_BY)
    for page, test in RUN_BY.items():
        said = (ROOT / test).read_text(encoding="utf-8")
        assert re.search(rf'["/]{re.escape(Path(page).name)}"', said), page


# --- opencl -----------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_opencl_page_run() -> None:
    try:
        qn.device("opencl")
    except qn.errors.QuernelError as error:
        pytest.skip(f"needs a device of OpenCL: {error}")
    page = HOWTO / "opencl.md"
    choosing, arrays, ready_made = python_of(page)
    names: dict[str, Any] = {"__name__": "page"}
    specs = re.findall(r'qn\.device\("([^"]+)"\)', choosing.text)
    assert len(specs) == 5
    found = {spec: device_of(spec) for spec in specs}
    assert found["opencl"] is not None
    assert found["opencl:gpu,cpu"] is not None
    run(page, choosing, "import quernel as qn", names)
    here = "opencl:gpu" if found["opencl:gpu"] is not None else "opencl"
    run(page, arrays, arrays.text.replace("opencl:gpu", here), names)
    assert np.array_equal(names["x"].numpy(), 2 * np.arange(1000))
    if device_of("opencl:cpu") is not None:
        run(page, ready_made, ready_made.text, names)
        assert names["host_x"].tolist() == [2] * 1000


def device_of(spec: str) -> qn.Device | None:
    """The device, or `None` where there is none of that kind; any other complaint is one about the page."""
    try:
        return qn.device(spec)
    except qn.errors.DeviceError as error:
        if not re.search(r"no device|matches", str(error)):
            raise
        return None


# --- cuda -------------------------------------------------------------------------------------------------------------

needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("quernel_cuda") is None or importlib.util.find_spec("nvidia") is None,
    reason="needs NVRTC: pip install quernel-cuda",
)
CUDA = HOWTO / "cuda.md"


def having(text: str) -> Block:
    (block,) = [block for block in python_of(CUDA) if text in block.text]
    return block


def code_of(text: str) -> str:
    return ast.unparse(ast.parse(text))


def without_launches(text: str) -> str:
    """The definitions of a block: what a machine without the device can do with it."""
    kept = [node for node in ast.parse(text).body if not isinstance(node, ast.Expr) and "gpu" not in ast.unparse(node)]
    return ast.unparse(ast.Module(kept, []))


def test_the_examples_of_the_cuda_page_run_on_any_device() -> None:
    first, graphs = having("gpu = qn.device"), having("graph.update")
    try:
        spec = qn.device("cuda").name
    except qn.errors.QuernelError:
        spec = "cpu"
    names: dict[str, Any] = {"__name__": "page"}
    run(CUDA, first, first.text.replace('"cuda"', f'"{spec}"'), names)
    assert np.array_equal(names["y"].numpy(), 2 * np.arange(1000))
    run(CUDA, graphs, graphs.text, names)
    assert np.array_equal(names["y"].numpy(), (2 + 2 + 3) * np.arange(1000))


def test_the_examples_of_the_cuda_page_run_on_cuda() -> None:
    try:
        qn.device("cuda")
    except qn.errors.QuernelError as error:
        pytest.skip(f"needs a device of CUDA: {error}")
    has_libraries = all(importlib.util.find_spec(name) is not None for name in ("torch", "cupy"))
    has_two = len(qn.devices("cuda")) > 1
    names: dict[str, Any] = {"__name__": "page"}
    for block in python_of(CUDA):
        if ("import torch" not in block.text or has_libraries) and ("cuda:1" not in code_of(block.text) or has_two):
            run(CUDA, block, block.text, names)


@needs_nvrtc
def test_what_the_cuda_page_compiles_without_a_gpu_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, own, raw = having("gpu = qn.device"), having("scaled = qn.source_kernel"), having("raw_saxpy = ")
    Path("kernels.py").write_text(without_launches(first.text))
    Path("sources.py").write_text(
        "import quernel as qn\n" + without_launches(own.text) + "\n" + without_launches(raw.text)
    )
    (shown,) = [block.text for block in blocks_of(CUDA) if "quernel compile" in block.text]
    commands = [line.partition("#")[0].split()[1:] for line in shown.splitlines()]
    assert len(commands) == 5
    commands += [["compile", f"sources.py:{name}", "--target", "cuda:sm_90"] for name in ("scaled", "raw_saxpy")]
    for command in commands:
        if "asm" in command and shutil.which("nvdisasm") is None:
            continue
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert not ended.value.code, command
    assert Path("saxpy.cubin").read_bytes().startswith(b"\x7fELF")


# --- cpu --------------------------------------------------------------------------------------------------------------


def test_the_kernel_of_the_page_about_lanes_counts_halvings() -> None:
    page = ROOT / "docs" / "explanation" / "spmd-on-simd.md"
    (block,) = python_of(page)
    names: dict[str, Any] = {"qn": qn, "__name__": "page"}
    run(page, block, block.text, names)
    seed, out = np.array([0.5, 1, 1.5, 2, 1000, 2**40], np.float32), np.zeros(6, np.int32)
    names["halvings"].over(6, device="cpu")(seed, out)
    assert out.tolist() == [0, 0, 1, 1, 10, 40]
