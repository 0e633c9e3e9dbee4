"""kube-apiserver gives the recorded answers, which the fake API server gives, too."""

import pytest

from tests.apiserver.real_answers.real_server import answers, real_server
from tests.apiserver.real_answers.running import recorded
from tools.cluster.build import BuildError, server_binaries


@pytest.mark.timeout(900)
def test_real_server_gives_the_recorded_answers(tmp_path):
    try:
        server_binaries()
    except BuildError as error:
        pytest.skip(str(error))
    with real_server(tmp_path) as runner:
        found = {each["name"]: each for each in answers(runner)}
    differing = [each["name"] for each in recorded() if found[each["name"]] != each]
    # The address of the server is in this one.
    assert differing in ([], ["discovery /api"])
