import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import quernel as qn
from quernel.cli import demo, main
from quernel.cli.pictures import read_picture, write_picture


@pytest.fixture(autouse=True)
def _own_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("QUERNEL_ENVIRONMENT", str(tmp_path / "environment"))
    monkeypatch.setenv("COLUMNS", "160")
    with qn.environment(tmp_path / "environment"):
        yield


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return int(exited.value.code or 0), said.out, said.err


def picture_file(path: Path, size: tuple[int, int] = (64, 48)) -> Path:
    width, height = size
    noise = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(path)
    return path


def test_demo_on_a_photograph_says_compiled_then_loaded_and_writes_pictures(tmp_path):
    photograph = picture_file(tmp_path / "photo.jpg", (97, 61))

    def demo() -> str:
        command = [
            sys.executable,
            "-m",
            "quernel.cli",
            "demo",
            photograph,
            "--device",
            "cpu",
            "--output",
            tmp_path / "out",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    first, second = demo(), demo()
    assert first.count("│ compiled ") == 4
    assert "│ loaded " not in first
    assert second.count("│ loaded ") == 4
    assert "NO" not in second
    for name in ("input", "contrast", "blurred", "edges"):
        with Image.open(tmp_path / "out" / f"{name}.png") as written:
            assert written.size == (97, 61)


def test_demo_without_an_image_draws_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quernel.cli.demo._MANDELBROT_SHAPE", (96, 128))
    monkeypatch.setitem(demo._MANDELBROT, "step", 1 / 40)
    status, out, _ = run(capsys, "demo", "--device", "cpu", "--output", tmp_path / "out")
    assert status == 0
    assert "mandelbrot" in out
    with Image.open(tmp_path / "out" / "input.png") as drawn:
        assert len(np.unique(np.asarray(drawn.convert("L")))) > 50


@pytest.mark.parametrize(("no_cache", "said"), [("", "kept in the store"), ("1", "as QUERNEL_NO_CACHE is set")])
def test_demo_says_whether_kernels_were_kept(no_cache, said, tmp_path):
    picture = picture_file(tmp_path / "photo.png", (9, 8))
    command = [sys.executable, "-m", "quernel", "demo", picture, "--device", "cpu", "--output", tmp_path / "out"]
    environment = os.environ | {"QUERNEL_NO_CACHE": no_cache}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("compiled: ")]
    assert line.endswith(said)


def test_demo_shrinks_a_picture_for_a_device_that_interprets(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quernel.cli.demo._INTERPRETED_POINTS", 12 * 10)
    arguments = ("demo", picture_file(tmp_path / "photo.png", (37, 31)), "--output", tmp_path / "out", "--device")
    _, _, err = run(capsys, *arguments, "reference")
    assert "reference:0 interprets: the picture is shrunk from 37 x 31 to 9 x 7; --full-size leaves it" in err
    for device, size in (("reference", (9, 7)), ("cpu", (37, 31))):
        status, _, err = run(capsys, *arguments, device)
        assert (status, "shrunk" in err) == (0, device == "reference")
        with Image.open(tmp_path / "out" / "input.png") as written:
            assert written.size == size
    _, _, err = run(capsys, *arguments, "reference", "--full-size")
    assert err == ""


def test_pictures_are_shrunk_to_means():
    from quernel.cli.demo import _shrinking, _shrunk

    picture = np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4)
    small = _shrunk(picture, 2)
    assert small.shape == (3, 2, 2)
    assert small[0].tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert _shrinking(1, 10**6) == 1
    assert _shrinking(48, 64) == 1
    assert _shrinking(49, 64) == 2


def test_demo_refuses_a_file_that_is_no_picture(tmp_path, capsys):
    (tmp_path / "text.png").write_text("no picture")
    status, _, err = run(capsys, "demo", tmp_path / "text.png")
    assert status == 1
    assert "cannot be read as a picture" in err


