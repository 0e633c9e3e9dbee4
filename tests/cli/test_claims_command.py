"""``devicemanager claims`` and its page of the docs."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.claims.allocator import Allocator
from devicemanager.claims.core.model import Limits
from devicemanager.claims.state_file import ClaimRecord, ClaimsState, StateWriter
from devicemanager.cli import main
from devicemanager.cli.offline_claims import OfflineClaims
from tests.claims.documents import claim, device_class, pool
from tests.paths import ROOT

PAGE = ROOT / "docs" / "claims.md"


def run(capsys: Any, *argv: str) -> tuple[int, str, str]:
    status = main(["claims", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def data(capsys: Any, *argv: str) -> tuple[int, Any]:
    status, out, err = run(capsys, *argv, "-o", "json")
    assert err == ""
    return status, json.loads(out)


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Return a directory with a pool of two devices, a class and two claims."""
    two = {"deviceClass": "gpu", "requests": {"count": 2}}
    objects = [pool(), device_class(), claim("one"), claim("two", two)]
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return str(tmp_path / "claims")


@pytest.fixture
def state(files: str, tmp_path: Path) -> str:
    """Return a state file in which claim one is used by a pod."""
    offline = OfflineClaims.load([files])
    offline.allocator.allocate(["default/one"], "n0")
    allocation = offline.allocator.ledger.allocation("default/one")
    assert allocation is not None
    (grant,) = allocation.grants
    record = ClaimRecord(
        offline.allocator.claim("default/one"),
        allocation,
        {"uid-1": "trainer"},
        prepared={grant.device: ("k8s.d.example.com/device=common",)},
    )
    path = tmp_path / "device_claims_state"
    path.write_bytes(StateWriter().render(ClaimsState((record,), {grant.device: {}})))
    return str(path)


# --- the page


def shown_on_the_page() -> list[tuple[str, str]]:
    text = PAGE.read_text()
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)
    return [
        (command, output)
        for block in blocks
        for command, output in re.findall(
            r"^\$ devicemanager ((?:claims|explain) .*)\n((?:(?!\$ ).*\n)*)", block, re.M
        )
    ]


@pytest.mark.parametrize(("command", "output"), shown_on_the_page())
def test_page_shows_the_real_output(
    command: str, output: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(ROOT)
    status = main(shlex.split(command))
    assert capsys.readouterr().out == output
    assert status == int("does not fit" in output)


def test_page_shows_every_example() -> None:
    text = PAGE.read_text()
    examples = sorted((ROOT / "examples" / "claims").rglob("*.yaml"))
    assert len(examples) > 5
    for example in examples:
        shown = example.read_text().partition("\n")[2]  # without the comment at its head
        assert f"```yaml\n{shown}```" in text, example.name


# --- validate


def test_validate_counts_valid_objects(files: str, capsys: Any) -> None:
    assert run(capsys, "validate", files) == (0, "4 objects are valid\n", "")
    assert data(capsys, "validate", files) == (
        0,
        {"schema": "devicemanager.claims-validate/v1", "valid": True, "problems": [], "notes": []},
    )


def test_validate_prints_one_line_per_error(tmp_path: Path, capsys: Any) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        yaml.safe_dump_all(
            [
                pool("p", ["a", "a"]),
                claim("c", {"deviceClass": "gpu", "requests": {"count": "1500m"}}),
                claim("d", {"deviceClass": "gpu", "constraints": "device.x =="}),
            ]
        )
    )
    status, out, err = run(capsys, "validate", str(bad))
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{bad}: ") for line in lines)
    assert data(capsys, "validate", str(bad))[1]["problems"] == lines
    # Other actions print one line: the first fault, and where the others are listed.
    for action in (["explain", "c"], ["list"]):
        status, out, err = run(capsys, *action, "--claims", str(bad))
        assert (status, out) == (2, "")
        more = "; and 2 more errors: `devicemanager claims validate` lists them\n"
        assert err == f"devicemanager: error: {lines[0]}{more}"
    bad.write_text(yaml.safe_dump(pool("p", ["a", "a", "a"])))
    lines = run(capsys, "validate", str(bad))[1].splitlines()
    _, _, err = run(capsys, "list", "--claims", str(bad))
    assert len(lines) == 2
    more = "; and 1 more error: `devicemanager claims validate` lists them\n"
    assert err == f"devicemanager: error: {lines[0]}{more}"


