"""``devicemanager join --demo``: a fake API server, its controllers and a Job."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import join_options
from devicemanager.cli.device_option import device_option
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    from devicemanager.cli.kubelet_log import KubeletLog
    from devicemanager.cluster.fake_apiserver import FakeApiServer

__all__ = ["demo", "submit_job"]

_RESOURCE = "vendor.com/gpu"
_DEVICES = f"{_RESOURCE}=8"
_NODES = 10
_JOB_DURATION = "2s±1"
_PODS = 40
_PARALLEL_PODS = 20


@contextlib.contextmanager
def demo(args: argparse.Namespace, log: KubeletLog) -> Iterator[FakeApiServer | None]:
    """Run the fake API server and set the flags that --demo implies; None without --demo."""
    if not args.demo:
        yield None
        return
    # Imported here because only --demo needs them.
    from devicemanager.cluster.fake_apiserver import Controllers, FakeApiServer

    _set_flags(args)
    with (
        tempfile.TemporaryDirectory(prefix="devicemanager-demo-") as directory,
        FakeApiServer() as server,
        Controllers(server),
    ):
        args.kubeconfig = str(server.kubeconfig(Path(directory) / "kubeconfig"))
        log.say("demo", f"demo: fake API server at {server.url}", url=server.url)
        yield server


def _set_flags(args: argparse.Namespace) -> None:
    for name in ("kubeconfig", "context"):
        if getattr(args, name) is not None:
            raise CommandError(f"--demo has its own cluster: remove --{name}")
    if not args.simulate:
        args.simulate = [device_option(_DEVICES)]
    if args.nodes == 1:
        args.nodes = _NODES
    if args.job_duration is None:
        args.job_duration = join_options.duration(_JOB_DURATION)


def submit_job(server: FakeApiServer, log: KubeletLog) -> None:
    """Create a Job whose pods request a GPU each."""
    container = {
        "name": "train",
        "image": "example.com/train",
        "resources": {"limits": {_RESOURCE: "1"}},
    }
    template = {
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
        }
    }
    spec = {"completions": _PODS, "parallelism": _PARALLEL_PODS, "template": template}
    server.create("jobs", {"metadata": {"name": "train"}, "spec": spec})
    log.say("demo", f"demo: created a Job of {_PODS} pods with one GPU each")
