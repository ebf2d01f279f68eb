"""The check of mathematical functions finds what is wrong, wherever it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quernel.errors import PluginError
from quernel.ir.nodes import MathFunction
from quernel.testing.bounds import BOUNDS
from quernel.testing.mathematics import errors_in_ulps, exact_results, running
from quernel.testing.mathematics.checking import NUM_PARTS, PART_BITS, operands_of, worst_of
from quernel.testing.mathematics.references import MEASURED, OF_TWO, precise_result


def error(result: float, exact: float) -> float:
    return float(errors_in_ulps(np.array([result], np.float32), np.array([exact]))[0])


def test_an_error_is_in_units_of_the_exact_result_s_last_place() -> None:
    assert error(1.0, 1.0 + 2.0**-25) == 0.25
    assert error(1.0, 1.0 - 2.0**-25) == 0.5
    assert error(0.0, 2.0**-149) == 1
    assert error(3e-45, 0.0) == 2


def test_overflow_is_measured_as_if_there_were_larger_numbers() -> None:
    largest = float(np.finfo(np.float32).max)
    assert error(math.inf, largest + 2.0**103) == 0.5
    assert error(largest, 1e300) == 1
    assert error(math.inf, 1e300) == 0
    assert error(-math.inf, largest) > 1e6


@pytest.mark.parametrize(
    ("result", "exact"),
    [(math.nan, 1.0), (1.0, math.nan), (math.inf, math.nan), (3e38, math.inf), (math.inf, -math.inf), (-0.0, 0.0)],
)
def test_a_result_of_another_kind_is_infinitely_far(result: float, exact: float) -> None:
    assert error(result, exact) == math.inf


def test_parts_hold_every_operand_once() -> None:
    parts = range(300, 302)
    (all_of_them,) = operands_of(MathFunction.SIN, parts, None)
    bits = all_of_them.view(np.uint32)
    assert np.array_equal(bits, np.arange(300 << PART_BITS, 302 << PART_BITS, dtype=np.uint32))
    (some,) = operands_of(MathFunction.SIN, range(NUM_PARTS), 2)
    assert len(np.unique(some.view(np.uint32) >> np.uint32(PART_BITS))) == NUM_PARTS
    assert {0.0, math.inf} <= set(some[~np.isnan(some)].tolist())
    assert np.isnan(some).any()


@pytest.mark.parametrize("function", MEASURED, ids=lambda function: function.value)
def test_the_exact_results_are_mpmath_s(function: MathFunction) -> None:
    operands = tuple(x[::37] for x in operands_of(function, range(0, NUM_PARTS, 11), 1))
    if function in OF_TWO:
        operands = tuple(np.clip(x, -1e6, 1e6) for x in operands)
    compared = 0
    for values, found in zip(zip(*operands, strict=True), exact_results(function, *operands), strict=True):
        precise = precise_result(function, tuple(map(float, values))) if math.isfinite(found) else None
        if precise is None or not abs(precise) < 1e300:
            continue
        compared += 1
        least = 1.0 if function is MathFunction.LGAMMA else 2.0**-126
        assert abs(precise - found) <= 2.0**-45 * max(abs(found), least), values
    assert compared > 5


def test_every_function_with_a_bound_is_measured() -> None:
    assert set(BOUNDS) <= set(MEASURED)


def test_the_worst_operand_is_found() -> None:
    x = np.linspace(1, 2, 1 << 16, dtype=np.float32)
    worst = worst_of(MathFunction.EXP, "reference", (x[:64],), math.inf)
    assert worst.ulps <= 0.5
    assert worst.operands[0] in x[:64]


def test_a_run_says_how_long_it_takes_and_what_is_worst(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("quernel_cpu")
    assert running.check([MathFunction.SIN, MathFunction.POW], "cpu", 4096, 1, math.inf) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("about ")
    assert [line.split()[0] for line in lines[1:3]] == ["sin", "pow"]
    assert lines[-1].endswith("all within their bounds")


def test_a_run_fails_beyond_a_bound(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("quernel_cpu")
    monkeypatch.setattr(running, "bound_of", lambda _: 0.4)
    assert running.check([MathFunction.EXP], "cpu", 4096, 1, math.inf) == 1
    assert "FAILS" in capsys.readouterr().out


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(PluginError, match="nowhere"):
        running.check([MathFunction.EXP], "nowhere", 4096, 1, math.inf)
