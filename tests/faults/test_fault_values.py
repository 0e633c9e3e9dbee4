"""Faults as lines, as data and in files, and the errors of invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devicemanager.core.errors import RequestError
from devicemanager.faults import KINDS, Fault, FaultError, read_faults
from devicemanager.faults.injection_point import InjectionPoint
from tools.faults_page import PAGE, page

LINES = [
    "reject-register",
    "reject-register:code=UNAVAILABLE,text=not now, later,times=2,resource=vendor.com/gpu",
    r"fail-call:rpc=Allocate,when=after,text=a\,code=b,after=3,probability=0.25,seed=7",
    "delay-register:seconds=9",
    "stop-reading:plugin=gpu.sock",
    "restart:at=registered",
    "restart-twice:keep_sockets=true,gap=0,at=Allocate,times=3",
    "away:seconds=60",
    "fail-checkpoint:error=EIO",
    "fail-pod-resources:method=List,code=INTERNAL",
]


@pytest.mark.parametrize("line", LINES)
def test_line_and_data_round_trip(line: str) -> None:
    fault = Fault.parse(line)
    assert Fault.parse(str(fault)) == fault
    assert Fault.from_data(fault.as_data()) == fault
    assert Fault.from_data(line) == fault
    assert fault.as_data()["kind"] == fault.kind.name
    assert eval(repr(fault)) == fault


def test_parse_reads_every_part_of_a_line() -> None:
    fault = Fault.parse(LINES[1])
    assert dict(fault.options) == {"code": "UNAVAILABLE", "text": "not now, later"}
    assert (fault.times, fault.after, fault.probability) == (2, 0, 1.0)
    assert (fault.resource, fault.plugin, fault.seed) == ("vendor.com/gpu", None, None)
    assert Fault.parse(LINES[2]).options["text"] == "a,code=b"


@pytest.mark.parametrize(
    ("line", "point", "rpc", "phase"),
    [
        ("reject-register", InjectionPoint.REGISTER, None, "before"),
        ("fail-call:when=after", InjectionPoint.CALL, None, "after"),
        ("cut-call:when=during,rpc=Allocate", InjectionPoint.CALL, "Allocate", "before"),
        ("restart", None, None, "before"),
        ("restart:at=list", InjectionPoint.LIST, None, "before"),
        ("restart:at=PreStartContainer", InjectionPoint.CALL, "PreStartContainer", "before"),
        ("stale-pod-resources:method=Get", InjectionPoint.POD_RESOURCES, "Get", "before"),
    ],
)
def test_fault_has_injection_point_call_and_phase(
    line: str, point: InjectionPoint | None, rpc: str, phase: str
) -> None:
    fault = Fault.parse(line)
    assert (fault.point, fault.rpc, fault.phase) == (point, rpc, phase)
    assert fault.is_immediate is (point is None)


def test_action_at_a_point_is_executed_once_by_default() -> None:
    assert Fault.of("restart", at="list").times == 1
    assert Fault.of("restart").times is None
    assert Fault.of("reject-register").times is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("reject", "unknown fault 'reject': use one of reject-register, delay-register, "),
        ("", "unknown fault '': use one of"),
        (
            "reject-register:colour=red",
            "reject-register: unknown option 'colour': use one of code, text, times, after",
        ),
        ("reject-register:at=list", "unknown option 'at'"),
        (
            "reject-register:code=OK",
            "reject-register: invalid code 'OK': expected one of ABORTED, ",
        ),
        ("reject-register:times=0", "invalid times '0': expected an integer of at least 1"),
        ("reject-register:times=2.5", "invalid times '2.5': expected an integer of at least 1"),
        ("reject-register:probability=0", "expected a number above 0, at most 1"),
        ("reject-register:probability=nan", "expected a number above 0, at most 1"),
        ("reject-register:resource=gpu", "invalid resource 'gpu': expected a domain and a name"),
        ("reject-register:times", "'times' is not NAME=VALUE: expected KIND:NAME=VALUE"),
        ("reject-register:times=1,times=2", "duplicate option times"),
        ("reject-register:text=a\nb", "expected a text of one line"),
        ("delay-register", "by the kubelet's clock): use delay-register:seconds=…"),
        (
            "delay-register:seconds=-1",
            "invalid seconds '-1': expected a number of seconds, at least 0",
        ),
        (
            "delay-register:seconds=long",
            "invalid seconds 'long': expected a number of seconds, at least 0",
        ),
        (
            "fail-call:rpc=Register",
            "invalid rpc 'Register': expected one of GetDevicePluginOptions, ",
        ),
        (
            "restart:times=2",
            "restart is executed immediately: times, after and probability need at",
        ),
        ("restart:keep_sockets=yes", "invalid keep_sockets 'yes': expected true or false"),
        ("restart:at=call", "invalid at 'call': expected one of now, register, "),
    ],
)
def test_parse_rejects_invalid_line(line: str, message: str) -> None:
    with pytest.raises(FaultError) as error:
        Fault.parse(line)
    assert message in str(error.value)
    assert "\n" not in str(error.value).replace("a\nb", "")
    assert isinstance(error.value, RequestError)


@pytest.mark.parametrize("data", [None, 3, ["x"], {"times": 2}, {"kind": 3}])
def test_from_data_rejects_invalid_data(data: object) -> None:
    with pytest.raises(FaultError, match=r"^invalid fault .*: expected a line such as"):
        Fault.from_data(data)


def test_from_data_accepts_numbers_and_ignores_null() -> None:
    data = {"kind": "delay-call", "seconds": 1, "times": 2, "rpc": None}
    assert Fault.from_data(data) == Fault.of("delay-call", seconds=1.0, times="2")
    for invalid in (True, [1]):
        with pytest.raises(FaultError, match=r"^delay-call: invalid seconds"):
            Fault.from_data({"kind": "delay-call", "seconds": invalid})
        with pytest.raises(FaultError, match=r"^reject-register: invalid probability"):
            Fault.from_data({"kind": "reject-register", "probability": invalid})


def test_fault_is_immutable() -> None:
    with pytest.raises(TypeError):
        Fault.of("reject-register").options["code"] = "OK"  # type: ignore[index]


def test_every_kind_and_option_has_a_meaning() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind.meaning
        assert all(option.meaning for option in kind.options)


# -- files -----------------------------------------------------------------------------------


def test_read_faults_reads_list_and_mapping(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("- reject-register:times=2\n- {kind: away, seconds: 3, at: list}\n")
    faults = (Fault.parse("reject-register:times=2"), Fault.parse("away:seconds=3,at=list"))
    assert read_faults(path) == (None, faults)
    path.write_text('{"seed": 7, "faults": ["reject-register:times=2"]}')
    assert read_faults(path) == (7, faults[:1])


def _bomb(levels: int) -> str:
    """Return a document that grows nine times with each level of aliases."""
    lists = ["&l0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lists.append(f"&l{level} [{', '.join([f'*l{level - 1}'] * 9)}]")
    return f"- kind: delay-register\n  seconds: [{', '.join(lists)}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- reject-register:times=2\n- nonsense", "fault 2: unknown fault 'nonsense'"),
        ("faults: 3", "expected a list of faults"),
        ("", "expected a list of faults"),
        ("seed: x\nfaults: []", "invalid seed 'x': expected an integer of at least 0"),
        ("sed: 1", "unknown field 'sed': use one of seed, faults"),
        ("[", "not YAML: "),
        ("\x80", "not UTF-8 text (byte 0)"),
        ("[" * 5000, "nested more than 100 levels deep"),
        (_bomb(8), "more than 100000 values after aliases are expanded"),
        (_bomb(4), "fault 1: delay-register: invalid seconds ["),
    ],
    ids=lambda value: value[:20],
)
def test_read_faults_rejects_invalid_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FaultError) as error:
        read_faults(path)
    assert f"{path}: {message}" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def test_read_faults_rejects_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="No such file"):
        read_faults(tmp_path / "none.yaml")
    with pytest.raises(FaultError, match="a directory"):
        read_faults(tmp_path)


def test_read_faults_limits_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("[]".ljust(1 << 20))
    assert read_faults(path) == (None, ())
    path.write_text("[]".ljust((1 << 20) + 1))
    with pytest.raises(
        FaultError, match="cannot be read: 1048577 bytes, more than the limit of 1048576 bytes"
    ):
        read_faults(path)


def test_read_faults_reads_the_example_of_the_docs(tmp_path: Path) -> None:
    example = re.search(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert example is not None
    path = tmp_path / "faults.yaml"
    path.write_text(example[1])
    seed, faults = read_faults(path)
    assert seed == 7
    assert [str(fault) for fault in faults] == [
        "reject-register:times=2",
        "delay-call:rpc=Allocate,seconds=2,probability=0.2",
    ]


def test_docs_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run python -m tools.faults_page"
    for kind in KINDS.values():
        assert f"| `{kind.name}` |" in text
