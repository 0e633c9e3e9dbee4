"""A user's project can have modules named ``protos``, ``checkpoint`` or ``podresources``."""

import shutil

import pytest

from tests.paths import ROOT
from tests.sessions import NO_SUITE_PLUGINS, run_python

OURS = ["checkpoint", "podresources", "protos"]
ADMISSION = """
from devicemanager import MockKubelet
from devicemanager.testing import SimulatedPluginFactory, pod_manifest

with MockKubelet() as kubelet, SimulatedPluginFactory(kubelet) as simulate:
    simulate("vendor.com/gpu", 1)
    admission = kubelet.admit(pod_manifest("a", {"vendor.com/gpu": 1}))
    admission.raise_for_rejection()
    kubelet.restart()
    print(len(kubelet.devices(admission.uid)))
"""


@pytest.fixture
def project(tmp_path):
    """A project with a module, a package and a package with a submodule of these names."""
    for name, text in {
        "checkpoint.py": "MINE = 'a training checkpoint'\n",
        "podresources/__init__.py": "MINE = 'my client'\n",
        "protos/__init__.py": "",
        "protos/api_pb2.py": "MINE = 'my messages'\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def output(project, code):
    done = run_python("-W", "error", "-c", code, cwd=project)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


MINE = """
import checkpoint, podresources, protos.api_pb2
print(checkpoint.MINE, podresources.MINE, protos.api_pb2.MINE, sep=", ")
"""


@pytest.mark.parametrize("order", [(MINE, ADMISSION), (ADMISSION, MINE)])
def test_kubelet_and_plugin_run_beside_modules_of_same_names(project, order):
    lines = output(project, "".join(order))
    assert sorted(lines) == ["1", "a training checkpoint, my client, my messages"]


@pytest.mark.parametrize("name", OURS)
def test_one_hidden_package_leaves_others_public(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("MINE = 1\n")
    others = sorted(set(OURS) - {name})
    lines = output(
        tmp_path, f"{ADMISSION}\nimport {', '.join(OURS)}\nprint({name}.MINE, {others[0]}.__file__)"
    )
    assert lines == ["1", f"1 {ROOT / others[0] / '__init__.py'}"]


def test_classes_exist_once(tmp_path):
    (tmp_path / "protos.py").write_text("")
    code = """
import podresources
from podresources.errors import SocketNotFound
from devicemanager import MockKubelet
try:
    podresources.PodResourcesClient("/nowhere/p.sock").list()
except podresources.SocketNotFound as error:
    print(type(error) is SocketNotFound)
"""
    assert output(tmp_path, code) == ["True"]


def test_fixtures_work_beside_modules_of_same_names(project):
    (project / "conftest.py").write_text("import checkpoint\nassert checkpoint.MINE\n")
    (project / "test_it.py").write_text(
        "from protos.api_pb2 import MINE\n"
        "def test_admission(mock_kubelet, simulated_plugin):\n"
        "    from devicemanager.testing import pod_manifest\n"
        "    simulated_plugin('vendor.com/gpu', 2)\n"
        "    mock_kubelet.admit(pod_manifest('a', {'vendor.com/gpu': 1})).raise_for_rejection()\n"
        "    import podresources\n"
        "    assert podresources.MINE == 'my client'\n"
    )
    done = run_python("-m", "pytest", "-q", "-W", "error", *NO_SUITE_PLUGINS, cwd=project)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["resources", "--socket", "/nowhere/p.sock"], "there is no socket at /nowhere/p.sock"),
        (["checkpoint", "show", "nothing.json"], "nothing.json"),
        (["simulate", "--number-devices", "-1"], "number"),
    ],
)
def test_command_reports_its_own_errors(project, arguments, text):
    done = run_python("-m", "devicemanager", *arguments, cwd=project)
    assert done.returncode != 0
    assert text in done.stderr
    assert "a bug" not in done.stderr
    assert "Traceback" not in done.stderr


def test_namespace_package_of_same_name_is_importable(tmp_path):
    (tmp_path / "protos").mkdir()
    (tmp_path / "protos/api_pb2.py").write_text("MINE = 'my messages'\n")
    code = "import protos.api_pb2\nfrom protos import deviceplugin_v1beta1\n"
    assert output(tmp_path, code + "print(protos.api_pb2.MINE)") == ["my messages"]


def test_missing_package_error_names_hiding_module(project):
    """Covers a copy of the package ``devicemanager`` without the three others."""
    copied = project / "copied"
    shutil.copytree(ROOT / "devicemanager", copied / "devicemanager")
    done = run_python(
        "-c", "from devicemanager import MockKubelet", PYTHONPATH=str(copied), cwd=project
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {project}/checkpoint.py hides the package checkpoint that comes with "
        f"devicemanager: rename {project}/checkpoint.py, or move it into a package"
    )


def test_nothing_changes_if_nothing_is_hidden(tmp_path):
    code = (
        "import sys, devicemanager.kubelet.mock as mock, builtins\n"
        "print(mock.__builtins__ is vars(builtins) or mock.__builtins__ is builtins)\n"
        "print([name for name in sys.modules if name.startswith('_devicemanager')])"
    )
    assert output(tmp_path, code) == ["True", "[]"]
