import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quernel.cli import main
from quernel.cli.new_backend import package_files
from quernel.runtime.operations import Unavailable
from quernel_c._toolchain import find_toolchain

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs" / "tutorial" / "backend-c"
IGNORED = ("__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", "dist")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main(["new-backend", *(str(argument) for argument in arguments)])
    said = capsys.readouterr()
    return int(exited.value.code or 0), said.out, said.err


def test_the_package_of_the_tutorial_is_what_is_written_for_its_name():
    there = {
        path.relative_to(TUTORIAL).as_posix(): path.read_text(encoding="utf-8")
        for path in TUTORIAL.rglob("*")
        if path.is_file() and not set(path.parts) & set(IGNORED) and path.parent != TUTORIAL
    }
    there |= {name: (TUTORIAL / name).read_text(encoding="utf-8") for name in ("README.md", "pyproject.toml")}
    made = package_files("c")
    assert sorted(made) == sorted(there)
    for path, text in made.items():
        assert text == there[path], path


@pytest.mark.parametrize("name", ["metal", "tile-lang", "x2_y"])
def test_no_word_of_a_template_is_left(name, tmp_path, capsys):
    status, out, _ = run(capsys, name, "--directory", tmp_path / "made")
    assert status == 0
    assert f"{len(package_files(name))} files in {tmp_path / 'made'}" in out
    written = [path for path in (tmp_path / "made").rglob("*") if path.is_file()]
    assert len(written) == len(package_files(name))
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\$\{|\bquernel_c\b|\bCCompiler\b|new-backend c\b", text), path
        if path.suffix == ".py":
            compile(text, str(path), "exec")


def test_no_module_hides_one_of_python_from_who_starts_in_its_folder():
    modules = {Path(path).stem for path in package_files("metal") if path.endswith(".py")}
    assert "plugin" in modules
    assert modules & sys.stdlib_module_names == set()


BACKEND_AND_KERNEL = """
import numpy as np
import quernel as qn

@qn.kernel
def double(x: qn.Array[qn.f32]):
    x[qn.global_id()] *= 2

x = np.arange(5, dtype=np.float32)
double.over(5, device="tile-lang")(x)
print(x.tolist(), qn.device("tile-lang").name)
"""


@pytest.mark.skipif(isinstance(find_toolchain(), Unavailable), reason="needs a C compiler, for example gcc")
def test_what_is_written_runs_kernels_at_once(tmp_path, capsys):
    run(capsys, "tile-lang", "--directory", tmp_path / "made")
    source = tmp_path / "made" / "src"
    info = source / "quernel_tile_lang-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quernel-tile-lang\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[quernel.backends]\ntile-lang = quernel_tile_lang.plugin\n")
    (tmp_path / "program.py").write_text(BACKEND_AND_KERNEL)
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "QUERNEL_ENVIRONMENT": str(tmp_path / "environment")}
    done = subprocess.run([sys.executable, tmp_path / "program.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 2.0, 4.0, 6.0, 8.0] tile-lang:0\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Metal", "lower-case letters and digits, .* 'metal' would do"),
        ("9x", "start with a letter; 'x' would do"),
        ("web gpu", "'web-gpu' would do"),
        ("a--b", "'a-b' would do"),
        ("tile_", "'tile' would do"),
        ("ü", "start with a letter$"),
        ("../escape", "'escape' would do"),
        ("", "start with a letter$"),
        ("auto", "device strings call the best device"),
        ("cpu", "is taken by a backend that exists"),
        ("cuda", "is taken by a backend that exists"),
        ("reference", "is taken by a backend that exists"),
        ("quernel-metal", "name the backend 'metal'"),
        ("quernel_metal", "name the backend 'metal'"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_and_nothing_written(name, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, name)
    assert status == 2
    assert re.search(says, err.strip(), re.MULTILINE), err
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_the_folder_has_the_name_of_the_distribution(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "tile_lang")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["quernel-tile-lang"]
    assert (tmp_path / "quernel-tile-lang" / "src" / "quernel_tile_lang" / "plugin.py").is_file()


@pytest.mark.parametrize("target", ["missing", "file"])
def test_no_file_is_written_over_nor_any_beside_it(target, tmp_path, capsys):
    mine = tmp_path / "made" / "README.md"
    mine.parent.mkdir()
    if target == "missing":
        mine.symlink_to(tmp_path / "elsewhere")
    else:
        mine.write_text("mine")
    status, _, err = run(capsys, "metal", "--directory", tmp_path / "made")
    assert status == 1
    assert f"{mine} would be written over; nothing was written" in err
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["README.md"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    status, _, err = run(capsys, "metal", "--directory", tmp_path / "file" / "below")
    assert status == 1
    assert f"cannot write to {tmp_path / 'file' / 'below'}: Not a directory; choose another --directory" in err