def test_validate_notes_missing_references(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump_all([claim("c"), claim("d", {"deviceType": "fpga"})]))
    assert run(capsys, "validate", str(path)) == (
        0,
        "2 objects are valid\n"
        'note: DeviceClaim "default/c" names DeviceClass "gpu", which no file has: add the class\n'
        'note: DeviceClaim "default/d" names device type "fpga", which no class has: add a class\n',
        "",
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n---\n"])
def test_validate_rejects_files_without_objects(text: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    why = f"{path}: no pools, classes, claims or configs to validate: name other files"
    for more in ([], ["--simulate-pools", "gpu=1"]):
        output = run(capsys, "validate", str(path), *more)
        assert output == (2, "", f"devicemanager: error: {why}\n")
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(claim("c")))
    assert run(capsys, "validate", str(tmp_path))[1].startswith("1 object is valid\n")


def test_validate_reads_standard_input(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump(pool("p")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text(yaml.safe_dump(pool("in a file")))  # ./- is its name then
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(pool("q"))))
    assert run(capsys, "validate", str(path), "-") == (0, "2 objects are valid\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(pool("p"))))
    assert run(capsys, "validate", str(path), "-") == (
        1, f'-: DevicePool "p" is already in {path}\n', "",
    )  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("a: ["))
    status, out, _ = run(capsys, "validate", "-")
    assert (status, out[:2]) == (1, "-:")
    once = "standard input (-) is used for more than one file: it can be read only once"
    assert once in run(capsys, "validate", "-", "-")[2]
    assert main(["explain", "-", "--claims", "-"]) == 2
    assert once in capsys.readouterr().err


def test_validate_knows_classes_of_simulated_hardware(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(claim("c", {"deviceClass": "gpu-partition"})))
    there = run(capsys, "validate", str(path), "--simulate-pools", "gpu=1")
    assert there == (0, "1 object is valid\n", "")
    assert "gpu-partition" in run(capsys, "validate", str(path))[1]


def test_validate_escapes_hostile_names(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(claim("c\x1b[31m\nok <script>")))
    status, out, _ = run(capsys, "validate", str(path))
    assert status == 1
    assert out.count("\n") == 1
    assert "\x1b" not in out


# --- list, pools, show


def test_list_shows_devices_and_pods(files: str, state: str, capsys: Any) -> None:
    status, out, err = run(capsys, "list", "--claims", files, "--state", state)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["CLAIM", "PHASE", "DEVICES", "PODS"],
        ["default/one", "Reserved", "p/a", "trainer"],
        ["default/two", "Pending", "-", "-"],
    ]
    _, output = data(capsys, "list", "--state", state)
    (one,) = output["claims"]
    assert (one["claim"], one["phase"], one["pods"]) == (
        "default/one",
        "Reserved",
        {"uid-1": "trainer"},
    )
    assert one["cdi_devices"][0]["cdi_devices"] == ["k8s.d.example.com/device=common"]


def test_pools_shows_budgets(capsys: Any, tmp_path: Path) -> None:
    wanted = claim("c", {"deviceClass": "gpu-partition"})
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(wanted))
    argv = ["--claims", str(path), "--simulate-pools", "gpu=1"]
    _, out, _ = run(capsys, "pools", *argv)
    assert [line.split() for line in out.splitlines()] == [
        ["POOL", "DRIVER", "DEVICES", "IN", "USE", "BUDGET"],
        [
            *["mock-gpu-0", "gpu.example.com", "13", "-"],
            *["compute-slices", "0/7,", "memory-slices", "0/8"],
        ],
    ]


def test_pools_shows_devices_in_use(files: str, state: str, capsys: Any) -> None:
    _, output = data(capsys, "pools", "--claims", files, "--state", state)
    assert output["node"] == "n0"
    assert output["pools"][0]["in_use"] == ["a: default/one"]


def test_show_prints_the_object(files: str, state: str, capsys: Any) -> None:
    status, out, _ = run(capsys, "show", "one", "--claims", files, "--state", state)
    assert status == 0
    shown = yaml.safe_load(out)
    assert shown["status"]["allocations"] == [{"devicePoolName": "p", "deviceName": "a"}]
    assert "# phase: Reserved" in out
    assert "trainer" in out


# --- explain


def test_explain_considers_other_claims_and_the_state_file(
    files: str, state: str, capsys: Any
) -> None:
    assert run(capsys, "explain", "two", "--claims", files)[0] == 0
    for before in (["--after", "one"], ["--state", state]):
        status, out, _ = run(capsys, "explain", "default/two", "--claims", files, *before)
        assert status == 1
        assert "    1 device: allocated to claim default/one (p/a)" in out.splitlines()
    status, output = data(capsys, "explain", "one", "two", "--claims", files)
    assert (status, output["fits"], len(output["requests"])) == (1, False, 2)


def test_explain_without_a_result_has_a_status_of_its_own(
    files: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Allocator.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "limits", Limits(first_fit=0, total=0))
    status, output = data(capsys, "explain", "one", "--claims", files)
    assert (status, output["fits"]) == (3, None)
    assert output["unexamined"] == ["all combinations of devices for default/one, claims[0]"]


