"""Convert failed checks to small tests in Python or Go for the plugin's author.

If ``_PYTHON`` or ``_GO`` has a test body for a check, the check becomes a test with this body. The
body uses the pytest fixture ``plugin_process`` or the Go package in ``clients/go``. Any other check
becomes a test that runs this check.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

import attrs

from devicemanager.conformance.hardware import Hardware
from devicemanager.conformance.limits import Limits
from devicemanager.conformance.outcomes import Outcome
from devicemanager.conformance.plugin_under_test import PluginUnderTest
from devicemanager.conformance.report import Report, Verdict

__all__ = ["LANGUAGES", "WrittenTests", "written_tests"]

_NODE_PATHS = {
    "{plugin_dir}": "/var/lib/kubelet/device-plugins",
    "{kubelet_socket}": "/var/lib/kubelet/device-plugins/kubelet.sock",
    "{root}": "/var/lib/kubelet",
}
"""Paths on a node by placeholder, for a command that ``devicemanager exec`` runs."""
_WIDTH = 96
"""Largest width of a comment."""
_MOST_LINKS = 2
_HEAD = "What `devicemanager check` has found, as tests. Each passes once the plugin is fixed."


@attrs.frozen
class WrittenTests:
    """A file with one test for each failed check."""

    name: str
    text: str
    ids: tuple[str, ...]
    """IDs of the failed checks."""


def written_tests(
    report: Report, language: str, limits: Limits | None = None, package: str = "findings"
) -> WrittenTests:
    """Return the tests for the failed checks of a report.

    ``language`` is one of ``LANGUAGES``. ``limits`` are the limits of the run that led to the
    report. ``package`` is the name of the package in Go.
    """
    file = LANGUAGES[language]
    failed = report.of(Outcome.FAIL)
    text = file.render(_Run(report, failed, limits or Limits(), package))
    return WrittenTests(file.name, text, tuple(each.check.id for each in failed))


@attrs.frozen
class _Run:
    """Data of a run that the tests of a file use."""

    report: Report
    failed: Sequence[Verdict]
    limits: Limits
    package: str

    @property
    def plugin(self) -> PluginUnderTest:
        return self.report.plugin

    @property
    def resource(self) -> str:
        return next(iter(self.report.resources), "")

    def split(self, bodies: Mapping[str, str]) -> tuple[list[Verdict], list[Verdict]]:
        """Return the verdicts that have a test body in ``bodies``, and all others."""
        # A test body needs a plugin that registers, and a single instance without the hook prepare.
        plugin = self.plugin
        is_plain = not (plugin.hardware.has_directories or plugin.restart == "always")
        is_plain = is_plain and bool(self.resource) and not plugin.has("prepare")
        own = [each for each in self.failed if is_plain and each.check.id in bodies]
        return own, [each for each in self.failed if each not in own]

    def body(self, text: str) -> str:
        """Return the text of a test with the limits of the run."""
        values = {name: f"{value:g}" for name, value in attrs.asdict(self.limits).items()}
        return Template(text).safe_substitute(values)


def _comment(verdict: Verdict) -> Iterator[str]:
    """Yield the comment lines that describe a failed check."""
    check = verdict.check
    yield f"{check.id}: the plugin {check.title}."
    yield ""
    yield from _wrapped(f"The check saw: {verdict.seen}")
    yield from _wrapped(f"On a node: {check.production}")
    yield from check.links[:_MOST_LINKS]


def _wrapped(text: str) -> Iterator[str]:
    import textwrap

    # What a plugin printed must not end the comment.
    clean = " ".join(text.replace("\\", "/").replace('"""', "'").split())
    yield from textwrap.wrap(clean, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)


def _words(verdict: Verdict) -> list[str]:
    return re.findall(r"[a-z0-9]+", verdict.check.title.lower())


# -- Python ------------------------------------------------------------------------------

