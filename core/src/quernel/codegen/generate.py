"""A whole text: what it needs, what it brings along, its device functions, and the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from quernel.codegen.dialect import Dialect
from quernel.codegen.entry import EntryParameters, EntrySlot
from quernel.codegen.expressions import Expressions
from quernel.codegen.functions import FunctionTable, Instance
from quernel.codegen.helpers import Helpers
from quernel.codegen.indices import EXTENT, Indices
from quernel.codegen.names import ENTRY_MACRO, Names
from quernel.codegen.operators import Operators
from quernel.codegen.own_values import OwnValues
from quernel.codegen.pointers import Pointers
from quernel.codegen.points import SeveralPoints
from quernel.codegen.rows import BlockRow
from quernel.codegen.scope import Scope
from quernel.codegen.statements import BodyWriter, CalleeTable
from quernel.codegen.text import Binding, Code, Lines, infix
from quernel.codegen.types import Types
from quernel.dtypes import DType, i32, i64
from quernel.geometry import LaunchForm
from quernel.ir.analysis import parameter_uses
from quernel.ir.nodes import Function, Kernel, Module, Return
from quernel.ir.structs import struct_types
from quernel.locations import NOWHERE, Location, known_location

__all__ = ["GeneratedText", "generate"]

_LONGEST_LINE = 90


@attrs.frozen
class GeneratedText:
    """A module in a C-family language.

    Attributes:
        text: what a toolchain compiles, once `ENTRY_MACRO` is defined.
        lines: for each line of the text, the place in the user's source that it stands for, or `NOWHERE`.
    """

    text: str
    lines: tuple[Location, ...]

    def location(self, line: int) -> Location | None:
        """Where the text's line, counted from 1, comes from."""
        found = self.lines[line - 1] if 0 < line <= len(self.lines) else NOWHERE
        return known_location(found)


def generate(
    module: Module,
    dialect: Dialect,
    slots: Sequence[EntrySlot],
    *,
    pointers: Pointers = Pointers.ADDRESS,
    contiguous: bool = False,
    index32: bool = False,
    several: SeveralPoints | None = None,
) -> GeneratedText:
    """The text of a validated module whose entry point receives `slots`, in their order.

    Calls that cannot stay calls are inlined before. `contiguous`: the last stride of every array is known to be 1, and
    there is no slot for it. `index32`: the offsets of all elements that are accessed fit 32 bits. Under `over` the
    slots hold the extent of each axis, and threads beyond it do nothing. `several`: what a thread does instead for
    several points, in a dialect whose blocks are one row.
    """
    offset = i32 if index32 else i64
    return _Generator(module, dialect, pointers, contiguous, offset, several).text(slots)


