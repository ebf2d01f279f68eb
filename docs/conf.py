"""How the pages become a site: `python -m sphinx -W --keep-going docs build/site`. Warnings are errors.

Pages are Markdown; links between them, and to their headings, are those that also work where the files are read as they
are. What `quernel` and `quernel.compiler` hold is taken from the docstrings. Nothing is fetched from other hosts.
"""

from __future__ import annotations

import enum
import re
from functools import cache
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Any, get_args

project = "Quernel"
author = "The Quernel authors"
copyright = "The Quernel authors"  # noqa: A001 — the name that Sphinx reads
version = release = version_of("quernel")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**/tests", "**/src", "**/README.md"]
default_role = "code"  # Docstrings quote code in single backticks.
html_theme = "furo"
html_title = "Quernel"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_default_options = {"no-value": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

_MADE_BY_THE_CORE = {
    *("BackendInfo", "Device", "DeviceArray", "DeviceFunction", "DeviceInfo", "Event", "Graph", "Kernel", "Profile"),
    *("SpecializedKernel", "Stream", "Launcher", "BoundLaunch", "KernelLoader", "Kernels", "Pending"),
}
"""Classes that no user calls: how they are made is nobody's business."""
_REFUSED = re.compile(
    r", \*(\*unknown|more)(: Never|: Any)?|(?<= = )(<object object at \w+>|Location\(file='<nowhere>'[^)]*\))"
)
"""What stands in a signature only so that its refusal names the fix, and defaults that have no name."""
_PARAMETERS = re.compile(r"~(?:\w+\.)*(?=~?\w)")
"""What autodoc leaves before names where it cannot read a signature, as that of `submit(fn, *args: P.args)`."""
_COLON = "\ue000"
"""Stands for colons of attributes while napoleon, which takes what is before one for a type, looks at them."""


@cache
def _unions() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The closed unions of the IR as they come out spelled, and what they are called."""
    nodes = import_module("quernel.ir.nodes")
    spelled = {
        name: r" \| ".join(rf"(?:~?quernel\.ir\.nodes\.)?{part.__name__}" for part in get_args(getattr(nodes, name)))
        for name in ("Expr", "Stmt")
    }
    return tuple((re.compile(text), name) for name, text in spelled.items())


def _by_name(text: str) -> str:
    for union, name in _unions():
        text = union.sub(name, text)
    return text


def _shown_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: Any, returned: Any) -> Any:
    if what == "class" and name.rpartition(".")[2] in _MADE_BY_THE_CORE and not name.startswith("quernel.ir."):
        return "", ""
    shown = signature and _by_name(_REFUSED.sub(lambda found: "" if found[1] else "...", signature))
    return _PARAMETERS.sub("", shown) if shown and "[~P]" in shown else shown, returned and _by_name(returned)


def _shown_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Gives objects of the language what they say of themselves, in place of what their classes say of all."""
    dtypes, intrinsics = import_module("quernel.dtypes"), import_module("quernel.intrinsics")
    if isinstance(obj, intrinsics.Intrinsic | intrinsics.Namespace):
        lines[:] = [obj.__doc__ or ""]
        members = vars(obj) if isinstance(obj, intrinsics.Namespace) else {}
        members = {key: value for key, value in members.items() if isinstance(value, intrinsics.Intrinsic)}
        lines += ["", *(f"* `{obj.name}.{key}`: {value.__doc__}" for key, value in members.items())]
    elif isinstance(obj, dtypes.DType):
        kind = {"bool": "A truth value", "int": "A signed integer", "uint": "An unsigned integer", "float": "A float"}
        lines[:] = [f"{kind[obj.kind.value]} of {obj.bits} bits: an annotation, a dtype, and a cast."]
    elif name.startswith("quernel.Array"):
        rank = name.removeprefix("quernel.Array")
        lines[:] = [f"`qn.Array{rank}[T]` annotates an array of {f'rank {rank}' if rank else 'any rank'}."]
    elif name == "quernel.Const":
        lines[:] = ["`qn.Const[T]` annotates a parameter whose value is fixed when the kernel is compiled."]
    elif isinstance(obj, type) and issubclass(obj, enum.Enum):
        lines += ["", f"Members: {', '.join(f'`{member.name}`' for member in obj)}."]
    if lines and what in ("attribute", "property", "data"):
        lines[0] = lines[0].replace(":", _COLON)


def _colons_back(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [_by_name(line.replace(_COLON, ":")) for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _shown_signature)
    app.connect("autodoc-process-docstring", _shown_docstring, priority=400)
    app.connect("autodoc-process-docstring", _colons_back, priority=600)
