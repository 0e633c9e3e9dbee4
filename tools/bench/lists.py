"""Benchmark device lists, from the plugin's message to the kubelet's capacity."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import grpc

from devicemanager.events.stream import Event, EventKind
from devicemanager.kubelet.mock import MockKubelet
from podresources import sockets
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tools.attack.lists import WORST
from tools.bench.clock import now
from tools.bench.environment import Helper, PluginProcess, node
from tools.bench.model import Case, Measurement, Scale

_HOSTILE: Final = "tools.bench.hostile"
_NODES: Final = 2
_REPEATS: Final = 50
_TIMEOUT: Final = 60.0
_KUBELET, _RAW = 0, 1
"""Numbers of the plugin's streams: the kubelet's stream, opened first, and one that is only
read."""


def cases(scale: Scale) -> list[Case]:
    """Return the cases: changed, identical, large and hostile device lists, and many plugins."""
    return [
        Case("change", partial(_change, scale.devices, scale.samples)),
        Case("identical", partial(_identical, scale.devices, -(-scale.samples // 10))),
        Case("large", partial(_large, scale.many_devices)),
        Case("plugins", partial(_plugins, scale.plugins)),
        Case("list-4-mib", partial(_worst, scale.worst_lists)),
    ]


class _Listed:
    """Recorder of the times at which device lists took effect. It uses the event that the kubelet
    publishes immediately afterwards."""

    def __init__(self, kubelet: MockKubelet, *others: EventKind) -> None:
        """``others`` are additional event kinds to record."""
        self._kinds = (EventKind.DEVICES_UPDATED, *others)
        self._times: queue.SimpleQueue[float] = queue.SimpleQueue()
        kubelet.events.subscribe(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.kind in self._kinds:
            self._times.put(now())

    # The callback of the event measures the time, because the waiting thread wakes up later.
    def next(self) -> float:
        """Wait for the next list and return the time at which it took effect."""
        return self._times.get(timeout=_TIMEOUT)


def _change(devices: int, samples: int) -> list[Measurement]:
    with node(devices, _NODES) as (kubelet, plugin):
        listed = _Listed(kubelet)
        taken = [_visible(plugin, listed) for _ in range(samples)]
    name = f"one health change of {devices} devices, sent to counted"
    return [Measurement(name, taken, at_most=6)]


def _visible(plugin: PluginProcess, listed: _Listed, repeats: int = 0) -> float:
    begin = plugin.change(_KUBELET, repeats)
    return (listed.next() - begin) * 1000


def _identical(devices: int, samples: int) -> list[Measurement]:
    """Send identical lists followed by a changed one, and subtract the time of the changed list.

    The baseline is a client that only reads the messages.
    """
    seen: list[float] = []
    read: list[float] = []
    with node(devices, _NODES) as (kubelet, plugin), _raw_stream(plugin) as raw:
        listed = _Listed(kubelet)
        for _ in range(samples):
            # An identical list has no visible effect. Therefore measure by how much it delays the
            # changed list that follows.
            alone = _visible(plugin, listed)
            seen.append((_visible(plugin, listed, _REPEATS) - alone) / _REPEATS)
            alone = _read(plugin, raw)
            read.append((_read(plugin, raw, _REPEATS) - alone) / _REPEATS)
    beyond = [ours - theirs for ours, theirs in zip(seen, read, strict=True)]
    name = f"an identical list of {devices} devices"
    return [
        Measurement(name, seen, against="only read", baseline=read),
        Measurement(f"{name}, beyond reading it", beyond, at_most=0.2),
    ]


@contextlib.contextmanager
def _raw_stream(plugin: PluginProcess) -> Iterator[Iterator[bytes]]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(sockets.target(plugin.socket), options) as channel:
        call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            dp_grpc.LIST_AND_WATCH
        )
        stream = call(b"")
        next(stream)
        yield stream


def _read(plugin: PluginProcess, raw: Iterator[bytes], repeats: int = 0) -> float:
    # Start to read in a thread immediately, because unread messages stay in the connection.
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(_read_all, raw, repeats + 1)
        begin = plugin.change(_RAW, repeats)
        return (last.result() - begin) * 1000


def _read_all(raw: Iterator[bytes], count: int) -> float:
    for _ in range(count):
        next(raw)
    return now()


def _large(devices: int) -> list[Measurement]:
    with MockKubelet() as kubelet, PluginProcess(kubelet.plugin_dir, devices, _NODES) as plugin:
        listed = _Listed(kubelet)
        begin = plugin.register()
        first = (listed.next() - begin) * 1000
        changed = [_visible(plugin, listed) for _ in range(5)]
    return [
        Measurement(f"{devices} devices, registration to counted", [first]),
        Measurement(f"one health change of {devices} devices, sent to counted", changed),
    ]


def _plugins(count: int) -> list[Measurement]:
    with (
        MockKubelet() as kubelet,
        PluginProcess(kubelet.plugin_dir, 8, sockets=count) as plugin,
    ):
        listed = _Listed(kubelet)
        begin = plugin.register()
        last = max(listed.next() for _ in range(count))
    return [Measurement(f"{count} plugins at once, to all counted", [(last - begin) * 1000])]


def _worst(count: int) -> list[Measurement]:
    """Send each kind of hostile list, and return the time of the slowest one."""
    with MockKubelet() as kubelet, Helper(_HOSTILE, kubelet.plugin_dir) as plugin:
        answered = _Listed(kubelet, EventKind.STREAM_ENDED)
        taken = []
        for name in list(WORST)[:count]:
            begin = float(plugin.ask(name))
            taken.append((answered.next() - begin) * 1000)
    name = "the worst list of 4 MiB, registration to counted or rejected"
    return [Measurement(name, [max(taken)], at_most=3000)]