class _Generator:
    def __init__(
        self,
        module: Module,
        dialect: Dialect,
        pointers: Pointers,
        contiguous: bool,
        offset: DType,
        several: SeveralPoints | None,
    ) -> None:
        self._module = module
        self._dialect = dialect
        self._pointers = pointers
        self._contiguous = contiguous
        self._several = several
        self._helpers = Helpers(dialect)
        self._names = Names(dialect.reserved)
        self._types = Types(dialect, self._helpers, self._names, struct_types(module), offset)
        self._operators = Operators(dialect, self._helpers, fast_math=module.kernel.options.fast_math)
        self._indices = Indices(dialect, self._helpers, module.kernel)
        self._functions = FunctionTable(module, dialect, self._types, self._names, self._function)
        self._written: list[Lines] = []
        self._loop = ""

    def text(self, slots: Sequence[EntrySlot]) -> GeneratedText:
        kernel = self._kernel(slots)
        whole = Lines()
        for line in self._dialect.preamble:
            whole.add(line)
        for feature, text in self._dialect.features.items():
            if feature in self._helpers.features:
                for line in text.splitlines():
                    whole.add(line)
        whole.add("")
        for text in (
            *self._helpers.texts,
            *self._types.definitions,
            *self._functions.definitions,
            *self._types.functions.values(),
        ):
            for line in text.splitlines():
                whole.add(line)
            whole.add("")
        for function in self._written:
            whole.extend(function)
            whole.add("")
        whole.extend(kernel)
        for line in self._loop.splitlines():
            whole.add(line)
        lines = whole.lines
        if self._module.kernel.options.debug:
            lines = list(_with_line_directives(lines))
        return GeneratedText("".join(f"{text}\n" for text, _ in lines), tuple(loc for _, loc in lines))

    # --- functions ----------------------------------------------------------------------------------------------------

    def _writer(self, owner: Kernel | Function, scope: Scope, lines: Lines) -> BodyWriter:
        own = OwnValues(self._module, owner) if self._dialect.own else None
        expressions = Expressions(self._dialect, self._types, self._operators, self._indices, scope, lines, own)
        return BodyWriter(
            owner,
            scope,
            lines,
            dialect=self._dialect,
            types=self._types,
            helpers=self._helpers,
            operators=self._operators,
            expressions=expressions,
            indices=self._indices,
            own=own,
            callees=CalleeTable(self._functions.function, self._functions.results_type, self._functions.invocation),
        )

    def _function(self, instance: Instance) -> None:
        """Writes an instance; those that it calls are written while it is, and so stand before it."""
        scope, lines = Scope(Names(self._dialect.reserved, self._names)), Lines()
        lines.add(self._functions.signature(instance, scope), instance.function.loc)
        lines.open("")
        writer = self._writer(instance.function, scope, lines)
        writer.allocate()
        writer.write()
        lines.close()
        self._written.append(lines)

    # --- the kernel ---------------------------------------------------------------------------------------------------

    def _kernel(self, slots: Sequence[EntrySlot]) -> Lines:
        kernel = self._module.kernel
        scope, lines = Scope(Names(self._dialect.reserved, self._names)), Lines()
        entry = EntryParameters(self._types, kernel.params, parameter_uses(self._module), self._pointers, scope)
        entry.declare(slots)
        entry.define_arrays(contiguous=self._contiguous)
        x, y, z = (*reversed(kernel.block), 1, 1)[:3]
        parts = {"entry": ENTRY_MACRO, "parameters": _parameters(entry.listed), "x": x, "y": y, "z": z}
        head = self._dialect.kernel.format(**parts)
        read = (self._dialect.argument.format(type=c_type, number=n) for n, c_type in enumerate(entry.types))
        self._loop = self._dialect.loop.format(**parts, arguments=_parameters(list(read)))
        for line in head.splitlines():
            lines.add(line, kernel.loc)
        lines.open("")
        for line in entry.prologue:
            lines.add(line, kernel.loc)
        writer = self._writer(kernel, scope, lines)
        writer.allocate()
        if kernel.form is LaunchForm.OVER and kernel.body:
            row = BlockRow(kernel, self._dialect, self._types, scope, lines, self._several)
            if self._indices.is_linear:
                row.place_thread()
                if self._several is not None:
                    self._write_several(self._several, row, scope, lines)
                    lines.close()
                    return lines
            else:
                self._guard(kernel, scope, lines)
        writer.write()
        lines.close()
        return lines

    def _write_several(self, several: SeveralPoints, row: BlockRow, scope: Scope, lines: Lines) -> None:
        """All points of a thread: together, but for those with fewer points than others, or one by one."""
        kernel = self._module.kernel
        if several.is_loop:
            row.open_each()
            self._writer(several.kernel, row.point_scope(scope, self._dialect), lines).write()
            lines.close()
            return
        row.open_whole()
        self._writer(several.kernel, row.inner_scope(scope, self._dialect), lines).write()
        row.open_rest()
        body = tuple(stmt for stmt in kernel.body if not isinstance(stmt, Return))
        self._writer(attrs.evolve(kernel, body=body), row.point_scope(scope, self._dialect), lines).write()
        row.close_rest()

    def _guard(self, kernel: Kernel, scope: Scope, lines: Lines) -> None:
        """Threads of the last blocks that stand for no point end at once."""
        beyond: Code | None = None
        for axis in range(kernel.ndim):
            test = infix(Binding.RELATION, ">=", self._indices.position(axis), scope.indices[EXTENT, axis])
            beyond = test if beyond is None else infix(Binding.OR, "||", beyond, test)
        lines.open(f"if ({beyond})", kernel.loc)
        lines.add("return;", kernel.loc)
        lines.close()


def _parameters(listed: list[str]) -> str:
    """Parameters on one line where they fit, else each on its own."""
    line = ", ".join(listed)
    return line if len(line) <= _LONGEST_LINE else "\n    " + ",\n    ".join(listed) + "\n"


def _with_line_directives(lines: list[tuple[str, Location]]) -> list[tuple[str, Location]]:
    marked: list[tuple[str, Location]] = []
    last: tuple[str, int] | None = None
    for text, loc in lines:
        if loc != NOWHERE and (loc.file, loc.line) != last:
            shown = loc.file.replace("\\", "/").replace('"', "").encode("ascii", "replace").decode()
            marked.append((f'#line {loc.line} "{shown}"', loc))
            last = (loc.file, loc.line)
        marked.append((text, loc))
    return marked
