"""When a plugin's socket is opened, without opening any."""

import pytest

from devicemanager.registration.dialing import leaves_enough


@pytest.mark.parametrize(
    ("limit", "most"), [(1024, 1024 - 64 - 1), (257, 257 - 64 - 1), (16, 16 - 4 - 1)]
)
def test_some_descriptors_are_left_alone(limit, most):
    assert leaves_enough(most, limit)
    assert not leaves_enough(most + 1, limit)
