"""Send the requests of the table to a server, and bring the answers into a comparable form."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from devicemanager.apiserver.protobuf import encode
from tests.apiserver.real_answers.table import CLEANED, PROTOBUF, Call

ANSWERS = Path(__file__).parent / "answers.jsonl"
"""The answers of kube-apiserver, one in each line."""
_TIMEOUT = 10.0
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_GIVEN = re.compile(r"(?:1{8}|2{8})-")
_DROPPED = {
    "metadata": ("uid", "resourceVersion", "creationTimestamp", "managedFields"),
    "details": ("uid",),
    "item": ("storageVersionHash",),
}
"""Fields that differ from run to run, or that this API server does not have, by parent."""
_PLACE = re.compile(r"\{(version|uid):([^}]*)\}")


@attrs.define
class Runner:
    """Sends requests to a server, and remembers the objects in the answers."""

    url: str
    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = attrs.Factory(dict)
    _seen: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    def run(self, calls: Iterable[Call]) -> Iterator[dict[str, Any]]:
        """Send the requests in order, and yield the answer to each one."""
        for call in calls:
            code, body = self._send(call)
            yield {"name": call.name, "code": code, "body": body}

    def clean(self) -> None:
        """Remove what an earlier run may have left behind."""
        for path in CLEANED:
            self._send(Call("", "DELETE", path))

    def _send(self, call: Call) -> tuple[int, Any]:
        headers = {**self.headers, "Accept": "application/json"}
        if call.body is not None:
            headers["Content-Type"] = call.content
        request = urllib.request.Request(
            f"{self.url}{self._filled(call.path)}", self._body(call), headers, method=call.method
        )
        try:
            with urllib.request.urlopen(
                request, timeout=_TIMEOUT, context=self.context
            ) as response:
                if call.events:
                    return response.status, [
                        _event(json.loads(response.readline())) for _ in range(call.events)
                    ]
                return response.status, self._read(call, response.read())
        except urllib.error.HTTPError as error:
            return error.code, self._read(call, error.read())

    def _filled(self, text: str) -> str:
        return _PLACE.sub(lambda place: self._value(place[1], place[2]), text)

    def _value(self, what: str, path: str) -> str:
        metadata = self._seen[path]["metadata"]
        return str(metadata["resourceVersion" if what == "version" else "uid"])

    def _body(self, call: Call) -> bytes | None:
        if call.body is None or isinstance(call.body, str):
            return None if call.body is None else call.body.encode()
        value = json.loads(self._filled(json.dumps(call.body)))
        return encode(value) if call.content == PROTOBUF else json.dumps(value).encode()

    def _read(self, call: Call, text: bytes) -> Any:
        try:
            found = json.loads(text)
        except ValueError:
            return text.decode(errors="replace").strip()
        metadata = found.get("metadata") or {}
        if "resourceVersion" in metadata and "name" in metadata:
            collection = call.path.partition("?")[0]
            for suffix in (f"/{metadata['name']}", "/status"):
                collection = collection.removesuffix(suffix)
            path = collection.removesuffix(f"/{metadata['name']}")
            self._seen[f"{path}/{metadata['name']}"] = found
        return _normal(found)


def _event(event: dict[str, Any]) -> Any:
    return {"type": event["type"], "object": _normal(event["object"])}


def _normal(value: Any, key: str = "") -> Any:
    """Return an answer without what differs from run to run."""
    if isinstance(value, list):
        found = [_normal(each, "item") for each in value]
        return sorted(found, key=json.dumps) if key == "causes" else found
    if isinstance(value, dict):
        return _normal_object(value, key)
    if isinstance(value, str):
        return _normal_text(value, key)
    return value


def _normal_object(value: dict[str, Any], key: str) -> Any:
    dropped = _DROPPED.get(key, ())
    found = {name: _normal(each, name) for name, each in value.items() if name not in dropped}
    causes = (found.get("details") or {}).get("causes") or ()
    if len(causes) > 1:
        # The order of the causes can differ from run to run.
        found["message"] = found["message"].partition(" is invalid: ")[0]
    return found


def _normal_text(text: str, key: str) -> str:
    if key in ("timeAdded", "deletionTimestamp"):
        return "TIME"
    if key == "continue":
        return "TOKEN"
    text = re.sub(r"current: \d+$", "current: VERSION", text)
    text = re.sub(r"in record \(\d+\)", "in record (VERSION)", text)
    text = re.sub(r"^0-gpu-[a-z0-9]{5}$", "0-gpu-XXXXX", text)
    return _UUID.sub(lambda found: found[0] if _GIVEN.match(found[0]) else "UID", text)


def recorded() -> list[dict[str, Any]]:
    """Return the recorded answers."""
    return [json.loads(line) for line in ANSWERS.read_text().splitlines()]