def test_demo_finds_a_folder_that_cannot_be_written_before_it_works(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(qn, "device", lambda *_: pytest.fail("worked first"), raising=False)
    status, _, err = run(capsys, "demo", "--output", tmp_path / "file" / "below")
    assert status == 1
    assert f"cannot write to {tmp_path / 'file' / 'below'}: Not a directory; choose another folder" in err


def test_demo_says_what_each_outcome_means(tmp_path, capsys):
    picture = picture_file(tmp_path / "photo.png", (9, 8))
    _, out, _ = run(capsys, "demo", picture, "--device", "cpu", "--output", tmp_path / "out")
    words = {line.split("│")[2].strip() for line in out.splitlines() if line.count("│") > 7}
    assert words
    for word in words:
        assert any(line.startswith(f"{word}: ") for line in out.splitlines()), out


def test_demo_explains_every_outcome_that_there_is():
    from quernel.cli.demo import _OUTCOMES
    from quernel.store import CompilationOutcome

    assert {outcome.value for outcome in CompilationOutcome} <= set(_OUTCOMES)


def read_terminal(descriptor: int) -> Iterator[bytes]:
    """What is written to the other end until it is closed."""
    try:
        while part := os.read(descriptor, 1 << 16):
            yield part
    except OSError:  # as Linux says that the other end is closed
        return
    finally:
        os.close(descriptor)


def test_demo_shows_on_a_terminal_which_kernel_runs(tmp_path):
    pty = pytest.importorskip("pty", reason="needs terminals as POSIX has them")
    ours, theirs = pty.openpty()
    picture = picture_file(tmp_path / "photo.png", (12, 10))
    command = [sys.executable, "-m", "quernel.cli", "demo", picture, "--device", "reference", "--output", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as demo:
        os.close(theirs)
        shown = b"".join(read_terminal(ours)).decode()
    assert demo.returncode == 0
    assert "360 points on reference:0, interpreted" in shown


def test_demo_on_an_unknown_device_fails_with_the_mend(capsys):
    status, _, err = run(capsys, "demo", "--device", "nothing")
    assert status == 1
    assert "fix:" in err
    assert "Traceback" not in err


def test_pictures_survive_a_round_trip(tmp_path):
    levels = np.random.default_rng(2).integers(0, 256, (3, 7, 5)).astype(np.float32) / np.float32(255)
    write_picture(tmp_path / "a.png", levels)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), levels)


def test_devices_lists_what_the_library_lists(capsys):
    status, out, _ = run(capsys, "devices", "--json")
    assert status == 0
    assert [row["spec"] for row in json.loads(out)] == [f"{d.backend}:{d.index}" for d in qn.devices()]


def test_devices_of_an_unknown_backend_fails(capsys):
    status, _, err = run(capsys, "devices", "nothing")
    assert status == 1
    assert err.startswith("Error: ")
    assert "nothing" in err


def test_backends_says_which_work(capsys):
    status, out, _ = run(capsys, "backends", "--json")
    assert status == 0
    assert {row["name"]: row["ok"] for row in json.loads(out)}["cpu"] is True


def test_backend_that_does_not_work_is_one_row_in_a_pipe(capsys, monkeypatch):
    broken = qn.BackendInfo("tiles", "quernel-tiles", "1.0", False, "no toolchain\nin /opt", "install it")
    monkeypatch.setattr("quernel.backends", lambda: (broken,))
    monkeypatch.delenv("COLUMNS")
    _, out, _ = run(capsys, "backends")
    (line,) = (line for line in out.splitlines() if "tiles" in line)
    assert "no toolchain; in /opt; fix: install it" in line


def of_this_machine(problems):
    """The problems but for drivers that a machine may lack, whatever is installed."""
    return [problem for problem in problems if not problem["where"].endswith((" cuda", " opencl"))]


def test_doctor_finds_nothing_wrong_here(capsys):
    status, out, _ = run(capsys, "doctor", "--json")
    report = json.loads(out)
    assert status == bool(report["problems"])
    assert of_this_machine(report["problems"]) == []
    assert report["versions"]["quernel"] == qn.__version__
    assert {backend["name"] for backend in report["backends"]} >= {"cpu", "reference"}


