"""The loop that observes and acts, at each notification and at least every few seconds."""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.plugin.common.notifier import Notifier

__all__ = ["CLEARED_PAUSE", "repeat_step"]

CLEARED_PAUSE = 0.02
"""Pause in seconds if a starting kubelet has removed a socket while it was created."""


def repeat_step(
    step: Callable[[], float],
    notifier: Notifier,
    is_stopping: Callable[[], bool],
    failed: Callable[[OSError], float],
) -> None:
    """Call ``step`` after each notification, or after the pause (in seconds) that it returned.

    End when ``is_stopping`` returns True. ``failed`` is called with an OSError that ``step``
    raised, and also returns a pause.
    """
    while not is_stopping():
        seen = notifier.count
        try:
            pause = step()
        except FileNotFoundError:
            # A starting kubelet clears the directory, and has removed a socket in creation.
            pause = CLEARED_PAUSE
        except OSError as error:
            pause = failed(error)
        # `seen` was read before the step, so a change during the step ends this wait immediately.
        if pause:
            notifier.wait(seen, pause)
