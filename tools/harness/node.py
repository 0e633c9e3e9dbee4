"""Kubelet in this process with a plugin in a helper process, and checks that must hold for both."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final, Self

import checkpoint
from devicemanager.kubelet.mock import MockKubelet
from devicemanager.kubelet.settings import Settings
from podresources.client import PodResourcesClient
from podresources.values import Pod
from tools.harness.model import (
    Broken,
    Devices,
    check_disjoint,
    check_same,
    devices,
    devices_on_disk,
)
from tools.harness.plugin import RESOURCE, SOCKET, plugin_process

TIMEOUT: Final = 60.0
"""Seconds within which all devices of a restarted plugin must be registered again, under any
load."""

# Use a short call log: it is full after the first lap, so it does not look like a leak.
_SETTINGS: Final = Settings(pod_resources_qps=None, calls_kept=100)


class Node:
    """Kubelet with a plugin, for use as a context manager."""

    def __init__(self, number_devices: int) -> None:
        self.number_devices = number_devices
        self.kubelet = MockKubelet(settings=_SETTINGS)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # The plugin must exit first, because the kubelet deletes its directory.
            stack.enter_context(self.kubelet)
            self._plugin = stack.enter_context(
                plugin_process(self.kubelet.plugin_dir, self.number_devices, nodes=2)
            )
            self.start_plugin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def plugin_socket(self) -> Path:
        return self.kubelet.plugin_dir / SOCKET

    def start_plugin(self) -> None:
        """Start or restart the plugin. Return when the kubelet has all its devices."""
        self._plugin.ask("start", timeout=TIMEOUT)
        self.wait_for_devices()

    def wait_for_devices(self) -> None:
        """Wait until the kubelet has all devices of the plugin."""
        self.kubelet.wait_for_resource(RESOURCE, self.number_devices, TIMEOUT)

    def check(self, allocated: Mapping[str, Devices]) -> None:
        """Raise Broken or InternalError if the kubelet, PodResources or the checkpoint does not
        show exactly the ``allocated`` devices.

        No calls may be in progress.
        """
        kubelet = self.kubelet
        kubelet.check()
        kubelet.manager.self_check()
        check_disjoint(allocated)
        known = {uid: _of_containers(kubelet.devices(uid)) for uid in kubelet.pods()}
        check_same("the kubelet", known, allocated)
        if len(managed := kubelet.manager.pods()) != len(allocated):
            raise Broken(f"{len(managed)} pods have devices, expected {len(allocated)}")
        saved = devices_on_disk(checkpoint.load(kubelet.checkpoint_path))
        check_same("the checkpoint", saved, allocated)
        with PodResourcesClient(kubelet.pod_resources_socket) as client:
            check_same("PodResources", {pod.name: listed(pod) for pod in client.list()}, allocated)


def listed(pod: Pod) -> Devices:
    """Return the devices of a pod in a PodResources response as a set of texts ``RESOURCE ID``."""
    of = (each for container in pod.containers for each in container.devices)
    return frozenset(chain.from_iterable(devices({d.resource_name: d.device_ids}) for d in of))


def _of_containers(by_container: Mapping[str, Mapping[str, list[str]]]) -> Devices:
    return frozenset(chain.from_iterable(map(devices, by_container.values())))
