"""Create a certificate authority and sign certificates with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import attrs

_DAYS: Final = "2"


@attrs.frozen
class Pair:
    """Files of a certificate and its private key."""

    certificate: Path
    key: Path


@attrs.frozen
class Authority:
    """Certificate authority in a directory. Its certificates are for this machine and valid for two
    days."""

    directory: Path

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """Create an authority. Raises OSError if openssl is not installed."""
        if shutil.which("openssl") is None:
            raise FileNotFoundError("openssl is not installed: install it to create certificates")
        directory.mkdir(parents=True, exist_ok=True)
        authority = cls(directory)
        authority.key("ca")
        _openssl(
            directory,
            ["req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=ca", "-days", _DAYS],
            ["-out", "ca.crt"],
        )
        return authority

    @property
    def certificate(self) -> Path:
        """Path of the authority's own certificate."""
        return self.directory / "ca.crt"

    def key(self, name: str) -> Path:
        """Create a private key and return its path."""
        curve = ["-pkeyopt", "ec_paramgen_curve:P-256"]
        _openssl(self.directory, ["genpkey", "-algorithm", "EC", *curve, "-out", f"{name}.key"])
        return self.directory / f"{name}.key"

    def public(self, name: str) -> Path:
        """Write the public key of a private key and return its path."""
        _openssl(self.directory, ["pkey", "-in", f"{name}.key", "-pubout", "-out", f"{name}.pub"])
        return self.directory / f"{name}.pub"

    def sign(self, name: str, user: str, *groups: str, days: str = _DAYS) -> Pair:
        """Sign a certificate for loopback addresses. It contains the user and groups as Kubernetes
        reads them."""
        key = self.key(name)
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        extensions = self.directory / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        request = ["req", "-new", "-key", key.name, "-subj", subject, "-out", f"{name}.csr"]
        _openssl(self.directory, request)
        _openssl(
            self.directory,
            ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key"],
            ["-days", days, "-extfile", extensions.name, "-out", f"{name}.crt"],
        )
        return Pair(self.directory / f"{name}.crt", key)


def _openssl(directory: Path, *parts: list[str]) -> None:
    command = ["openssl", *(word for part in parts for word in part)]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
