"""`quernel records`: what a person or a program reads of what was compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import quernel as qn
from quernel.cli import main
from quernel.store import CompilationBatchRecord, CompilationOutcome, CompilationRecord, Environment, RecordLog


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("QUERNEL_RECORDS", raising=False)
    with qn.environment(tmp_path / "environment") as current:
        yield current


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main(["records", *arguments])
    said = capsys.readouterr()
    return int(exited.value.code or 0), said.out, said.err


def record(number: int, kernel: str = "", **fields: object) -> CompilationRecord:
    defaults: dict[str, object] = {
        "kernel": kernel or f"kernel{number}",
        "key": f"{number:04x}" * 16,
        "outcome": CompilationOutcome.COMPILED,
        "started_ns": 1_700_000_000 * 10**9 + number,
        "duration_ns": 1_500_000 * number,
    }
    return CompilationRecord(**{**defaults, **fields})  # type: ignore[arg-type]


def keep(environment: Environment, *found: CompilationRecord, level: str = "basic") -> None:
    batch = CompilationBatchRecord(asked=len(found), workers=1, wall_ns=1)
    assert RecordLog(environment).append(found, batch, level=level)  # type: ignore[arg-type]


def test_kernel_that_was_launched_is_listed(capsys):
    @qn.kernel
    def doubled(x):
        i = qn.global_id()
        x[i] = x[i] + x[i]

    import numpy as np

    doubled.over(4, device="cpu")(np.ones(4, np.float32))
    status, out, err = run(capsys, "list", "--json")
    assert (status, err) == (0, "")
    (listed,) = json.loads(out)
    assert listed["kernel"].endswith("doubled")
    assert listed["outcome"] == "compiled"
    assert {"expand", "lower", "load"} <= listed["stages"].keys()
    status, out, _ = run(capsys, "show", "doubled")
    assert status == 0
    assert listed["key"] in out
    assert "LLVM" in out


def test_list_shows_outcome_time_worker_and_why(capsys, environment):
    found = CompilationOutcome.REKEYED
    keep(environment, record(3, "pkg.saxpy", worker="12/Main", why_missed=("code", "types")))
    keep(environment, record(2, outcome=found, rekeyed_by="ir"))
    status, out, err = run(capsys, "list")
    assert (status, err) == (0, "")
    for shown in ("pkg.saxpy", "00030003 ", "compiled", "4.50", " 12 ", "code, types", "rekeyed by ir", "3.00"):
        assert shown in out


def test_list_shows_the_last_ones_oldest_first(capsys, environment):
    keep(environment, *(record(number) for number in range(60)))
    _, out, err = run(capsys, "list")
    assert "kernel59" in out
    assert "kernel9 " not in out
    assert out.index("kernel10") < out.index("kernel59")
    assert err == "10 earlier ones are not shown: --all shows them\n"
    _, out, _ = run(capsys, "list", "--last", "2", "--json")
    assert [found["kernel"] for found in json.loads(out)] == ["kernel58", "kernel59"]
    _, out, err = run(capsys, "list", "--all", "--json")
    assert len(json.loads(out)) == 60
    assert err == ""


def test_list_keeps_to_a_name_and_an_outcome(capsys, environment):
    loaded = CompilationOutcome.LOADED
    keep(environment, record(1, "a.one"), record(2, "a.two", outcome=loaded), record(3, "b.two", outcome=loaded))
    _, out, _ = run(capsys, "list", "--kernel", "two", "--json")
    assert [found["kernel"] for found in json.loads(out)] == ["a.two", "b.two"]
    _, out, _ = run(capsys, "list", "--kernel", "a.", "--outcome", "loaded", "--json")
    assert [found["kernel"] for found in json.loads(out)] == ["a.two"]
    status, out, err = run(capsys, "list", "--kernel", "c.")
    assert (status, out, err) == (0, "", "none of 3 records is wanted by these options\n")


def test_list_without_records_says_where_it_looked(capsys, environment, monkeypatch):
    status, out, err = run(capsys, "list")
    assert (status, out) == (0, "")
    assert err == f"there are no records in {environment.records_path}: nothing was compiled or loaded yet\n"
    assert run(capsys, "list", "--json") == (0, "[]\n", "")
    monkeypatch.setenv("QUERNEL_RECORDS", "off")
    assert run(capsys, "list")[2] == "there are no records: QUERNEL_RECORDS=off keeps none\n"


def test_list_refuses_options_that_exclude_each_other(capsys):
    status, _, err = run(capsys, "list", "--all", "--last", "3")
    assert status == 2
    assert "--all and --last exclude each other" in err
    assert run(capsys, "list", "--last", "0")[0] == 2


def test_show_tells_all_of_a_kernel_found_by_the_start_of_its_key(capsys, environment):
    keep(
        environment,
        record(
            255,
            "saxpy",
            stages=(("lower", 2_000_000), ("finalize", 500_000)),
            registers=24,
            spills=0,
            artifact_bytes=4096,
            toolchain="NVRTC 13.0",
            warnings=("a remark",),
            why_missed=("new",),
            ir="kernel saxpy",
            source="void saxpy() {\n}",
        ),
        record(255, "saxpy", outcome=CompilationOutcome.LOADED),
        record(1),
        level="full",
    )
    status, out, err = run(capsys, "show", "00FF00")
    assert (status, err) == (0, "")
    shown = [line.split(None, 1) for line in out.splitlines() if line.strip()]
    for line in (["lower", "2.00 ms"], ["registers", "24"], ["spills", "0 bytes"], ["artifact", "4096 bytes"]):
        assert line in shown
    for text in ("NVRTC 13.0", "a remark", "why it missed new", "kernel saxpy", "void saxpy() {\n}", "loaded"):
        assert text in out
    assert "kernel1" not in out
    _, out, _ = run(capsys, "show", "saxpy", "--json")
    first, second = json.loads(out)
    assert first["stages"] == {"lower": 2_000_000, "finalize": 500_000}
    assert (first["registers"], second["outcome"]) == (24, "loaded")


def test_show_of_several_kernels_lists_them(capsys, environment):
    keep(environment, record(0x1234, "one"), record(0x1235, "two"))
    status, out, err = run(capsys, "show", "123")
    assert (status, out) == (2, "")
    assert "'123' may be any of these; give more of a key:\n  123412341234  one\n  123512351235  two" in err
    assert run(capsys, "show", "1234")[0] == 0


def test_show_of_an_unknown_kernel_says_so(capsys, environment):
    status, _, err = run(capsys, "show", "ab")
    assert status == 2
    assert "there are no records in" in err
    keep(environment, record(1))
    status, _, err = run(capsys, "show", "ab")
    assert status == 2
    assert "no record is of a kernel 'ab': quernel records list --all shows their names and keys" in err
    assert run(capsys, "show", "")[0] == 2


def test_what_a_record_holds_cannot_steer_the_terminal(capsys, environment):
    keep(
        environment,
        record(1, "evil\x1b[31m", worker="[bold]w", warnings=("\x1b]0;title\x07",), source="a\x1b[2J"),
        level="full",
    )
    for command in (("list",), ("show", "0001")):
        status, out, _ = run(capsys, *command)
        assert status == 0
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "evil\\x1b[31m" in out
        assert "[bold]w" in out


def test_list_fits_a_terminal_of_80_columns(capsys, environment, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    keep(environment, record(3, "saxpy", worker="123456/MainThread", why_missed=("code", "types")))
    _, out, _ = run(capsys, "list")
    (line,) = (line for line in out.splitlines() if "saxpy" in line)
    for shown in ("00030003", "compiled", "4.50", "123456"):
        assert shown in line
    assert max(map(len, out.splitlines())) <= 80


def test_name_of_a_usual_length_stays_whole_in_80_columns(capsys, environment, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    keep(
        environment, record(3, "blur_columns", backend="reference", why_missed=("target (kept for cpu x86_64-znver3)",))
    )
    _, out, _ = run(capsys, "list")
    assert any("blur_columns" in line and "00030003" in line for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("columns", [None, "", "wide"])
def test_row_is_one_line_where_there_is_no_terminal(columns, capsys, environment, monkeypatch):
    if columns is None:
        monkeypatch.delenv("COLUMNS")
    else:
        monkeypatch.setenv("COLUMNS", columns)
    name, why = "a_kernel_of_" + "long_" * 30 + "name", "target (kept for cpu x86_64-znver3)"
    keep(environment, record(3, name, worker="123456/MainThread", why_missed=(why,)))
    _, out, _ = run(capsys, "list")
    (line,) = (line for line in out.splitlines() if "00030003" in line)
    assert name in line
    assert why in line


def test_backend_and_target_are_listed_and_shown(capsys, environment):
    keep(environment, record(3, "saxpy", backend="cuda", target="sm_90"), record(4, "older"))
    _, out, _ = run(capsys, "list")
    assert " cuda " in next(line for line in out.splitlines() if "saxpy" in line)
    _, out, _ = run(capsys, "list", "--json")
    assert [(found["backend"], found["target"]) for found in json.loads(out)] == [("cuda", "sm_90"), ("", "")]
    _, out, _ = run(capsys, "show", "saxpy")
    assert "target        cuda sm_90" in out
    assert "\ntarget" not in run(capsys, "show", "older")[1]


def test_kernel_for_another_backend_says_so(capsys):
    import numpy as np

    @qn.kernel
    def halved(x):
        i = qn.global_id()
        x[i] = x[i] * 0.5

    device = qn.device("cpu")
    halved.over(4, device=device)(np.ones(4, np.float32))
    other = "opencl"
    if not any(info.backend == other for info in qn.devices()):
        pytest.skip("needs a device of OpenCL")
    there = qn.device(other)
    on_there = there.array(np.ones(4, np.float32))
    with qn.no_compiling(), pytest.raises(qn.errors.LaunchError, match=r"a different: target \(kept for cpu "):
        halved.over(4)(on_there)
    halved.over(4)(on_there)
    _, out, _ = run(capsys, "list", "--json")
    first, second = json.loads(out)
    assert (first["backend"], second["backend"]) == ("cpu", "opencl")
    assert second["why_missed"] == [f"target (kept for cpu {device.target_info.name})"]


def test_what_was_loaded_was_not_missed(capsys, environment):
    keep(environment, record(3, "saxpy", outcome=CompilationOutcome.LOADED, why_missed=("code",)))
    assert "code" not in run(capsys, "list")[1]
    assert "missed" not in run(capsys, "show", "saxpy")[1]


def test_torn_last_line_is_passed_over(capsys, environment):
    keep(environment, record(1))
    (path,) = Path(environment.records_path).iterdir()
    with path.open("a") as file:
        file.write('{"record": "compilation", "kern')
    assert len(json.loads(run(capsys, "list", "--json")[1])) == 1
