"""The process that is killed: a MockKubelet whose threads admit and terminate pods.

Reads on standard input, as one JSON line, the pods of the life before. Every answer goes
to standard output as one line as soon as it is there, in one write, so that what was
answered before the kill is in the pipe:

    ["kept", uid, devices]   a pod of the life before was admitted again
    ["ready"]                the plugin is back, the load begins
    ["held", uid, devices]   an admission was answered
    ["ending", uid]          a termination begins
    ["ended", uid]           it was answered
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
from typing import Any

from devicemanager.kubelet.mock import MockKubelet
from devicemanager.pods.admission import Admission
from devicemanager.settings import Settings
from devicemanager.testing import pod_manifest

RESOURCES = ("example.com/gpu", "example.com/nic")
THREADS = 4
_MOST_PODS = 12  # a thread: enough that devices run out now and then

Wants = dict[str, int]


def report(*what: object) -> None:
    """One line in one write: a pipe takes that whole or not at all."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def manifest(uid: str, wants: Wants) -> dict[str, Any]:
    """A pod of one container with these devices."""
    return pod_manifest(f"pod-{uid}", wants, uid=uid)


def devices(admission: Admission) -> dict[str, list[str]]:
    return admission.containers["main"].devices


def load(kubelet: MockKubelet, life: str, number: int, seed: int, mine: list[str]) -> None:
    """Admit and terminate until killed."""
    choice = random.Random(f"{seed}-{life}-{number}")
    serial = 0
    while True:
        if mine and choice.random() < len(mine) / _MOST_PODS:
            uid = mine.pop(choice.randrange(len(mine)))
            report("ending", uid)
            kubelet.terminate(uid)
            report("ended", uid)
            continue
        serial += 1
        uid = f"{life}-{number}-{serial}"
        wants = {RESOURCES[0]: choice.randint(1, 3), RESOURCES[1]: choice.randint(0, 2)}
        admission = kubelet.admit(manifest(uid, wants))
        if admission.admitted:
            report("held", uid, devices(admission))
            mine.append(uid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--life", required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    before: dict[str, Wants] = json.loads(sys.stdin.readline())
    kubelet = MockKubelet(args.root, Settings(pod_resources_qps=None)).start()
    for uid, wants in before.items():
        report("kept", uid, devices(kubelet.admit(manifest(uid, wants))))
    kubelet.sources_ready()
    for resource in RESOURCES:
        kubelet.wait_for_resource(resource, timeout=30)
    report("ready")
    for number in range(THREADS):
        mine = list(before)[number::THREADS]
        load_args = (kubelet, args.life, number, args.seed, mine)
        threading.Thread(target=load, args=load_args).start()


if __name__ == "__main__":
    main()
