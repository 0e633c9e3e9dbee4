"""What is read of a kubeconfig, and what is said about one that cannot be used."""

import json
import ssl

import pytest

from devicemanager.cluster.client.credentials import load
from devicemanager.cluster.client.errors import ClusterError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing of the machine's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kubeconfig(tmp_path):
    def write(cluster=None, user=None):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster or {"server": "https://h:6443"}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    return write


def test_server_and_token(kubeconfig):
    found = load(kubeconfig({"server": "https://h:6443/behind/"}, {"token": "t"}))
    assert found.server.url == "https://h:6443/behind"
    assert found.server.prefix == "/behind"
    assert found.token() == "Bearer t"
    assert dict(found.server.tls)["cert_reqs"] == ssl.CERT_REQUIRED


def test_no_token_is_none(kubeconfig):
    assert load(kubeconfig()).token() is None


def test_insecure_and_another_name(kubeconfig):
    cluster = {"server": "https://h", "insecure-skip-tls-verify": True, "tls-server-name": "n"}
    tls = dict(load(kubeconfig(cluster)).server.tls)
    assert tls == {"cert_reqs": ssl.CERT_NONE, "server_hostname": "n"}


def test_a_proxy_unless_it_is_this_machine(kubeconfig, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert load(kubeconfig()).server.proxy == "http://proxy:1"
    assert load(kubeconfig({"server": "https://127.0.0.1:1"})).server.proxy is None


def test_again_reads_what_is_there_now(kubeconfig):
    found = load(kubeconfig(user={"token": "old"}))
    kubeconfig(user={"token": "new"})
    assert found.again().token() == "Bearer new"


def test_the_environment_names_one(kubeconfig, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(user={"token": "t"})))
    assert load().token() == "Bearer t"


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "No such file or directory: give one with --kubeconfig"),
        ("{", "kubeconfig"),
        ("[]", "it is not a kubeconfig: expected clusters, contexts and users: give one with"),
        ("hello", "it is not a kubeconfig: expected clusters, contexts and users: give one with"),
        ('{"current-context": "x"}', "kubeconfig"),
        ("", "it is not a kubeconfig: expected clusters, contexts and users: give one with"),
        ("\0", "kubeconfig"),
    ],
)
def test_one_line_about_what_is_none(tmp_path, text, said):
    path = tmp_path / "bad"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ClusterError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_are_no_kubeconfig(tmp_path):
    path = tmp_path / "bad"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ClusterError, match=r"bad: it is not UTF-8 text \(byte 3\): give one with"):
        load(path)


def test_a_user_whose_program_fails_is_not_nobody(kubeconfig, caplog):
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/program"}
    with pytest.raises(ClusterError, match=r"its user's credentials cannot be had: .*no/such/prog"):
        load(kubeconfig(user={"exec": program}))
    found = load(kubeconfig(user={"exec": program, "username": "a", "password": "b"}))
    assert found.token().startswith("Basic ")


def test_a_context_that_is_not_there(kubeconfig):
    with pytest.raises(ClusterError, match="nowhere"):
        load(kubeconfig(), context="nowhere")


@pytest.mark.parametrize("server", ["h:6443", "ftp://h", "https://", "https://h:port"])
def test_a_server_that_is_none(kubeconfig, server):
    with pytest.raises(ClusterError, match="is not like https://HOST:PORT"):
        load(kubeconfig({"server": server}))


def test_nothing_at_all():
    with pytest.raises(ClusterError, match=r"there is no kubeconfig at ~/\.kube/config"):
        load()


def test_in_a_cluster_without_a_service_account(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ClusterError, match="the pod's service account"):
        load()


def test_a_user_of_no_name_and_no_home_may_be_in_a_cluster(monkeypatch):
    """As in an image that only names a number."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(ClusterError, match=r"there is no kubeconfig at ~/\.kube/config"):
        load()
