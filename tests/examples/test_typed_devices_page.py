"""The snippets of docs/typed-devices.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/typed-devices.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_has_its_snippets() -> None:
    assert len(SNIPPETS) == 2


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["plugin to container", "conflicts"])
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x8086\n")
    (device / "device").write_text("0x1572\n")
    exec(compile(snippet, str(PAGE), "exec"), {"sysfs": tmp_path})
