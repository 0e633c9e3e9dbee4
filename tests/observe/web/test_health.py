"""Checks of health, and what is told of them."""

from __future__ import annotations

from http import HTTPStatus

from devicemanager.observe.web.health import Check, told_all, told_one

WELL = Check("ping", lambda: "")
ILL = Check("syncloop", lambda: "the kubelet is stopped")


def test_all_is_well():
    told = told_all("healthz", [WELL])
    assert (told.status, told.text) == (HTTPStatus.OK, "ok")
    assert told_all("livez", [WELL], verbose=True).text == "[+]ping ok\nlivez check passed\n"
    assert told_one(WELL) == told


def test_a_failure_names_the_check_and_tells_the_cause_only_there():
    told = told_all("healthz", [WELL, ILL])
    assert told.status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert told.text == ("[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n")
    assert told_one(ILL).status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert told_one(ILL).text == "internal server error: the kubelet is stopped\n"


def test_checks_can_be_left_out():
    told = told_all("readyz", [WELL, ILL], verbose=True, exclude=["syncloop", "b", "a"])
    assert told.status is HTTPStatus.OK
    assert told.text == (
        "[+]ping ok\n[+]syncloop excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","b"\n'
        "readyz check passed\n"
    )
