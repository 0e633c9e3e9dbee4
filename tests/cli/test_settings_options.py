"""Flags for settings, and ``RESOURCE=COUNT@NODES``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import Durability
from devicemanager.cli import main, settings_options
from devicemanager.core.providers.cpu import CpuProvider
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.topology import NumaTopology, NumaTopologyError, PolicyName, ScopeName
from devicemanager.kubelet.host.numa import NumaError
from devicemanager.kubelet.settings import QUIRKS, Settings

CLOSEST, MOST = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    settings_options.add_settings(parser, "topology", "version", "admission", "serving")
    return parser.parse_args(argv)


def settings(*argv: str) -> Settings:
    return settings_options.settings_from(parsed(*argv))


def test_settings_without_flags_are_the_defaults() -> None:
    assert settings() == Settings()


@pytest.mark.parametrize(
    ("argv", "changes"),
    [
        ("--numa 0,2", {"numa": NumaTopology.of([0, 2])}),
        ("--topology-policy restricted", {"topology_policy": "restricted"}),
        ("--topology-scope pod", {"topology_scope": "pod"}),
        (
            f"--topology-option {CLOSEST}=1 --topology-option {MOST}=9",
            {"topology_options": {CLOSEST: "1", MOST: "9"}},
        ),
        ("--strict", {"strict": True}),
        ("--declare a.b/c --declare a.b/d", {"declared_resources": frozenset({"a.b/c", "a.b/d"})}),
        ("--shuffle-seed -3", {"shuffle_seed": -3}),
        ("--quirk Q2 --quirk Q4", {"quirks": frozenset({"Q2", "Q4"})}),
        ("--wait-for-plugin 1.5", {"wait_for_plugin": 1.5}),
        ("--grace-period 0", {"grace_period": 0.0}),
        ("--max-list-bytes -1", {"max_list_bytes": -1}),
        ("--pod-resources-qps 7", {"pod_resources_qps": 7.0}),
        ("--durability process", {"durability": "process"}),
        ("--durability power", {"durability": "power"}),
        ("--node node-1", {"node_name": "node-1"}),
        ("--no-rate-limit", {"pod_resources_qps": None}),
    ],
)
def test_flag_changes_its_setting(argv: str, changes: dict[str, Any]) -> None:
    assert settings(*argv.split()) == attrs.evolve(Settings(), **changes)


def test_durability_choices_are_those_of_the_checkpoint() -> None:
    assert tuple(Durability) == settings_options.CHOICES["durability"]


def test_numa_nodes_follow_the_devices_by_default() -> None:
    assert settings_options.settings_from(parsed(), {2}).numa.nodes == (0, 1, 2)
    assert settings_options.settings_from(parsed("--numa", "1"), {2}).numa.nodes == (1,)
    with pytest.raises(NumaTopologyError, match=r"^invalid NUMA node ID 100: use 0 to 63"):
        settings_options.settings_from(parsed(), {100})


def test_numa_file_defines_cpus_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text("{nodes: 0-1, cpus: {0: 0-3, 1: 4-7}, memory: {memory: {0: 1Gi}}}")
    cpus, memory = settings("--numa", str(file)).providers
    assert isinstance(cpus, CpuProvider)
    assert cpus.allocatable().cpu_ids == tuple(range(8))
    assert isinstance(memory, MemoryProvider)
    with pytest.raises(NumaError, match=r"^invalid --numa "):
        settings("--numa", str(tmp_path / "none"))


def test_policy_and_scope_choices_are_those_of_the_core() -> None:
    assert tuple(PolicyName) == settings_options.CHOICES["topology_policy"]
    assert tuple(ScopeName) == settings_options.CHOICES["topology_scope"]


def help_of(flag: str, command: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``--help`` prints about a flag, on one line."""
    monkeypatch.setenv("COLUMNS", "1000")
    assert main([command, "--help"]) == 0
    texts = re.split(r"\n\n|\n  (?=-)", capsys.readouterr().out)
    (text,) = (each for each in texts if each.split()[:1] == [flag])
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("flag", "end"),
    [
        ("--kubelet-version", "such as 1.28 or 1.28.2 (default: 1.37)"),
        ("--feature-gates", "from the version's defaults; can be repeated"),
        # A flag with a list of choices names them once: in its text, or else after it.
        (
            "--topology-policy",
            "--topology-policy POLICY policy of the topology manager: none, best-effort, "
            "restricted or single-numa-node (default: none)",
        ),
        (
            "--topology-scope",
            "--topology-scope SCOPE alignment scope: container or pod (default: container)",
        ),
        (
            "--durability",
            "an intact file, possibly an older one), power (a power failure loses nothing) "
            "(default: kubelet)",
        ),
        ("--quirk", "an unknown name lists all; can be repeated"),
        ("--shuffle-seed", "from this seed, instead of the lowest IDs"),
        ("--grace-period", "remains after its last plugin disconnects (default: 300)"),
        ("--pod-resources-qps", "and of the Pods API, in requests per second (default: 100)"),
        (
            "--no-rate-limit",
            "--no-rate-limit no limit for rate limit of PodResources, and of the Pods API, in "
            "requests per second",
        ),
    ],
)
def test_help_of_a_flag_has_choices_and_default(
    flag: str, end: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert help_of(flag, "run", capsys, monkeypatch).endswith(end)


@pytest.mark.parametrize(("command", "has_every"), [("check", True), ("run", False)])
def test_only_check_runs_on_every_version(
    command: str, has_every: bool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of("--kubelet-version", command, capsys, monkeypatch)
    every = "; `all` runs the checks on each anchor version"
    assert text.endswith(f"such as 1.28 or 1.28.2{every * has_every} (default: 1.37)")


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ("--quirk Q99", f"unknown quirk 'Q99': use reference or one of {', '.join(QUIRKS)}"),
        (
            "--declare gpu",
            "invalid resource 'gpu': expected a name with a domain, such as vendor.com/gpu",
        ),
        ("--shuffle-seed 1.5", "invalid value '1.5': expected a whole number"),
        (
            "--topology-option x",
            "invalid option 'x': expected NAME=VALUE, such as prefer-closest-numa-nodes=true",
        ),
        ("--topology-policy tight", "invalid choice: 'tight'"),
    ],
)
def test_invalid_value_is_wrong_usage(command: str, argv: str, text: str, capsys: Any) -> None:
    manifest = ["x.yaml"] if command == "explain" else []
    assert main([command, *manifest, *argv.split()]) == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"usage: devicemanager {command} ")
    assert text in error


