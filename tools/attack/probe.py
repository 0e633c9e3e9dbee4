"""The good neighbour's life during an attack: it registers and gets devices, over and over."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Self

from tools.attack.good import RESOURCE
from tools.attack.requests import Helper, RequestFailed

DEVICES = 8
_PAUSE = 0.05
_TIMEOUT = 150.0


class Probe:
    """Registers the good plugin and admits a pod, again and again until the block ends.

    The worst times are kept, in s; ``problems`` has what did not work.
    """

    def __init__(
        self, node: Helper, good: Helper, devices: int = DEVICES, comes: str = "register"
    ) -> None:
        """``comes`` is how the plugin comes: ``register`` or ``announce``."""
        self._node, self._good, self._devices, self._comes = node, good, devices, comes
        self._numbers = itertools.count()
        self.registration = self.admission = 0.0
        self.rounds = 0
        self.problems: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probe")

    def once(self) -> None:
        """One registration and one admission."""
        self.registration = max(self.registration, self._timed("registration", self._register))
        self.admission = max(self.admission, self._timed("admission", self._admit))
        self.rounds += 1

    def _timed(self, what: str, act: object) -> float:
        assert callable(act)
        begin = time.monotonic()
        try:
            act()
        except RequestFailed as error:
            self.problems.append(f"a good {what} failed: {error}")
        return time.monotonic() - begin

    def _register(self) -> None:
        self._good.ask(self._comes, timeout=_TIMEOUT)
        self._node.ask("wait", RESOURCE, self._devices, _TIMEOUT, timeout=_TIMEOUT)

    def _admit(self) -> None:
        uid = f"good-{next(self._numbers)}"
        self._node.ask("admit", uid, RESOURCE, 1, timeout=_TIMEOUT)
        self._node.begin("terminate", uid)

    def _work(self) -> None:
        while not self._end.wait(_PAUSE):
            self.once()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
