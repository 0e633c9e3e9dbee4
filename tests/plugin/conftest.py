"""Fixtures of the tests of the plugin's side."""

import sys
from pathlib import Path

import pytest

from devicemanager.plugin import PluginSettings
from tests.plugin.stubkubelet import StubKubelet


@pytest.fixture(scope="session")
def script():
    """The installed command of this interpreter's environment."""
    path = Path(sys.executable).with_name("devicemanager")
    if not path.exists():
        pytest.skip(f"the project is not installed: {path} does not exist")
    return path


@pytest.fixture
def kubelet(directory):
    with StubKubelet(directory) as stub:
        yield stub


@pytest.fixture
def fast():
    """Settings with short pauses. ``recheck`` stays long, so tests depend on file events."""
    return PluginSettings(
        register_backoff=0.05,
        register_backoff_limit=0.2,
        start_delay=0.01,
        list_backoff=0.01,
        list_interval=0.001,
        stream_delay=0.02,
        stream_settled=0.0,
        recheck=5.0,
        stop_grace=0.2,
    )
