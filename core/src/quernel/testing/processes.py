"""Programs of the kit that run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_program", "said_by"]


def run_program(
    folder: Path, name: str, text: str, *arguments: str, seed: str = "0", store: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a module's text as a program, with the environment `store` or the kit's own, and waits for its end."""
    (folder / name).write_text(text, encoding="utf-8")
    variables = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    if store is not None:
        variables["QUERNEL_ENVIRONMENT"] = str(store)
    path = os.pathsep.join([str(folder), *(place for place in sys.path if place)])
    return subprocess.run(
        [sys.executable, name, *arguments],
        cwd=folder,
        env={**variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def said_by(
    folder: Path, name: str, text: str, *arguments: str, seed: str = "0", store: Path | None = None
) -> dict[str, Any]:
    """What such a program, which must end well, prints last as one line of JSON."""
    done = run_program(folder, name, text, *arguments, seed=seed, store=store)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
