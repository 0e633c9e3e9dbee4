"""Client that calls a driver directly, to make calls that a kubelet would not make."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from devicemanager.conformance.client import CallFailed
from podresources import sockets
from protos import (
    dra_v1,
    dra_v1_grpc,
    dra_v1beta1_grpc,
    drahealth_v1,
    drahealth_v1_grpc,
    drahealth_v1alpha1_grpc,
)
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

__all__ = ["CLAIM_SERVICES", "HEALTH_SERVICES", "DriverClient", "get_info"]

CLAIM_SERVICES: Mapping[str, tuple[str, str]] = {
    "v1.DRAPlugin": (
        dra_v1_grpc.NODE_PREPARE_RESOURCES,
        dra_v1_grpc.NODE_UNPREPARE_RESOURCES,
    ),
    "v1beta1.DRAPlugin": (
        dra_v1beta1_grpc.NODE_PREPARE_RESOURCES,
        dra_v1beta1_grpc.NODE_UNPREPARE_RESOURCES,
    ),
}
"""gRPC paths of NodePrepareResources and NodeUnprepareResources, for each version of the service.

The key is the name that a driver reports in ``PluginInfo.supported_versions``.
"""
HEALTH_SERVICES: Mapping[str, str] = {
    "v1.DRAResourceHealth": drahealth_v1_grpc.NODE_WATCH_RESOURCES,
    "v1alpha1.DRAResourceHealth": drahealth_v1alpha1_grpc.NODE_WATCH_RESOURCES,
}
# The kubelet's deadline for both calls (pkg/kubelet/cm/dra/plugin/dra_plugin.go, v1.36).
_SECONDS = 45.0


class DriverClient:
    """Connection to a driver's service socket. Each method raises CallFailed if the call fails.

    ``service`` is one of the driver's supported_versions, such as ``v1.DRAPlugin``. All versions of
    the service have the same messages.
    """

    def __init__(self, path: Path, service: str) -> None:
        self._channel = grpc.insecure_channel(sockets.target(path), sockets.CHANNEL_OPTIONS)
        self._prepare, self._unprepare = CLAIM_SERVICES[service]

    def prepare(
        self, *claims: dra_v1.Claim, seconds: float = _SECONDS
    ) -> Mapping[str, dra_v1.NodePrepareResourceResponse]:
        """Call NodePrepareResources, and return the entries of the response by claim UID."""
        request = dra_v1.NodePrepareResourcesRequest(claims=claims)
        response = self._call(
            self._prepare, request, dra_v1.NodePrepareResourcesResponse.FromString, seconds
        )
        entries: Mapping[str, dra_v1.NodePrepareResourceResponse] = response.claims
        return entries

    def unprepare(
        self, *claims: dra_v1.Claim, seconds: float = _SECONDS
    ) -> Mapping[str, dra_v1.NodeUnprepareResourceResponse]:
        """Call NodeUnprepareResources, and return the entries of the response by claim UID."""
        request = dra_v1.NodeUnprepareResourcesRequest(claims=claims)
        response = self._call(
            self._unprepare, request, dra_v1.NodeUnprepareResourcesResponse.FromString, seconds
        )
        entries: Mapping[str, dra_v1.NodeUnprepareResourceResponse] = response.claims
        return entries

    @contextlib.contextmanager
    def health(
        self, service: str, seconds: float
    ) -> Iterator[Iterator[drahealth_v1.NodeWatchResourcesResponse]]:
        """Open a health stream, and yield an iterator of its reports.

        The iterator raises CallFailed when the stream ends, and at the latest ``seconds`` after the
        stream was opened.
        """
        path = HEALTH_SERVICES[service]
        begin = self._channel.unary_stream(
            path,
            request_serializer=drahealth_v1.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=drahealth_v1.NodeWatchResourcesResponse.FromString,
        )
        call = begin(drahealth_v1.NodeWatchResourcesRequest(), timeout=seconds)
        try:
            yield _reports(call)
        finally:
            # Otherwise the stream would stay open until its deadline, and a driver that serves only
            # one stream would reject the next one.
            call.cancel()

    def _call(self, path: str, request: Any, read: Any, seconds: float) -> Any:
        call = self._channel.unary_unary(path, type(request).SerializeToString, read)
        try:
            return call(request, timeout=seconds)
        except grpc.RpcError as error:
            raise CallFailed(path.rpartition("/")[2], error) from None

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _reports(call: Any) -> Iterator[drahealth_v1.NodeWatchResourcesResponse]:
    try:
        yield from call
    except grpc.RpcError as error:
        raise CallFailed("NodeWatchResources", error) from None
    # A health stream has no end. If it ends without an error, that is a failure, too.
    raise CallFailed("NodeWatchResources", grpc.RpcError("the driver ended the stream"))


def get_info(path: Path, seconds: float = 5.0) -> pr.PluginInfo:
    """Call GetInfo on a registration socket, and return the response. Raises CallFailed."""
    with grpc.insecure_channel(sockets.target(path), sockets.CHANNEL_OPTIONS) as channel:
        try:
            info: pr.PluginInfo = pr_grpc.RegistrationStub(channel).GetInfo(
                pr.InfoRequest(), timeout=seconds
            )
        except grpc.RpcError as error:
            raise CallFailed("GetInfo", error) from None
    return info
