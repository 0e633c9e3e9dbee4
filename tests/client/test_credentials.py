"""Credentials from a kubeconfig, and errors about one that cannot be used."""

import json
import ssl
import sys
from http.client import HTTPException

import pytest
from urllib3.exceptions import HTTPError

from devicemanager.apiserver import FakeApiServer
from devicemanager.client.credentials import Server, load
from devicemanager.client.errors import ClusterError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Hide the kubeconfig and environment of the machine."""
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


class Opened:
    """An HTTP connection of urllib3 that records how it is made."""

    error = None

    def __init__(self, host, **options):
        self.host, self.options = host, options
        self.tunnel = None
        self.sock = object()
        self.is_closed = False

    def set_tunnel(self, *host, **options):
        self.tunnel = (*host, options)

    def connect(self):
        if self.error is not None:
            raise self.error

    def close(self):
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch):
    """The connections that are opened, as (scheme, connection)."""
    found = []

    def kind(name):
        def connection(host, **options):
            found.append((name, Opened(host, **options)))
            return found[-1][1]

        return connection

    monkeypatch.setattr("urllib3.connection.HTTPConnection", kind("http"))
    monkeypatch.setattr("urllib3.connection.HTTPSConnection", kind("https"))
    return found


TLS = (("ca_certs", "ca"), ("cert_reqs", ssl.CERT_REQUIRED))


@pytest.mark.parametrize(
    ("server", "scheme", "port"),
    [
        (Server("http://h"), "http", 80),
        (Server("https://h", TLS), "https", 443),
        (Server("http://h:81/behind"), "http", 81),
        (Server("https://h:6443", TLS), "https", 6443),
    ],
)
def test_connection_has_the_address_and_tls_options_of_the_server(opened, server, scheme, port):
    """It is given up well before the next renewal of a lease."""
    sock = server.connect()
    ((made, connection),) = opened
    assert (made, connection.host, sock) == (scheme, "h", connection.sock)
    tls = dict(TLS) if scheme == "https" else {}
    assert connection.options == {"port": port, "timeout": 5.0, **tls}
    assert connection.tunnel is None and not connection.is_closed


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h", ("h", 80)),
        ("https://h", ("h", 443)),
        ("http://h:81", ("h", 81)),
        ("https://h:6443", ("h", 6443)),
    ],
)
@pytest.mark.parametrize(
    ("proxy", "port"), [("http://p", 80), ("https://p", 443), ("http://p:3128", 3128)]
)
def test_connection_through_a_proxy_is_a_tunnel(opened, url, target, proxy, port):
    Server(url, proxy=proxy).connect()
    ((made, connection),) = opened
    assert (made, connection.host) == (url.partition(":")[0], "p")
    options = connection.options
    assert (options["port"], options["timeout"], options["proxy"].url) == (port, 5.0, proxy)
    assert options["proxy_config"].use_forwarding_for_https is False
    assert connection.tunnel == (*target, {"scheme": proxy.partition(":")[0]})


@pytest.mark.parametrize("error", [OSError("a"), HTTPError("a"), HTTPException("a")])
def test_connection_that_fails_is_closed(opened, monkeypatch, error):
    monkeypatch.setattr(Opened, "error", error)
    with pytest.raises(ConnectionError, match=r"^a$"):
        Server("http://h").connect()
    ((_, connection),) = opened
    assert connection.is_closed


@pytest.mark.parametrize(
    ("url", "host", "prefix"),
    [
        ("https://h", "h", ""),
        ("https://h:6443/", "h:6443", ""),
        ("https://user:secret@h:6443/a/b/", "h:6443", "/a/b"),
        ("https://[::1]:6443/a?x=1", "[::1]:6443", "/a"),
    ],
)
def test_host_and_path_of_a_server(url, host, prefix):
    assert (Server(url).host, Server(url).prefix) == (host, prefix)


def test_load_reads_server_and_token(kubeconfig):
    found = load(kubeconfig({"server": "https://h:6443/behind/"}, {"token": "t"}))
    assert found.server.url == "https://h:6443/behind"
    assert found.server.prefix == "/behind"
    assert found.token() == "Bearer t"
    assert dict(found.server.tls)["cert_reqs"] == ssl.CERT_REQUIRED


def test_user_without_token_has_none(kubeconfig):
    assert load(kubeconfig()).token() is None


def test_tls_options_are_read(kubeconfig):
    cluster = {"server": "https://h", "insecure-skip-tls-verify": True, "tls-server-name": "n"}
    tls = dict(load(kubeconfig(cluster)).server.tls)
    assert tls == {"cert_reqs": ssl.CERT_NONE, "server_hostname": "n"}


def test_proxy_is_used_except_for_loopback(kubeconfig, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert load(kubeconfig()).server.proxy == "http://proxy:1"
    assert load(kubeconfig({"server": "https://127.0.0.1:1"})).server.proxy is None


def test_proxy_of_the_kubeconfig_comes_first(kubeconfig, monkeypatch):
    cluster = {"server": "https://h", "proxy-url": "http://own:1"}
    assert load(kubeconfig(cluster)).server.proxy == "http://own:1"
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert load(kubeconfig(cluster)).server.proxy == "http://own:1"
    monkeypatch.setenv("no_proxy", "h")
    assert load(kubeconfig(cluster)).server.proxy is None


@pytest.mark.parametrize(
    ("proxy", "url"), [("proxy:1", "http://proxy:1"), ("https://proxy", "https://proxy")]
)
def test_proxy_may_have_no_scheme(kubeconfig, monkeypatch, proxy, url):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    assert load(kubeconfig()).server.proxy == url


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "http://", "http://proxy:99999"])
def test_invalid_proxy_is_an_error(kubeconfig, monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ClusterError) as caught:
        load(kubeconfig())
    assert str(caught.value) == f"invalid proxy {proxy!r}: expected http://HOST:PORT"


def test_reload_reads_the_current_file(kubeconfig):
    found = load(kubeconfig(user={"token": "old"}))
    kubeconfig(user={"token": "new"})
    assert found.reload().token() == "Bearer new"


def test_kubeconfig_variable_is_used(kubeconfig, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(user={"token": "t"})))
    assert load().token() == "Bearer t"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("{", "kubeconfig"),
        ("[]", "not a kubeconfig file: expected the keys clusters, contexts and users"),
        (
            "hello",
            "not a kubeconfig file: expected the keys clusters, contexts and users: "
            "use --kubeconfig",
        ),
        ('{"current-context": "x"}', "kubeconfig"),
        ("", "not a kubeconfig file: expected the keys clusters, contexts and users"),
        ("\0", "kubeconfig"),
    ],
)
def test_invalid_kubeconfig_is_a_one_line_error(tmp_path, text, message):
    path = tmp_path / "bad"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ClusterError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_kubeconfig_must_be_utf8(tmp_path):
    path = tmp_path / "bad"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ClusterError, match=r"bad: .*UTF-8 text \(byte 3\): use --kubeconfig"):
        load(path)


def test_failing_exec_plugin_is_an_error_without_other_credentials(kubeconfig, caplog):
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/program"}
    with pytest.raises(ClusterError, match=r"cannot get the user's credentials: .*no/such/prog"):
        load(kubeconfig(user={"exec": program}))
    found = load(kubeconfig(user={"exec": program, "username": "a", "password": "b"}))
    assert found.token().startswith("Basic ")


def test_unknown_context_is_an_error(kubeconfig):
    with pytest.raises(ClusterError, match="nowhere"):
        load(kubeconfig(), context="nowhere")


@pytest.mark.parametrize("server", ["h:6443", "ftp://h", "https://", "https://h:port"])
def test_invalid_server_is_an_error(kubeconfig, server):
    with pytest.raises(ClusterError, match=r"invalid server .*: expected https://HOST:PORT"):
        load(kubeconfig({"server": server}))


def test_missing_kubeconfig_is_an_error():
    with pytest.raises(ClusterError, match=r"^no kubeconfig at ~/\.kube/config"):
        load()


def test_missing_service_account_is_an_error(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ClusterError, match=r"^the pod's service account"):
        load()


def test_user_id_without_name_and_home_is_supported(monkeypatch):
    """As in images that set only a user number."""

    def unknown(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(ClusterError, match=r"^no kubeconfig at ~/\.kube/config"):
        load()


def test_kubeconfig_of_the_test_api_server_needs_no_client(tmp_path, monkeypatch):
    """Its kubeconfig is read without the package ``kubernetes``, whose import is slow."""
    monkeypatch.setitem(sys.modules, "kubernetes.client.configuration", None)
    with FakeApiServer(token="t") as server:
        path = server.kubeconfig(tmp_path / "config")
        found = load(path)
        assert (found.server.url, found.token()) == (server.url, "Bearer t")
        path = FakeApiServer().kubeconfig(path)
        assert found.reload().token() is None


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"server": "http://10.0.0.1:1"}, {}),
        ({"server": "http://127.0.0.1:1"}, {"exec": {"command": "x"}}),
    ],
)
def test_other_kubeconfigs_are_read_by_the_client(kubeconfig, monkeypatch, cluster, user):
    monkeypatch.setitem(sys.modules, "kubernetes.client.configuration", None)
    with pytest.raises(ModuleNotFoundError):
        load(kubeconfig(cluster, user))
