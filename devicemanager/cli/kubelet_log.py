"""Output of ``devicemanager run`` and ``join``: one line per event, as text or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from devicemanager.cli.output import clean, schema_name, settings_lines
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.core.pods import Pod
    from devicemanager.events.stream import Event
    from devicemanager.kubelet.pods.admission import Admission, ContainerOutcome

_SCHEMA = schema_name("run")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class KubeletLog:
    """Printer of the events of ``run`` and ``join``. Thread-safe; the lines of one event stay
    together."""

    def __init__(self, as_json: bool, write: Callable[[str], None] = _write) -> None:
        self._as_json = as_json
        self._write = write

    def event(self, event: Event) -> None:
        """Print an event of the kubelet."""
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
        """Print a message of the command itself. ``facts`` are additional fields of the JSON
        output."""
        self._print(time.time(), {"kind": kind, "message": text, **facts}, [text])

    def warn(self, kind: str, text: str) -> None:
        """Print a warning of the command itself, in the format of an event."""
        record = {"kind": kind, "message": text, "warning": True}
        self._print(time.time(), record, [f"warning: {kind}: {text}"])

    def admission(self, pod: Pod, admission: Admission) -> None:
        """Print the result of an admission: the devices and settings of each container, or the
        explanation of the rejection."""
        from devicemanager.kubelet.pods.data import (
            container_data,
            explanation_data,
            explanation_lines,
        )

        name = f"{pod.namespace}/{pod.name}"
        record: dict[str, object] = {
            "kind": "admission",
            "pod": pod.uid,
            "name": name,
            "admitted": admission.admitted,
            "reason": admission.reason,
            "message": admission.message,
            "containers": {
                container: container_data(given)
                for container, given in admission.containers.items()
            },
            # Always present, so that readers of the JSON need not test for the field.
            "explanation": None,
        }
        lines = []
        if not admission.admitted:
            # The rejection itself is an event, which is already printed.
            record["explanation"] = explanation_data(admission)
            lines += [f"    {line}" for line in explanation_lines(admission)]
        for container, given in admission.containers.items() if admission.admitted else ():
            lines.append(f"pod {name}, container {container}: {_devices_text(given)}")
            lines += [f"    {line}" for line in _settings(given)]
        self._print(time.time(), record, lines)

    def dropped(self, count: int) -> str:
        """Return the line that replaces ``count`` lines that standard output did not accept in
        time."""
        text = f"{counted(count, 'line')} missing here: standard output was not read in time"
        record = {"kind": "output-dropped", "message": text, "warning": True, "dropped": count}
        return self._rendered(time.time(), record, [f"warning: output-dropped: {text}"])

    # One write per event, because several threads print concurrently.
    def _print(self, when: float, record: Mapping[str, object], lines: list[str]) -> None:
        if text := self._rendered(when, record, lines):
            self._write(text)

    def _rendered(self, when: float, record: Mapping[str, object], lines: list[str]) -> str:
        if self._as_json:
            whole = {"schema": _SCHEMA, "time": round(when, 3), **record}
            # default=str, because event details contain paths and other types.
            return json.dumps(whole, default=str) + "\n"
        clock = time.strftime("%H:%M:%S", time.localtime(when))
        stamp = f"{clock}.{int(when % 1 * 1000):03}"
        # Every line has the time, so that lines can be filtered with grep.
        return "".join(f"{stamp} {clean(line)}\n" for line in lines)


def _devices_text(given: ContainerOutcome) -> str:
    from devicemanager.kubelet.pods.data import sorted_devices

    parts = [f"{resource} {','.join(ids)}" for resource, ids in sorted_devices(given).items()]
    parts += [f"claim {name} {','.join(ids)}" for name, ids in sorted(given.claims.items())]
    return "; ".join(parts) or "no devices"


def _settings(given: ContainerOutcome) -> list[str]:
    """Return the settings of a container as lines, or a line that says why they cannot be read."""
    from devicemanager.kubelet.wire.errors import WireError

    try:
        return list(settings_lines(given.run_options))
    except WireError as error:
        return [f"settings unreadable: {error}"]
