"""The tutorial's backend where its page and the kit do not look: toolchains that are missing, broken or other ones."""

from __future__ import annotations

import logging
import os
import pickle
import stat
from pathlib import Path

import attrs
import pytest

import quernel as qn
from quernel.compiler import Artifact, ArtifactHeader, ArtifactId, CompilationRecording, LaunchFacts
from quernel.errors import CompilationError, DeviceError
from quernel.runtime.operations import Unavailable
from quernel_c._driver import function_of, load_library
from quernel_c._toolchain import Toolchain, compile_library, find_toolchain
from quernel_c.compiler import CCompiler, target_of
from quernel_c.plugin import CBackend
from quernel_c.target import CTarget

FOUND = find_toolchain()
pytestmark = pytest.mark.skipif(isinstance(FOUND, Unavailable), reason="needs a C compiler, such as gcc")


@qn.kernel
def double(x: qn.Array1[qn.f32]):
    x[qn.global_id()] *= 2


def fake_compiler(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path on which there is no compiler."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def lowered(compiler: CCompiler):
    definition = double.specialize().definition
    kernel_id = ArtifactId(definition.id, compiler.default_variant(definition.specialization.signature))
    return kernel_id, compiler.lower(definition, kernel_id, CompilationRecording(), logging.getLogger(__name__))


def test_a_machine_without_a_compiler_has_no_device_and_says_how_to_get_one(nowhere):
    devices = CBackend().devices()
    assert isinstance(devices, Unavailable)
    assert "none of cc, gcc, clang is on the path" in devices.reason
    assert "apt install gcc" in devices.fix
    with pytest.raises(DeviceError, match="there is no C compiler"):
        CBackend().target_info("")


def test_a_compiler_that_is_gone_fails_the_kernel_and_says_so(tmp_path, monkeypatch):
    compiler = CCompiler(target_of(FOUND))
    kernel_id, text = lowered(compiler)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilationError, match="there is no C compiler") as caught:
        compiler.finalize(kernel_id, text)
    assert "apt install gcc" in caught.value.fix
    assert compiler.local_fingerprint() != compiler.target_info.fingerprint


def test_a_compiler_that_cannot_compile_is_named_with_what_it_said(nowhere):
    fake_compiler(nowhere, "echo 'fatal error: math.h: no such file' >&2; exit 1")
    devices = CBackend().devices()
    assert isinstance(devices, Unavailable)
    assert devices.reason == f"{nowhere / 'cc'} cannot compile: fatal error: math.h: no such file"


def test_a_compiler_that_does_not_know_the_processor_is_asked_for_none(nowhere):
    refuses = 'case "$*" in *-march=native*) exit 1;; esac'
    fake_compiler(nowhere, f"{refuses}; echo '#define __VERSION__ \"9.9\"'; echo '#define __clang__ 1'")
    found = find_toolchain()
    assert isinstance(found, Toolchain)
    assert (found.name, found.version) == ("clang", "9.9")
    assert "-march=native" not in found.flags


def test_fingerprints_differ_where_a_macro_does(tmp_path, monkeypatch):
    prints = []
    for number, macro in enumerate(["__AVX2__ 1", "__AVX512F__ 1", "__AVX2__ 1"]):
        fake_compiler(tmp_path / str(number), f"echo '#define __VERSION__ \"1\"'; echo '#define {macro}'")
        monkeypatch.setenv("PATH", f"{tmp_path / str(number)}{os.pathsep}/bin")
        prints.append(find_toolchain().fingerprint)
    assert prints[0] == prints[2] != prints[1]


def test_another_machine_is_no_target():
    with pytest.raises(DeviceError, match="makes no code for 'riscv128'") as caught:
        CBackend().target_info("riscv128")
    assert caught.value.fix.startswith("use c:")


def test_a_compiler_of_another_process_is_the_same():
    compiler = pickle.loads(pickle.dumps(CCompiler(target_of(FOUND))))
    assert compiler.local_fingerprint() == compiler.target_info.fingerprint
    assert compiler.toolchain == (FOUND.name, FOUND.version)


def test_alignment_is_no_part_of_the_variant():
    target = CTarget(CCompiler(target_of(FOUND)))
    variants = {target.variant(LaunchFacts(aligned, contiguous=True, index32=True)) for aligned in (True, False)}
    assert len(variants) == 1


def test_bytes_that_are_no_shared_object_are_refused():
    artifact = Artifact(ArtifactHeader(entry="f", params=(), slots=(), block=(1,)), b"no shared object")
    with pytest.raises(DeviceError, match="the system does not load a compiled kernel") as caught:
        load_library(artifact.payload)
    assert "TMPDIR" in caught.value.fix


def test_an_entry_that_is_not_exported_is_refused():
    library = load_library(compile_library(FOUND, "static int f(void) { return 1; }", ()))
    with pytest.raises(CompilationError, match="exports no function 'f'"):
        function_of(library, "f")


def test_options_are_part_of_what_a_text_is_kept_under():
    compiler = CCompiler(target_of(FOUND))
    _, text = lowered(compiler)
    assert text.options == ("-ffp-contract=off",)
    assert compiler.source(text) != compiler.source(attrs.evolve(text, options=("-ffp-contract=fast",)))
    debugged = double.options(debug=True, fast_math=True).specialize().definition
    kernel_id = ArtifactId(debugged.id, compiler.default_variant(debugged.specialization.signature))
    other = compiler.lower(debugged, kernel_id, CompilationRecording(), logging.getLogger(__name__))
    assert other.options == ("-ffp-contract=fast", "-g")
    assert compiler.finalize(kernel_id, other).payload
