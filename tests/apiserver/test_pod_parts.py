"""The subresources ``resize`` and ``ephemeralcontainers`` of pods: changes and errors.

The texts are those of kube-apiserver v1.37; ``tests/cluster/peers/test_pod_parts.py`` compares some
of them with a real one.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from devicemanager.apiserver.errors import StatusError
from devicemanager.apiserver.kinds import Target, target
from devicemanager.apiserver.pod_parts import changed_part, check_capacity

GPU = "vendor.com/gpu"
MUTABLE = "only cpu and memory resources are mutable"
MUTABLE_INIT = "only cpu and memory resources for init or sidecar containers are mutable"
SIZES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"


def at(part: str) -> Target:
    found = target(f"/api/v1/namespaces/default/pods/a/{part}")
    assert found is not None
    return found


def pod(*containers: dict[str, Any], init: Any = (), **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {"containers": list(containers or (main(),)), **spec},
    }
    if init:
        found["spec"]["initContainers"] = list(init)
    return found


def main(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": copy.deepcopy(SIZES), **fields}


def sized(requests: Any = None, limits: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the container ``main`` with other requests and limits."""
    given = {"requests": requests, "limits": limits}
    resources = {name: each for name, each in given.items() if each is not None}
    return main(resources=resources, **fields)


def causes(part: str, old: dict[str, Any], spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the errors of a change as (field, message); an empty list if it is allowed."""
    before = copy.deepcopy(old)
    try:
        changed_part(at(part), old, {"spec": spec})
    except StatusError as error:
        assert error.code == 422
        details: Any = error.details
        return [(each["field"], each["message"]) for each in details["causes"]]
    finally:
        assert old == before
    return []


def resize_errors(old: dict[str, Any], *containers: Any, init: Any = ()) -> list[tuple[str, str]]:
    spec: dict[str, Any] = {"containers": list(containers)}
    if init:
        spec["initContainers"] = list(init)
    return causes("resize", old, spec)


# -- resize ---------------------------------------------------------------------------------


def test_resize_changes_sizes_and_policies_only() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    old = pod(main(resizePolicy=policy), init=[main("init", restartPolicy="Always")])
    wanted = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    given = {
        "spec": {
            "containers": [main(image="other", resources=wanted, resizePolicy=policy)],
            "initContainers": [main("init", resources=wanted)],
            "nodeName": "other",
        }
    }
    new = changed_part(at("resize"), old, given)
    assert new["spec"] == {
        "containers": [main(resources=wanted, resizePolicy=policy)],
        "initContainers": [main("init", resources=wanted, restartPolicy="Always")],
    }
    assert new["metadata"] == {**old["metadata"], "generation": 2}
    assert old["metadata"]["generation"] == 1
    assert old["spec"]["containers"][0]["resources"] == SIZES


def test_change_without_effect_does_not_count() -> None:
    old = pod()
    assert changed_part(at("resize"), old, {"spec": copy.deepcopy(old["spec"])}) == old
    old["spec"]["ephemeralContainers"] = [shell()]
    given = {"spec": {"ephemeralContainers": [shell()]}}
    assert changed_part(at("ephemeralcontainers"), old, given) == old
    for shells in ({}, {"ephemeralContainers": []}, {"ephemeralContainers": None}):
        assert changed_part(at("ephemeralcontainers"), pod(), {"spec": shells}) == pod()


@pytest.mark.parametrize("part", ["resize", "ephemeralcontainers"])
def test_pod_without_a_generation_gets_none(part: str) -> None:
    """As of an API server before 1.33."""
    old = pod()
    del old["metadata"]["generation"]
    spec = {
        "containers": [sized({"cpu": "2", "memory": "1Gi"}, SIZES["limits"])],
        "ephemeralContainers": [{"name": "shell", "image": "i"}],
    }
    new = changed_part(at(part), old, {"spec": spec})
    assert new["spec"] != old["spec"] and new["metadata"] == old["metadata"]


def test_missing_requests_are_the_limits() -> None:
    """In the stored pod and in the change."""
    limits = SIZES["limits"]
    old = pod(sized(None, limits), init=[sized(None, limits) | {"name": "init"}])
    new = changed_part(at("resize"), old, {"spec": copy.deepcopy(old["spec"])})
    for field in ("containers", "initContainers"):
        assert new["spec"][field][0]["resources"] == {"requests": limits, "limits": limits}
    more = {"cpu": "3", "memory": "2Gi"}
    new = changed_part(
        at("resize"), old, {"spec": {**old["spec"], "containers": [sized({"cpu": "3"}, more)]}}
    )
    assert new["spec"]["containers"][0]["resources"] == {"requests": more, "limits": more}


def test_container_without_sizes_keeps_none() -> None:
    old = pod({"name": "main", "image": "i"})
    assert resize_errors(old, {"name": "main"}) == []


@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_invalid_quantity_is_an_error(field: str, where: str) -> None:
    old = pod(init=[main("init")])
    spec = copy.deepcopy(old["spec"])
    spec[where][0]["resources"][field]["cpu"] = "much"
    with pytest.raises(StatusError) as raised:
        changed_part(at("resize"), old, {"spec": spec})
    assert raised.value.code == 422
    assert raised.value.message == (
        '"" is invalid: patch: Invalid value: "much": quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


SIZE_ERRORS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "nothing changed": (main(), []),
    "request at the limit": (
        sized({"cpu": "2", "memory": "2Gi"}, {"cpu": "3", "memory": "2Gi"}),
        [],
    ),
    "request over the limit": (
        sized({"cpu": "3", "memory": "1Gi"}, SIZES["limits"]),
        [
            (
                "spec.containers[0].resources.requests",
                'Invalid value: "3": must be less than or equal to cpu limit of 2',
            )
        ],
    ),
    "negative request": (
        sized({"cpu": "-1", "memory": "1Gi"}, SIZES["limits"]),
        [
            (
                "spec.containers[0].resources.requests[cpu]",
                'Invalid value: "-1": must be greater than or equal to 0',
            )
        ],
    ),
    "negative limit": (
        sized({"cpu": "-1", "memory": "1Gi"}, {"cpu": "-1", "memory": "2Gi"}),
        [
            (
                f"spec.containers[0].resources.{field}[cpu]",
                'Invalid value: "-1": must be greater than or equal to 0',
            )
            for field in ("limits", "requests")
        ],
    ),
    "nothing": (sized({"cpu": "0", "memory": "1Gi"}, SIZES["limits"]), []),
    "request of a device without a limit": (
        sized({**SIZES["requests"], GPU: "1"}, SIZES["limits"]),
        [
            (
                "spec.containers[0].resources.limits",
                "Required value: Limit must be set for non overcommitable resources",
            ),
            ("spec", f"Forbidden: {MUTABLE}"),
        ],
    ),
    "request of a device under its limit": (
        sized({**SIZES["requests"], GPU: "1"}, {**SIZES["limits"], GPU: "2"}),
        [
            (
                "spec.containers[0].resources.requests",
                f'Invalid value: "1": must be equal to {GPU} limit of 2',
            ),
            ("spec", f"Forbidden: {MUTABLE}"),
        ],
    ),
    "device": (
        sized({**SIZES["requests"], GPU: "1"}, {**SIZES["limits"], GPU: "1"}),
        [("spec", f"Forbidden: {MUTABLE}")],
    ),
    # Resources of Kubernetes itself need no limit, and can be requested below it.
    "storage": (
        sized({**SIZES["requests"], "ephemeral-storage": "1Gi"}, SIZES["limits"]),
        [("spec", f"Forbidden: {MUTABLE}")],
    ),
    "resource with the domain of Kubernetes": (
        sized(
            {**SIZES["requests"], "kubernetes.io/x": "1"},
            {**SIZES["limits"], "kubernetes.io/x": "2"},
        ),
        [("spec", f"Forbidden: {MUTABLE}")],
    ),
    "request removed": (
        sized({"memory": "1Gi"}, {"memory": "2Gi"}),
        [
            (
                "spec.containers[0].resources.requests",
                "Forbidden: resource requests cannot be removed",
            ),
            ("spec.containers[0].resources.limits", "Forbidden: resource limits cannot be removed"),
        ],
    ),
    "limit removed": (
        sized(SIZES["requests"], {"memory": "2Gi"}),
        [("spec.containers[0].resources.limits", "Forbidden: resource limits cannot be removed")],
    ),
    "resize policy": (
        main(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
        [("spec", f"Forbidden: {MUTABLE}")],
    ),
    "unknown resize policy": (
        main(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "Perhaps"}]),
        [
            (
                "spec.containers[0].resizePolicy",
                'Unsupported value: "Perhaps": supported values: "NotRequired", "RestartContainer"',
            ),
            ("spec", f"Forbidden: {MUTABLE}"),
        ],
    ),
    "another QoS class": (
        sized(SIZES["limits"], SIZES["limits"]),
        [
            (
                "spec",
                'Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
            )
        ],
    ),
}


@pytest.mark.parametrize("name", SIZE_ERRORS)
def test_errors_of_sizes(name: str) -> None:
    container, errors = SIZE_ERRORS[name]
    assert resize_errors(pod(), container) == errors


def test_errors_of_init_containers_name_them() -> None:
    old = pod(main(), main("side"), init=[main("init"), main("sidecar")])
    policy = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    changed = main("sidecar", resizePolicy=policy)
    assert resize_errors(old, main(), main("side"), init=[main("init"), changed]) == [
        ("spec.initContainers[1]", f"Forbidden: {MUTABLE_INIT}")
    ]
    over = main("side", resources={**SIZES, "requests": {"cpu": "3", "memory": "1Gi"}})
    assert [
        each[0] for each in resize_errors(old, main(), over, init=[main("init"), main("sidecar")])
    ] == ["spec.containers[1].resources.requests"]


@pytest.mark.parametrize("policy", ["NotRequired", "RestartContainer"])
def test_unchanged_resize_policy_is_allowed(policy: str) -> None:
    container = main(resizePolicy=[{"resourceName": "cpu", "restartPolicy": policy}])
    assert resize_errors(pod(container), container) == []


def test_equal_amounts_in_another_form_are_allowed() -> None:
    old = pod(sized({**SIZES["requests"], GPU: "1"}, {**SIZES["limits"], GPU: "1"}))
    new = sized({**SIZES["requests"], GPU: "1000m"}, {**SIZES["limits"], GPU: "1000m"})
    assert resize_errors(old, new) == []


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_containers_keep_their_names_and_order(field: str) -> None:
    old = pod(main("a"), main("b"), init=[main("c"), main("d")])
    given = copy.deepcopy(old["spec"])
    given[field].reverse()
    reordered = f"Forbidden: {field} may not be renamed or reordered on resize"
    assert causes("resize", old, given) == [
        (f"spec.{field}[{index}].name", reordered) for index in range(2)
    ]
    for names in (given[field][:1], [*given[field], main("e")]):
        assert causes("resize", old, {**old["spec"], field: names}) == [
            (f"spec.{field}", f"Forbidden: {field} may not be added or removed on resize")
        ]


def test_errors_of_both_lists_are_reported() -> None:
    """Those of the names hide those of the sizes."""
    old = pod(main("a"), init=[main("b")])
    over = sized({"cpu": "3", "memory": "1Gi"}, SIZES["limits"])
    assert [each[0] for each in resize_errors(old, over, over)] == [
        "spec.containers",
        "spec.initContainers",
    ]


@pytest.mark.parametrize(
    ("statuses", "supported"),
    [
        (None, True),
        ([], True),
        ([{"state": {"running": {}}, "resources": {}}], True),
        ([{"state": {"running": {}}}], False),
        ([{"state": {"waiting": {}}}, {"state": {"running": {}}}], False),
        ([{"state": None}, {}, {"state": {"waiting": {}}}], True),
        # The first running container decides.
        ([{"state": {"running": {}}, "resources": {}}, {"state": {"running": {}}}], True),
    ],
)
def test_node_must_report_resources_of_running_containers(statuses: Any, supported: bool) -> None:
    old = {**pod(), "status": {"containerStatuses": statuses}}
    text = "Forbidden: Pod running on node without support for resize"
    assert resize_errors(old, main()) == ([] if supported else [("spec", text)])


# -- capacity of the node -------------------------------------------------------------------


def node(**amounts: str) -> dict[str, Any]:
    return {"status": {"allocatable": amounts}}


def refused(of: dict[str, Any], on: dict[str, Any] | None) -> StatusError | None:
    try:
        check_capacity(at("resize"), of, on)
    except StatusError as error:
        return error
    return None


def test_requests_may_be_all_that_the_node_has() -> None:
    of = pod(main(), main("side"), init=[main("sidecar", restartPolicy="Always")])
    assert refused(of, node(cpu="3", memory="3Gi")) is None
    assert refused(of, None) is None


@pytest.mark.parametrize(
    ("on", "text"),
    [
        (node(cpu="2999m", memory="3Gi"), "cpu, requested: 3000, allocatable: 2999"),
        (
            node(cpu="3", memory="3221225471"),
            "memory, requested: 3221225472, allocatable: 3221225471",
        ),
        (
            node(),
            "cpu, requested: 3000, allocatable: 0; memory, requested: 3221225472, allocatable: 0",
        ),
        (
            {},
            "cpu, requested: 3000, allocatable: 0; memory, requested: 3221225472, allocatable: 0",
        ),
    ],
)
def test_requests_over_those_of_the_node_are_forbidden(on: dict[str, Any], text: str) -> None:
    of = pod(main(), main("side"), init=[main("sidecar", restartPolicy="Always")])
    error = refused(of, on)
    assert error is not None
    assert (error.code, error.message) == (
        403,
        f'pods "a" is forbidden: node didn\'t have enough allocatable resources: {text}',
    )
    assert error.details == {
        "name": "a",
        "kind": "pods",
        "causes": [{"reason": "NodeCapacity"}],
    }


def test_init_container_that_ends_counts_only_if_it_is_larger() -> None:
    assert refused(pod(init=[main("init")]), node(cpu="1", memory="1Gi")) is None
    large = main("init", resources={"limits": {"cpu": "4"}})
    error = refused(pod(init=[large]), node(cpu="3", memory="1Gi"))
    assert error is not None
    assert error.message.endswith(": cpu, requested: 4000, allocatable: 3000")


# -- ephemeral containers -------------------------------------------------------------------


def shell(name: str = "shell", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **fields}


def shell_errors(*shells: dict[str, Any], old: Any = (), init: Any = ()) -> list[tuple[str, str]]:
    before = pod(init=init)
    if old:
        before["spec"]["ephemeralContainers"] = list(old)
    return causes("ephemeralcontainers", before, {"ephemeralContainers": list(shells)})


def test_shells_are_added() -> None:
    old = pod()
    shells = [shell(), shell("other", targetContainerName="main")]
    given = {"spec": {"containers": [], "ephemeralContainers": shells}}
    new = changed_part(at("ephemeralcontainers"), old, given)
    assert new["spec"] == {**old["spec"], "ephemeralContainers": shells}
    assert new["metadata"]["generation"] == 2
    assert "ephemeralContainers" not in old["spec"]


@pytest.mark.parametrize(
    ("shells", "errors"),
    [
        ([shell(""), shell("b")], [("[0].name", "Required value")]),
        ([{"image": "i"}], [("[0].name", "Required value")]),
        ([shell(), {"name": "b"}], [("[1].image", "Required value")]),
        ([shell(targetContainerName="none")], [("[0].targetContainerName", 'Not found: "none"')]),
        ([shell(targetContainerName="init")], []),
        ([shell("main")], [("[0].name", 'Duplicate value: "main"')]),
        ([shell("init")], [("[0].name", 'Duplicate value: "init"')]),
        ([shell(), shell()], [("[1].name", 'Duplicate value: "shell"')]),
        # Another ephemeral container cannot be the target.
        (
            [shell("a"), shell("b", targetContainerName="a")],
            [("[1].targetContainerName", 'Not found: "a"')],
        ),
        *(
            ([shell(**{field: value})], [(f"[0].{field}", f"Forbidden: {NOT_EPHEMERAL}")])
            for field, value in (
                ("ports", [{"containerPort": 80}]),
                ("resources", {"limits": {"cpu": "1"}}),
                ("livenessProbe", {"exec": {}}),
                ("readinessProbe", {"exec": {}}),
                ("startupProbe", {"exec": {}}),
                ("lifecycle", {"preStop": {}}),
            )
        ),
    ],
)
def test_errors_of_shells(shells: Any, errors: list[tuple[str, str]]) -> None:
    wanted = [(f"spec.ephemeralContainers{field}", text) for field, text in errors]
    assert shell_errors(*shells, init=[main("init")]) == wanted


def test_name_of_a_shell_is_a_label() -> None:
    ((field, text),) = shell_errors(shell("Shell"))
    assert field == "spec.ephemeralContainers[0].name"
    assert text.startswith('Invalid value: "Shell": a lowercase RFC 1123 label must consist of ')


def test_shells_are_not_changed_or_removed() -> None:
    may_not = 'Forbidden: existing ephemeral containers "shell" may not be'
    assert shell_errors(shell(), old=[shell()]) == []
    assert shell_errors(shell("new"), old=[shell(), shell("new")]) == [
        ("spec.ephemeralContainers", f"{may_not} removed\n")
    ]
    assert shell_errors(shell("new"), shell(image="j"), old=[shell()]) == [
        ("spec.ephemeralContainers", f"{may_not} changed\n")
    ]
