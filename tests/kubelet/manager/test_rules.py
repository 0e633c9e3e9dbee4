"""Quirks of the settings reach the core's parts."""

import pytest

from checkpoint.shared_writer import MemoryStore
from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import Draft
from devicemanager.kubelet.manager.state import State
from devicemanager.kubelet.settings import Settings
from tests.helpers import device_list, devices
from tests.node import GPU


@pytest.mark.parametrize("quirks", [(), ("Q25",)])
def test_q25_ignores_devices_reserved_by_an_admission(quirks):
    state = State(Settings(quirks=quirks), MemoryStore(), lambda: None)
    ledger, index = state.ledger, device_list(devices("a")).device_index
    ledger.reserve(Draft(PodUid("p")), GPU, index.select(1))
    ledger.count_committed_only()
    assert ledger.in_use(GPU, index) == (0 if quirks else 1)
