"""The checks by ID: their rows in ``checks.toml``, joined with the functions that run them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from devicemanager.conformance.model import Check, CheckError, CheckFunction, Scene, Severity

__all__ = ["FAMILIES", "addresses", "all_checks", "builtin", "check", "select"]

FAMILIES = {
    "R": "Registration",
    "K": "Restarts and upgrades",
    "W": "ListAndWatch",
    "T": "Topology",
    "O": "Options",
    "A": "Allocate",
    "P": "GetPreferredAllocation",
    "S": "PreStartContainer",
    "L": "Life cycle and hygiene",
}
"""Heading of each family, by letter."""

_TABLE = Path(__file__).with_name("checks.toml")
_ID = re.compile(r"[A-Z]\d\d")


def check(
    id_: str,
    severity: Severity,
    title: str,
    *,
    does: str,
    expects: str,
    production: str,
    links: str = "",
    scene: Scene = Scene.REGISTERED,
    hooks: Sequence[str] = (),
    needs_registration: bool = True,
) -> Callable[[CheckFunction], Check]:
    """Make a check of your own from a function; give it to ``run``.

    ``id_`` is a letter that is not the letter of a family, and two digits. ``links`` are
    sources separated by commas: addresses, or short forms (see ``addresses``).
    """
    if not _ID.fullmatch(id_) or id_[0] in FAMILIES:
        raise ValueError(
            f"invalid check ID {id_!r}: use two digits after a letter other than "
            f"{', '.join(FAMILIES)}"
        )
    return lambda run: Check(
        id_,
        severity,
        title,
        does,
        expects,
        production,
        addresses(links),
        scene,
        tuple(hooks),
        needs_registration,
        run,
    )


def builtin(run: CheckFunction) -> Check:
    """Decorate the function of a built-in check. Its name is the check's ID in lower case."""
    id_ = run.__name__.upper()
    row = dict(_rows()[id_])
    return Check(
        id=id_,
        severity=Severity(row.pop("severity")),
        links=addresses(row.pop("links", "")),
        scene=Scene(row.pop("scene", Scene.REGISTERED)),
        hooks=tuple(row.pop("hooks", ())),
        needs_registration=row.pop("needs_registration", True),
        run=run,
        **row,
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def all_checks() -> tuple[Check, ...]:
    """Return every built-in check in the order of the table: by family, then by number."""
    from devicemanager.conformance.checks import MODULES  # these modules import this one

    return tuple(getattr(MODULES[id_[0]], id_.lower()) for id_ in _rows())


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """Return the checks with these IDs or families, all by default, except those in ``skip``.
    Raises CheckError for an unknown ID."""
    every, chosen, left_out = all_checks(), tuple(only), tuple(skip)
    known = {each.id for each in every} | FAMILIES.keys()
    for name in (*chosen, *left_out):
        if name not in known:
            raise CheckError(
                f"unknown check {name!r}: use an ID such as K01, or a family: {', '.join(FAMILIES)}"
            )

    def is_in(names: tuple[str, ...], each: Check) -> bool:
        return each.id in names or each.family in names

    return tuple(
        each for each in every if (not chosen or is_in(chosen, each)) and not is_in(left_out, each)
    )


# -- sources ---------------------------------------------------------------------------

_RULES = {
    "DOC": "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
    "PROTO": "https://github.com/kubernetes/kubelet/blob/master/pkg/apis/deviceplugin/v1beta1/api.proto",
    "DM": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/devicemanager",
    "WATCHER": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/pluginmanager",
}
_REPOSITORIES = {
    "k/k": "kubernetes/kubernetes",
    "nv": "NVIDIA/k8s-device-plugin",
    "intel": "intel/intel-device-plugins-for-kubernetes",
    "rdma": "Mellanox/k8s-rdma-shared-dev-plugin",
    "sriov": "k8snetworkplumbingwg/sriov-network-device-plugin",
    "dpm": "kubevirt/device-plugin-manager",
    "kubevirt": "kubevirt/kubevirt",
    "gdp": "squat/generic-device-plugin",
    "amd": "ROCm/k8s-device-plugin",
    "akri": "project-akri/akri",
    "nfd": "kubernetes-sigs/node-feature-discovery",
    "hami": "Project-HAMi/HAMi",
    "ascend": "Project-HAMi/ascend-device-plugin",
    "gpu-operator": "NVIDIA/gpu-operator",
    "bottlerocket": "bottlerocket-os/bottlerocket",
    "gpushare": "AliyunContainerService/gpushare-scheduler-extender",
    "vgpu": "Project-HAMi/volcano-vgpu-device-plugin",
    "moby": "moby/moby",
}
_ISSUE = re.compile(r"([\w/-]+)#(\d+)")


def addresses(text: str) -> tuple[str, ...]:
    """Expand sources such as ``"DOC, k/k#112395"`` to addresses, in that order. Raises ValueError
    unless each is a rule, an issue of a known repository, or an address."""
    return tuple(_addresses(text))


def _addresses(text: str) -> Iterator[str]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        issue = _ISSUE.fullmatch(part)
        if part in _RULES:
            yield _RULES[part]
        elif part.startswith("https://"):
            yield part
        elif issue is not None and issue[1] in _REPOSITORIES:
            yield f"https://github.com/{_REPOSITORIES[issue[1]]}/issues/{issue[2]}"
        else:
            raise ValueError(
                f"invalid source {part!r}: use one of {', '.join(_RULES)}, an issue such as "
                "k/k#112395, or an https address"
            )
