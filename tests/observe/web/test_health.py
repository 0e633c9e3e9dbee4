"""Health checks and the text of their results."""

from __future__ import annotations

from http import HTTPStatus

from devicemanager.observe.web.health import Check, check_result, group_result

WELL = Check("ping", lambda: "")
ILL = Check("syncloop", lambda: "the kubelet is stopped")


def test_passed_checks_answer_ok():
    assert group_result("healthz", [WELL]) == check_result(WELL) == (HTTPStatus.OK, "ok")
    _, text = group_result("livez", [WELL], verbose=True)
    assert text == "[+]ping ok\nlivez check passed\n"


def test_failed_group_omits_the_cause():
    status, text = group_result("healthz", [WELL, ILL])
    assert status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert text == "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
    status, text = check_result(ILL)
    assert status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert text == "internal server error: the kubelet is stopped\n"


def test_checks_can_be_excluded():
    status, text = group_result("readyz", [WELL, ILL], verbose=True, exclude=["syncloop", "b", "a"])
    assert status is HTTPStatus.OK
    assert text == (
        "[+]ping ok\n[+]syncloop excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","b"\n'
        "readyz check passed\n"
    )
