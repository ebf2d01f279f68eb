"""The half that stays with the device: which variant a launch needs, and cubins made launchable."""

from __future__ import annotations

import re
from typing import Any, Final

from quernel import settings
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.compiler.persistent import PersistentTarget
from quernel.digests import sha256
from quernel.errors import CompilationError, DeviceError
from quernel.values import evolve
from quernel_cuda import _driver
from quernel_cuda._driver import Context, LostContextError, call
from quernel_cuda.compiler import DYNAMIC_SHARED, CudaCompiler
from quernel_cuda.types import PTX, CudaArtifact, CudaVariant, Loaded

__all__ = ["CudaTarget", "ptx_for_driver"]

_PTX_VERSION: Final = re.compile(rb"^\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_PTX_OF_12: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 8: 7, 9: 8}
"""The minor version of PTX 8 that each CUDA 12 reads; from CUDA 13 on, PTX 9 counts along."""

_REFUSED: Final = frozenset(
    {
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "CUDA_ERROR_INVALID_SOURCE",
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_FILE_NOT_FOUND",
    }
)
"""What the driver says of code that it cannot use, where other code may do."""


class CudaTarget(PersistentTarget[CudaVariant, CudaArtifact, Loaded]):
    """Keeps cubins in the store and loads them into the device's primary context.

    They are loaded as modules: a library with its kernel's function takes a fifth longer, and one whose kernel is
    launched by its own handle loads its code at the first launch, which makes 14 % more together.
    """

    artifact_type = CudaArtifact

    def __init__(self, compiler: CudaCompiler, context: Context) -> None:
        super().__init__(compiler)
        self._context = context
        self._modules: dict[bytes, Any] = {}
        """What was loaded, by the payload's digest, under the loader's lock. Kernels finalized together share one."""

    def variant(self, launch_facts: LaunchFacts) -> CudaVariant:
        """What holds for all arrays of the launch; several points per thread, unless the user wants one."""
        return evolve(CudaVariant.of(launch_facts), several_points=settings.several_points())

    def load(self, id: ArtifactId[CudaVariant], artifact: CudaArtifact) -> Loaded:  # noqa: A002
        """The kernel in the device's context. Only the context's own handle is launched, never on another device.

        Raises:
            CompilationError: the driver refuses the code; the loader then has it compiled again.
            DeviceError: the driver fails otherwise.
        """
        header, name = artifact.header, id.kernel.name
        payload = artifact.payload
        if PTX in header.features:
            payload = ptx_for_driver(payload, _driver.driver_version())
        digest = sha256(payload).digest()
        shared = self._modules.get(digest)
        with self._context:
            module = shared if shared is not None else self._module(payload, name)
            try:
                function = call("cuModuleGetFunction", module, header.entry.encode(), doing=f"loading {name}")
                self._allow_shared(function, header)
            except LostContextError:  # The code is not to blame.
                raise
            except DeviceError as error:
                if shared is None:
                    _driver.driver().cuModuleUnload(module)
                raise CompilationError(error.what, fix=error.fix) from error
            self._modules[digest] = module
        return Loaded(module, function, name)

    def unload(self) -> None:
        """Takes all kernels out of the context, which other libraries may hold on to. Nothing runs on the device."""
        modules, self._modules = self._modules, {}
        for module in modules.values():
            call("cuModuleUnload", module)

    def _module(self, payload: bytes, name: str) -> object:
        api = _driver.driver()
        status, *results = api.cuModuleLoadData(payload)
        if int(status):
            error = _driver.failure("cuModuleLoadData", status, f"loading {name}")
            if _driver.status_name(status) in _REFUSED:
                raise CompilationError(error.what, fix=error.fix)
            raise error
        loaded: object = results[0]
        return loaded

    def _allow_shared(self, function: object, header: ArtifactHeader) -> None:
        """More than 48 KiB of shared memory is for those who ask."""
        if DYNAMIC_SHARED in header.features:
            attribute = _driver.driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = f"asking for {header.shared_bytes} bytes of shared memory for {header.entry}"
            call("cuFuncSetAttribute", function, attribute, header.shared_bytes, doing=doing)


def ptx_for_driver(ptx: bytes, driver: tuple[int, int]) -> bytes:
    """PTX under the newest version that the driver reads, where the compiler wrote a newer one.

    The texts of this backend use no instruction that is newer than the oldest of these versions; PTX that does is
    refused by the driver by name.
    """
    found = _PTX_VERSION.search(ptx)
    major, minor = driver
    readable = (8, _PTX_OF_12.get(minor, 0)) if major == 12 else (major - 4, minor)
    if found is None or (int(found[1]), int(found[2])) <= readable:
        return ptx
    return _PTX_VERSION.sub(b".version %d.%d" % readable, ptx, count=1)