@pytest.mark.parametrize(
    ("name", "value", "reason", "fix"),
    [
        ("QUERNEL_DEVICE", "gpu", "is a kind of device", "opencl:gpu"),
        ("QUERNEL_DEVICE", "cpu:7", "there is no device cpu:7", "see qn.devices"),
        ("QUERNEL_DEVICE", "nothing,cpu:7", "none of 'nothing,cpu:7' is there; nothing: no backend", "see qn.devices"),
        ("QUERNEL_CHECKED", "perhaps", "QUERNEL_CHECKED='perhaps' is not understood", "QUERNEL_CHECKED"),
        ("QUERNEL_NUM_THREADS", "0", "QUERNEL_NUM_THREADS='0' is not understood", "QUERNEL_NUM_THREADS"),
        ("QUERNEL_DEVIEC", "cpu", "QUERNEL_DEVIEC sets nothing", "did you mean QUERNEL_DEVICE"),
    ],
)
def test_doctor_looks_at_what_is_set(name, value, reason, fix, capsys, monkeypatch):
    monkeypatch.setenv(name, value)
    status, out, _ = run(capsys, "doctor", "--json")
    (problem,) = of_this_machine(json.loads(out)["problems"])
    assert status == 1
    assert reason in problem["reason"]
    assert fix in problem["fix"]


def test_doctor_only_notes_a_device_that_is_missing_where_compiling_works(capsys, monkeypatch):
    from quernel.runtime.operations import Health, Unavailable

    missing, broken = Unavailable("no driver", "install one"), Unavailable("no compiler", "install it")
    health = Health((), (), (missing,))
    monkeypatch.setattr("quernel.runtime.asking.ask_health", lambda backend: health)
    monkeypatch.setattr("quernel.runtime.asking.ask_devices", lambda backend: missing)
    status, out, _ = run(capsys, "doctor", "--json")
    report = json.loads(out)
    assert (status, report["problems"]) == (0, [])
    assert [note["reason"] for note in report["notes"]] == ["no driver"]
    status, out, _ = run(capsys, "doctor")
    assert "no driver" in out
    assert "Everything works." in out
    health = Health((), (broken,), (missing,))
    status, out, _ = run(capsys, "doctor", "--json")
    assert status == 1
    assert [problem["reason"] for problem in json.loads(out)["problems"]] == ["no compiler"]
    health = Health()
    status, out, _ = run(capsys, "doctor", "--json")
    assert (status, [problem["reason"] for problem in json.loads(out)["problems"]]) == (1, ["no driver"])


def test_doctor_says_which_device_is_set(capsys, monkeypatch):
    monkeypatch.setenv("QUERNEL_DEVICE", "nothing,cpu")
    _, out, _ = run(capsys, "doctor", "--json")
    assert json.loads(out)["settings"]["QUERNEL_DEVICE"].startswith("nothing,cpu: cpu:0 (")


@pytest.mark.parametrize("method", ["target_info", "compiler"])
def test_doctor_names_a_backend_that_has_devices_and_cannot_compile(method, capsys, monkeypatch):
    from quernel_cpu.plugin import CpuBackend

    def fails(self, target):
        raise OSError("no tables")

    monkeypatch.setattr(CpuBackend, method, fails)
    status, out, _ = run(capsys, "doctor", "--json")
    report = json.loads(out)
    assert status == 1
    assert {backend["name"]: backend["ok"] for backend in report["backends"]}["cpu"] is False
    (problem,) = [problem for problem in report["problems"] if problem["where"] == "backend cpu"]
    assert method in problem["reason"]
    assert "OSError: no tables" in problem["reason"]
    assert problem["fix"]


def test_doctor_says_everything_once(capsys):
    _, out, _ = run(capsys, "doctor", "--json")
    reasons = [problem["reason"] for problem in json.loads(out)["problems"]]
    assert len(reasons) == len(set(reasons))


