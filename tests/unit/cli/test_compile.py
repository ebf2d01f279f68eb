"""`quernel compile`: kernels of a file or a module, for targets of any backend, without a device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from quernel.cli.compile import compile_kernel
from quernel.errors import DeviceError, KernelTypeError, PluginError
from quernel.plugins.backends import BackendCatalog

KERNELS = """
import quernel as qn

@qn.kernel
def saxpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

@qn.kernel
def filled(value, x, n: qn.Const[int]):
    i = qn.global_id()
    x[i] = value * n

not_a_kernel = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "some_kernels.py"
    path.write_text(KERNELS)
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(compile_kernel, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize(
    ("emit", "shown"),
    [("ir", b"kernel saxpy(a: f64 weak"), ("source", b"define "), ("asm", b".text"), ("artifact", b"quernel_entry")],
)
def test_what_is_emitted_for_the_host(file: str, emit: str, shown: bytes) -> None:
    result = run(f"{file}:saxpy", "--target", "cpu", "--emit", emit)
    assert result.exit_code == 0
    assert shown in result.stdout_bytes


@pytest.mark.parametrize(
    ("emit", "shown"),
    [("source", b"__global__"), ("ptx", b".target sm_90"), ("asm", b"saxpy"), ("artifact", b"\x7fELF")],
)
def test_what_is_emitted_for_a_gpu_that_is_not_here(file: str, emit: str, shown: bytes) -> None:
    pytest.importorskip("quernel_cuda", reason="needs the cuda backend")
    result = run(f"{file}:saxpy", "--target", "cuda:sm_90", "--emit", emit)
    assert result.exit_code == 0
    assert shown in result.stdout_bytes


def test_an_artifact_goes_to_a_file(file: str, tmp_path: Path) -> None:
    output = tmp_path / "saxpy.bin"
    result = run(f"{file}:saxpy", "--target", "cpu", "--emit", "artifact", "-o", str(output))
    assert result.exit_code == 0
    assert result.output == ""
    assert b"quernel_entry" in output.read_bytes()


def test_types_constants_and_blocks_are_given(file: str) -> None:
    arguments = ("--type", "value=f32", "--type", "x=Array2[f32]", "--const", "n=3", "--block", "4,16", "--json")
    result = run(f"{file}:filled", "--target", "cpu", *arguments)
    found = json.loads(result.output)
    assert (found["kernel"], found["block"]) == ("filled", [4, 16])
    assert found["artifact_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("saxpy", "--target", "cpu"), "names no kernel"),
        (("{file}:missing", "--target", "cpu"), "has no kernel 'missing'"),
        (("{file}:not_a_kernel", "--target", "cpu"), "has no kernel 'not_a_kernel'"),
        (("nowhere.py:saxpy", "--target", "cpu"), "there is no file nowhere.py"),
        (("no_such_module:saxpy", "--target", "cpu"), "cannot import no_such_module"),
        (("{file}:filled", "--target", "cpu", "--type", "value"), "write NAME=…"),
        (("{file}:filled", "--target", "cpu", "--type", "value=f33"), "use one of bool, i8"),
        (("{file}:filled", "--target", "cpu", "--const", "n=three"), "is no Python literal"),
        (("{file}:saxpy", "--target", "cpu", "--block", "many"), "is no integer"),
        (("{file}:saxpy", "--target", "cpu", "--emit", "ptx"), "cpu has no ptx to show"),
        (("{file}:saxpy", "--target", "gpu"), "is a kind of device, not a target: name one, such as cuda:sm_90"),
    ],
)
def test_what_is_wrong_is_said(file: str, arguments: tuple[str, ...], message: str) -> None:
    result = run(*(part.format(file=file) for part in arguments))
    assert result.exit_code == 2
    assert message in result.output


def test_an_unknown_target_is_refused(file: str) -> None:
    with pytest.raises(DeviceError, match="target"):
        run(f"{file}:saxpy", "--target", "cpu:z80")


def test_cpu_is_a_target_also_where_its_backend_is_not_installed(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quernel.api.wiring.catalog", lambda: BackendCatalog([]))
    with pytest.raises(PluginError, match=r"the backend 'cpu' is not installed(?:.|\n)*fix: "):
        run(f"{file}:saxpy", "--target", "cpu")


@pytest.mark.parametrize("emit", [(), ("--emit", "ir")])
def test_an_unknown_backend_is_refused_whatever_is_emitted(file: str, emit: tuple[str, ...]) -> None:
    with pytest.raises(PluginError, match="no backend is named 'cpo'"):
        run(f"{file}:saxpy", "--target", "cpo", *emit)


@pytest.mark.parametrize(
    ("method", "given", "complaint"),
    [
        ("target_info", RuntimeError("no tables"), "target_info('z80') failed: RuntimeError: no tables"),
        ("compiler", RuntimeError("no tables"), "compiler() for 'z80' failed: RuntimeError: no tables"),
        ("compiler", None, "compiler() for 'z80' gave None, not an ArtifactCompiler"),
        ("target_info", DeviceError("there is no z80"), "there is no z80"),
    ],
)
def test_a_backend_that_fails_is_named(
    file: str, monkeypatch: pytest.MonkeyPatch, method: str, given: Exception | None, complaint: str
) -> None:
    from quernel_cpu.plugin import CpuBackend

    def answer(self: CpuBackend, target: object) -> object:
        if given is not None:
            raise given
        return None

    monkeypatch.setattr(CpuBackend, "target_info", lambda self, target: target)
    monkeypatch.setattr(CpuBackend, method, answer)
    with pytest.raises(DeviceError if isinstance(given, DeviceError) else PluginError, match=re.escape(complaint)):
        run(f"{file}:saxpy", "--target", "cpu:z80")


def test_a_missing_type_is_named(file: str) -> None:
    with pytest.raises(KernelTypeError, match="parameter 'value' of kernel filled has no exact type"):
        run(f"{file}:filled", "--target", "cpu", "--const", "n=1")


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("--const", "n=1"), "--type value=f32, or --type value=Array1[f32]"),
        (("--type", "value=f32", "--type", "x=Array1[f32]"), "--const n=3"),
    ],
)
def test_what_is_missing_is_mended_by_an_option(file: str, arguments: tuple[str, ...], fix: str) -> None:
    with pytest.raises(KernelTypeError, match="has no") as caught:
        run(f"{file}:filled", "--target", "cpu", *arguments)
    assert caught.value.fix == fix


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        ("Array2[float32]", "f32"),
        ("np.int8", "i8"),
        ("Array[np.uint64]", "u64"),
        ("bfloat16", "bf16"),
        ("float", "f64"),
    ],
)
def test_numpy_names_are_types(given: str, type_: str) -> None:
    from quernel.cli.compile import _type
    from quernel.dtypes import BY_NAME, dtype_of

    name, found = _type(f"x={given}")
    assert name == "x"
    element = getattr(found, "element", found)
    assert dtype_of(element) is BY_NAME[type_]


def test_an_artifact_is_not_written_to_a_terminal(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from quernel.cli import compile as module

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    monkeypatch.setattr(module.sys, "stdout", Terminal())
    assert compile_kernel.callback is not None
    with pytest.raises(click.UsageError, match="give -o FILE"):
        compile_kernel.callback(f"{file}:saxpy", "cpu", "artifact", None, (), (), None, False)


def test_the_command_is_listed() -> None:
    from quernel.cli import _root

    assert "compile" in _root.list_commands(click.Context(_root))
