"""The main loop of a plugin or driver: repeat a step after each notification or pause.

A step checks the state of the plugin or driver, and does what this state requires.
"""

from __future__ import annotations

from collections.abc import Callable

from devicemanager.plugin.common.notifier import Notifier

__all__ = ["CLEARED_PAUSE", "repeat_step"]

CLEARED_PAUSE = 0.02
"""Pause in seconds after a starting kubelet has removed a socket that was being created."""


def repeat_step(
    step: Callable[[], float],
    notifier: Notifier,
    is_stopping: Callable[[], bool],
    failed: Callable[[OSError], float],
) -> None:
    """Call ``step`` again and again, until ``is_stopping`` returns True.

    ``step`` returns the pause before its next call, in seconds. A notification ends the pause.
    After a FileNotFoundError of ``step``, the pause is ``CLEARED_PAUSE``. After any other OSError,
    ``failed`` is called with the error and returns the pause.
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
