"""A PodResources client that is correct, except for the faults that its switches add.

Usage: ``python exporter.py --socket PATH [--port PORT] [--switch NAME]...``. It uses gRPC and HTTP
directly, because the client of this project prevents most of these faults.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc

from protos import podresources_v1 as v1

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d")
EVERY = 0.2
"""Seconds between two queries."""
_SIXTEEN_MIB = 16 << 20
_DEADLINE = 5.0
"""Seconds for a call. A busy machine needs more than a second for a huge response."""


def die(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    os._exit(3)


class Exporter:
    """Queries the kubelet again and again, and stores the lines of its page."""

    def __init__(self, path: str, switches: set[str]) -> None:
        self.path = path
        self.switches = switches
        self.lines: list[str] = []
        self.kept: list[Any] = []
        self.seen: list[list[str]] = []
        self.channel = self.connect()
        self.created = 0

    def connect(self) -> grpc.Channel:
        size = 4 << 20 if "small-messages" in self.switches else _SIXTEEN_MIB
        return grpc.insecure_channel(
            f"unix:{self.path}",
            options=[
                ("grpc.max_receive_message_length", size),
                # Each channel has its own connection; by default gRPC shares them.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 200),
            ],
        )

    def call(self, name: str, request: Any, answer: Any) -> Any:
        version = "v1"
        return self.channel.unary_unary(
            f"/{version}.PodResourcesLister/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )(request, timeout=None if "no-deadline" in self.switches else _DEADLINE)

    def run(self) -> None:
        switches = self.switches
        if "needs-socket" in switches and not Path(self.path).exists():
            die("no kubelet")
        if "silent" in switches:
            time.sleep(3600)
        if "test-calls" in switches:
            # It exits if one of them fails, and makes its first query at once.
            self.read_allocatable()
            time.sleep(EVERY)
            self.query()
        while True:
            if "leaks-on-restart" in switches:
                self.notice_restart()
            try:
                self.query()
            except grpc.RpcError as error:
                print(error.code().name, error.details(), flush=True)
                self.failed(error)
                if "hot-loop" in switches:
                    continue
            if "once" in switches:
                time.sleep(3600)
            if "leak" in switches:
                self.kept.append(self.connect())
                grpc.channel_ready_future(self.kept[-1]).result(5)
            time.sleep(0 if "greedy" in switches else EVERY)

    def read_allocatable(self) -> None:
        answer = self.call(
            "GetAllocatableResources",
            v1.AllocatableResourcesRequest(),
            v1.AllocatableResourcesResponse,
        )
        nodes = {node.ID for entry in answer.devices for node in entry.topology.nodes}
        if "few-nodes-at-start" in self.switches and max(nodes) > 7:
            die(f"panic: no node {max(nodes)}")

    def notice_restart(self) -> None:
        """Open a file after each restart, and do not close it."""
        with contextlib.suppress(OSError):
            created = Path(self.path).stat().st_ctime_ns
            if created != self.created:
                self.created = created
                os.open(os.devnull, os.O_RDONLY)

    def failed(self, error: grpc.RpcError) -> None:
        switches, code = self.switches, error.code().name
        if "ends-without-kubelet" in switches and not Path(self.path).exists():
            die("lost the kubelet")
        if "hangs-without-kubelet" in switches and not Path(self.path).exists():
            time.sleep(3600)
        if "ends-on-error" in switches and "conformance" in (error.details() or ""):
            die(f"error {code}")
        if "ends-on-limit" in switches and "rate limit" in (error.details() or ""):
            die("rate limit")
        if "needs-v1" in switches and code == "UNIMPLEMENTED":
            die("needs v1")

    def query(self) -> None:
        switches = self.switches
        if "needs-allocatable" in switches:
            self.read_allocatable()
        answer = self.call("List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
        pods = list(answer.pod_resources)
        if "needs-pods" in switches and not pods:
            die("no pods")
        if "gets" in switches:
            for pod in pods:
                request = v1.GetPodResourcesRequest(pod_name=pod.name, pod_namespace=pod.namespace)
                try:
                    self.call("Get", request, v1.GetPodResourcesResponse)
                except grpc.RpcError as error:
                    die(f"panic: {error.details()}")
        lines = []
        for pod in pods:
            for container in pod.containers:
                if "needs-devices" in switches and container.dynamic_resources:
                    die("no devices")
                for entry in container.devices:
                    nodes = [node.ID for node in entry.topology.nodes]
                    if "few-nodes" in switches and any(node > 7 for node in nodes):
                        die(f"panic: index out of range {nodes}")
                    if "unsigned-nodes" in switches and any(node < 0 for node in nodes):
                        die("panic: negative")
                    if "known-resources" in switches and entry.resource_name.startswith("gone"):
                        die("unknown resource")
                    ids = [id_ for id_ in entry.device_ids if self.is_shown(id_)]
                    lines += [self.sample(pod, id_) for id_ in ids]
        if lines not in self.seen:
            self.seen.append(lines)
        if "count-only" in switches:
            lines = [f"devices_in_use {len(lines)}"]
        if "own-samples" in switches:
            lines = [f"go_gc_duration_seconds_count {len(self.seen)}"]
        if "frozen-page" not in switches or not self.lines:
            self.lines = lines

    def is_shown(self, id_: str) -> bool:
        return "pci-only" not in self.switches or bool(_PCI_ADDRESS.fullmatch(id_))

    def sample(self, pod: Any, id_: str) -> str:
        if "raw-labels" not in self.switches:
            id_ = id_.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'device_in_use{{pod="{pod.name}",device="{id_}"}} 1'


def serve(exporter: Exporter, port: int) -> None:
    """Serve the page on ``port``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = "\n".join(["# TYPE device_in_use gauge", *exporter.lines]) + "\n"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    threading.Thread(
        target=HTTPServer(("127.0.0.1", port), Handler).serve_forever, daemon=True
    ).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--switch", action="append", default=[])
    args = parser.parse_args()
    switches = set(args.switch)
    if "ignores-sigterm" in switches:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    exporter = Exporter(args.socket, switches)
    if args.port is not None:
        serve(exporter, args.port)
    exporter.run()


if __name__ == "__main__":
    main()