_PYTHON = {
    "A02": """\
    with pytest.raises(RpcError):
        mock_kubelet.allocate(RESOURCE, ["no-such-device"])
    assert plugin.is_running
""",
    "A06": """\
    device = next(each.id for each in mock_kubelet.inventory() if each.resource == RESOURCE)
    first, second = (mock_kubelet.allocate(RESOURCE, [device])[0] for _ in range(2))
    assert (first.envs, first.mounts, first.devices) == (second.envs, second.mounts, second.devices)
    assert first.cdi_devices == second.cdi_devices
""",
    "K01": """\
    mock_kubelet.restart()
    plugin.wait_for_resource(RESOURCE, timeout=$recover_seconds)
""",
    "K02": """\
    for _ in range($restarts):
        mock_kubelet.restart()
        plugin.wait_for_resource(RESOURCE, timeout=$recover_seconds)
""",
    "L01": """\
    for number in (signal.SIGTERM, signal.SIGINT):
        plugin.send_signal(number)
        plugin.wait(timeout=$stop_seconds)
        plugin.stop()
        plugin.start()
        plugin.wait_for_resource(RESOURCE)
""",
    "L02": """\
    plugin.terminate()
    assert [each.name for each in mock_kubelet.plugin_dir.glob("*.sock")] == ["kubelet.sock"]
""",
}
"""Bodies of tests by check ID. ``$name`` stands for the limit with this name."""


def _python(run: _Run) -> str:
    own, others = run.split(_PYTHON)
    tests = [_python_test(run, verdict) for verdict in own]
    body = "".join(tests)
    imports = ["import signal\n\n"] if "signal." in body else []
    imports += ["import pytest\n\n"]
    call = _python_call(run, others) if others else ""
    # Not in comments, which contain what the plugin has printed.
    code = "".join([call, *(_PYTHON[verdict.check.id] for verdict in own)])
    for package, names in _PYTHON_NAMES.items():
        used = [name for name in names if re.search(rf"\b{name}\b", code)]
        imports += [f"from {package} import {', '.join(used)}\n"] if used else []
    parts = [f'"""{_HEAD}"""\n\n{"".join(imports).rstrip()}\n\n', _python_plugin(run)]
    parts += [f"{_PYTHON_FIXTURE.format(options=_python_options(run))}{body}"] if own else []
    parts += [f"\n\n{_python_comments(others)}\n{call}"] if others else []
    # If all tests run as checks, the file uses no name of pytest, and linters report the import.
    text = "".join(parts)
    return text if "pytest." in text else text.replace("import pytest\n\n", "")


_PYTHON_NAMES = {
    "devicemanager": ("NumaTopology", "RpcError"),
    "devicemanager.conformance": ("Hardware", "Limits", "PluginUnderTest", "pytest_checks"),
}
"""Names that tests import, by package."""


def _python_plugin(run: _Run) -> str:
    words = "".join(f"    {_quoted(word)},\n" for word in run.plugin.command)
    resource = f"RESOURCE = {_quoted(run.resource)}\n" if run.resource else ""
    return f"PLUGIN = [\n{words}]\n{resource}"


_PYTHON_FIXTURE = """

@pytest.fixture
def plugin(plugin_process):
    return plugin_process(PLUGIN, RESOURCE{options})
"""


def _python_options(run: _Run) -> str:
    options = f", env={dict(run.plugin.env)!r}" if run.plugin.env else ""
    return options + (", at_node_paths=True" if run.plugin.at_node_paths else "")


def _python_test(run: _Run, verdict: Verdict) -> str:
    comment = "\n".join(f"    {line}".rstrip() for line in _comment(verdict)).lstrip()
    name = "_".join(_words(verdict))
    body = run.body(_PYTHON[verdict.check.id])
    return f'\n\ndef test_{name}(mock_kubelet, plugin):\n    """{comment}\n    """\n{body}'


def _python_comments(others: Sequence[Verdict]) -> str:
    return "\n".join(f"# {line}".rstrip() for each in others for line in _comment(each))


