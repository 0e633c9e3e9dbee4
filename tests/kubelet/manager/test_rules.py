"""What settings mean for the core's own parts."""

import pytest

from devicemanager.core.ids import PodUid
from devicemanager.core.ledger import Draft
from devicemanager.kubelet.manager.rules import new_ledger
from devicemanager.kubelet.settings import Settings
from tests.helpers import device_list, devices
from tests.node import GPU


@pytest.mark.parametrize("quirks", [(), ("Q25",)])
def test_a_device_that_is_being_allocated_is_overlooked_by_a_quirk(quirks):
    ledger, index = new_ledger(Settings(quirks=quirks)), device_list(devices("a")).device_index
    ledger.reserve(Draft(PodUid("p")), GPU, index.select(1))
    ledger.count_committed_only()
    assert ledger.in_use(GPU, index) == (0 if quirks else 1)
