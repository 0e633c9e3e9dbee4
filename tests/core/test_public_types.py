"""Types in the public signatures of the core, checkpoint and podresources are public."""

import pytest

import checkpoint
import podresources
from devicemanager.core import types
from tests.public_types import types_in_signatures
from tools.api_page import PUBLIC


@pytest.mark.parametrize(
    "package", [types, checkpoint, podresources], ids=lambda package: package.__name__
)
def test_types_in_public_signatures_are_public(package):
    public = {getattr(package, name) for name in package.__all__}
    found = types_in_signatures(package)
    assert len(found) > 5
    missing = {each.__name__: user for each, user in found.items() if each not in public}
    assert missing == {}


def test_types_of_the_core_are_on_the_api_page():
    assert types.__name__ in PUBLIC