def _python_call(run: _Run, others: Sequence[Verdict]) -> str:
    """Return the statement that runs the checks of ``others`` as tests."""
    plugin = run.plugin
    fields = {
        "env": dict(plugin.env),
        "at_node_paths": plugin.at_node_paths,
        # A hook that is a function has no text that could be written.
        "hooks": {name: hook for name, hook in plugin.hooks.items() if isinstance(hook, str)},
        "restart": plugin.restart if plugin.restart != "never" else "",
        "resources": [*plugin.resources],
        "hardware": _python_hardware(plugin.hardware),
    }
    given = "".join(f", {name}={value!r}" for name, value in fields.items() if value)
    usual, limits = Limits(), attrs.asdict(run.limits)
    changed = [
        f"{name}={value!r}" for name, value in limits.items() if value != getattr(usual, name)
    ]
    more = [f"limits=Limits({', '.join(changed)})"] if changed else []
    more += [f"seed={run.report.seed}"] if run.report.seed != 1 else []
    ids = ", ".join(_quoted(each.check.id) for each in others)
    arguments = [f"PluginUnderTest(command=PLUGIN{given})", f"only=[{ids}]", *more]
    return f"test_other_findings = pytest_checks(\n    {', '.join(arguments)}\n)\n"


class _Call:
    """Call of a class as its ``repr``, for arguments in a written test."""

    def __init__(self, name: str, **arguments: object) -> None:
        self._name = name
        self._arguments = {key: value for key, value in arguments.items() if value is not None}

    # A call without arguments is false, so that ``_python_call`` leaves out hardware that is not
    # declared.
    def __bool__(self) -> bool:
        return bool(self._arguments)

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}={value!r}" for key, value in self._arguments.items())
        return f"{self._name}({listed})"


def _python_hardware(hardware: Hardware) -> _Call:
    numa = hardware.numa
    paths = {"dev": hardware.dev, "sys": hardware.sys, "cdi": hardware.cdi}
    return _Call(
        "Hardware",
        numa=numa
        and _Call(
            "NumaTopology.of",
            nodes=numa.nodes,
            distances=numa.distances if numa.has_distances else None,
        ),
        **{name: path and str(path) for name, path in paths.items()},
    )


def _quoted(text: str) -> str:
    return json.dumps(text)


# -- Go ----------------------------------------------------------------------------------

_GO = {
    "A02": """\
	_, kubelet := start(t)
	request := mockkubelet.Allocate{Resource: resource, Ids: []string{"no-such-device"}}
	if _, err := kubelet.Client.Allocate(context.Background(), request); err == nil {
		t.Error("Allocate accepted an unknown device")
	}
""",
    "A06": """\
	_, kubelet := start(t)
	device := kubelet.Devices(resource)[0].ID
	request := mockkubelet.Allocate{Resource: resource, Ids: []string{device}}
	var settings []mockkubelet.ContainerSettings
	for i := 0; i < 2; i++ {
		allocated, err := kubelet.Client.Allocate(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		allocated.Containers[0].Annotations = nil // these may differ
		settings = append(settings, allocated.Containers[0])
	}
	if !reflect.DeepEqual(settings[0], settings[1]) {
		t.Errorf("two responses for one device differ: %v, %v", settings[0], settings[1])
	}
""",
    "K01": """\
	_, kubelet := start(t)
	kubelet.Restart()
	waitForDevices(t, kubelet, $recover_seconds)
""",
    "K02": """\
	_, kubelet := start(t)
	for i := 0; i < $restarts; i++ {
		kubelet.Restart()
		waitForDevices(t, kubelet, $recover_seconds)
	}
""",
    "L01": """\
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		plugin, _ := start(t)
		if err := plugin.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- plugin.Wait() }()
		select {
		case <-ended:
		case <-time.After($stop_seconds * time.Second):
			t.Errorf("the plugin still runs $stop_seconds s after %v", signal)
			_ = plugin.Process.Kill()
			<-ended
		}
	}
""",
    "L02": """\
	plugin, kubelet := start(t)
	if err := plugin.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = plugin.Wait()
	sockets, _ := filepath.Glob(filepath.Join(kubelet.PluginDir(), "*.sock"))
	for _, socket := range sockets {
		if filepath.Base(socket) != "kubelet.sock" {
			t.Errorf("%s still exists after the exit of the plugin", socket)
		}
	}
""",
}
"""Bodies of tests by check ID. ``$name`` stands for the limit with this name."""

