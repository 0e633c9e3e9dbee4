"""One request of the stub, from method and path to an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import attrs

from devicemanager.cluster.fake_apiserver.answers import Rejection
from devicemanager.cluster.fake_apiserver.faults import Faults, Request
from devicemanager.cluster.fake_apiserver.kinds import Target, target
from devicemanager.cluster.fake_apiserver.merging import merge, strategic
from devicemanager.cluster.fake_apiserver.nodeauthorizer import node_may, node_of
from devicemanager.cluster.fake_apiserver.objects import Objects
from devicemanager.cluster.fake_apiserver.rights import Right, Rights
from devicemanager.cluster.fake_apiserver.selectors import selector
from devicemanager.cluster.fake_apiserver.store import Object, Stored
from devicemanager.cluster.fake_apiserver.watching import Watching

__all__ = ["Answer", "Asked", "Handling"]

USER: Final = "stub"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATCHES: Final = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic,
}


@attrs.frozen
class Asked:
    """A request that names a resource."""

    method: str
    target: Target
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Object

    @property
    def verb(self) -> str:
        """As RBAC names it."""
        if self.method in _VERBS:
            return _VERBS[self.method]
        if self.query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if self.target.name else "list"

    @property
    def request(self) -> Request:
        """As faults see it."""
        return Request(self.verb, self.target)


Answer = tuple[int, bytes]
"""Status code and body."""


class Handling:
    """Answers requests. May be used from any thread."""

    def __init__(self, objects: Objects, faults: Faults, rights: Rights, token: str | None) -> None:
        """``token``: the one that is accepted; None asks for none."""
        self.objects = objects
        self.faults = faults
        self.rights = rights
        self.token = token

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Asked:
        """What is asked for. Raises Rejection."""
        if self.token is not None and headers.get("Authorization") != f"Bearer {self.token}":
            raise Rejection(401, "Unauthorized")
        parts = urlsplit(url)
        named = target(parts.path)
        if named is None:
            raise Rejection(404, "the server could not find the requested resource")
        try:
            given = json.loads(body) if body else {}
        except ValueError:
            raise Rejection(400, "the body is no JSON") from None
        return Asked(method, named, dict(parse_qsl(parts.query)), headers, given)

    def authorize(self, asked: Asked) -> None:
        """Raises Rejection for what nobody may, and for a fault that is set."""
        if user := asked.headers.get("Impersonate-User"):
            self._impersonate("users", user)
            self._impersonate("groups", asked.headers.get("Impersonate-Group", ""))
        node = node_of(user)
        if node is not None:
            if not node_may(node, asked.verb, asked.target, asked.query):
                raise self.rights.rejection(str(user), asked.verb, asked.target)
        elif asked.target.kind.name != "SelfSubjectAccessReview":
            self.rights.check(user or USER, asked.verb, asked.target)
        if (code := self.faults.code(asked.request)) is not None:
            raise Rejection(code, "a fault on purpose")

    def _impersonate(self, what: str, name: str) -> None:
        right = Right("", what, "impersonate")
        self.rights.note(right)
        if not self.rights.allows(right):
            raise Rejection(403, f'{what} "{name}" is forbidden: User "{USER}" cannot impersonate')

    def answer(self, asked: Asked) -> Answer:
        """Any request but a watch. Raises Rejection."""
        if asked.method in ("PUT", "PATCH") and self.faults.second_writer(asked.request):
            self._write_first(asked.target)
        if asked.method == "GET":
            return 200, self._get(asked) if asked.target.name else self._list(asked)
        if asked.method == "POST":
            return self._post(asked)
        if asked.method == "DELETE":
            return 200, self._delete(asked).text
        return 200, self._write(asked).text

    def _write_first(self, named: Target) -> None:
        def touched(value: Object) -> Object:
            notes = value["metadata"].setdefault("annotations", {})
            notes["second-writer"] = str(self.objects.store.version)
            return value

        whole = attrs.evolve(named, below="")
        if self.objects.store.get(named.kind, named.namespace, named.name) is not None:
            self.objects.change(whole, touched)

    # -- methods ---------------------------------------------------------------------

    def _get(self, asked: Asked) -> bytes:
        named = asked.target
        stored = self.objects.store.get(named.kind, named.namespace, named.name)
        if stored is None:
            raise Rejection.not_found(named)
        return stored.text

    def _list(self, asked: Asked) -> bytes:
        kind, chosen = asked.target.kind, _selector(asked)
        store = self.objects.store
        with store.lock:
            version = store.version
            found = store.all(kind, asked.target.namespace)
        found = [each for each in found if chosen(each.value)]
        first, limit = int(asked.query.get("continue", 0)), int(asked.query.get("limit", 0))
        last = first + limit if limit else len(found)
        metadata = {"resourceVersion": str(version)}
        if last < len(found):
            metadata["continue"] = str(last)
        head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
        items = b",".join(each.text for each in found[first:last])
        return json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}"

    def _post(self, asked: Asked) -> Answer:
        named, body = asked.target, asked.body
        if named.kind.name == "SelfSubjectAccessReview":
            allowed = self.rights.review(body.get("spec", {}))
            return 201, json.dumps({**body, "status": {"allowed": allowed}}).encode()
        if named.below == "binding":
            self.objects.bind(named, body)
        elif named.below == "eviction":
            self.objects.delete(attrs.evolve(named, below=""), body.get("deleteOptions") or {})
        elif named.name:
            raise Rejection(405, "the server does not allow this method on the requested resource")
        else:
            return 201, self.objects.create(named, body).text
        return 201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'

    def _write(self, asked: Asked) -> Stored:
        if asked.method == "PUT":
            return self.objects.replace(asked.target, asked.body)
        patch = _PATCHES.get(asked.headers.get("Content-Type", ""))
        if patch is None:
            raise Rejection(415, "the body of the request was in an unknown format")
        version = (asked.body.get("metadata") or {}).get("resourceVersion")
        return self.objects.change(asked.target, lambda old: patch(old, asked.body), version)

    def _delete(self, asked: Asked) -> Stored:
        options = dict(asked.body)
        if "gracePeriodSeconds" in asked.query:
            options["gracePeriodSeconds"] = int(asked.query["gracePeriodSeconds"])
        if not asked.target.name:
            raise Rejection(405, "the stub deletes one object at a time")
        return self.objects.delete(asked.target, options)

    # -- watch -----------------------------------------------------------------------

    def watch(self, asked: Asked) -> Watching:
        """The events of a watch. Raises Rejection."""
        store = self.objects.store
        since = int(asked.query.get("resourceVersion") or 0)
        seconds = float(asked.query.get("timeoutSeconds") or 1800)
        return Watching(store, asked.target, _selector(asked), since, seconds)


def _selector(asked: Asked) -> Any:
    try:
        return selector(asked.query)
    except ValueError as error:
        raise Rejection(400, str(error)) from None
