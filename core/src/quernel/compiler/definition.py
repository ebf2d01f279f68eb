"""A kernel as a compiler sees it: its id, and its IR on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quernel.dtypes import ParameterType
from quernel.forks import renewed
from quernel.geometry import LaunchForm
from quernel.options import DEFAULT_OPTIONS, KernelOptions
from quernel.values import frozen

if TYPE_CHECKING:
    from quernel.compiler.halves import Signature
    from quernel.identity import KernelId
    from quernel.ir.nodes import Module

__all__ = ["ForeignSource", "KernelDefinition", "Specialization"]


@frozen
class Specialization:
    """Everything fixed before compiling.

    Attributes:
        parameters: name and type of each parameter that is an argument of the compiled kernel, in order.
        constants: name and value of each parameter that is fixed at compile time.
        form: over an extent, or an explicit grid.
        block: threads of a block along each axis; its length is the rank of the launch.
        options: the settings that change the code.
    """

    parameters: tuple[tuple[str, ParameterType], ...]
    constants: tuple[tuple[str, Any], ...]
    form: LaunchForm
    block: tuple[int, ...]
    options: KernelOptions = DEFAULT_OPTIONS

    @property
    def signature(self) -> Signature:
        """The parameters' types."""
        from quernel.compiler.halves import Signature

        return Signature(self.parameters)


@frozen
class ForeignSource:
    """A ready-made source in a backend's own language, launched like a kernel.

    Attributes:
        language: for example `llvm-ir`, `cuda-c++`, `opencl-c`.
        text: the source.
        entry: the function to call.
        writes: names of the array parameters that it writes.
    """

    language: str
    text: str
    entry: str
    writes: tuple[str, ...]


class KernelDefinition:
    """A specialized kernel. Pickles as its IR, so a worker needs neither the user's module nor the frontend.

    Attributes:
        id: its identity.
        specialization: everything fixed before compiling.
        foreign: the ready-made source, for a kernel that has one instead of IR.
    """

    def __init__(
        self,
        id: KernelId,  # noqa: A002 — the design's name
        specialization: Specialization,
        *,
        expand: Callable[[], tuple[Module, bool]] | None = None,
        foreign: ForeignSource | None = None,
    ) -> None:
        """`expand` runs the frontend: the IR, and whether what is compiled from it may be kept in a store."""
        if (expand is None) == (foreign is None):
            raise TypeError("a kernel has either a function to expand or a ready-made source")
        self.id = id
        self.specialization = specialization
        self.foreign = foreign
        self._expand = expand
        self._expanded: tuple[Module, bool] | None = None
        self._lock = threading.Lock()
        renewed(self)

    @property
    def name(self) -> str:
        """The user's name of the kernel."""
        return self.id.name

    def expand(self) -> Module:
        """The kernel's IR, made once. Any thread.

        Raises:
            KernelSyntaxError, KernelTypeError: the language does not have what the kernel says.
            TypeError: the kernel is a ready-made source, which has no IR.
        """
        return self._expansion()[0]

    @property
    def is_storable(self) -> bool:
        """Whether what is compiled from it may be kept; expands the kernel. Ready-made sources always are."""
        return self.foreign is not None or self._expansion()[1]

    def _expansion(self) -> tuple[Module, bool]:
        if self._expanded is None:
            with self._lock:
                if self._expanded is None:
                    if self._expand is None:
                        raise TypeError(f"{self.name} is a ready-made source; it has no IR")
                    self._expanded = self._expand()
        return self._expanded

    def __getstate__(self) -> dict[str, Any]:
        text = None
        storable = True
        if self.foreign is None:
            from quernel.ir.printer import print_module

            module, storable = self._expansion()
            text = print_module(module)
        return {
            "id": self.id,
            "specialization": self.specialization,
            "foreign": self.foreign,
            "ir": text,
            "storable": storable,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.id = state["id"]
        self.specialization = state["specialization"]
        self.foreign = state["foreign"]
        self._expand = None
        self._expanded = None
        self._lock = threading.Lock()
        renewed(self)
        if state["ir"] is not None:
            from quernel.ir.parser import parse_module

            self._expanded = (parse_module(state["ir"]), state["storable"])

    def renew_after_fork(self) -> None:
        """In a forked child."""
        self._lock = threading.Lock()  # a thread of the parent may be expanding the kernel
