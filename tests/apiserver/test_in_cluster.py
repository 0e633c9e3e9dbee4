"""The files of the in-cluster configuration, and the server that they belong to."""

import socket
import ssl
import stat

import pytest
import urllib3

from devicemanager.apiserver import FakeApiServer, InCluster, InClusterError
from devicemanager.client.api import ApiClient
from devicemanager.client.credentials import load

NODES = "/api/v1/nodes"


@pytest.fixture
def files(tmp_path):
    return InCluster.create(tmp_path / "account", namespace="drivers")


@pytest.fixture
def server(files):
    with FakeApiServer(in_cluster=files) as server:
        yield server


def test_files_are_those_of_a_service_account(files):
    assert sorted(path.name for path in files.directory.iterdir()) == [
        "ca.crt",
        "namespace",
        "token",
    ]
    assert (files.directory / "namespace").read_text() == "drivers"
    assert (files.directory / "token").read_text() == files.token
    assert stat.S_IMODE((files.directory / "token").stat().st_mode) == 0o600


def test_client_verifies_the_server_and_sends_the_token(server, tmp_path):
    client = ApiClient(load(server.kubeconfig(tmp_path / "config")))
    try:
        assert client.request("GET", NODES)["items"] == []
    finally:
        client.close()
    host, port = (server.environment[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
    assert server.url == f"https://{host}:{port}"


@pytest.mark.parametrize(
    ("scheme", "token", "status"),
    [
        ("Bearer", "", 200),
        ("bearer", "", 200),  # as the Python client in a cluster
        ("Bearer", "other", 401),
        ("Basic", "", 401),
    ],
)
def test_only_the_token_is_accepted(server, files, scheme, token, status):
    headers = {"Authorization": f"{scheme} {token or files.token}"}
    with urllib3.PoolManager(ca_certs=str(files.directory / "ca.crt")) as pool:
        assert pool.request("GET", f"{server.url}{NODES}", headers=headers).status == status


def test_certificate_names_the_addresses_of_a_cluster(server, files):
    port = int(server.environment["KUBERNETES_SERVICE_PORT"])
    context = ssl.create_default_context(cafile=files.directory / "ca.crt")

    for name in ("127.0.0.1", "localhost", "kubernetes.default.svc"):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            assert secure.version()


def test_missing_openssl_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InClusterError, match="openssl is not installed: install it"):
        InCluster.create(tmp_path / "account")


def test_failure_of_openssl_is_one_line(tmp_path, monkeypatch):
    fake = tmp_path / "openssl"
    fake.write_text("#!/bin/sh\necho first >&2; echo no entropy >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(InClusterError, match="cannot create a certificate: no entropy"):
        InCluster.create(tmp_path / "account")


def test_unknown_feature_gate_is_an_error():
    with pytest.raises(ValueError, match="unknown feature gate 'Foo': use DRAListTypeAttributes"):
        FakeApiServer(feature_gates=["Foo"])
