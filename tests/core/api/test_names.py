"""Valid names of extended resources."""

from __future__ import annotations

import sys

import pytest

from devicemanager.core.api.names import (
    extended_resource_fault,
    interface_name_fault,
    is_dns1123_subdomain,
    is_extended_resource_name,
    is_qualified_name,
)

GOOD = [
    "vendor.com/gpu",
    "v/g",
    "a-b.c-d.example/x",
    "0.0/0",
    "vendor.com/GPU_1.x-y",
    "kubernetes.io.example/x",
    "vendor.com/kubernetes.io",
    "vendor.com/requests.gpu",
    "kubernetes-io/x",
    # With the prefix `requests.` the domain must still have at most 253 characters.
    "a" * 244 + "/x",
    "vendor.com/" + "x" * 63,
]
BAD = [
    "",
    "/",
    "gpu",
    "cpu",
    "vendor.com/",
    "/gpu",
    "vendor.com//gpu",
    "vendor.com/a/b",
    "kubernetes.io/gpu",
    "node.kubernetes.io/gpu",
    # IsNativeResource tests strings.Contains(name, "kubernetes.io/") (v1.32).
    "notkubernetes.io/gpu",
    "requests.vendor.com/gpu",
    "requests.x/y",
    "Vendor.com/gpu",
    "vendor_com/gpu",
    "vendor..com/gpu",
    ".vendor.com/gpu",
    "vendor.com./gpu",
    "-vendor.com/gpu",
    "vendor.com-/gpu",
    "vendor.com/-gpu",
    "vendor.com/gpu-",
    "vendor.com/_gpu",
    "vendor.com/gpu.",
    "vendor.com/g pu",
    "vendor.com/gpu\n",
    "vendor.com\n/gpu",
    "vendor.com/gp\u00fc",
    "vend\u00f6r.com/gpu",
    "vendor.com/\u0661",
    "vendor.com:80/gpu",
    "a" * 245 + "/x",
    "vendor.com/" + "x" * 64,
]


@pytest.mark.parametrize("name", GOOD)
def test_valid_extended_resources(name):
    assert is_extended_resource_name(name)
    assert extended_resource_fault(name) is None


@pytest.mark.parametrize("name", BAD)
def test_invalid_extended_resources(name):
    assert not is_extended_resource_name(name)
    assert extended_resource_fault(name)


@pytest.mark.parametrize(
    ("name", "qualified"),
    [
        ("gpu", True),
        ("vendor.com/gpu", True),
        ("kubernetes.io/gpu", True),
        ("requests.vendor.com/gpu", True),
        ("", False),
        ("a/b/c", False),
        ("/gpu", False),
        ("x" * 63, True),
        ("x" * 64, False),
    ],
)
def test_qualified_names(name, qualified):
    assert is_qualified_name(name) is qualified


@pytest.mark.parametrize(
    ("name", "good"),
    [("a", True), ("a.b", True), ("a-b", True), ("", False), ("A", False), ("a_b", False),
     ("a..b", False), ("-a", False), ("a-", False), ("a" * 253, True), ("a" * 254, False)],
)  # fmt: skip
def test_subdomains(name, good):
    assert is_dns1123_subdomain(name) is good


@pytest.mark.parametrize(
    "name", ["x" * 4_000_000, f"{'x' * 1000}.com/gpu", "vendor.com/" + "x" * 400]
)
def test_long_names_are_not_cached(name):
    before = sys.getrefcount(name)
    assert not is_extended_resource_name(name)
    assert sys.getrefcount(name) == before


@pytest.mark.parametrize("name", ["eth0", "a", "x" * 15, "a.b", "...", "\u00fc" * 7])
def test_interface_names_that_linux_accepts(name: str) -> None:
    assert interface_name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a:b", "a\0", "a b", "a\t", "x" * 16, "\u00fc" * 8, "\ud800" * 16],
)
def test_interface_names_that_linux_rejects(name: str) -> None:
    assert interface_name_fault(name) == "use 1 to 15 bytes without blanks, '/' and ':'"
