"""Writes the digest of the sources that change what a kernel becomes into the wheel, as the module `_build_id`.

It stands alone, as a wheel may be built from a source distribution where nothing else of the project is at hand. The
table of the hook in `pyproject.toml` names the `package` and, where not every file counts, its `sources`.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildIdHook(BuildHookInterface[Any]):
    """The build hook that hatchling calls round the building of a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the module to the wheel; an editable install reads the sources themselves."""
        if version == "editable":
            return
        package: str = self.config["package"]
        digest = sources_digest(Path(self.root, "src", package), tuple(self.config.get("sources", ())))
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as module:
            module.write(f'"""The sources of this build."""\n\nDIGEST = "{digest}"\n')
        self._module = Path(module.name)
        build_data["force_include"][module.name] = f"{package}/_build_id.py"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the module from the folder for temporary files."""
        if version != "editable":
            self._module.unlink()


def sources_digest(folder: Path, only: tuple[str, ...]) -> str:
    """The digest of paths and contents, as `quernel.identity.build` computes it for an editable install."""
    digest = hashlib.sha256(b"quernel sources 1\0")
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    for name in sorted(paths):
        counts = not only or name.split("/")[0].removesuffix(".py") in only
        if counts and paths[name].name != "_build_id.py":
            content = paths[name].read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
