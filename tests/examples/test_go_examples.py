"""The programs in ``examples/go``. The plugin in ``clients/go/example`` is in tests/interop."""

import pytest

from tests.interop.gobuild import go_test
from tests.paths import ROOT


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_go_podresources_client():
    done = go_test(ROOT / "examples/go")
    assert done.returncode == 0, done.stdout + done.stderr
