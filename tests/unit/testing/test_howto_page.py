"""The examples of the page about testing kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from quernel.testing.pages import blocks_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "test-your-kernels.md"


def test_the_example_passes_on_the_devices_that_the_page_names(tmp_path: Path) -> None:
    blocks = blocks_of(PAGE)
    (example,) = [block.text for block in blocks if block.language == "python"]
    command = next(block.text for block in blocks if block.text.startswith("python -m pytest")).split()
    (tmp_path / "test_blur.py").write_text(example)
    done = subprocess.run(
        [sys.executable, *command[1:], "-v", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout
    assert "test_blur_of_doubles[reference] PASSED" in done.stdout


def test_the_options_of_conform_that_the_page_shows_are_there() -> None:
    from quernel.cli.conform import conform

    said = CliRunner().invoke(conform, ["--help"]).output
    shown = [
        line for block in blocks_of(PAGE) for line in block.text.splitlines() if line.startswith("quernel conform")
    ]
    assert len(shown) == 4
    for option in ("--quick", "--device", "--json", "-k"):
        assert any(option in line for line in shown)
        assert option in said
