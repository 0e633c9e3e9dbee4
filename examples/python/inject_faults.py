"""Inject faults into a mock kubelet, and check that a plugin recovers from each of them.

    python inject_faults.py vendor.com/gpu ./my-plugin -dir {plugin_dir}

The exit status is 1 if the plugin does not recover. `devicemanager check` has many more checks.
"""

import sys

from devicemanager import EventKind, MockKubelet, WaitTimeout
from devicemanager.testing import PluginProcess, ProcessEnded

FAULTS = [
    "reject-register:code=UNAVAILABLE,times=2",  # the next registrations fail
    "delay-register:seconds=2,times=1",  # the kubelet takes long to respond
    "drop-register:when=after,times=1",  # only the response is lost
    "end-list-stream",  # the kubelet closes the ListAndWatch stream
]
SECONDS = 60


def recovers(kubelet, plugin, resource, fault):
    before = kubelet.events.latest
    kubelet.faults.set(fault)
    if "register" in fault:
        kubelet.restart()  # so that the plugin re-registers, with the fault
    try:
        kubelet.wait_for_event(EventKind.FAULT, after=before, timeout=SECONDS)
        kubelet.wait_for_event(
            EventKind.DEVICES_UPDATED, resource=resource, after=before, timeout=SECONDS
        )
        plugin.wait_for_resource(resource, timeout=SECONDS)
    except (WaitTimeout, ProcessEnded) as error:
        print(f"FAIL {fault}: {error}")
        return False
    finally:
        kubelet.faults.clear()
    print(f"ok   {fault}")
    return True


def main(resource, *command):
    with MockKubelet() as kubelet, PluginProcess(kubelet, command) as plugin:
        plugin.wait_for_resource(resource, timeout=SECONDS)
        results = [recovers(kubelet, plugin, resource, fault) for fault in FAULTS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
