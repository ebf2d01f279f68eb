"""The mathematical functions of f32 on a device, over all operands or many: how far each is from the exact result.

`python -m quernel.testing.mathematics --device cpu` holds every function against its bound and prints the worst
operand. The exact results are NumPy's or Python's in f64, whose errors are some 2**-52 of the result, a thousand
millionth of an f32's last place or less; where mpmath is installed, a sample of them is held against it, and so is
each worst case.
"""

from quernel.testing.mathematics.checking import Worst, errors_in_ulps, worst_of
from quernel.testing.mathematics.references import exact_results

__all__ = ["Worst", "errors_in_ulps", "exact_results", "worst_of"]
