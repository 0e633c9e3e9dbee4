"""The gRPC services of a driver in all API versions, with one implementation.

The messages of all versions have the same fields, but v1beta1 lacks ``share_id`` and
``permanent_error``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, Protocol

import grpc

from protos import (
    dra_v1,
    dra_v1_grpc,
    dra_v1beta1,
    dra_v1beta1_grpc,
    drahealth_v1,
    drahealth_v1_grpc,
    drahealth_v1alpha1,
    drahealth_v1alpha1_grpc,
)

__all__ = [
    "CLAIM_SERVICES",
    "HEALTH_SERVICES",
    "SERVICES",
    "Report",
    "Services",
    "Version",
    "add_services",
]

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"

CLAIM_SERVICES = (V1, V1BETA1)
"""Services that prepare claims, as named in GetInfo's ``supported_versions``; preferred first."""
HEALTH_SERVICES = (HEALTH_V1, HEALTH_V1ALPHA1)
SERVICES = CLAIM_SERVICES + HEALTH_SERVICES

Version = Literal["v1", "v1beta1"]
Report = drahealth_v1.NodeWatchResourcesResponse


class Services(Protocol):
    """Methods that a driver implements, with the protobuf messages of the API version v1.

    A method can abort its gRPC call.

    ``add_services`` serves these methods in all API versions.
    """

    def prepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        """Handle NodePrepareResources."""

    def unprepare_claims(
        self, version: Version, claims: Sequence[dra_v1.Claim], context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        """Handle NodeUnprepareResources."""

    def watch_health(self, context: grpc.ServicerContext) -> Iterator[Report]:
        """Handle NodeWatchResources: yield health reports until the call ends."""


def add_services(services: Services, names: Collection[str], server: grpc.Server) -> None:
    """Add the services with these names to a server; ignore unknown names."""
    if V1 in names:
        dra_v1_grpc.add_DRAPluginServicer_to_server(_ClaimsV1(services), server)
    if V1BETA1 in names:
        dra_v1beta1_grpc.add_DRAPluginServicer_to_server(_ClaimsV1beta1(services), server)
    if HEALTH_V1 in names:
        drahealth_v1_grpc.add_DRAResourceHealthServicer_to_server(_HealthV1(services), server)
    if HEALTH_V1ALPHA1 in names:
        alpha = _HealthV1alpha1(services)
        drahealth_v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(alpha, server)


class _ClaimsV1(dra_v1_grpc.DRAPluginServicer):
    def __init__(self, services: Services) -> None:
        self._services = services

    def NodePrepareResources(
        self, request: dra_v1.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_v1.NodePrepareResourcesResponse:
        return self._services.prepare_claims("v1", request.claims, context)

    def NodeUnprepareResources(
        self, request: dra_v1.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        return self._services.unprepare_claims("v1", request.claims, context)


class _ClaimsV1beta1(dra_v1beta1_grpc.DRAPluginServicer):
    def __init__(self, services: Services) -> None:
        self._services = services

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = _as(dra_v1.NodePrepareResourcesRequest, request)
        response = self._services.prepare_claims("v1beta1", asked.claims, context)
        for entry in response.claims.values():
            # The messages of v1beta1 lack these fields. Otherwise they would be sent as unknown
            # fields.
            entry.ClearField("permanent_error")
            for device in entry.devices:
                device.ClearField("share_id")
        return _as(dra_v1beta1.NodePrepareResourcesResponse, response)

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:
        asked = _as(dra_v1.NodeUnprepareResourcesRequest, request)
        response = self._services.unprepare_claims("v1beta1", asked.claims, context)
        return _as(dra_v1beta1.NodeUnprepareResourcesResponse, response)


class _HealthV1(drahealth_v1_grpc.DRAResourceHealthServicer):
    def __init__(self, services: Services) -> None:
        self._services = services

    def NodeWatchResources(
        self, request: object, context: grpc.ServicerContext
    ) -> Iterator[Report]:
        return self._services.watch_health(context)


class _HealthV1alpha1(drahealth_v1alpha1_grpc.DRAResourceHealthServicer):
    def __init__(self, services: Services) -> None:
        self._services = services

    def NodeWatchResources(self, request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        for report in self._services.watch_health(context):
            yield _as(drahealth_v1alpha1.NodeWatchResourcesResponse, report)


def _as(kind: type[Any], message: Any) -> Any:
    # Fields have the same numbers in all versions, so the bytes are valid in each version.
    return kind.FromString(message.SerializeToString())
