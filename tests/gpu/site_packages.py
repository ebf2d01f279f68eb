"""Makes this checkout importable and its plugins visible where nothing can be installed: prints what PYTHONPATH needs.

    export PYTHONPATH="$(python3 tests/gpu/site_packages.py FOLDER)"

FOLDER receives one metadata folder per distribution, as an installer would write it. Packages that the machine lacks
are taken from `.gpu-wheels`, a folder of unpacked wheels at the top of the checkout.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ("core", "backends/cuda")


def write_metadata(project: dict[str, object], folder: Path) -> None:
    name = str(project["name"])
    target = folder / f"{name.replace('-', '_')}-{project['version']}.dist-info"
    target.mkdir(parents=True, exist_ok=True)
    (target / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, entries in dict(project.get("entry-points", {})).items():  # type: ignore[call-overload]
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (target / "entry_points.txt").write_text("\n".join(lines))


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    places = [folder, ROOT]
    for path in PROJECTS:
        write_metadata(tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"], folder)
        places.append(ROOT / path / "src")
    places.append(ROOT / ".gpu-wheels")
    print(os.pathsep.join(map(str, places)))


if __name__ == "__main__":
    main()
