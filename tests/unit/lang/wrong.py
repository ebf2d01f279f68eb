"""Wrong kernels: the carets in their text mark the place that is refused."""

from __future__ import annotations

import attrs
from tests.unit.lang.kernels import refusal

from quernel.dtypes import ParameterType
from quernel.errors import KernelSyntaxError
from quernel.geometry import LaunchForm


@attrs.frozen
class Wrong:
    """A kernel that is refused: where its line of carets points, with a message and a fix that hold these words."""

    name: str
    text: str
    what: str
    fix: str
    error: type[Exception] = KernelSyntaxError
    parameters: dict[str, ParameterType] = attrs.field(factory=dict)
    form: LaunchForm = LaunchForm.OVER
    ndim: int = 1


def marked(text: str) -> tuple[str, int, int, int]:
    """The text with its line of carets left as a comment; the line, first and last column that they mark."""
    lines = text.strip("\n").split("\n")
    number = next(index for index, line in enumerate(lines) if set(line.strip()) == {"#", "^", " "} or "# ^" in line)
    carets = lines[number]
    start = carets.index("^")
    lines[number] = "#"
    return "\n".join(lines) + "\n", number, start, carets.rindex("^") + 1


def check(wrong: Wrong) -> None:
    """Expands a wrong kernel, and holds message, fix, file, line and caret against what it says."""
    text, line, start, end = marked(wrong.text)

    error = refusal(text, form=wrong.form, ndim=wrong.ndim, **wrong.parameters)

    assert type(error) is wrong.error
    assert error.where is not None
    assert wrong.what in error.what
    assert error.fix is not None
    assert wrong.fix in error.fix
    assert (error.where.line, error.where.column) == (line, start)
    assert error.where.file.startswith("<kernel ")
    shown = str(error).splitlines()
    assert shown[0] == f"{error.where.file}:{line}:{start + 1}: {error.what}"
    assert shown[1].strip() == text.splitlines()[line - 1].strip()
    assert shown[2].strip() == "^" * (end - start)
