"""What ``devicemanager run`` prints: a line an event, as text or as JSON."""

from __future__ import annotations

import _thread
import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from devicemanager.cli.output import clean, settings_lines

if TYPE_CHECKING:
    from devicemanager.core.pods import Pod
    from devicemanager.events import Event
    from devicemanager.pods.admission import Admission, ContainerOutcome


class KubeletLog:
    """Prints from any thread, each line at once.

    A reader that goes away ends the command: the main thread gets a SIGTERM, and
    ``failure`` tells why.
    """

    def __init__(self, as_json: bool) -> None:
        self.failure: OSError | None = None
        self._as_json = as_json
        # Keeps the lines of one thing together.
        self._lock = threading.Lock()

    def event(self, event: Event) -> None:
        """One event of the kubelet's stream."""
        record = {
            "kind": event.kind.value,
            "message": event.message,
            "warning": event.is_warning,
            "resource": event.resource,
            "pod": event.pod,
            "details": dict(event.details),
        }
        mark = "warning: " if event.is_warning else ""
        self._print(event.time, record, [f"{mark}{event.kind.value}: {event.message}"])

    def say(self, kind: str, text: str, **facts: object) -> None:
        """Something of the command's own."""
        self._print(time.time(), {"kind": kind, "message": text, **facts}, [text])

    def warn(self, kind: str, text: str) -> None:
        """Trouble that the command itself noticed, in the form of an event."""
        record = {"kind": kind, "message": text, "warning": True}
        self._print(time.time(), record, [f"warning: {kind}: {text}"])

    def admission(self, pod: Pod, admission: Admission) -> None:
        """What became of a pod, container by container."""
        name = f"{pod.namespace}/{pod.name}"
        record: dict[str, object] = {
            "kind": "admission",
            "pod": pod.uid,
            "name": name,
            "admitted": admission.admitted,
            "reason": admission.reason,
            "message": admission.message,
            "containers": {
                container: {
                    "devices": _devices(given),
                    "affinity": given.affinity,
                    "settings": _settings(given),
                }
                for container, given in admission.containers.items()
            },
        }
        lines = []
        if not admission.admitted:
            # The refusal itself is an event, and so is printed already.
            record["explanation"] = explanation = _explanation(admission)
            lines += [f"    {line}" for line in explanation]
        for container, given in admission.containers.items() if admission.admitted else ():
            lines.append(f"pod {name}, container {container}: {_devices_text(given)}")
            lines += [f"    {line}" for line in _settings(given)]
        self._print(time.time(), record, lines)

    def _print(self, when: float, record: Mapping[str, object], lines: list[str]) -> None:
        if self._as_json:
            out = json.dumps({"time": round(when, 3), **record}, default=str) + "\n"
        else:
            clock = time.strftime("%H:%M:%S", time.localtime(when))
            stamp = f"{clock}.{int(when % 1 * 1000):03}"
            out = "".join(f"{stamp} {clean(line)}\n" for line in lines)
        with self._lock:
            if self.failure is not None:
                return
            try:
                sys.stdout.write(out)
                sys.stdout.flush()
            except OSError as error:
                self.failure = error
                _thread.interrupt_main(signal.SIGTERM)


def _explanation(admission: Admission) -> list[str]:
    """Why a pod was refused, as far as it got to ask for devices."""
    from devicemanager.core.explanation.text import steps

    explanation = admission.explanation
    if explanation is None:
        return []
    policy = explanation.policy
    lines = [f"policy {policy.name}, scope {policy.scope}", *steps(explanation)]
    return [line for line in lines if line]


def _devices(given: ContainerOutcome) -> dict[str, list[str]]:
    return dict(sorted(given.devices.items()))


def _devices_text(given: ContainerOutcome) -> str:
    parts = [f"{resource} {','.join(ids)}" for resource, ids in _devices(given).items()]
    return "; ".join(parts) or "no devices"


def _settings(given: ContainerOutcome) -> list[str]:
    """What the container gets, or why that cannot be said."""
    from devicemanager.wire.errors import WireError

    try:
        return list(settings_lines(given.run_options))
    except WireError as error:
        return [f"settings unreadable: {error}"]
