"""Helper process that runs the attacked kubelet. Arguments: ``ROOT SETTINGS [SERVES]``.

SETTINGS is a JSON object with fields of ``Settings``. With SERVES ``control``, the kubelet serves
the control API, and with ``http`` both HTTP and the control API. With ``api``, an API server runs
beside it, and with ``nodes`` an HTTP server for many nodes. With ``nri``, it has an NRI runtime,
and the containers of its pods start.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import sys
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import checkpoint
import checkpoint.dra
from devicemanager import MockKubelet, Settings
from devicemanager.core.ids import PodUid
from devicemanager.core.printable import LONGEST, is_printable
from devicemanager.core.responses import Responses
from devicemanager.testing import pod_manifest
from tools.attack.model import FORWARDED, Target
from tools.harness.model import Broken
from tools.harness.planted import apply
from tools.harness.process import exit_now, serve

if TYPE_CHECKING:
    from devicemanager.kubelet.nri import NriRuntime

_REQUESTS = (
    "wait",
    "wait_for_driver",
    "admit",
    "prepare",
    "request",
    "terminate",
    "end",
    "check",
    "stop",
)
_TIMEOUT = 60.0
_TEXT = "x" * 100_000
"""Text that forwarded ports respond with."""
_LONGEST = 2 * LONGEST
"""Maximum number of characters of an event's message. Escapes make a text longer, so this is more
than the limit for one text."""


class Node:
    """Handlers of the requests that the helper process answers."""

    def __init__(self, kubelet: MockKubelet, url: str | None, *, starts: bool) -> None:
        """``url`` is the URL of good requests, if there are any. ``starts`` is True if the
        containers of admitted pods start."""
        self._kubelet = kubelet
        self._url = url
        self._starts = starts

    def wait(self, resource: str, count: int, timeout: float) -> None:
        self._kubelet.wait_for_resource(resource, count, timeout)

    def admit(self, uid: str, resource: str, count: int) -> list[str]:
        """Admit a pod and return its device IDs. Raises Rejected if the kubelet rejects the pod."""
        manifest = pod_manifest(f"pod-{uid}", {resource: count}, uid=uid)
        self._kubelet.admit(manifest, start=self._starts).raise_for_rejection()
        return self._kubelet.devices(uid)["main"][resource]

    def request(self) -> None:
        """Send a request to the attacked server. Raises Broken if the server rejects it."""
        assert self._url is not None, "no server receives good requests"
        url = urlsplit(self._url)
        client = http.client.HTTPConnection(url.netloc, timeout=_TIMEOUT)
        with contextlib.closing(client):
            client.request("GET", url.path)
            status = client.getresponse().status
        if status != HTTPStatus.OK:
            raise Broken(f"the server responded with {status}")

    def terminate(self, uid: str) -> None:
        self._kubelet.terminate(uid)

    def wait_for_driver(self, driver: str) -> None:
        self._kubelet.wait_for_event("driver-connected", resource=driver, after=0, timeout=60)

    def prepare(self, uid: str, driver: str) -> None:
        """Admit a pod with a ResourceClaim of a driver. Raises Broken if it is not prepared."""
        result = {"driver": driver, "pool": "mock", "device": "d", "request": "r"}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": uid, "uid": uid},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        manifest = pod_manifest(f"pod-{uid}", {}, uid=uid)
        manifest["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": uid}]
        manifest["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
        (container,) = self._kubelet.admit(manifest, claims=claim).containers.values()
        if container.error:
            raise Broken(f"the claim was not prepared: {container.error}")

    def end(self, uid: str) -> None:
        """Terminate a pod of ``prepare``, and delete its claim."""
        self._kubelet.terminate(uid)
        self._kubelet.resource_claims.delete("default", uid)

    def check(self) -> None:
        """Raise errors of the kubelet's threads, and of the checkpoint if it does not match."""
        # Uncollected garbage must not count as memory that the attack has left.
        gc.collect()
        self._kubelet.check()
        for event in self._kubelet.events.recent():
            if not is_printable(event.message) or "\n" in event.message:
                raise Broken(f"an event has unsafe characters: {event.message!r:.200}")
            if len(event.message) > _LONGEST:
                raise Broken(f"an event has {len(event.message)} characters")
        checkpoint.load(self._kubelet.checkpoint_path)
        if self._kubelet.dra_state_path.exists():
            checkpoint.dra.loads(self._kubelet.dra_state_path.read_bytes())

    def stop(self) -> None:
        self._kubelet.stop()


def _runtime(root: str, serves: str = "") -> contextlib.AbstractContextManager[NriRuntime | None]:
    if serves != "nri":
        return contextlib.nullcontext()
    from devicemanager.kubelet.nri import NriRuntime

    return NriRuntime(Target(Path(root)).nri)


@contextlib.contextmanager
def _serving(kubelet: MockKubelet, root: str, serves: str = "") -> Iterator[str | None]:
    """Run the additional server, and yield the URL of good requests, if there are any."""
    target = Target(Path(root))
    # The servers are imported here: most attacks need none, and their imports take a third of the
    # start.
    match serves:
        case "control":
            from devicemanager.control import ControlServer

            with ControlServer(kubelet):
                yield None
        case "http":
            from devicemanager.control import ControlServer
            from devicemanager.observe.web import HttpServer

            with HttpServer(kubelet, "127.0.0.1:0", control=ControlServer(kubelet)):
                yield None
        case "api":
            from devicemanager.apiserver import FakeApiServer

            with FakeApiServer() as server:
                server.kubeconfig(target.kubeconfig)
                yield f"{server.url}/api/v1/nodes"
        case "nodes":
            from devicemanager.observe.web.nodes import NodesServer

            kubelet.admit(pod_manifest(FORWARDED, {}, uid=FORWARDED))
            kubelet.pod_store.known(PodUid(FORWARDED)).responses = Responses(port_forward=_TEXT)
            with NodesServer("127.0.0.1:0", lambda: {"node": kubelet}) as nodes:
                target.nodes.write_text(str(nodes.address))
                yield f"http://{nodes.address}/nodes/node/pods"
        case _:
            yield None


def main(arguments: Sequence[str]) -> None:
    """Answer requests until standard input is closed."""
    apply()
    root, settings, *serves = arguments
    with (
        _runtime(root, *serves) as runtime,
        MockKubelet(root, Settings(**json.loads(settings)), runtime=runtime) as kubelet,
        _serving(kubelet, root, *serves) as url,
    ):
        if runtime is not None:
            kubelet.admit(pod_manifest("lasting", {}))  # plugins can update its container
        node = Node(kubelet, url, starts=runtime is not None)
        serve({name: getattr(node, name) for name in _REQUESTS})
        kubelet.stop()
    # Hostile calls may still be in progress.
    exit_now()


if __name__ == "__main__":
    main(sys.argv[1:])
