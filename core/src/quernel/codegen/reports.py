"""Violations and prints: calls of small functions that write records into the launch's diagnostics buffer."""

from __future__ import annotations

from quernel import diagnostics
from quernel.codegen.dialect import Dialect
from quernel.codegen.helpers import Helpers
from quernel.codegen.text import Code, call, primary, unary
from quernel.dtypes import DType, f64, i64, u32, u64
from quernel.geometry import MAX_NDIM
from quernel.ir.nodes import Assert, AtomicOp, Call, Module, Print, RootKind
from quernel.ir.walk import walk_statements

__all__ = ["Reports", "reporting_functions"]


def reporting_functions(module: Module) -> frozenset[str]:
    """The device functions that report something, by themselves or in what they call."""
    calls: dict[str, set[str]] = {}
    reporting: set[str] = set()
    for function in module.functions:
        calls[function.name] = set()
        for stmt in walk_statements(function.body):
            if isinstance(stmt, Assert | Print):
                reporting.add(function.name)
            elif isinstance(stmt, Call):
                calls[function.name].add(stmt.function)
    size = -1
    while len(reporting) != size:
        size = len(reporting)
        reporting |= {name for name, called in calls.items() if called & reporting}
    return frozenset(reporting)


class Reports:
    """Writes the calls, and defines the functions that they call."""

    def __init__(self, dialect: Dialect, helpers: Helpers) -> None:
        self._dialect = dialect
        self._helpers = helpers
        self._cells = f"{dialect.space(RootKind.PARAM)}{dialect.types[u64]} *"

    def cell(self, dtype: DType, value: Code) -> Code:
        """A scalar as a record keeps it: integers extended by their sign, floats converted to f64."""
        if dtype is f64:
            return call(self._dialect.bitcasts[f64, u64], value)
        if dtype.is_float:
            return call(f"{self._helpers.double_bits()}({{0}})", value)
        if dtype.is_signed:
            value = unary(f"({self._dialect.types[i64]})", value)
        return unary(f"({self._dialect.types[u64]})", value)

    def violation(self, buffer: str, site: int, global_id: tuple[Code, ...], cells: tuple[Code, ...]) -> str:
        """Claims the launch's violation record, and fills it if no thread did before."""
        count = len(cells)
        name = self._helpers.define(f"violation{count}", lambda name: self._violation(name, count))
        return self._call(name, buffer, site, global_id, cells)

    def print(self, buffer: str, site: int, global_id: tuple[Code, ...], cells: tuple[Code, ...]) -> str:
        """Appends a record of the printed values, or counts it lost."""
        count = len(cells)
        name = self._helpers.define(f"print{count}", lambda name: self._print(name, count))
        return self._call(name, buffer, diagnostics.print_head(site, count), global_id, cells)

    def _call(self, name: str, buffer: str, first: int, global_id: tuple[Code, ...], cells: tuple[Code, ...]) -> str:
        head = primary(f"{first}{self._dialect.suffixes[u64]}")
        missing = (primary("0"),) * (MAX_NDIM - len(global_id))
        operands = (primary(buffer), head, *missing, *global_id, *cells)
        return call(f"{name}({', '.join(f'{{{n}}}' for n in range(len(operands)))});", *operands).text

    def _head(self, name: str, count: int) -> str:
        signed, wide = self._dialect.types[i64], self._dialect.types[u64]
        ids = [f"{signed} id{axis}" for axis in range(MAX_NDIM)]
        values = [f"{wide} x{number}" for number in range(count)]
        listed = ", ".join([f"{self._cells}cells", f"{wide} first", *ids, *values])
        return f"{self._dialect.function} void {name}({listed})\n"

    def _word(self, position: int) -> str:
        """The address of a cell's low half, which atomics change."""
        return f"(volatile {self._dialect.space(RootKind.PARAM)}{self._dialect.types[u32]} *)(cells + {position})"

    def _add(self, position: int, amount: str) -> str:
        place, space = f"({self._word(position)})", self._dialect.space(RootKind.PARAM)
        return self._dialect.atomics[AtomicOp.ADD, u32].format(amount, place=place, space=space)

    def _violation(self, name: str, count: int) -> str:
        space = self._dialect.space(RootKind.PARAM)
        zero, one = (f"{value}{self._dialect.suffixes[u32]}" for value in (0, 1))
        place = f"({self._word(diagnostics.CLAIM)})"
        claimed = self._dialect.compare_exchange[32].format(zero, one, place=place, space=space)
        ids = diagnostics.GLOBAL_IDS
        lines = [f"cells[{diagnostics.SITE}] = first;"]
        lines += [f"cells[{ids + axis}] = ({self._dialect.types[u64]})id{axis};" for axis in range(MAX_NDIM)]
        lines.append(f"cells[{diagnostics.NUM_VALUES}] = {count};")
        lines += [f"cells[{diagnostics.VALUES + number}] = x{number};" for number in range(count)]
        body = "".join(f"        {line}\n" for line in lines)
        return f"{self._head(name, count)}{{\n    if ({claimed} == {zero}) {{\n{body}    }}\n}}\n"

    def _print(self, name: str, count: int) -> str:
        narrow, wide = self._dialect.types[u32], self._dialect.types[u64]
        size = diagnostics.RECORD_CELLS + count
        amount = f"{size}{self._dialect.suffixes[u32]}"
        lines = ["record[0] = first;"]
        lines += [f"record[{1 + axis}] = ({wide})id{axis};" for axis in range(MAX_NDIM)]
        lines += [f"record[{1 + MAX_NDIM + number}] = x{number};" for number in range(count)]
        body = "".join(f"            {line}\n" for line in lines)
        # Where the buffer is full already nothing is added, so that the cursor never wraps.
        return f"""{self._head(name, count)}{{
    const {wide} capacity = cells[{diagnostics.CAPACITY}];
    if (({wide})*({self._word(diagnostics.PRINT_CURSOR)}) <= capacity) {{
        const {narrow} taken = {self._add(diagnostics.PRINT_CURSOR, amount)};
        if (({wide})taken + {size} <= capacity) {{
            {self._cells}record = cells + {diagnostics.PRINT_RECORDS} + taken;
{body}            return;
        }}
    }}
    {self._add(diagnostics.LOST, f"1{self._dialect.suffixes[u32]}")};
}}
"""
