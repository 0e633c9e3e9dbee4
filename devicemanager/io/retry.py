"""Retry calls with exponential backoff; the only module that uses tenacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["retry"]

T = TypeVar("T")

Report = Callable[[Exception, float], object]
"""Function that is called with an error and the seconds until the next attempt."""


def retry(
    call: Callable[[], T],
    errors: type[Exception],
    *,
    sleep: Callable[[float], object],
    first_wait: float,
    longest_wait: float,
    attempts: int | None = None,
    seconds: float | None = None,
    stopping: Callable[[], bool] = lambda: False,
    jitter: bool = False,
    report: Report | None = None,
) -> T:
    """Call a function, and call it again after each error of the type ``errors``.

    Returns the result of the function. The wait between calls doubles from ``first_wait`` to
    ``longest_wait`` seconds. With ``jitter``, each wait is a random part of this time. ``sleep`` is
    called to wait, and may return early. ``report`` is called before each wait.

    The last error is raised after ``attempts`` calls, when ``seconds`` seconds have passed since
    the first call, or when ``stopping`` returns True. If ``attempts`` or ``seconds`` is None, it
    sets no limit. An error of another type is raised immediately.
    """
    # Imported here: most processes never retry anything, and start-up time matters.
    import tenacity

    def given_up(state: tenacity.RetryCallState) -> bool:
        enough_attempts = attempts is not None and state.attempt_number >= attempts
        too_late = seconds is not None and (state.seconds_since_start or 0.0) >= seconds
        return enough_attempts or too_late or stopping()

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if report is not None and isinstance(error, Exception) and state.next_action is not None:
            report(error, state.next_action.sleep)

    # tenacity expects a function that returns None.
    def pause(wait: float) -> None:
        sleep(wait)

    waits = tenacity.wait_random_exponential if jitter else tenacity.wait_exponential
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        wait=waits(multiplier=first_wait, max=longest_wait),
        stop=given_up,
        sleep=pause,
        before_sleep=before_sleep,
        # Otherwise tenacity would raise its own RetryError instead of the last error.
        reraise=True,
    )(call)
