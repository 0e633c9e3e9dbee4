"""Checks of kubeconfig files, and errors that the Kubernetes client only logs."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from devicemanager.io.kubeconfig import check_kubeconfig, client_errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"clusters: []", None),
        (b'{"clusters": []}', None),
        (b"[", None),  # the client's own error names the place
        (b"ab\xff", "not UTF-8 text (byte 2)"),
        (b"- a", "not a kubeconfig file: expected the keys clusters, contexts and users"),
        (b"", "not a kubeconfig file: expected the keys clusters, contexts and users"),
    ],
)
def test_kubeconfig_must_be_a_mapping(tmp_path: Path, content: bytes, message: str | None) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    if message is None:
        check_kubeconfig(str(path))
        return
    with pytest.raises(ValueError) as raised:
        check_kubeconfig(path)
    assert str(raised.value) == message


def test_missing_kubeconfig_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_kubeconfig(tmp_path / "none")


def test_errors_of_the_root_logger_on_this_thread_are_collected() -> None:
    handlers = list(logging.getLogger().handlers)
    with client_errors() as lines:
        logging.error("exec %s", "failed")
        logging.warning("only a warning")
        logging.getLogger("other").error("of another logger")
        thread = threading.Thread(target=logging.error, args=["of another thread"])
        thread.start()
        thread.join()
    logging.error("later")
    assert lines == ["exec failed"]
    assert logging.getLogger().handlers == handlers
