"""Valid CDI device names, on the plugin's side and the runtime's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.api.cdi import is_device, is_kind, split_name
from devicemanager.kubelet.runtime.cdi import CdiError
from devicemanager.kubelet.runtime.cdi.values import parse_name
from devicemanager.plugin import ContainerSettings

GOOD = ["vendor.com/gpu=0", "v/c=d", "V_x-1.y/c.d=0:1_a-b.c", "a/b=a0"]
BAD = [
    "", "gpu0", "v/c", "v/c=", "/c=d", "v/=d", "v/c=-d", "v/c=d-", "v/c=d:", "v/c-=d", "v./c=d",
    "v\u00e9/c=d", "v/c=\u00e9", "0v/c=d", "v/0c=d", "v/c/e=d", "v/c=d=e", "v/c=d\n", " v/c=d",
    "v/c=\u0661", "v/c=d e", "v:x/c=d",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_valid_cdi_names(name: str) -> None:
    kind, device = name.split("=")
    assert split_name(name) == (kind, device) == parse_name(name)
    assert ContainerSettings(cdi_devices=[name]).cdi_devices == (name,)


@pytest.mark.parametrize("name", BAD)
def test_invalid_cdi_names(name: str) -> None:
    assert split_name(name) is None
    with pytest.raises(CdiError, match=r"^invalid CDI name"):
        parse_name(name)
    with pytest.raises(ValueError, match=r"^invalid CDI name"):
        ContainerSettings(cdi_devices=[name])


@given(st.text("vV0-_.:/=\u00e9\n", max_size=12))
def test_kubelet_and_plugin_side_agree(name: str) -> None:
    parts = split_name(name)
    if parts is not None:
        assert is_kind(parts[0]) and is_device(parts[1]) and "=".join(parts) == name
        ContainerSettings(cdi_devices=[name])
    else:
        with pytest.raises(ValueError):
            ContainerSettings(cdi_devices=[name])
