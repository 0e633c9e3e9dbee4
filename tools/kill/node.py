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
from devicemanager.kubelet.pods.admission import Admission
from devicemanager.kubelet.settings import Settings
from devicemanager.testing import pod_manifest
from tools.kill import claims

RESOURCES = ("example.com/gpu", "example.com/nic")
THREADS = 4
_MOST_PODS = 12  # a thread: enough that devices run out now and then

Wants = dict[str, int]
"""How many devices of each resource and of each claim."""


def report(*what: object) -> None:
    """One line in one write: a pipe takes that whole or not at all."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def manifest(uid: str, wants: Wants) -> dict[str, Any]:
    """A pod of one container with these devices and claims."""
    plain = {name: count for name, count in wants.items() if not name.startswith(claims.PREFIX)}
    found = pod_manifest(f"pod-{uid}", plain, uid=uid)
    names = [name.removeprefix(claims.PREFIX) for name in wants.keys() - plain.keys()]
    found["spec"]["resourceClaims"] = [
        {"name": f"claim-{number}", "resourceClaimName": name} for number, name in enumerate(names)
    ]
    return found


def admit(kubelet: MockKubelet, uid: str, wants: Wants) -> tuple[Admission, dict[str, list[str]]]:
    """The answer, and the devices of resources and claims."""
    for name, count in wants.items():
        if name.startswith(claims.PREFIX):
            kubelet.claim(claims.claim(name, count))
    admission = kubelet.admit(manifest(uid, wants))
    if not admission.admitted:
        return admission, {}
    held = dict(admission.containers["main"].devices)
    for name in wants:
        if name.startswith(claims.PREFIX):
            view = kubelet.claims.claim(f"default/{name.removeprefix(claims.PREFIX)}")
            grants = view.allocation.grants if view.allocation else ()
            held[name] = sorted(grant.device.name for grant in grants)
    return admission, held


def wanted(choice: random.Random, uid: str) -> Wants:
    """Devices for some pods, claims for some, both for most."""
    wants = {RESOURCES[0]: choice.randint(0, 3), RESOURCES[1]: choice.randint(0, 2)}
    if choice.random() < 0.5:
        wants[f"{claims.PREFIX}w-{uid}"] = choice.randint(1, 2)
    if choice.random() < 0.5:
        wants[f"{claims.PREFIX}m-{uid}"] = 1
    if choice.random() < 0.3:
        wants[claims.COMMON] = 1
    return {name: count for name, count in wants.items() if count} or {RESOURCES[0]: 1}


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
        admission, held = admit(kubelet, uid, wanted(choice, uid))
        if admission.admitted:
            report("held", uid, held)
            mine.append(uid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--life", required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    before: dict[str, Wants] = json.loads(sys.stdin.readline())
    kubelet = MockKubelet(args.root, Settings(pod_resources_qps=None)).start()
    for found in claims.objects():
        kubelet.publish(found)
    for uid, wants in before.items():
        report("kept", uid, admit(kubelet, uid, wants)[1])
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
