"""The fake API server answers the requests of the table as kube-apiserver v1.37.2 did."""

import pytest

from devicemanager.apiserver import FakeApiServer
from tests.apiserver.real_answers.differences import OTHER_BODIES
from tests.apiserver.real_answers.running import Runner, recorded
from tests.apiserver.real_answers.table import calls

EXPECTED = {each["name"]: each for each in recorded()}


@pytest.fixture(scope="module")
def answers():
    with FakeApiServer() as server:
        return {each["name"]: each for each in Runner(server.url).run(calls())}


def test_every_request_was_recorded():
    assert list(EXPECTED) == [each.name for each in calls()]
    assert len(EXPECTED) >= 200


SAME = [name for name in EXPECTED if name not in OTHER_BODIES]


@pytest.mark.parametrize("name", SAME)
def test_answer_is_that_of_the_real_server(answers, name):
    assert answers[name] == EXPECTED[name]


@pytest.mark.parametrize("name", OTHER_BODIES)
def test_listed_differences(answers, name):
    assert answers[name]["code"] == EXPECTED[name]["code"]
    assert answers[name]["body"] != EXPECTED[name]["body"], "no difference: remove it from the list"
