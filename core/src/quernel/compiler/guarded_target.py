"""A target behind its lock: one method at a time, in the right environment, store failures turned into misses."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.errors import StoreError
from quernel.forks import renewed

if TYPE_CHECKING:
    from quernel.compiler.halves import CompilationTarget
    from quernel.identity import IrKey
    from quernel.store import Environment

__all__ = ["GuardedTarget", "SharedLoad"]

VariantT = TypeVar("VariantT")
ArtifactT = TypeVar("ArtifactT")
LoadedT = TypeVar("LoadedT")
T = TypeVar("T")


class SharedLoad(Generic[LoadedT]):
    """What one artifact became on the device; every kernel with an equal artifact shares it."""

    __slots__ = ("__weakref__", "digest", "header", "loaded", "owner")

    def __init__(
        self, owner: GuardedTarget[Any, Any, LoadedT], digest: str, header: ArtifactHeader, loaded: LoadedT
    ) -> None:
        self.owner = owner
        self.digest = digest
        self.header = header
        self.loaded = loaded


class GuardedTarget(Generic[VariantT, ArtifactT, LoadedT]):
    """Calls the methods of a target, each under the lock and with the target in the environment of the call.

    A store that cannot be used is said once per environment and then counts as a miss, or as not kept. What a target
    is asked for besides loading (whether it persists, to keep, to drop, why it missed, what to lock) costs no kernel
    whatever it raises: that is logged.
    """

    def __init__(self, target: CompilationTarget[VariantT, ArtifactT, LoadedT], name: str = "") -> None:
        """`name` is the device's, for messages; by default what the compiler says that it compiles for."""
        self.target = target
        self._name = name
        self.lock = threading.Lock()
        self._environment: object = None
        self._reopen_s = math.inf
        self._rest: tuple[object, float] = (None, 0.0)
        self._by_digest: weakref.WeakValueDictionary[str, SharedLoad[LoadedT]] = weakref.WeakValueDictionary()
        renewed(self)

    @property
    def name(self) -> str:
        """The device's name."""
        info = self.target.compiler.target_info
        return self._name or f"{info.backend} {info.name}"

    def persists(self, environment: Environment | None) -> bool:
        """Whether what is stored in the environment outlives the process."""
        return environment is not None and self._or_less(environment, "persists", lambda target: target.persists, False)

    def stored(self, environment: Environment | None, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002
        """The kept artifact of that id."""
        return self._or_miss(environment, lambda target: target.stored(id), None)

    def stored_meanwhile(self, environment: Environment | None, id: ArtifactId[VariantT]) -> ArtifactT | None:  # noqa: A002
        """What another process has kept under that id since it was missed."""
        return self._or_miss(environment, lambda target: target.stored_meanwhile(id), None)

    def stored_for_ir(self, environment: Environment | None, key: IrKey) -> ArtifactT | None:
        """A kept artifact of equal IR."""
        return self._or_miss(environment, lambda target: target.stored_for_ir(key), None)

    def stored_for_source(self, environment: Environment | None, source: str) -> ArtifactT | None:
        """A kept artifact of an equal source."""
        return self._or_miss(environment, lambda target: target.stored_for_source(source), None)

    def why_missed(self, environment: Environment | None, id: ArtifactId[VariantT]) -> tuple[str, ...]:  # noqa: A002
        """What differs from the kept kernels of that name."""
        return self._or_less(environment, "why_missed", lambda target: target.why_missed(id), ())

    def lock_name(self, id: ArtifactId[VariantT]) -> str | None:  # noqa: A002
        """What processes that would compile the same lock, or `None`. Without the lock of the target: it is pure."""
        try:
            return self.target.lock_name(id)
        except Exception:
            self._say_broken("lock_name")
            return None

    def store(
        self,
        environment: Environment | None,
        id: ArtifactId[VariantT],  # noqa: A002
        artifact: ArtifactT,
        source: str | None,
        ir_key: IrKey | None,
    ) -> bool:
        """Keeps an artifact; whether it was kept."""
        return self._or_less(environment, "store", lambda target: target.store(id, artifact, source, ir_key), False)

    def drop(self, environment: Environment | None, id: ArtifactId[VariantT]) -> None:  # noqa: A002
        """Forgets a kept artifact."""
        self._or_less(environment, "drop", lambda target: target.drop(id), None)

    def load(
        self,
        environment: Environment | None,
        id: ArtifactId[VariantT],  # noqa: A002
        artifact: ArtifactT,
    ) -> SharedLoad[LoadedT]:
        """The artifact made launchable, or what an equal artifact became before.

        Raises:
            Exception: whatever the target refuses it with.
        """
        digest = self._call(environment, lambda target: target.digest(artifact))
        found = self._by_digest.get(digest)
        if found is not None:
            return found
        header = self._call(environment, lambda target: target.header(artifact))

        def load_unless_loaded(target: CompilationTarget[VariantT, ArtifactT, LoadedT]) -> SharedLoad[LoadedT]:
            other = self._by_digest.get(digest)
            if other is None:
                other = self._by_digest[digest] = SharedLoad(self, digest, header, target.load(id, artifact))
            return other

        return self._call(environment, load_unless_loaded)

    def renew_after_fork(self) -> None:
        """A lock of this process: another thread of the parent may have held the old one."""
        self.lock = threading.Lock()

    def _call(
        self,
        environment: Environment | None,
        method: Callable[[CompilationTarget[VariantT, ArtifactT, LoadedT]], T],
    ) -> T:
        with self.lock:
            if not self._must_enter(environment):
                return method(self.target)
        store, refusal = self._open_store(environment)
        try:
            with self.lock:
                if self._must_enter(environment):
                    refusal = self._enter(environment, store, refusal)
                return method(self.target)
        finally:
            if refusal is not None:
                self._say(environment, refusal)

    def _must_enter(self, environment: Environment | None) -> bool:
        return self._environment is not environment or time.monotonic() >= self._reopen_s

    def _open_store(self, environment: Environment | None) -> tuple[object, StoreError | None]:
        """What the target opens, without the lock: plugins have a say in it."""
        try:
            return self.target.open_store(environment), None
        except StoreError as error:
            return None, error

    def _enter(self, environment: Environment | None, store: object, refusal: StoreError | None) -> StoreError | None:
        """Switches the target's environment; where that cannot be used, nothing is kept, and the error tells why."""
        self._environment = _UNKNOWN  # should the target raise, the next call switches whatever it asks for
        if refusal is None:
            try:
                self.target.use_environment(environment, store)
            except StoreError as error:
                refusal = error
        if refusal is not None:
            self.target.use_environment(None, None)
        self._reopen_s = math.inf if refusal is None else time.monotonic() + _REST_S
        self._environment = environment
        return refusal

    def _or_miss(
        self,
        environment: Environment | None,
        method: Callable[[CompilationTarget[VariantT, ArtifactT, LoadedT]], T],
        miss: T,
    ) -> T:
        resting, until_s = self._rest
        if resting is not None and resting is environment and time.monotonic() < until_s:
            return miss
        start_s = time.monotonic()
        try:
            return self._call(environment, method)
        except StoreError as error:
            now_s = time.monotonic()
            if now_s - start_s > _SLOW_S:
                self._rest = (environment, now_s + _REST_S)
            self._say(environment, error)
            return miss

    def _or_less(
        self,
        environment: Environment | None,
        name: str,
        method: Callable[[CompilationTarget[VariantT, ArtifactT, LoadedT]], T],
        less: T,
    ) -> T:
        """As `_or_miss`, for what a kernel can do without."""
        try:
            return self._or_miss(environment, method, less)
        except Exception:
            self._say_broken(name)
            return less

    def _say_broken(self, name: str) -> None:
        import logging

        logging.getLogger("quernel.compiler").exception("`%s` of %s failed, which costs no kernel", name, self.name)

    def _say(self, environment: Environment | None, error: StoreError) -> None:
        if environment is not None:
            environment.say_unusable(error)


_SLOW_S = 0.5
_REST_S = 10.0
"""A store that cannot be opened, or failed only after it had kept a launch waiting, is left alone for so long."""
_UNKNOWN = object()
