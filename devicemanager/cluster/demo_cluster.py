"""A cluster to try things in, without one: the stub with its controllers, and a Job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Self

from devicemanager.cluster.fake_apiserver import Controllers, FakeApiServer

__all__ = ["RESOURCE", "Demo"]

RESOURCE = "vendor.com/gpu"


class Demo:
    """From ``with`` to its end."""

    def __init__(self) -> None:
        self._stub = FakeApiServer()
        self._controllers = Controllers(self._stub)
        self._directory = tempfile.TemporaryDirectory(prefix="devicemanager-demo-")

    @property
    def url(self) -> str:
        """Where the stub serves."""
        return self._stub.url

    @property
    def kubeconfig(self) -> Path:
        """One that leads there."""
        return Path(self._directory.name) / "kubeconfig"

    def __enter__(self) -> Self:
        self._stub.start()
        self._controllers.start()
        self._stub.kubeconfig(self.kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        self._controllers.stop()
        self._stub.stop()
        self._directory.cleanup()

    def submit(self, completions: int = 40, parallelism: int = 20) -> None:
        """Create a Job whose pods want a GPU each."""
        container = {
            "name": "train",
            "image": "example.com/train",
            "resources": {"limits": {RESOURCE: "1"}},
        }
        template = {
            "spec": {
                "containers": [container],
                "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
            }
        }
        spec = {"completions": completions, "parallelism": parallelism, "template": template}
        self._stub.create("jobs", {"metadata": {"name": "train"}, "spec": spec})
