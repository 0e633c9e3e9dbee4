"""Handling of one request of the fake API server: a response, or the events of a watch."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import attrs

from devicemanager.apiserver.authorization import (
    Permission,
    Permissions,
    forbidden,
    node_may,
    node_of,
    permission_for,
)
from devicemanager.apiserver.conversion import from_stored, to_stored
from devicemanager.apiserver.errors import StatusError, invalid, not_found, status
from devicemanager.apiserver.faults import Faults, Request
from devicemanager.apiserver.kinds import Kind, Target
from devicemanager.apiserver.protobuf import CONTENT_TYPE, ProtobufError, decode
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.selectors import Selector, check_fields, selector
from devicemanager.apiserver.store import Change, Object, Store, Stored

__all__ = ["HttpRequest", "RequestHandler", "Response", "Watch", "merge", "strategic_merge"]

USER: Final = "kubernetes-admin"
_INITIAL_END: Final = "k8s.io/initial-events-end"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@attrs.frozen
class HttpRequest:
    """A parsed HTTP request for a resource."""

    method: str
    target: Target
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Object

    @property
    def verb(self) -> str:
        """Verb of the request as in RBAC, such as ``list``."""
        if self.method == "DELETE" and not self.target.name:
            return "deletecollection"
        if self.method in _VERBS:
            return _VERBS[self.method]
        if self.query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if self.target.name else "list"

    @property
    def for_faults(self) -> Request:
        """Properties of the request, by which a fault selects requests."""
        named = self.target
        return Request(self.verb, named.kind.plural, named.namespace, named.name, named.subresource)

    def selector(self) -> Selector:
        """Return a function that is True for objects that match the query's selectors.

        Raises StatusError for an invalid selector.
        """
        try:
            check_fields(self.query.get("fieldSelector"), self.target)
            return selector(self.query)
        except ValueError as error:
            raise StatusError(400, str(error)) from None


Response = tuple[int, bytes]
"""Status code and body of a response."""


class RequestHandler:
    """Handler of all requests to the fake API server. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        faults: Faults,
        permissions: Permissions,
        token: str | None,
        *,
        watch_list: bool = True,
    ) -> None:
        """Create a handler.

        ``watch_list``: True if the feature gate WatchList is on.
        ``token``: the only accepted bearer token; None accepts all requests.
        """
        self.registry = registry
        self.faults = faults
        self.permissions = permissions
        self.token = token
        self.watch_list = watch_list

    def parse(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpRequest:
        """Authenticate and parse a request.

        Raises StatusError for an invalid token, path or body.
        """
        if self.token is not None and headers.get("Authorization") != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized")
        parts = urlsplit(url)
        named = self.registry.kinds.target(parts.path)
        if named is None:
            raise StatusError(404, "the server could not find the requested resource")
        given = _decoded(body, headers.get("Content-Type", ""))
        return HttpRequest(method, named, dict(parse_qsl(parts.query)), headers, given)

    def authorize(self, request: HttpRequest) -> None:
        """Raise StatusError if a permission is missing or a fault fires."""
        if user := request.headers.get("Impersonate-User"):
            self._impersonate("users", user)
            # As on a real server, users and groups need separate permissions.
            self._impersonate("groups", request.headers.get("Impersonate-Group", ""))
        node = node_of(user)
        if node is not None:
            if not node_may(node, request.verb, request.target, request.query):
                raise forbidden(str(user), request.verb, request.target)
        elif request.target.kind.name != "SelfSubjectAccessReview" and not self.permissions.use(
            permission_for(request.verb, request.target)
        ):
            raise forbidden(user or USER, request.verb, request.target)
        if (code := self.faults.code(request.for_faults)) is not None:
            raise StatusError(code, "injected fault")

    def _impersonate(self, what: str, name: str) -> None:
        if not self.permissions.use(Permission("", what, "impersonate")):
            raise StatusError(
                403, f'{what} "{name}" is forbidden: User "{USER}" cannot impersonate'
            )

    def respond(self, request: HttpRequest) -> Response:
        """Handle a request other than a watch, and return the response.

        Raises StatusError if the request fails.
        """
        if request.method in ("PUT", "PATCH") and self.faults.second_writer(request.for_faults):
            self._write_first(request.target)
        if request.method == "GET":
            return 200, self._get(request) if request.target.name else self._list(request)
        if request.method == "POST":
            return self._post(request)
        if request.method == "DELETE":
            if not request.target.name:
                return 200, self._delete_collection(request)
            return 200, _text(request.target, self._delete(request))
        return 200, _text(request.target, self._write(request))

    def _write_first(self, named: Target) -> None:
        def annotated(value: Object) -> Object:
            notes = value["metadata"].setdefault("annotations", {})
            notes["second-writer"] = str(self.registry.store.version)
            return value

        if self.registry.store.get(named.kind, named.namespace, named.name) is not None:
            self.registry.change(attrs.evolve(named, subresource=""), annotated)

    # -- methods ---------------------------------------------------------------------

    def _get(self, request: HttpRequest) -> bytes:
        named = request.target
        stored = self.registry.store.get(named.kind, named.namespace, named.name)
        if stored is None:
            raise not_found(named)
        return _text(named, stored)

    def _list(self, request: HttpRequest) -> bytes:
        chosen = request.selector()
        _check_list_options(request)
        store = self.registry.store
        with store.lock:
            version = store.version
            found = store.all(request.target.kind, request.target.namespace)
        # Objects are selected before paging, because the continue token counts matching objects.
        found = [each for each in found if chosen(each.value)]
        first = _number(request.query, "continue")
        limit = _number(request.query, "limit")
        last = first + limit if limit else len(found)
        metadata = {"resourceVersion": str(version)}
        if last < len(found):
            metadata["continue"] = str(last)
        return _list_text(request.target, metadata, found[first:last])

    def _post(self, request: HttpRequest) -> Response:
        named, body = request.target, request.body
        if named.kind.name == "SelfSubjectAccessReview":
            allowed = self.permissions.review(body.get("spec", {}))
            return 201, json.dumps({**body, "status": {"allowed": allowed}}).encode()
        if named.subresource == "binding":
            self.registry.bind(named, body)
        elif named.subresource == "eviction":
            pod = attrs.evolve(named, subresource="")
            self.registry.delete(pod, body.get("deleteOptions") or {})
        elif named.name:
            raise StatusError(
                405, "the server does not allow this method on the requested resource"
            )
        else:
            return 201, _text(named, self.registry.create(named, _given(named, body)))
        return 201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'

    def _write(self, request: HttpRequest) -> Stored:
        if request.method == "PUT":
            return self.registry.replace(request.target, _given(request.target, request.body))
        content = request.headers.get("Content-Type", "").partition(";")[0]
        patch = _PATCHES.get(content)
        if patch is None:
            raise StatusError(415, "the body of the request was in an unknown format")
        named = request.target
        version = (request.body.get("metadata") or {}).get("resourceVersion")

        def patched(old: Object) -> Object:
            # A patch is written for the version of the request.
            new = patch(from_stored(named.kind, named.api_version, old), request.body)
            return to_stored(named.kind, named.api_version, new)

        return self.registry.change(named, patched, version)

    def _delete(self, request: HttpRequest) -> Stored:
        options = dict(request.body)
        if "gracePeriodSeconds" in request.query:
            options["gracePeriodSeconds"] = _number(request.query, "gracePeriodSeconds")
        return self.registry.delete(request.target, options)

    def _delete_collection(self, request: HttpRequest) -> bytes:
        """Delete all objects that the selectors choose, and return the list of them."""
        named, chosen = request.target, request.selector()
        if named.kind.namespaced and not named.namespace:
            raise StatusError(
                405, "the server does not allow this method on the requested resource"
            )
        found = []
        for stored in self.registry.store.all(named.kind, named.namespace):
            if chosen(stored.value):
                name = stored.value["metadata"]["name"]
                with contextlib.suppress(StatusError):  # deleted meanwhile
                    found.append(
                        self._delete(attrs.evolve(request, target=attrs.evolve(named, name=name)))
                    )
        return _list_text(named, {"resourceVersion": str(self.registry.store.version)}, found)

    def watch(self, request: HttpRequest) -> Watch:
        """Return the watch that a request starts. Raises StatusError for an invalid selector."""
        since = _number(request.query, "resourceVersion")
        seconds = _number(request.query, "timeoutSeconds") or 1800
        chosen = request.selector()
        return Watch(
            self.registry.store,
            request.target,
            chosen,
            since,
            seconds,
            initial=self._wants_initial_events(request),
        )

    def _wants_initial_events(self, request: HttpRequest) -> bool | None:
        """Return the option ``sendInitialEvents``; None if the request does not have it.

        Raises StatusError if the options contradict each other (``validateWatchOptions`` of
        apimachinery).
        """
        match, given = (
            request.query.get(each) for each in ("resourceVersionMatch", "sendInitialEvents")
        )
        if given is not None:
            if match != _NOT_OLDER:
                text = f"Forbidden: sendInitialEvents requires setting {_MATCH} to {_NOT_OLDER}"
                raise _bad_options("FieldValueForbidden", _MATCH, text)
            if not self.watch_list:
                text = (
                    "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList "
                    "feature gate is enabled"
                )
                raise _bad_options("FieldValueForbidden", "sendInitialEvents", text)
            return given in ("1", "true")
        if match:
            text = (
                f"Forbidden: {_MATCH} is forbidden for watch unless sendInitialEvents is provided"
            )
            raise _bad_options("FieldValueForbidden", _MATCH, text)
        return None


def _decoded(body: bytes, content: str) -> Object:
    """Return the object in the body of a request; empty if there is no body."""
    if not body:
        return {}
    type_ = content.partition(";")[0].strip()
    try:
        if type_ == CONTENT_TYPE:
            return decode(body)
        if type_ and "json" not in type_:
            raise StatusError(
                415,
                f"the body of the request was in an unknown format: {type_}: use JSON or protobuf",
            )
        found = json.loads(body)
    except ProtobufError as error:
        raise StatusError(400, str(error)) from None
    except ValueError:
        raise StatusError(400, "invalid request body: expected JSON") from None
    if not isinstance(found, dict):
        raise StatusError(400, "invalid request body: expected a JSON object")
    return found


_MATCH: Final = "resourceVersionMatch"
_NOT_OLDER: Final = "NotOlderThan"


def _bad_options(reason: str, field: str, text: str) -> StatusError:
    options = Kind("meta.k8s.io", "v1", "listoptions", "ListOptions")
    return invalid(Target(options), "", [(reason, field, text)])


def _check_list_options(request: HttpRequest) -> None:
    """Raise StatusError for options of a watch (``ValidateListOptions`` of apimachinery)."""
    if "sendInitialEvents" in request.query:
        text = "Forbidden: sendInitialEvents is forbidden for list"
        raise _bad_options("FieldValueForbidden", "sendInitialEvents", text)
    if request.query.get(_MATCH) and not request.query.get("resourceVersion"):
        text = f"Forbidden: {_MATCH} is forbidden unless resourceVersion is provided"
        raise _bad_options("FieldValueForbidden", _MATCH, text)


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    try:
        return int(text)
    except ValueError:
        raise StatusError(400, f"invalid query parameter {name}={text!r}: use a number") from None


def _given(named: Target, body: Object) -> Object:
    """Return the object in the body of a request, in the version in which it is stored.

    Raises StatusError if it is of another kind or version.
    """
    kind, api_version = body.get("kind"), body.get("apiVersion")
    if kind not in (None, "", named.kind.name):
        raise StatusError(
            400,
            f'{kind} in version "{api_version}" cannot be handled as a {named.kind.name}: '
            "the kinds differ",
        )
    if api_version not in (None, "", named.api_version):
        raise StatusError(
            400,
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({named.api_version})",
        )
    return to_stored(named.kind, named.api_version, body)


def _text(named: Target, stored: Stored) -> bytes:
    """Return an object as JSON, in the version of a request."""
    if named.api_version == named.kind.api_version:
        return stored.text
    return json.dumps(from_stored(named.kind, named.api_version, stored.value)).encode()


def _list_text(named: Target, metadata: Object, found: Sequence[Stored]) -> bytes:
    kind = named.kind
    head = {"kind": f"{kind.name}List", "apiVersion": named.api_version, "metadata": metadata}
    # Stored objects are already encoded, which matters for lists of thousands.
    items = b",".join(_text(named, each) for each in found)
    return json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}"