@pytest.mark.parametrize("name", ["", "My Node"])
def test_invalid_node_name_is_rejected(name: str, capsys: Any) -> None:
    assert main(["run", "--node", name]) == 2
    assert f"--node: invalid node name {name!r}: use lower" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_invalid_time_is_rejected(text: str, capsys: Any) -> None:
    assert main(["run", f"--grace-period={text}"]) == 2
    assert f"invalid value '{text}': expected a number of at least 0" in capsys.readouterr().err


def test_settings_that_the_kubelet_rejects_are_one_line_errors(capsys: Any) -> None:
    policy = ["--topology-policy", "restricted"]
    # With policy `none`, a kubelet ignores the option.
    for argv in (policy, []):
        assert main(["run", *argv, "--topology-option", "x=1"]) == 2
        assert capsys.readouterr().err == (
            'devicemanager: error: unknown Topology Manager Policy option: "x"\n'
        )
    assert main(["run", *policy, "--numa", "0-8"]) == 2
    assert "unsupported on machines with more than 8 NUMA Nodes" in capsys.readouterr().err
    assert main(["run", "--numa", "0-"]) == 2
    assert "invalid `0-`: expected a number or a range" in capsys.readouterr().err
    assert main(["run", "--simulate", "vendor.com/gpu=1@0,1@none"]) == 2
    assert "set a NUMA node for all devices or for none" in capsys.readouterr().err


# --- devices


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("3", (None, None, None)),
        ("0", ()),
        ("5@0,1", (0, 1, 0, 1, 0)),
        ("2@0,3@1", (0, 0, 1, 1, 1)),
        ("0@0,2@1", (1, 1)),
        ("2@0,1,1@2", (0, 1, 2)),
        ("1@none,1@1", (None, 1)),
        ("2@0,none", (0, None)),
    ],
)
def test_device_option_is_parsed(text: str, nodes: tuple[int | None, ...]) -> None:
    assert settings_options.device_option(f"vendor.com/gpu={text}") == ("vendor.com/gpu", nodes)


@pytest.mark.parametrize(
    "text", ["1@", "@1", "1,2", "1,2@0", "1@0,", "1@0@1", "1@x", "1@0+1", "1@-1", "1 @0", "\u0661"]
)
def test_invalid_device_option_is_rejected(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match=r"^invalid devices '.*': expected RESOURCE=COUNT"
    ):
        settings_options.device_option(f"vendor.com/gpu={text}")


GROUPS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 63), min_size=1, max_size=3)), min_size=1
)


@given(GROUPS)
def test_device_option_round_trip(groups: list[tuple[int, list[int]]]) -> None:
    text = ",".join(f"{count}@{','.join(map(str, nodes))}" for count, nodes in groups)
    expected = tuple(
        nodes[number % len(nodes)] for count, nodes in groups for number in range(count)
    )
    assert settings_options.device_option(f"r={text}").nodes == expected
