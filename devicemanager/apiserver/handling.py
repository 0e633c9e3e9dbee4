"""Handle one request: return a response, or start a watch."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
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
from devicemanager.apiserver.bodies import check_kind, parsed, typed, typed_patch
from devicemanager.apiserver.conversion import from_stored, to_stored
from devicemanager.apiserver.encoding import list_text, object_text
from devicemanager.apiserver.errors import (
    PageNotFound,
    StatusError,
    deleted,
    not_admitted,
    not_allowed,
    not_found,
    patch_rejected,
    too_large,
)
from devicemanager.apiserver.faults import Faults, Request
from devicemanager.apiserver.kinds import Target
from devicemanager.apiserver.list_options import (
    check_list,
    check_version,
    number,
    start,
    version,
    wants_initial_events,
)
from devicemanager.apiserver.patches import (
    JSON_PATCH,
    MOST_STEPS,
    PATCHES,
    STRATEGIC,
    PatchError,
)
from devicemanager.apiserver.registry import Registry
from devicemanager.apiserver.selectors import Selector, check_fields, selector
from devicemanager.apiserver.store import Object, Stored
from devicemanager.apiserver.watch import Watch

__all__ = ["HttpRequest", "RequestHandler", "Response"]

USER: Final = "kubernetes-admin"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_CHANGE: Final = "update pod status for"
_OWN_PODS: Final = {"update": _CHANGE, "patch": _CHANGE, "delete": "delete"}
"""Verbs that the admission plugin NodeRestriction allows a node only for its own pods.

