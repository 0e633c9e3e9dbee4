"""kube-apiserver with the settings under which it answers the requests of the table.

``python -m tests.apiserver.real_answers.real_server`` records its answers again.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.apiserver.real_answers.running import ANSWERS, Runner
from tests.apiserver.real_answers.table import calls
from tools.cluster.build import server_binaries
from tools.cluster.peer import ControlPlane

OPTIONS = (
    # The versions that drivers for older clusters use are off by default.
    "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
    # No controller creates service accounts here.
    "--disable-admission-plugins=ServiceAccount",
)


@contextlib.contextmanager
def real_server(directory: Path) -> Iterator[Runner]:
    """Run etcd and kube-apiserver; yield a runner. Raises BuildError if they are not built."""
    plane = ControlPlane(server_binaries(), directory, server_options=OPTIONS)
    try:
        plane.start_etcd()
        plane.start_server()
        yield Runner(plane.url, plane.admin())
    finally:
        plane.stop()


def answers(runner: Runner) -> list[dict[str, Any]]:
    """Send all requests and return the answers."""
    runner.clean()
    return list(runner.run(calls()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, real_server(Path(directory)) as runner:
        lines = [json.dumps(each) for each in answers(runner)]
    ANSWERS.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} answers in {ANSWERS}")
