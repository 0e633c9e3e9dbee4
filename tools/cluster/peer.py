"""Run a real control plane as processes on 127.0.0.1, with all files in one directory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from devicemanager.conformance.process_checks import cpu_seconds
from tools.cluster.certificates import Authority, Pair

_READY: Final = 180.0
_SERVICES: Final = "10.96.0.0/16"
_STOPPING: Final = ("kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd")
"""The programs in the order in which they stop."""


class ControlPlane:
    """Control plane of etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

    Use it as a context manager, or call ``start`` and ``stop``.
    """

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        *,
        grace: float = 50.0,
        resource_health: bool = True,
        server_options: Sequence[str] = (),
    ) -> None:
        """``grace`` is the time in seconds after the last lease renewal until a node is NotReady.
        ``resource_health`` sets the feature gate ResourceHealthStatus. ``server_options`` are more
        flags of kube-apiserver."""
        self._binaries = binaries
        self._directory = directory
        self._grace = grace
        self._resource_health = resource_health
        self._server_options = server_options
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = Authority.create(directory / "certificates")
        self._authority.key("accounts")
        self._authority.public("accounts")
        self._server = self._authority.sign("server", "kube-apiserver")
        self._port, self._etcd, self._peer = _free_ports(3)
        self.kubeconfig = self.kubeconfig_of("admin", "system:masters")
        """Path of a cluster administrator's kubeconfig."""

    # -- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Start all programs, and wait until the API server is ready. Raises TimeoutError."""
        self.start_etcd()
        self.start_server()
        self.start_controllers()

    def start_controllers(self) -> None:
        """Start the scheduler and the controllers."""
        config = str(self.kubeconfig)
        keys = self._directory / "certificates"
        client = (
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--secure-port=0",
        )
        self._run("kube-scheduler", *client)
        self._run(
            "kube-controller-manager",
            *client,
            f"--node-monitor-grace-period={self._grace}s",
            f"--root-ca-file={self._authority.certificate}",
            f"--service-account-private-key-file={keys / 'accounts.key'}",
        )

    def start_etcd(self) -> None:
        """Start an empty etcd. Its data is in memory if possible."""
        data = self._data()
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd, self._peer))
        self._run(
            "etcd",
            f"--data-dir={data}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
        )

    def start_server(self) -> None:
        """Start kube-apiserver, and wait until it is ready. Raises TimeoutError."""
        keys = self._directory / "certificates"
        kubelet = self._authority.sign("kubelet-client", "kube-apiserver", "system:masters")
        self._run(
            "kube-apiserver",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--client-ca-file={self._authority.certificate}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={keys / 'accounts.pub'}",
            f"--service-account-signing-key-file={keys / 'accounts.key'}",
            f"--service-cluster-ip-range={_SERVICES}",
            "--endpoint-reconciler-type=none",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            f"--feature-gates=ResourceHealthStatus={str(self._resource_health).lower()}",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
            *self._server_options,
        )
        self._wait_ready()

    def stop(self) -> None:
        """Stop all programs and delete the data."""
        for name in _STOPPING:
            self.end(name)
        shutil.rmtree(self._data(), ignore_errors=True)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the program ``name`` with a signal."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wipe(self) -> None:
        """Restart with an empty etcd, as after the loss of its disk.

        The controllers restart, too. Otherwise their watches would wait for resource versions that
        the empty etcd does not reach for a long time.
        """
        for name in _STOPPING:
            self.end(name, signal.SIGKILL)
        shutil.rmtree(self._data(), ignore_errors=True)
        self.start()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Suspend the program ``name`` during a ``with`` block. Requests to it get no response."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- access ----------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def authority(self) -> Path:
        """Path of the certificate of the authority that signed the API server's certificate."""
        return self._authority.certificate

    def read(self, path: str) -> str:
        """GET a path as administrator, and return the text of the response, such as a log.

        Raises urllib.error.HTTPError.
        """
        url, context = f"{self.url}{path}", self.admin()
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            return str(answer.read(), "utf-8")

    def serving_pair(self, name: str) -> Pair:
        """Sign a certificate for a server on loopback addresses."""
        return self._authority.sign(name, name)

    def kubeconfig_of(self, user: str, *groups: str, days: str = "2") -> Path:
        """Write a kubeconfig for a user with these groups, and return its path.

        ``days`` is the validity of the certificate. If it is negative, the certificate has expired.
        """
        name = user.replace(":", "-")
        pair = self._authority.sign(name, user, *groups, days=days)
        who = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return self._kubeconfig(name, who)

    def _kubeconfig(self, name: str, who: dict[str, str]) -> Path:
        path = self._directory / f"{name}.kubeconfig"
        authority = str(self.authority)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "certificate-authority": authority}}
            ],
            "users": [{"name": "u", "user": who}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))  # JSON is valid YAML
        return path

    def admin(self) -> ssl.SSLContext:
        """Return a TLS context with the certificate of the administrator."""
        keys = self._authority.directory
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        return context

    # -- measurements --------------------------------------------------------------------

    def cpu(self) -> dict[str, float]:
        """Return the CPU time of each program in seconds."""
        return {name: cpu_seconds(process.pid) for name, process in self._processes.items()}

    # -- processes -------------------------------------------------------------------

    def _data(self) -> Path:
        memory = Path("/dev/shm")
        if memory.is_dir() and os.access(memory, os.W_OK):
            return memory / f"devicemanager-etcd-{os.getpid()}-{self._etcd}"
        return self._directory / "etcd"

    def _run(self, name: str, *arguments: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._binaries / name, *arguments],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_ready(self) -> None:
        context = self.admin()
        end = time.monotonic() + _READY
        while time.monotonic() < end:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise TimeoutError(f"{name} has exited: see {self._directory / f'{name}.log'}")
            with contextlib.suppress(OSError, urllib.error.URLError):
                url = f"{self.url}/readyz"
                with urllib.request.urlopen(url, timeout=2, context=context) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.1)
        raise TimeoutError(f"kube-apiserver was not ready within {_READY:.0f} s")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]
