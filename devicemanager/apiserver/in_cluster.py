"""Files that a program in a pod reads to reach the API server, and the certificate of the server.

Programs that know only the in-cluster configuration read ``token``, ``ca.crt`` and ``namespace``
in /var/run/secrets/kubernetes.io/serviceaccount, and the address in KUBERNETES_SERVICE_HOST and
KUBERNETES_SERVICE_PORT (``rest.InClusterConfig`` of client-go).
"""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import attrs

__all__ = ["DIRECTORY", "InCluster", "InClusterError"]

DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Directory in which a program in a pod finds the files."""
_NAMES: Final = "IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
_DAYS: Final = "365"


class InClusterError(ValueError):
    """Error for files that cannot be created. The text is one line for the user."""


@attrs.frozen
class InCluster:
    """A directory with ``token``, ``ca.crt`` and ``namespace``, and the server's TLS context."""

    directory: Path
    token: str
    context: ssl.SSLContext

    @classmethod
    def create(cls, directory: Path, namespace: str = "default") -> InCluster:
        """Write the files; ``namespace`` is that of the pod.

        Raises InClusterError if openssl is missing or fails, and OSError for the directory.
        """
        directory.mkdir(parents=True, exist_ok=True)
        token = secrets.token_urlsafe(32)
        # The key is only for the server, so it is not beside the files that others read.
        with tempfile.TemporaryDirectory() as private:
            key, certificate = Path(private, "tls.key"), directory / "ca.crt"
            _sign(key, certificate)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
        _write(directory / "token", token)
        _write(directory / "namespace", namespace)
        return cls(directory, token, context)

    @property
    def authority(self) -> bytes:
        """The certificate with which clients verify the server, as PEM."""
        return (self.directory / "ca.crt").read_bytes()


def _write(path: Path, text: str) -> None:
    # Created with these permissions, so that other users never see the token.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)


def _sign(key: Path, certificate: Path) -> None:
    """Create a self-signed certificate, which clients also use as the CA certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise InClusterError("openssl is not installed: install it to create a certificate")
    command = [
        *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", _DAYS, "-subj", "/CN=devicemanager-apiserver"),
        *("-addext", f"subjectAltName={_NAMES}"),
        *("-keyout", str(key), "-out", str(certificate)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InClusterError(f"openssl cannot create a certificate: {lines[-1]}")