The values are the texts for these verbs in its error message.
"""


@attrs.frozen
class HttpRequest:
    """A parsed HTTP request for a resource."""

    method: str
    target: Target
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    """The object in the body, or the steps of a JSON patch."""
    is_dry: bool = False
    """True for a dry run: the server stores nothing."""

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
        """Properties of this request that determine whether a fault applies to it."""
        named = self.target
        return Request(self.verb, named.kind.plural, named.namespace, named.name, named.subresource)

    def selector(self) -> Selector:
        """Return a function that returns True for objects that match the query's selectors.

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
    """Handler of requests to the fake API server. Thread-safe."""

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
        """Check the token of a request, and return the parsed request.

        Raises StatusError for an invalid token, method, path or body.
        """
        if self.token is not None and _bearer_token(headers.get("Authorization")) != self.token:
            raise StatusError(401, "Unauthorized")
        parts = urlsplit(url)
        named = self.registry.kinds.target(parts.path)
        if named is None:
            raise self._unknown(parts.path)
        if method == "POST" and not _accepts_post(named):
            raise not_allowed()
        given = parsed(named, method, body, headers.get("Content-Type", ""))
        query = dict(parse_qsl(parts.query))
        options = given.get("dryRun") if method == "DELETE" and isinstance(given, dict) else None
        is_dry = "All" in (query.get("dryRun"), *(options or ()))
        return HttpRequest(method, named, query, headers, given, is_dry)

    def _unknown(self, path: str) -> StatusError:
        match path.strip("/").split("/"):
            case ["api", version, *_]:
                group_version = version
            case ["apis", group, version, *_]:
                group_version = f"{group}/{version}"
            case _:
                return PageNotFound()
        kinds = self.registry.kinds
        if any(group_version in kinds.versions(each) for each in kinds.all()):
            text = "the server could not find the requested resource"
            return StatusError(404, text, details={})
        return PageNotFound()

    def authorize(self, request: HttpRequest) -> None:
        """Raise StatusError if a permission is missing or a fault fires."""
        if user := request.headers.get("Impersonate-User"):
            self._impersonate("users", user)
            # As on a real server, impersonating users and groups needs separate permissions.
            self._impersonate("groups", request.headers.get("Impersonate-Group", ""))
        node = node_of(user)
        if node is not None:
            if not node_may(node, request.verb, request.target, request.query):
                raise forbidden(str(user), request.verb, request.target)
            self._restrict(node, request)
        elif request.target.kind.name != "SelfSubjectAccessReview" and not self.permissions.use(
            permission_for(request.verb, request.target)
        ):
            raise forbidden(user or USER, request.verb, request.target)
        if (code := self.faults.code(request.for_faults)) is not None:
            raise StatusError(code, "injected fault")

    def _restrict(self, node: str, request: HttpRequest) -> None:
        """Raise StatusError if a node changes or deletes a pod that is not bound to it."""
        target, what = request.target, _OWN_PODS.get(request.verb)
        if target.kind.name != "Pod" or what is None:
            return
        stored = self.registry.store.get(target.kind, target.namespace, target.name)
        if stored is not None and stored.value["spec"].get("nodeName") != node:
            text = f'node "{node}" can only {what} pods with spec.nodeName set to itself'
            raise not_admitted(target, text)

    def _impersonate(self, what: str, name: str) -> None:
        if not self.permissions.use(Permission("", what, "impersonate")):
            raise StatusError(
                403,
                f'{what} "{name}" is forbidden: User "{USER}" cannot impersonate resource "{what}" '
                'in API group "" at the cluster scope',
            )

    def respond(self, request: HttpRequest) -> Response:
        """Handle a request other than a watch, and return the response.

        Raises StatusError if the request fails.
        """
        if request.method in ("PUT", "PATCH") and self.faults.second_writer(request.for_faults):
            self._write_first(request.target)
        if request.method == "GET":
            return 200, self._get(request) if request.target.name else self._list(request)
        if request.is_dry:
            return self._dry_run().respond(attrs.evolve(request, is_dry=False))
        if request.method == "POST":
            return self._post(request)
        if request.method == "DELETE":
            if not request.target.name:
                return 200, self._delete_collection(request)
            return 200, self._deleted(request)
        return 200, object_text(request.target, self._write(request))

    def _dry_run(self) -> RequestHandler:
        """Return a handler that works on a copy of all objects."""
        found = copy.copy(self)
        found.registry = self.registry.copied()
        return found

    def _write_first(self, named: Target) -> None:
        def annotated(value: Object) -> Object:
            notes = value["metadata"].setdefault("annotations", {})
            notes["second-writer"] = str(self.registry.store.version)
            return value

        if self.registry.store.get(named.kind, named.namespace, named.name) is not None:
            self.registry.change(attrs.evolve(named, subresource=""), annotated)

    # -- methods ---------------------------------------------------------------------

    def _get(self, request: HttpRequest) -> bytes:
        named, store = request.target, self.registry.store
        check_version(request.query, store.version)
        stored = store.get(named.kind, named.namespace, named.name)
        if stored is None:
            raise not_found(named)
        return object_text(named, stored)

    def _list(self, request: HttpRequest) -> bytes:
        chosen = request.selector()
        store = self.registry.store
        with store.lock:
            version = store.version
            found = store.all(request.target.kind, request.target.namespace)
        check_list(request.query, version)
        # Select objects before paging, because the continue token counts matching objects.
        found = [each for each in found if chosen(each.value)]
        first, limit = start(request.query), number(request.query, "limit")
        # As on a real server, a negative limit has no effect.
        last = first + limit if limit > 0 else len(found)
        metadata = {"resourceVersion": str(version)}
        if last < len(found):
            metadata["continue"] = str(last)
        return list_text(request.target, metadata, found[first:last])

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
        else:
            return 201, object_text(named, self.registry.create(named, self._given(request)))
        return 201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'

    def _given(self, request: HttpRequest) -> Object:
        """Return the object in the body, converted to the stored version."""
        named = request.target
        check_kind(named, request.body)
        given = typed(named, request.body, strict=_is_strict(request))
        return to_stored(named.kind, named.api_version, given)

    def _write(self, request: HttpRequest) -> Stored:
        if request.method == "PUT":
            return self.registry.replace(request.target, self._given(request))
        content = request.headers.get("Content-Type", "").partition(";")[0]
        patch = PATCHES.get(content)
        if patch is None:
            raise StatusError(415, "415: Unsupported Media Type", details={})
        if content == JSON_PATCH and len(request.body) > MOST_STEPS:
            raise too_large(
                f"The allowed maximum operations in a JSON patch is {MOST_STEPS}, got "
                f"{len(request.body)}"
            )
        named = request.target
        given = request.body if isinstance(request.body, dict) else {}
        strategic = given if content == STRATEGIC else None
        is_strict = _is_strict(request)
        version = (given.get("metadata") or {}).get("resourceVersion")

        def patched(old: Object) -> Object:
            # Apply a patch to the version of the request, for which it was written.
            try:
                new = patch(from_stored(named.kind, named.api_version, old), request.body)
            except PatchError as error:
                raise patch_rejected(error) from None
            new = typed_patch(named, new, strategic, strict=is_strict)
            return to_stored(named.kind, named.api_version, new)

        return self.registry.change(named, patched, version)

    def _delete(self, request: HttpRequest) -> Stored:
        options = dict(request.body)
        if "gracePeriodSeconds" in request.query:
            options["gracePeriodSeconds"] = number(request.query, "gracePeriodSeconds")
        return self.registry.delete(request.target, options)

    def _deleted(self, request: HttpRequest) -> bytes:
        """Delete an object, and return the response: the object, or a Status.

        The response is the object if it is only marked for deletion, or if its kind is in
        ``_RETURNED``.
        """
        target = request.target
        last = self._delete(request)
        is_there = self.registry.store.get(target.kind, target.namespace, target.name)
        if is_there or target.kind.name in _RETURNED:
            return object_text(target, last)
        return json.dumps(deleted(target, last.value["metadata"]["uid"])).encode()

    def _delete_collection(self, request: HttpRequest) -> bytes:
        """Delete all objects that match the selectors. Return them as a list."""
        named, chosen = request.target, request.selector()
        if named.kind.namespaced and not named.namespace:
            raise not_allowed()
        found = []
        for stored in self.registry.store.all(named.kind, named.namespace):
            if chosen(stored.value):
                name = stored.value["metadata"]["name"]
                with contextlib.suppress(StatusError):  # deleted meanwhile
                    found.append(
                        self._delete(attrs.evolve(request, target=attrs.evolve(named, name=name)))
                    )
        return list_text(named, {"resourceVersion": str(self.registry.store.version)}, found)

    def watch(self, request: HttpRequest) -> Watch:
        """Start a watch. Raises StatusError for an invalid selector or option in the query."""
        since = version(request.query)
        seconds = number(request.query, "timeoutSeconds") or 1800
        chosen = request.selector()
        return Watch(
            self.registry.store,
            request.target,
            chosen,
            since,
            seconds,
            initial=wants_initial_events(request.query, watch_list=self.watch_list),
        )


def _is_strict(request: HttpRequest) -> bool:
    """True if the client wants unknown fields to be an error. kubectl does."""
    return request.query.get("fieldValidation") == "Strict"


def _bearer_token(authorization: str | None) -> str | None:
    """Return the token in an ``Authorization`` header; None without a bearer token. Python's client
    writes the scheme as ``bearer``, so its case is ignored."""
    scheme, _, token = (authorization or "").partition(" ")
    return token if scheme.lower() == "bearer" else None


def _accepts_post(target: Target) -> bool:
    if target.name:
        return target.subresource in ("binding", "eviction")
    return bool(target.namespace) is target.kind.namespaced


_RETURNED: Final = frozenset(
    {"Pod", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"}
)
"""Kinds whose deletion returns the object (``ReturnDeletedObject``)."""