class Watch:
    """One WATCH request: an iterator over its events and bookmarks."""

    def __init__(
        self,
        store: Store,
        target: Target,
        chosen: Selector,
        since: int,
        seconds: float,
        *,
        initial: bool | None = None,
    ) -> None:
        """Create a watch of the objects that ``chosen`` selects.

        ``since``: version after which it starts; 0 for the current objects, then all changes.
        ``seconds``: time after which it ends.
        ``initial``: True to start with the current objects and a bookmark after them, False to
        start with changes; None as ``since`` says.
        """
        self._initial = initial
        self._store = store
        self._target = target
        self._chosen = chosen
        self._since = since
        self._seconds = seconds

    def lines(self, bookmark_every: float, is_over: Callable[[], bool]) -> Iterator[bytes]:
        """Yield each event as a line, until the timeout, an error, or ``is_over`` returns True.

        ``bookmark_every`` is the interval of bookmarks in seconds.
        """
        end = time.monotonic() + self._seconds
        bookmark = time.monotonic() + bookmark_every
        at = self._since
        # Version 0 means any version, so the watch starts with the current objects.
        if self._initial or not at:
            with self._store.lock:
                at = self._store.version
                found = self._store.all(self._target.kind, self._target.namespace)
            if self._initial is not False:
                for stored in found:
                    if self._chosen(stored.value):
                        yield _line("ADDED", _text(self._target, stored))
            if self._initial:
                yield _line("BOOKMARK", self._bookmark(at, {_INITIAL_END: "true"}))
        while not is_over() and (now := time.monotonic()) < end:
            if at < self._store.oldest:
                error = status(410, "Expired", f"too old resource version: {at}")
                yield _line("ERROR", json.dumps(error).encode())
                return
            if now >= bookmark:
                bookmark = now + bookmark_every
                yield _line("BOOKMARK", self._bookmark(at))
            for change in self._store.after(at, min(end, bookmark) - now, is_over):
                # Changes of other kinds also count, so that a bookmark keeps a watch without events
                # from expiring.
                at = change.version
                if change.kind == self._target.kind:
                    yield from self._event(change)

    def _bookmark(self, at: int, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: Object = {"resourceVersion": str(at), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {
            "kind": self._target.kind.name,
            "apiVersion": self._target.api_version,
            "metadata": metadata,
        }
        return json.dumps(body).encode()

    def _event(self, change: Change) -> Iterator[bytes]:
        """Yield the event of a change, if the watch selects the object.

        An object that the watch no longer selects is reported as deleted.
        """
        before, after = self._is_chosen(change.before), self._is_chosen(change.after)
        if after and change.after is not None:
            yield _line("MODIFIED" if before else "ADDED", _text(self._target, change.after))
        elif before and (last := change.after or change.before) is not None:
            yield _line("DELETED", _text(self._target, last))

    def _is_chosen(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        namespace = self._target.namespace
        if namespace and stored.value["metadata"].get("namespace") != namespace:
            return False
        return self._chosen(stored.value)


def _line(kind: str, object_: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), object_)


# -- merge patches ---------------------------------------------------------------------

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "conditions": "type",
    "addresses": "type",
    "hostIPs": "ip",
    "podIPs": "ip",
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
}
"""Field that identifies an element, for each list that a strategic merge patch merges element by
element. All other lists, such as container statuses and taints, are replaced (``patchStrategy`` in
``k8s.io/api``)."""

_SETS: Final = frozenset({"finalizers"})


def merge(old: Any, patch: Any) -> Any:
    """Return ``old`` after a JSON merge patch (RFC 7386). The arguments are not modified."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def strategic_merge(old: Any, patch: Any) -> Any:
    """Return the mapping ``old`` after a strategic merge patch. The arguments are not modified."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            found[name] = [each for each in found.get(name) or () if each not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = _merged_value(key, found.get(key), value)
    return found


def _merged_value(key: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return strategic_merge(old, new)
    if isinstance(new, list) and key in _SETS:
        return list(dict.fromkeys([*(old or ()), *new]))
    if isinstance(new, list) and key in _MERGE_KEYS:
        return _merged_list(_MERGE_KEYS[key], old or [], new)
    return new


def _merged_list(by: str, old: list[Any], new: list[Any]) -> list[Any]:
    if any(each.get("$patch") == "replace" for each in new):
        return [each for each in new if "$patch" not in each]
    found = {each.get(by): each for each in old}
    for each in new:
        if each.get("$patch") == "delete":
            found.pop(each.get(by), None)
        else:
            found[each.get(by)] = strategic_merge(found.get(each.get(by), {}), each)
    return list(found.values())


_PATCHES: Final = {
    "application/merge-patch+json": merge,
    "application/strategic-merge-patch+json": strategic_merge,
}
