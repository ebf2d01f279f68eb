"""The language page is right: each of its examples runs on every backend present."""

from __future__ import annotations

import linecache
import math
import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel import intrinsics
from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import BOUNDS
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on, run_text
from quernel.testing.pages import Block, Example, blocks_of, examples_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "language.md"
EXAMPLES = [example for example in examples_of(PAGE) if example.code != "code"]
BLOCKS = [block for block in blocks_of(PAGE) if block.language == "python"]
WHOLE = [block for block in BLOCKS if "@qn.kernel" in block.text]
FRAGMENTS = [block for block in BLOCKS if "@qn.kernel" not in block.text]


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the page's first table."""
    rows = re.findall(r"^\| `(\w)` \| (\w+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    names = {"True": True, "False": False, "math": math}
    made = {}
    for name, dtype, elements in rows:
        values = [eval(element, names) for element in elements.split(", ")]
        made[name] = np.array(values, getattr(qn, dtype).numpy)
    return made


ARRAYS = arrays()


def test_the_page_has_arrays_of_every_type_and_many_examples() -> None:
    assert len(ARRAYS) == 12
    assert len(EXAMPLES) > 150
    assert len(FRAGMENTS) >= 5
    assert len(WHOLE) >= 8


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.line}: {example.code}")
def test_an_expression_has_the_value_that_the_page_says(quernel_device: Any, example: Example) -> None:
    wanted = eval(example.value, {"math": math})
    kind = np.uint64 if isinstance(wanted, int) and wanted > 2**63 - 1 else np.array(wanted).dtype
    kernel = kernel_of(
        f"@qn.kernel\ndef k({', '.join(ARRAYS)}, result):\n    i = qn.global_id()\n    result[i] = {example.code}\n"
    )
    result = np.zeros(1, kind)
    on(quernel_device, kernel).over(1)(**arrays(), result=result)
    actual = result.tolist()[0]
    if not example.is_exact:
        assert abs(actual - wanted) <= 20 * math.ulp(wanted)
    elif isinstance(wanted, float) and math.isnan(wanted):
        assert math.isnan(actual)
    else:
        assert (actual, math.copysign(1, actual)) == (wanted, math.copysign(1, wanted))


@pytest.mark.parametrize("block", FRAGMENTS, ids=lambda block: f"line {block.line}")
def test_a_fragment_stores_what_its_comments_say(quernel_device: Any, block: Block) -> None:
    body = "".join(f"    {line}\n" for line in block.text.splitlines())
    wanted = dict(re.findall(r"out\[(\d)\] = .*  # → (.*)", block.text))
    assert wanted
    out = np.full(8, -99.0)
    kernel = kernel_of(f"@qn.kernel\ndef k({', '.join(ARRAYS)}, out):\n    i = qn.global_id()\n{body}")
    on(quernel_device, kernel).over(1)(**arrays(), out=out)
    for index, value in wanted.items():
        assert out[int(index)] == eval(value)


@pytest.mark.parametrize("block", WHOLE, ids=lambda block: f"{block.heading}, line {block.line}")
def test_a_whole_example_runs(quernel_device: Any, block: Block) -> None:
    name = f"<{PAGE.name} line {block.line} on {quernel_device}>"
    linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
    assert "assert " in block.text
    names = {"qn": qn, "np": np, "attrs": attrs, "math": math, "__name__": "example"}
    run_text(block.text, name, quernel_device, names)


def test_the_page_states_the_bounds_that_are_tested() -> None:
    rows = re.findall(r"^\| `(.*?)`.* \| ([\d.]+)(?:, .*?)? \| `.*` ≈ ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    stated = {}
    for code, bound in rows:
        name = re.sub(r"^(math|qn)\.|\(.*", "", code)
        stated["pow" if name.startswith("x **") else name] = float(bound)
    assert stated == {function.value: bound for function, bound in BOUNDS.items()}


def test_the_page_names_every_builtin() -> None:
    text = PAGE.read_text(encoding="utf-8")
    groups = ("atomic", "block", "subgroup", "random")
    for name in intrinsics.__all__:
        if isinstance(getattr(intrinsics, name), intrinsics.Intrinsic):
            assert f"qn.{name}" in text, name
    for group in groups:
        for member, value in vars(getattr(intrinsics, group)).items():
            if isinstance(value, intrinsics.Intrinsic):
                assert re.search(rf"\b{member}\(", text.split("## Threads working together")[1]), (group, member)
    for function in MathFunction:
        assert re.search(rf"\b{function.value}\(", text), function
