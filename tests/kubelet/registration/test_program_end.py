"""A program that ends without stopping its kubelet."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import grpc

from podresources import sockets
from protos import deviceplugin_v1beta1 as dp
from protos import deviceplugin_v1beta1_grpc as dp_grpc
from tests.hostile import hostile, residue
from tests.paths import ROOT


def request(endpoint: str, name: str = hostile.RESOURCE) -> dp.RegisterRequest:
    return dp.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=name)


# Prints where plugins register, and ends without a stop when its input ends.
FORGETFUL = """
import sys
from devicemanager import MockKubelet
kubelet = MockKubelet(sys.argv[1]).start()
print(kubelet.plugin_socket, flush=True)
sys.stdin.read()
"""


def test_program_exits_without_stopping_its_kubelet(directory: Path) -> None:
    """Also while a socket is dialed, a list is read and a response cannot be sent."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", FORGETFUL, str(directory)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        assert process.stdin is not None and process.stdout is not None
        path = Path(process.stdout.readline().strip())
        try:
            with hostile.RawPlugin(path.parent / "p.sock") as plugin:
                deaf.connect(str(path))
                deaf.sendall(hostile.closed_window(request("p.sock", "example.com/deaf")))
                assert residue.eventually(lambda: plugin.streams == 1)
                assert hostile.register(path, "p.sock") is None
                with grpc.insecure_channel(sockets.target(path)) as channel:
                    waiting = dp_grpc.RegistrationStub(channel).Register.future(request("no.sock"))
                    process.stdin.close()
                    assert process.wait(20) == 0
                    assert waiting.exception(20) is not None
        finally:
            process.kill()
