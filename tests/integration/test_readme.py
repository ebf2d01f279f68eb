"""The README's examples, run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest

import quernel as qn

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]


def run(source: str, path: Path, names: dict[str, object]) -> None:
    path.write_text(source)
    exec(compile(source, str(path), "exec"), names)


def test_the_examples_run_and_compute_what_they_say(tmp_path):
    names: dict[str, object] = {"__name__": "readme"}
    run(PYTHON[0], tmp_path / "saxpy.py", names)
    x = np.arange(1_000_000, dtype=np.float32)
    np.testing.assert_array_equal(names["y"], 2 * x + 1)
    run(PYTHON[1], tmp_path / "device.py", names)
    np.testing.assert_array_equal(names["result"], 2 * x)


def test_the_wrong_kernel_is_refused_with_the_message_shown(tmp_path):
    names: dict[str, object] = {"qn": qn, "__name__": "readme"}
    run(PYTHON[2], tmp_path / "count.py", names)
    kernel = names["count_up"]
    with pytest.raises(qn.errors.KernelTypeError, match=r"count\.py") as refused:
        kernel.over(8, device="cpu")(np.zeros(8, np.int32), 0.5)
    (shown,) = [text for language, text in BLOCKS if language == "text"]
    assert str(refused.value).replace(f"{tmp_path}/", "") == shown.rstrip("\n")


def test_the_picture_is_there():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (Path(__file__).resolve().parents[2] / path).stat().st_size > 1000
