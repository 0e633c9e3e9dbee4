"""Create the files of the in-cluster configuration, and a TLS certificate for the API server.

Programs that support only the in-cluster configuration read ``token``, ``ca.crt`` and ``namespace``
in /var/run/secrets/kubernetes.io/serviceaccount. They read the address in KUBERNETES_SERVICE_HOST
and KUBERNETES_SERVICE_PORT (``rest.InClusterConfig`` of client-go).
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
"""Directory in a pod with the files ``token``, ``ca.crt`` and ``namespace``."""
_NAMES: Final = "IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
_DAYS: Final = "365"


class InClusterError(ValueError):
    """Error for files of the in-cluster configuration that cannot be created. The message is one
    line for the user."""


@attrs.frozen
class InCluster:
    """In-cluster configuration: its directory and token, and the TLS context for the server.

    The directory has the files ``token``, ``ca.crt`` and ``namespace``.
    """

    directory: Path
    token: str
    context: ssl.SSLContext

    @classmethod
    def create(cls, directory: Path, namespace: str = "default") -> InCluster:
        """Write the files to ``directory``, and return the configuration.

        ``namespace``: the namespace of the program that reads the files.

        Raises InClusterError if openssl is missing or fails, and OSError if the directory cannot be
        written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        token = secrets.token_urlsafe(32)
        # Only the server needs the key. Keep it out of the directory that programs read.
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
        """CA certificate in PEM format, for clients that verify the server."""
        return (self.directory / "ca.crt").read_bytes()


def _write(path: Path, text: str) -> None:
    # Create the file with these permissions, so that other users can never read the token.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)


def _sign(key: Path, certificate: Path) -> None:
    """Create a self-signed certificate. Clients use it as the CA certificate, too."""
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
