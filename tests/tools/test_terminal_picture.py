"""Pictures of the terminal views."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.observe.terminal import views
from tools.terminal_picture import BEGIN, crowd, svg


@pytest.mark.parametrize(("make", "text"), [(views.small, "NUMA"), (crowd, "DiskPressure")])
def test_picture_is_an_svg_without_external_resources(make, text):
    drawing = svg(make(), "devicemanager", (), BEGIN)
    ElementTree.fromstring(drawing)
    assert text in drawing
    assert "url(http" not in drawing and "@font-face" not in drawing
