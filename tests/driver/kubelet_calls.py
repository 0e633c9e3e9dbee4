"""A kubelet's calls of a driver, without a kubelet: register it, and prepare claims."""

import contextlib
from pathlib import Path

import grpc

from podresources.sockets import CHANNEL_OPTIONS, target
from protos import dra_v1, dra_v1_grpc, drahealth_v1, drahealth_v1_grpc
from protos import pluginregistration_v1 as pr
from protos import pluginregistration_v1_grpc as pr_grpc

__all__ = ["KubeletCalls"]


class KubeletCalls(contextlib.ExitStack):
    """Calls of one driver instance."""

    def __init__(self, registration_socket):
        super().__init__()
        registration = pr_grpc.RegistrationStub(self._channel(registration_socket))
        self.info = registration.GetInfo(pr.InfoRequest(), wait_for_ready=True, timeout=10)
        registration.NotifyRegistrationStatus(
            pr.RegistrationStatus(plugin_registered=True), timeout=10
        )
        self.channel = self._channel(Path(self.info.endpoint))
        self._claims = dra_v1_grpc.DRAPluginStub(self.channel)

    def _channel(self, path):
        return self.enter_context(grpc.insecure_channel(target(path), CHANNEL_OPTIONS))

    def prepare(self, *claims, timeout=20):
        """Call NodePrepareResources; return the entry of each claim, by UID."""
        request = dra_v1.NodePrepareResourcesRequest(claims=map(_claim, claims))
        return self._claims.NodePrepareResources(request, timeout=timeout).claims

    def unprepare(self, *claims, timeout=20):
        """Call NodeUnprepareResources; return the entry of each claim, by UID."""
        request = dra_v1.NodeUnprepareResourcesRequest(claims=map(_claim, claims))
        return self._claims.NodeUnprepareResources(request, timeout=timeout).claims

    def health(self):
        """Open the stream of health reports."""
        stub = drahealth_v1_grpc.DRAResourceHealthStub(self.channel)
        return stub.NodeWatchResources(drahealth_v1.NodeWatchResourcesRequest(), timeout=20)


def _claim(claim):
    metadata = claim["metadata"]
    return dra_v1.Claim(**{key: metadata[key] for key in ("namespace", "name", "uid")})
