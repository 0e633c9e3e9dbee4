"""Typos in the placeholders of commands, environment variables and hooks."""

from __future__ import annotations

import pytest

from devicemanager.conformance import CheckError, PluginUnderTest
from devicemanager.conformance.clients.client_under_test import ClientUnderTest
from devicemanager.conformance.drivers import DriverUnderTest


@pytest.mark.parametrize(
    ("create", "text"),
    [
        (
            lambda: DriverUnderTest(command=["./d", "-k", "{kubeconf}"]),
            "{kubeconf} in the command: did you mean {kubeconfig}?",
        ),
        (
            lambda: DriverUnderTest(command=["./d"], env={"DIR": "{registry_dir}/x"}),
            "{registry_dir} in --env: did you mean {registrar_dir}?",
        ),
        (
            lambda: PluginUnderTest(command=["./p", "{plugindir}"]),
            "{plugindir} in the command: did you mean {plugin_dir}?",
        ),
        (
            lambda: PluginUnderTest(command=["./p"], hooks={"prepare": "touch {rooot}"}),
            "{rooot} in the hook prepare: did you mean {root}?",
        ),
        (
            lambda: ClientUnderTest(command=["./c", "{Socket}"]),
            "{Socket} in the command: did you mean {socket}?",
        ),
        (
            lambda: ClientUnderTest(command=["./c"], metrics="http://127.0.0.1:{prt}/metrics"),
            "{prt} in --metrics: did you mean {port}?",
        ),
    ],
)
def test_typo_is_an_error(create, text):
    with pytest.raises(CheckError) as error:
        create()
    assert str(error.value).startswith(f"unknown placeholder {text} Use one of {{")


def test_other_words_in_braces_are_passed_on():
    words = ["./p", "{plugin_dir}", "{kubeconfig}", "{name}", "{{.Root}}", "${rooot}", '{"a": 1}']
    assert PluginUnderTest(command=words).command == tuple(words)
