"""Targets that read what came over a socket: plugins, PodResources clients and servers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tools.fuzz.files import one_line
from tools.fuzz.guard import Run
from tools.fuzz.model import Target

if TYPE_CHECKING:
    from devicemanager.kubelet.runtime.oci import HostNode


def targets() -> list[Target]:
    """By message."""
    return [
        Target(
            "list",
            "two ListAndWatchResponses, of a plugin",
            _list,
            ("devicemanager.kubelet.wire", "devicemanager.core"),
            ("Healthy", "Unhealthy"),
        ),
        Target(
            "allocate",
            "a ContainerAllocateResponse, of a plugin; and what OCI rendering makes of it",
            _allocate,
            (
                "devicemanager.kubelet.wire",
                "devicemanager.core.runoptions",
                "devicemanager.kubelet.runtime",
            ),
            ("/dev/null", "rwm", "vendor.com/class=name", "0000:3b:00.0"),
        ),
        Target(
            "register",
            "a RegisterRequest, of a plugin",
            _register,
            (
                "devicemanager.kubelet.registration",
                "devicemanager.core.api",
                "devicemanager.core.messages",
            ),
            ("v1beta1", "example.com/d", "kubernetes.io/", "requests."),
        ),
        Target(
            "podresources",
            "requests of a PodResources client, and answers of a server",
            _podresources,
            ("podresources",),
        ),
    ]


def _list() -> Run:
    from devicemanager.core.inventory import EMPTY, device_list_from
    from devicemanager.kubelet.wire.errors import WireError
    from devicemanager.kubelet.wire.lists import ListReader, device_columns

    def run(data: bytes) -> None:
        middle = data[0] * len(data) // 256 if data else 0
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
                assert same, f"{name} of a list are read otherwise after another list"
            known = device_list_from(columns, known)

    return run


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
        assert settings_from_bytes(settings_to_bytes(settings)) == settings, "written, it differs"
        options = merge({ResourceName("a.b/c"): settings, ResourceName("a.b/d"): settings})
        try:
            fragment = render(options, cdi.Registry(), nodes)
        except (OciError, cdi.CdiError) as error:
            return one_line(str(error))
        json.dumps(fragment.config)

    return run


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
            return  # gRPC answers that itself
        name, fault = request.resource_name, extended_resource_fault(request.resource_name)
        assert is_extended_resource_name(name) == (fault is None), (name, fault)
        if fault is None:
            assert "/" in name and name.isascii() and name.isprintable() and len(name) < 400, name
        if endpoint_problem(request.endpoint) is None:
            assert request.endpoint not in {"", ".", ".."}
            assert not {"/", "\0"} & set(request.endpoint), request.endpoint
        go_quoted(request.version)

    return run


def _podresources() -> Run:
    from google.protobuf.message import DecodeError

    from podresources import decoding
    from podresources.counters import Counters
    from podresources.rendering import as_dict
    from podresources.service import Rejection, Service
    from podresources.source import MemorySource
    from podresources.values import Pod

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
