"""``run``, ``check`` and ``join --full`` use gRPC without its event engine; the programs that they
start do not inherit this."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from devicemanager.cli.grpc_engine import use_calling_threads
use_calling_threads()
import grpc
use_calling_threads()
print(grpc.SEEN, os.environ.get("GRPC_EXPERIMENTS"))
"""


def seen(tmp_path, **environment):
    """Return what gRPC sees in the variable at its import, and the variable afterwards."""
    (tmp_path / "grpc.py").write_text("import os\nSEEN = os.environ.get('GRPC_EXPERIMENTS')\n")
    inherited = {name: text for name, text in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_only_the_import_of_grpc_sees_the_variable(tmp_path):
    assert seen(tmp_path) == ["-event_engine_client,-event_engine_listener", "None"]


def test_value_of_the_user_counts(tmp_path):
    assert seen(tmp_path, GRPC_EXPERIMENTS="x") == ["x", "x"]


def test_grpc_knows_the_experiments():
    """Otherwise it would print a line on standard error."""
    program = "from devicemanager.cli import grpc_engine as e; e.use_calling_threads(); import grpc"
    channel = "; grpc.insecure_channel('unix:/none').close()"
    environment = {**os.environ, "GRPC_VERBOSITY": "ERROR"}
    environment.pop("GRPC_EXPERIMENTS", None)
    done = subprocess.run(
        [sys.executable, "-c", program + channel], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


COMMAND = """
import sys
from devicemanager.cli import grpc_engine, main
seen = []
grpc_engine.use_calling_threads = lambda: seen.append("grpc" in sys.modules)
main(sys.argv[1:])
print("imported before:", seen)
"""


@pytest.mark.parametrize(
    ("args", "imported"),
    [
        ("check --list", [False]),
        ("run --root /dev/null/x", [False]),
        ("join --full 1 --kubeconfig /nowhere", [False]),
        ("join --kubeconfig /nowhere", []),
    ],
)
def test_command_selects_the_engine_before_gRPC_is_imported(args, imported):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *args.split()], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == f"imported before: {imported}"