_GO_PACKAGES = (
    "context",
    "os",
    "os/exec",
    "path/filepath",
    "reflect",
    "syscall",
    "testing",
    "time",
)

_GO_START = """
// start runs a kubelet and the plugin until the end of the test.
func start(t *testing.T) (*exec.Cmd, *mockkubelet.Kubelet) {{
	t.Helper()
	kubelet := mockkubelet.Start(t)
	plugin := kubelet.Command({words})
{env}	if err := plugin.Start(); err != nil {{
		t.Fatal(err)
	}}
	waitForDevices(t, kubelet, {seconds:g})
	return plugin, kubelet
}}

// waitForDevices waits until the plugin has registered and has devices.
func waitForDevices(t *testing.T, kubelet *mockkubelet.Kubelet, seconds float64) {{
	t.Helper()
	wait := mockkubelet.ResourceWait{{Resource: resource, Timeout: &seconds}}
	if err := kubelet.Client.WaitForResource(context.Background(), wait); err != nil {{
		t.Fatal(err)
	}}
}}
"""


def _go(run: _Run) -> str:
    own, others = run.split(_GO)
    parts = [f"\nconst resource = {_quoted(run.resource)}\n", _go_start(run)] if own else []
    parts += [_go_test(verdict, run.body(_GO[verdict.check.id])) for verdict in own]
    parts += [_go_test(verdict, _go_check(verdict)) for verdict in others]
    body = "".join(parts)
    # Go does not compile a file with an unused import.
    used = [each for each in _GO_PACKAGES if f"{each.rpartition('/')[2]}." in body]
    imports = "".join(f"\t{_quoted(each)}\n" for each in used)
    return (
        f"// {_HEAD}\n\n"
        f"package {run.package}\n\nimport (\n{imports}\n"
        '\tmockkubelet "kubelet-devicemanager/clients/go"\n)\n'
        f"{body}"
    )


def _go_start(run: _Run) -> str:
    variables = ", ".join(_quoted(f"{name}={_at_node(v)}") for name, v in run.plugin.env.items())
    env = f"\tplugin.Env = append(os.Environ(), {variables})\n" if variables else ""
    words = ", ".join(_quoted(_at_node(word)) for word in run.plugin.command)
    return _GO_START.format(words=words, env=env, seconds=run.limits.start_seconds)


def _at_node(text: str) -> str:
    """Return a text with the paths of a node in place of placeholders."""
    for placeholder, path in _NODE_PATHS.items():
        text = text.replace(placeholder, path)
    return text


def _go_test(verdict: Verdict, body: str) -> str:
    comment = "\n".join(f"// {line}".rstrip() for line in _comment(verdict))
    name = "".join(word.capitalize() for word in _words(verdict))
    return f"\n{comment}\nfunc Test{name}(t *testing.T) {{\n{body}}}\n"


def _go_check(verdict: Verdict) -> str:
    words = shlex.split(verdict.reproduce)
    # The words before the first one of the options are `devicemanager check`.
    split = words.index("--")
    options, command = words[2:split], words[split + 1 :]
    listed = ", ".join(map(_quoted, options))
    return (
        f"\toptions := []string{{{listed}}}\n"
        f"\tmockkubelet.Check(t, options, {', '.join(map(_quoted, command))})\n"
    )


@attrs.frozen
class _Language:
    name: str
    """Name of the file with the tests, such as ``findings_test.go``."""
    render: Callable[[_Run], str]


LANGUAGES: Mapping[str, _Language] = {
    "python": _Language("test_findings.py", _python),
    "go": _Language("findings_test.go", _go),
}
"""Languages in which tests can be written, by name: ``python`` and ``go``."""


def package_in(directory: Path) -> str:
    """Return the name of the Go package in a directory; ``findings`` if no Go file names a
    package."""
    for file in sorted(directory.glob("*.go")):
        if found := re.search(r"^package (\w+)", file.read_text(errors="replace"), re.M):
            return found[1]
    return "findings"
