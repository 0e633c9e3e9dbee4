"""Definition of a check: a row of ``checks.toml`` joined with the function that runs the check.

A family is a group of related checks, such as Registration. The IDs of its checks begin with the
same letters: ``R01`` is a check of family ``R``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from devicemanager.conformance.outcomes import CheckError, Profile, Scene, Severity

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun

__all__ = [
    "CLIENT_FAMILY",
    "FAMILIES",
    "Check",
    "CheckFunction",
    "addresses",
    "builtin",
    "check",
    "described",
    "ids",
    "rows",
    "selected",
]

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
"""Title of each family of checks, by the first letter of the checks' IDs."""

CLIENT_FAMILY = "C"
"""First letter of the IDs of the checks of PodResources clients. These are not checks of
plugins."""

# Families that are part of the profile `resilient`, but not of `core`.
_RESILIENCE = frozenset(("K", "L", "DK", "DL"))
_TABLE = Path(__file__).with_name("checks.toml")
_DIGITS = "0123456789"
# Only one letter is allowed. A user-defined ID can then not be the ID of a check of drivers, which
# has two letters, such as DK01.
_ID = re.compile(r"[A-Z]\d\d")


CheckFunction: TypeAlias = Callable[["CheckRun"], str | None]
"""Function that runs a check. It returns a text for the report, such as a measurement, or None.

It raises ``Failed``, ``Warned`` or ``Skipped``.
"""


@attrs.frozen
class Check:
    """Conformance check: its description and the function that runs it."""

    id: str
    """The letters of the family and two digits, such as ``K01``."""
    severity: Severity
    title: str
    """The requirement in one line; its subject is the plugin."""
    does: str
    """What the suite does in the check."""
    expects: str
    """Text that describes the result with which the check passes. A limit's name in the text, such
    as ``start_seconds``, stands for the limit's value."""
    production: str
    """Symptom on a node whose plugin fails the check."""
    links: tuple[str, ...]
    """URLs of the requirement and of public issues that show the symptom."""
    scene: Scene
    hooks: tuple[str, ...]
    """Names of the hooks that the check requires."""
    needs_registration: bool
    """True if the check needs a plugin that registers."""
    # A check of a PodResources client gets a ``ClientRun`` instead of a ``CheckRun``.
    run: Callable[[Any], str | None] = attrs.field(eq=False, repr=False)
    each_resource: bool = False
    """True if the check is about one resource. It is run for each resource that has devices."""
    repeats: tuple[str, ...] = ()
    """IDs of other checks. If one of them fails, this check is skipped, because it would fail for
    the same reason."""
    assumes: tuple[str, ...] = ()
    """IDs of the checks that verify the steps that this check needs (``SuiteRun.assuming``). They
    should run before this check, but this check does not wait for their verdicts."""
    effect_of: tuple[str, ...] = ()
    """IDs of other checks that can fail for the same reason as this check. Unlike with ``repeats``,
    their failure does not skip this check.

    If this check and one of the others fail, the report lists the failure of this check as an
    effect of the other failure. It does not do so if the two failures have different symptoms.
    """
    optional_hooks: tuple[str, ...] = ()
    """Names of hooks that the check uses if they are defined."""
    options: tuple[str, ...] = ()
    """Names of the options of ``devicemanager check`` that the check requires, such as
    ``previous``."""

    @property
    def follows(self) -> tuple[str, ...]:
        """IDs of checks that should run before this check: those in ``repeats`` and ``assumes``."""
        return (*self.repeats, *self.assumes)

    @property
    def family(self) -> str:
        """The letters with which the check's ID begins, such as ``K``."""
        return self.id.rstrip(_DIGITS)

    def belongs_to(self, profile: Profile) -> bool:
        """True if a plugin must pass this check to pass ``profile``."""
        match self.severity, profile:
            case Severity.MUST, Profile.CORE:
                return self.family not in _RESILIENCE
            case Severity.MUST, _:
                return True
            case Severity.SHOULD, Profile.COMPLETE:
                return True
        return False

    def may_use(self, hook: str) -> bool:
        """True if the check requires this hook, or uses the hook when it is defined."""
        return hook in self.hooks or hook in self.optional_hooks

    def data(self) -> dict[str, Any]:
        """Return the description as JSON data, as described in docs/json.md."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "title": self.title,
            "does": self.does,
            "expects": self.expects,
            "production": self.production,
            "links": list(self.links),
            "hooks": list(self.hooks),
        }


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
    """Return a decorator that converts a function to a user-defined check. Pass this check to
    ``conformance.run``.

    ``id_`` is a letter that no built-in family has, and two digits. ``links`` are sources
    separated by commas: URLs, or short forms (see ``addresses``). Raises ValueError for an invalid
    ID or source.
    """
    if not _ID.fullmatch(id_) or id_[0] in (*FAMILIES, CLIENT_FAMILY):
        raise ValueError(
            f"invalid check ID {id_!r}: use a letter and two digits; these letters are reserved: "
            f"{', '.join((*FAMILIES, CLIENT_FAMILY))}"
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
    """Return the built-in check that calls the function ``run``. Use ``builtin`` as a decorator.
    The function's name is the check's ID in lower case, such as ``r01``."""
    return described(_TABLE, run)


def described(table: Path, run: Callable[[Any], str | None]) -> Check:
    """Return the check that calls the function ``run``. A row of the TOML file ``table`` describes
    the check.

    The row's key is the name of the function in upper case.
    """
    # The row is found by the function's name, so that row and function do not repeat each other.
    id_ = run.__name__.upper()
    # This must be a copy, because the pops below would otherwise empty the cached row.
    row = dict(rows(table)[id_])
    return Check(
        id=id_,
        severity=Severity(row.pop("severity")),
        links=addresses(row.pop("links", "")),
        scene=Scene(row.pop("scene", Scene.REGISTERED)),
        hooks=tuple(row.pop("hooks", ())),
        options=tuple(row.pop("options", ())),
        repeats=tuple(row.pop("repeats", ())),
        assumes=tuple(row.pop("assumes", ())),
        effect_of=tuple(row.pop("effect_of", ())),
        optional_hooks=tuple(row.pop("optional_hooks", ())),
        needs_registration=row.pop("needs_registration", True),
        each_resource=row.pop("each_resource", False),
        run=run,
        # This is evaluated after the pops, so only texts are left. A misspelled key in the file
        # becomes an unknown argument, which is an error.
        **row,
    )


# Each check reads its row when its module is imported. The cache parses the file once for all.
@cache
def rows(table: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the descriptions of checks in the TOML file ``table`` by check ID, in the file's
    order."""
    return tomllib.loads(table.read_text(encoding="utf-8"))