def test_doctor_names_a_store_that_cannot_be_used(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    with qn.environment(tmp_path / "file" / "below"):
        status, out, _ = run(capsys, "doctor", "--json")
    assert status == 1
    (problem,) = of_this_machine(json.loads(out)["problems"])
    assert problem["where"] == "store"
    assert problem["fix"]


def _compile_one() -> None:
    @qn.kernel
    def triple(x: qn.Array1[qn.i32]):
        i = qn.global_id()
        x[i] = 3 * x[i]

    numbers = np.arange(5, dtype=np.int32)
    triple.over(5, device="cpu")(numbers)
    assert numbers.tolist() == [0, 3, 6, 9, 12]


def test_cache_lists_verifies_and_clears(capsys):
    _compile_one()
    _, out, _ = run(capsys, "cache", "list", "--json")
    assert [row["kernel_name"] for row in json.loads(out)] == ["triple"]
    _, out, _ = run(capsys, "cache", "info", "--json")
    assert json.loads(out)["num_kernels"] == 1
    status, out, _ = run(capsys, "cache", "verify")
    assert (status, "whole" in out) == (0, True)
    status, out, _ = run(capsys, "cache", "clear", "--yes")
    assert status == 0
    _, out, _ = run(capsys, "cache", "list", "--json")
    assert json.loads(out) == []


def test_cache_list_orders_and_limits(capsys):
    @qn.kernel
    def anew(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
        i = qn.global_id()
        y[i] = y[i] / x[i] + x[i] / y[i]

    _compile_one()
    anew.over(5, device="cpu")(np.ones(5, np.float32), np.ones(5, np.float32))

    def names(*options: str) -> list[str]:
        _, out, _ = run(capsys, "cache", "list", "--json", *options)
        return [row["kernel_name"] for row in json.loads(out)]

    assert names("--order", "name") == ["anew", "triple"]
    assert names("--order", "name", "--reverse") == ["triple", "anew"]
    assert names("--order", "name", "--limit", "1") == ["anew"]
    _, out, _ = run(capsys, "cache", "list", "--order", "bytes", "--json")
    sizes = [row["payload_bytes"] for row in json.loads(out)]
    assert sizes == sorted(sizes, reverse=True)
    _, out, _ = run(capsys, "cache", "list", "--limit", "1")
    assert "1 kernel of 2" in out


def test_cache_list_shows_what_was_stored_by_a_clock_that_was_far_off(capsys, monkeypatch):
    monkeypatch.setattr("quernel.store.artifact_store.today", lambda: 46_000_000)
    _compile_one()
    status, out, _ = run(capsys, "cache", "list")
    assert status == 0
    assert "9999-12-31" in out


def test_cache_verify_fails_on_a_damaged_payload_and_repairs_it(tmp_path, capsys):
    _compile_one()
    database = tmp_path / "environment" / "store" / "cache.db"
    with sqlite3.connect(database) as connection:
        changed = connection.execute("UPDATE Cache SET value = x'00' WHERE key LIKE 'b/%'").rowcount
    assert changed
    status, _, err = run(capsys, "cache", "verify")
    assert status == 1
    assert err
    assert run(capsys, "cache", "verify", "--repair")[0] == 0
    assert run(capsys, "cache", "verify")[0] == 0


def test_help_lists_every_command(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for name in ("backends", "cache", "demo", "devices", "doctor"):
        assert name in out


def test_an_unknown_command_is_refused(capsys):
    status, _, err = run(capsys, "frobnicate")
    assert status == 2
    assert "frobnicate" in err


@pytest.mark.parametrize("output", ["file/below", "taken"])
def test_demo_that_cannot_write_says_where_and_what_to_do(tmp_path, capsys, output):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "taken" / "input.png").mkdir(parents=True)
    status, _, err = run(capsys, "demo", picture_file(tmp_path / "a.png"), "--output", tmp_path / output)
    assert status == 1
    assert "cannot write" in err
    assert "--output" in err


def test_clearing_without_a_terminal_asks_for_yes(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    status, _, err = run(capsys, "cache", "clear")
    assert status == 2
    assert "--yes" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_printing_to_a_full_disk_fails_without_a_traceback():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "quernel.cli", "devices", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot print" in done.stderr


def test_demo_refuses_a_picture_of_floats(tmp_path, capsys):
    Image.fromarray(np.random.default_rng(3).random((8, 8), np.float32)).save(tmp_path / "f.tiff")
    status, _, err = run(capsys, "demo", tmp_path / "f.tiff")
    assert status == 1
    assert "8 bits" in err
