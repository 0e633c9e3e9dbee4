"""Run the process that is killed: a MockKubelet whose threads admit and terminate pods.

The process reads the pods of the previous process as one JSON line on standard input. It reports
each result as one line on standard output:

    ["readmitted", uid, devices]   a pod of the previous process was admitted again
    ["ready"]                      the plugins have registered, the load begins
    ["allocated", uid, devices]    an admission has returned
    ["ending", uid]                a termination begins
    ["ended", uid]                 the termination has returned

Each report is one write, before anything else happens. So a result from before the kill is in the
pipe, even if no process has read the pipe yet.
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
from tools.kill import claims, dra

RESOURCES = ("example.com/gpu", "example.com/nic")
THREADS = 4
_PREFIXES = (claims.PREFIX, dra.PREFIX)
_MAX_PODS = 12  # per thread: enough to run out of devices sometimes

Wants = dict[str, int]
"""Number of requested devices, by resource or claim."""


def report(*what: object) -> None:
    """Write one report to standard output. A pipe takes a line of up to 4096 bytes whole or not at
    all."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def manifest(uid: str, wants: Wants) -> dict[str, Any]:
    """Return the manifest of a pod with one container that requests these devices and claims."""
    plain = {name: count for name, count in wants.items() if not name.startswith(_PREFIXES)}
    found = pod_manifest(f"pod-{uid}", plain, uid=uid)
    names = [name.partition(":")[2] for name in sorted(wants.keys() - plain.keys())]
    found["spec"]["resourceClaims"] = [
        {"name": f"claim-{number}", "resourceClaimName": name} for number, name in enumerate(names)
    ]
    return found


def admit(kubelet: MockKubelet, uid: str, wants: Wants) -> tuple[Admission, dict[str, list[str]]]:
    """Admit a pod. Return the result and the pod's devices by resource and claim."""
    for name, count in wants.items():
        if name.startswith(claims.PREFIX):
            kubelet.claim(claims.claim(name, count))
    resource_claims = [
        dra.claim(name.removeprefix(dra.PREFIX)) for name in wants if name.startswith(dra.PREFIX)
    ]
    admission = kubelet.admit(manifest(uid, wants), claims=resource_claims or None)
    if not admission.admitted:
        return admission, {}
    found = dict(admission.containers["main"].devices)
    for name in wants:
        if name.startswith(claims.PREFIX):
            view = kubelet.claims.claim(f"default/{name.removeprefix(claims.PREFIX)}")
            grants = view.allocation.grants if view.allocation else ()
            found[name] = sorted(grant.device.name for grant in grants)
    return admission, found | dra.prepared(kubelet, uid)


def wanted(choice: random.Random, uid: str, resource_claim: str | None) -> Wants:
    """Choose the requests of a pod at random: devices, claims, or mostly both.

    A pod has either structured claims or ResourceClaims.
    """
    wants = {RESOURCES[0]: choice.randint(0, 3), RESOURCES[1]: choice.randint(0, 2)}
    if resource_claim is not None and choice.random() < 0.4:
        wants[resource_claim] = 1
        wants[dra.COMMON] = choice.randint(0, 1)
        return {name: count for name, count in wants.items() if count}
    if choice.random() < 0.5:
        wants[f"{claims.PREFIX}w-{uid}"] = choice.randint(1, 2)
    if choice.random() < 0.5:
        wants[f"{claims.PREFIX}m-{uid}"] = 1
    if choice.random() < 0.3:
        wants[claims.COMMON] = 1
    return {name: count for name, count in wants.items() if count} or {RESOURCES[0]: 1}


def load(kubelet: MockKubelet, name: str, number: int, seed: int, mine: list[str]) -> None:
    """Admit and terminate pods until the process is killed. ``mine`` are the UIDs of the thread's
    pods."""
    choice = random.Random(f"{seed}-{name}-{number}")
    serial = 0
    while True:
        if mine and choice.random() < len(mine) / _MAX_PODS:
            uid = mine.pop(choice.randrange(len(mine)))
            report("ending", uid)
            kubelet.terminate(uid)
            # The kubelet keeps a pod whose claims could not be unprepared, and tries again.
            if not kubelet.has_pod(uid):
                report("ended", uid)
            continue
        serial += 1
        uid = f"{name}-{number}-{serial}"
        wants = wanted(choice, uid, dra.want(kubelet, number, uid))
        admission, found = admit(kubelet, uid, wants)
        if admission.admitted and admission.containers["main"].error:
            kubelet.terminate(uid)
        elif admission.admitted:
            report("allocated", uid, found)
            mine.append(uid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    before: dict[str, Wants] = json.loads(sys.stdin.readline())
    kubelet = MockKubelet(args.root, Settings(pod_resources_qps=None)).start()
    for each in claims.objects():
        kubelet.publish(each)
    # Admitted before the plugins have registered: a restarted kubelet finds its pods running.
    found = {uid: admit(kubelet, uid, wants)[1] for uid, wants in before.items()}
    # From now on, the kubelet frees the devices and claims of pods that it does not know.
    kubelet.sources_ready()
    for resource in RESOURCES:
        kubelet.wait_for_resource(resource, timeout=30)
    kubelet.wait_for_event("driver-connected", resource=dra.DRIVER, after=0, timeout=30)
    for uid in before:
        # A pod whose claims could not be prepared without the driver is tried again.
        kubelet.resync(uid)
        report("readmitted", uid, found[uid] | dra.prepared(kubelet, uid))
    # The kubelet does this each minute: unprepare the claims of pods that it does not know.
    kubelet._life.serving().dra.manager().reconcile()
    report("ready")
    for number in range(THREADS):
        mine = list(before)[number::THREADS]
        load_args = (kubelet, args.name, number, args.seed, mine)
        threading.Thread(target=load, args=load_args).start()


if __name__ == "__main__":
    main()