def ids() -> tuple[str, ...]:
    """Return the IDs of the built-in checks of plugins, such as ``R01``, family after family."""
    return tuple(rows(_TABLE))


def selected(
    every: Sequence[Check], families: Iterable[str], only: Iterable[str], skip: Iterable[str]
) -> tuple[Check, ...]:
    """Return the checks in ``every`` that ``only`` selects and ``skip`` does not leave out.

    ``only`` and ``skip`` contain IDs of checks or letters of families. An empty ``only`` selects
    all checks. Raises CheckError for an unknown ID or family.
    """
    chosen, left_out = tuple(only), tuple(skip)
    known = {each.id for each in every} | {*families}
    # A misspelled name would otherwise select no check, or leave out none.
    for name in (*chosen, *left_out):
        if name not in known:
            raise CheckError(
                f"unknown check {name!r}: use an ID such as {_example(every)}, or a family: "
                f"{', '.join(families)}"
            )

    def is_in(names: tuple[str, ...], each: Check) -> bool:
        return each.id in names or each.family in names

    return tuple(
        each for each in every if (not chosen or is_in(chosen, each)) and not is_in(left_out, each)
    )


def _example(checks: Sequence[Check]) -> str:
    """Return the ID of a check, as an example for an error text: the first check of restarts."""
    # The family of restarts is K for plugins and DK for drivers.
    return next(each.id for each in checks if "K" in each.family)


# -- sources ---------------------------------------------------------------------------

# Short forms keep the rows readable. An unknown short form is an error, so that a typo is not
# published.
_RULES = {
    "DOC": "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/",
    "PROTO": "https://github.com/kubernetes/kubelet/blob/master/pkg/apis/deviceplugin/v1beta1/api.proto",
    "DM": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/devicemanager",
    "PODRESOURCES": "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources",
    "DRA": "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/",
    "DRAPROTO": "https://github.com/kubernetes/kubelet/blob/master/pkg/apis/dra/v1/api.proto",
    "DRAMANAGER": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/dra",
    "HEALTHPROTO": "https://github.com/kubernetes/kubelet/tree/master/pkg/apis/dra-health",
    "SLICES": "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/",
    "CDI": "https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md",
    "METADATA": "https://github.com/kubernetes/enhancements/issues/5304",
    "NRI": "https://github.com/containerd/nri",
    "WATCHER": "https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/pluginmanager",
}
_REPOSITORIES = {
    "k/k": "kubernetes/kubernetes",
    "nv": "NVIDIA/k8s-device-plugin",
    "dra-nv": "kubernetes-sigs/dra-driver-nvidia-gpu",
    "dra-ex": "kubernetes-sigs/dra-example-driver",
    "dra-rocm": "ROCm/k8s-gpu-dra-driver",
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
    """Return the URLs for a list of sources such as ``"DOC, k/k#112395"``, in the same order.

    A source is the short name of a document such as ``DOC``, an issue of a known repository such as
    ``k/k#112395``, or an https URL. Raises ValueError for any other text.
    """
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
