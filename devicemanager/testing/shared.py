"""A kubelet that several tests share, and the settings that marks give to kubelets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from devicemanager.kubelet.settings import Settings
from devicemanager.testing.factories import Closing, MockKubeletFactory

__all__ = ["SharedKubelet", "with_marks"]


class SharedKubelet(Closing):
    """One kubelet, reset after each test that used it; a context manager that stops it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._factory = self._stack.enter_context(MockKubeletFactory(settings))
        self.kubelet = self._factory()
        self._before = 0

    def check(self) -> None:
        """Raise the first error that happened on a server thread, if there was one."""
        self._factory.check()

    def reset(self) -> None:
        """Make it ready for the next test."""
        self.kubelet.reset()
        self._before = self.kubelet.events.latest

    def story(self) -> str:
        """The latest events since the reset, for people; empty if nothing happened."""
        return self._factory.story(self._before)


def with_marks(
    settings: Settings, marks: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]
) -> Settings:
    """The settings with the fields that marks give, as positional and keyword arguments of
    each, the closest first. Raises TypeError for what is no field of Settings."""
    given: dict[str, Any] = {}
    for args, kwargs in marks:
        if args:
            wanted = "takes fields of Settings by name, such as strict=True"
            raise TypeError(f"mark mock_kubelet {wanted}: not {args[0]!r}")
        given = {**kwargs, **given}
    if unknown := given.keys() - attrs.fields_dict(Settings).keys():
        raise TypeError(f"mark mock_kubelet: Settings has no field {min(unknown)!r}")
    return attrs.evolve(settings, **given) if given else settings
