"""Print the devices of each container, from the PodResources API of any kubelet.

python list_devices.py [SOCKET]
"""

import sys

from podresources import DEFAULT_SOCKET, PodResourcesClient, PodResourcesError, ids_by_resource


def main(socket=DEFAULT_SOCKET):
    try:
        # The kubelet allows all clients together 100 calls per second, so retry a rejected call.
        with PodResourcesClient(socket, rate_limit_attempts=5) as client:
            pods = client.list()
    except PodResourcesError as error:
        sys.exit(f"error: {error}")  # one line that names the fix
    for pod in pods:
        for container in pod.containers:
            for resource, ids in ids_by_resource(container.devices).items():
                print(f"{pod.namespace}/{pod.name} {container.name} {resource}: {' '.join(ids)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