def test_explain_reports_a_missing_config(tmp_path: Path, capsys: Any) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nosuch"}
    path = tmp_path / "claim.yaml"
    path.write_text(yaml.safe_dump(claim("c", {"deviceClass": "gpu", "configs": [config]})))
    argv = ["explain", "c", "--claims", str(path), "--simulate-pools", "gpu=1"]
    status, out, err = run(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert 'the config ConfigMap "default/nosuch" (v1) does not exist' in err


def pod(tmp_path: Path, name: str, *names: str, **limits: int) -> str:
    """Write the manifest of a pod with claims and return its path."""
    resources = {"limits": limits, "claims": [{"name": each} for each in names]}
    spec = {
        "containers": [{"name": "main", "image": "i", "resources": resources}],
        "resourceClaims": [{"name": each, "resourceClaimName": each} for each in names],
    }
    path = tmp_path / f"{name}.yaml"
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    path.write_text(yaml.safe_dump(manifest))
    return str(path)


def explain_pods(capsys: Any, *argv: str) -> tuple[int, Any]:
    status = main(["explain", *argv, "--all", "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_explain_of_pods_includes_their_claims(files: str, tmp_path: Path, capsys: Any) -> None:
    pods = [pod(tmp_path, "a", "one"), pod(tmp_path, "b", "two")]
    status, output = explain_pods(capsys, *pods, "--claims", files)
    first, second = output["pods"]
    assert (status, first["admitted"], second["admitted"]) == (1, True, False)
    assert first["claims"]["requests"][0]["taken"] == ["p/a"]
    rules = [each["rule"] for each in second["claims"]["requests"][0]["excluded"]]
    assert rules == ["allocated to claim default/one"]
    assert second["reason"] == "UnexpectedAdmissionError"
    assert "needs 2 devices, 1 can be used" in second["message"]


def test_rejected_pod_has_no_claims(files: str, tmp_path: Path, capsys: Any) -> None:
    rejected = pod(tmp_path, "a", "one", **{"vendor.com/gpu": 2})
    other = pod(tmp_path, "b", "two")
    argv = [rejected, other, "--claims", files, "--devices", "vendor.com/gpu=1"]
    status, output = explain_pods(capsys, *argv)
    assert (status, [each["admitted"] for each in output["pods"]]) == (0, [False, True])


def test_explain_notes_claims_that_it_ignores(tmp_path: Path, capsys: Any) -> None:
    manifest_path = pod(tmp_path, "a", "one")
    status, output = explain_pods(capsys, manifest_path, "--devices", "vendor.com/gpu=1")
    note = "the claims of pod default/a are ignored: add --claims"
    assert (status, output["notes"], output["pods"][0]["claims"]) == (0, [note], None)


def test_unknown_claim_rejects_its_pod(files: str, tmp_path: Path, capsys: Any) -> None:
    manifest_path = pod(tmp_path, "a", "nosuch")
    status, output = explain_pods(capsys, manifest_path, "--claims", files)
    assert status == 1
    assert 'DeviceClaim "default/nosuch" does not exist' in output["pods"][0]["message"]


# --- wrong usage


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["list"], "nothing to read: use --claims, --simulate-pools or --state"),
        (["validate", "/nosuch"], "/nosuch: No such file or directory"),
        (
            ["explain", "nosuch", "--claims", "{files}"],
            'DeviceClaim "default/nosuch" does not exist',
        ),
        (["list", "--state", "/nosuch/state"], "/nosuch/state: No such file or directory"),
        (["list", "--state", "{files}/all.yaml"], "not a state file of structured claims"),
        (["list", "--claims", "/nosuch"], "/nosuch: No such file or directory"),
    ],
)
def test_wrong_usage_is_one_line(argv: list[str], error: str, files: str, capsys: Any) -> None:
    status, out, err = run(capsys, *[each.replace("{files}", files) for each in argv])
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert error in err


@pytest.mark.parametrize("text", ["gpu", "gpu=x", "gpu=-1", "gpu=1,gpu=2", "tpu=1", "gpu=1001"])
def test_invalid_hardware_is_rejected(text: str, capsys: Any) -> None:
    status, out, err = run(capsys, "simulate", text)
    assert (status, out) == (2, "")
    assert f"{text.partition(',')[0].partition('=')[0]}" in err.splitlines()[-1]


def test_pools_of_several_nodes_need_a_node_name(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump_all([pool("p", nodeName="n0"), pool("q", nodeName="n1")]))
    status, _, err = run(capsys, "pools", "--claims", str(path))
    assert status == 2
    assert "the pools belong to several nodes: use --node with one of n0, n1" in err
    assert (
        data(capsys, "pools", "--claims", str(path), "--node", "n1")[1]["pools"][0]["pool"] == "q"
    )


def test_output_of_simulate_is_valid(tmp_path: Path, capsys: Any) -> None:
    _, out, _ = run(capsys, "simulate", "gpu=1,fpga=1", "--node", "n7")
    path = tmp_path / "hardware.yaml"
    path.write_text(out)
    assert run(capsys, "validate", str(path))[1] == "8 objects are valid\n"


def test_pipe_instead_of_state_file_is_rejected(tmp_path: Path, capsys: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    status, _, err = run(capsys, "list", "--state", str(tmp_path / "pipe"))
    assert (status, err) == (
        2,
        f"devicemanager: error: {tmp_path}/pipe is a pipe, not a regular file\n",
    )
