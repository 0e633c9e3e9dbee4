"""The examples of docs/agent-author.md behave as the page says."""

import re

import pytest

from devicemanager import ManualClock
from devicemanager.testing.mock_podresources import MockPodResources, device_ids, load_script
from podresources import NotServing, PodResourcesClient
from tests.paths import ROOT

PAGE = ROOT / "docs" / "agent-author.md"


def test_script_of_the_page(tmp_path):
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "node.yaml").write_text(block)
    clock = ManualClock()
    with (
        MockPodResources(load_script(tmp_path / "node.yaml"), clock=clock) as server,
        PodResourcesClient(server.socket_path) as client,
    ):
        assert [pod.name for pod in client.list()] == ["train"]
        assert len(client.get_allocatable().cpu_ids) == 16
        clock.advance(10)
        assert [pod.name for pod in client.list()] == ["second", "train"]
        clock.advance(5)
        for _ in range(3):
            with pytest.raises(NotServing, match="injected fault"):
                client.list()
        assert [pod.name for pod in client.list()] == ["second"]
        clock.advance(5)
        assert not server.socket_path.exists()
        clock.advance(5)
        assert [pod.name for pod in client.list()] == ["second"]
        clock.advance(10)  # the steps repeat
        assert server.steps == 5


def test_ids_of_the_page():
    rows = re.findall(r"^\| `([a-z-]+)` \| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 5
    for shape, example in rows:
        assert device_ids(shape, 1)[0] == example
