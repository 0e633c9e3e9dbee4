"""Fuzz targets that read messages: from plugins, PodResources clients and servers, and control API
clients."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from tools.fuzz.model import Run, one_line, scratch, target

_TEXT, _DEVICES, _NAMES = 1000, 1024, 2048

if TYPE_CHECKING:
    from devicemanager.kubelet.runtime.oci import HostNode


@target(
    "list",
    "two ListAndWatchResponses, from a plugin",
    "a device list stops the kubelet, or devices depend on earlier lists",
    "devicemanager.kubelet.wire devicemanager.core",
    words="Healthy Unhealthy",
    planted="lists of one length are equal",
)
def _list() -> Run:
    from devicemanager.core.inventory import EMPTY, device_list_from
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.kubelet.wire.lists import ListReader, device_columns

    def run(data: bytes) -> None:
        middle = data[0] * len(data) // 256 if data else 0
        # The reader reuses parts of the previous list. This must not change the result.
        reader, known = ListReader(), EMPTY
        for part in (data[:middle], data[middle:], data[:middle]):
            try:
                columns = reader.read(part)
            except WireError as error:
                one_line(str(error))
                continue
            alone = device_columns(part)
            for name in ("ids", "health", "numa"):
                same = list(getattr(columns, name)) == list(getattr(alone, name))
                assert same, f"{name} depend on the previous list"
            known = device_list_from(columns, known)

    return run


@target(
    "allocate",
    "a ContainerAllocateResponse, from a plugin; and OCI rendering of it",
    "a response stops the kubelet, or is rendered differently",
    "devicemanager.kubelet.wire devicemanager.core.runoptions devicemanager.kubelet.runtime",
    words="/dev/null rwm vendor.com/class=name 0000:3b:00.0",
    planted="texts are not escaped",
)
def _allocate() -> Run:
    from devicemanager.core.ids import ResourceName
    from devicemanager.core.runoptions import merge
    from devicemanager.kubelet.runtime import cdi
    from devicemanager.kubelet.runtime.oci import HostNode, OciError, render
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.kubelet.wire.settings import settings_from_bytes, settings_to_bytes

    def nodes(path: str) -> Mapping[str, HostNode]:
        return {"": HostNode("c", 1, 3)}

    def run(data: bytes) -> None:
        try:
            settings = settings_from_bytes(data)
        except WireError as error:
            return one_line(str(error))
        assert settings_from_bytes(settings_to_bytes(settings)) == settings, (
            "different when written"
        )
        options = merge({ResourceName("a.b/c"): settings, ResourceName("a.b/d"): settings})
        try:
            fragment = render(options, cdi.Registry(), nodes)
        except (OciError, cdi.CdiError) as error:
            return one_line(str(error))
        json.dumps(fragment.config)

    return run


@target(
    "dra-response",
    "NodePrepareResourcesResponse and NodeUnprepareResourcesResponse, from a DRA driver",
    "a response stops the DRA manager, or fills the state file",
    "devicemanager.kubelet.dra.connection devicemanager.core.dra checkpoint.dra",
    words=("\n\x05\n\x03uid\x12", "pool", "gpu-0", "request/sub", "vendor.com/class=name"),
    planted="drivers respond without limit",
)
def _dra_response() -> Run:
    from google.protobuf.message import DecodeError

    import checkpoint.dra
    from checkpoint.dra import StateDocument
    from devicemanager.core.dra.cache import ClaimCache
    from devicemanager.core.dra.drivers import Drivers
    from devicemanager.core.dra.effects import Answer, Steps
    from devicemanager.core.dra.errors import DraError
    from devicemanager.core.dra.model import AllocationResult, PodClaim, PodClaims, ResourceClaim
    from devicemanager.core.dra.prepare import prepare
    from devicemanager.core.dra.rules import DraRules
    from devicemanager.core.dra.unprepare import unprepare
    from devicemanager.core.errors import RpcError
    from devicemanager.kubelet.dra import connection
    from devicemanager.kubelet.settings import Settings
    from tools.fuzz.dra import drive

    pod = PodClaims("pod", "pod", "default", (PodClaim("c", claim="name"),))
    claim = ResourceClaim("default", "name", "uid", (AllocationResult("d"),), reserved=("pod",))
    rules = DraRules(Settings().behaviour, frozenset())

    def run(data: bytes) -> None:
        cache, drivers = ClaimCache(), Drivers(rules)
        drivers.register("d", "/d.sock", ["v1.DRAPlugin"], 0.0)

        def call(steps: Steps, decode: Callable[[bytes], Answer]) -> None:
            respond = partial(connection._limited, decode, connection._MAX_BYTES, data)
            try:
                drive(steps, claim, respond)
            except (DecodeError, UnicodeDecodeError, RpcError):
                pass  # the call fails
            except DraError as error:
                assert len(str(error)) < len(data) + _TEXT, "an error is longer than the response"

        call(prepare(pod, cache, drivers, rules), partial(connection._prepared, "v1"))
        for each in cache:
            count = sum(len(state.devices or ()) for state in each.drivers.values())
            assert count <= _DEVICES, f"{count} devices of a claim"
        text = StateDocument().render(cache.snapshot())
        assert checkpoint.dra.dumps(checkpoint.dra.loads(text)) == text, "different when read again"
        call(unprepare(pod, cache, drivers, rules), connection._unprepared)

    return run


@target(
    "dra-health",
    "NodeWatchResourcesResponse, from a DRA driver",
    "a health report stops its stream, or its file cannot be read",
    "devicemanager.kubelet.dra.health devicemanager.core.dra.health",
    planted="device names are not limited",
)
def _dra_health() -> Run:
    from google.protobuf.message import DecodeError

    from devicemanager.core.dra.health import HealthCache
    from devicemanager.core.dra.rules import DraRules
    from devicemanager.io.clock import ManualClock
    from devicemanager.kubelet.dra import health
    from devicemanager.kubelet.settings import Settings

    clock = ManualClock(1000.0)
    file = health.HealthFile(scratch(), clock)
    rules = DraRules(Settings().behaviour, frozenset())

    def run(data: bytes) -> None:
        try:
            devices, _ = health._devices(data)
        except (DecodeError, UnicodeDecodeError):
            return
        cache = HealthCache(rules)
        cache.report("d", devices, clock.monotonic())
        known = cache.snapshot()["d"]
        assert all(len(key.pool) + len(key.device) <= _NAMES for key in known), "a long name"
        file.write(cache.snapshot)
        # Two devices can have one key in the file, such as a/b with c and a with b/c.
        assert file.load()["d"].items() <= known.items(), "different when read again"

    return run


@target(
    "register",
    "a RegisterRequest, from a plugin",
    "a registration stops the kubelet",
    "devicemanager.kubelet.registration devicemanager.core.api devicemanager.core.messages",
    words="v1beta1 example.com/d kubernetes.io/ requests.",
    planted="an endpoint can be any path",
)
def _register() -> Run:
    from google.protobuf.message import DecodeError

    from devicemanager.core.api.names import extended_resource_fault, is_extended_resource_name
    from devicemanager.core.messages import go_quoted
    from devicemanager.kubelet.registration.server import endpoint_problem
    from protos import deviceplugin_v1beta1 as dp

    def run(data: bytes) -> None:
        try:
            request = dp.RegisterRequest.FromString(data)
        except DecodeError:
            return  # gRPC itself rejects such a message
        name, fault = request.resource_name, extended_resource_fault(request.resource_name)
        assert is_extended_resource_name(name) == (fault is None), (name, fault)
        if fault is None:
            assert "/" in name and name.isascii() and name.isprintable() and len(name) < 400, name
        if endpoint_problem(request.endpoint) is None:
            assert request.endpoint not in {"", ".", ".."}
            assert not {"/", "\0"} & set(request.endpoint), request.endpoint
        go_quoted(request.version)

    return run


@target(
    "podresources",
    "requests of a PodResources client, and responses of a server",
    "a request stops the server, or a response stops the client",
    "podresources",
    planted="requests are not checked",
)
def _podresources() -> Run:
    from google.protobuf.message import DecodeError

    from podresources import decoding
    from podresources.counters import Counters
    from podresources.rendering import as_dict
    from podresources.service import Rejection, Service
    from podresources.source import MemorySource
    from podresources.values import Pod

    # The server would log an unexpected error. Here, such an error is a finding.
    def failed(error: Exception) -> None:
        raise error

    source = MemorySource([Pod("a", "default")])
    service = Service(source, limiter=None, counters=Counters(), on_error=failed)

    def run(data: bytes) -> None:
        for method in service.methods():
            with contextlib.suppress(Rejection):
                service.answer(method, data)
        for read in (
            decoding.pods_from_bytes,
            decoding.pods_from_v1alpha1_bytes,
            decoding.pod_from_bytes,
            decoding.allocatable_from_bytes,
        ):
            with contextlib.suppress(DecodeError):
                json.dumps(as_dict(read(data)))

    return run


class _Query:
    def __init__(self, text: str) -> None:
        self._text = text

    def multi_items(self) -> list[tuple[str, str]]:
        return parse_qsl(self._text, keep_blank_values=True)


@target(
    "control-api",
    "a request to the control API, from any client",
    "a request stops the control API without a cause",
    "devicemanager.control devicemanager.faults",
    words='"timeout" "spec" "kind" "options" since= follow=true & e9 []',
    planted="any body is decoded",
)
def _request() -> Run:
    from devicemanager.control.errors import HttpError, problem_of
    from devicemanager.control.nodes import operations as nodes
    from devicemanager.control.operations import TABLE
    from devicemanager.control.request import decode_body, decode_query
    from devicemanager.control.shapes import SetFault
    from devicemanager.faults import Fault, FaultError

    def run(data: bytes) -> None:
        # The first line of the input has the operation's name and the query. The rest is the body.
        head, _, body = data.partition(b"\n")
        name, _, query = head.decode("latin-1").partition("?")
        for operation in (*TABLE, *nodes.TABLE):
            # Without a name, pass the body to every operation, so that one input reaches all
            # decoders.
            if name not in ("", operation.name):
                continue
            try:
                decode_query(operation, _Query(query))
                asked = None if operation.body is None else decode_body(operation, body)
                # The operation would parse the fault, but it is not called here, so parse it.
                if isinstance(asked, SetFault):
                    Fault.parse(asked.spec)
                    Fault.of(asked.kind, **asked.options)
            except (HttpError, FaultError) as error:
                one_line(problem_of(error).detail)

    return run


def _is_ours(host: str, listens_on: str) -> bool:
    name, _, port = host.rpartition(":")
    allowed = {"127.0.0.1": ("127.0.0.1", "localhost"), "::1": ("[::1]", "localhost")}
    if listens_on in allowed:
        return name in allowed[listens_on] and port == "8001"
    if name == "localhost":
        return port == "8001"  # no web site has this name
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return port == "8001"
    return False


@target(
    "control-access",
    "Host, Origin and Authorization of a request over TCP, from any client",
    "a web page or another user controls the kubelet",
    "devicemanager.control",
    words=("127.0.0.1:8001", "[::1]:", "localhost:8001", "http://", "Bearer ", "token\n"),
    planted="the Host header is not checked",
)
def _access() -> Run:
    from devicemanager.control.access import Access, TcpAddress
    from devicemanager.control.errors import HttpError

    accesses = [Access(TcpAddress(host, 8001), "token") for host in ("127.0.0.1", "::1", "0.0.0.0")]

    def run(data: bytes) -> None:
        host, _, rest = data.decode("latin-1").partition("\n")
        origin, _, authorization = rest.partition("\n")
        headers = {"host": host, "authorization": authorization}
        if origin:
            headers["origin"] = origin
        for access in accesses:
            try:
                access.check_sender(headers)
                access.check_token(headers)
            except HttpError as error:
                one_line(str(error))
            else:
                # An accepted request must name the listener, and must have had the token. A web
                # page can send requests to any address, but under the name of its own site.
                assert _is_ours(host, access.address.host), f"accepted the Host {host!r:.200}"
                assert authorization.lower().startswith("bearer")
                assert authorization.split()[1:] == ["token"]

    return run
