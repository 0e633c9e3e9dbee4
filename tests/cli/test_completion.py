"""``devicemanager completion``: scripts for all commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devicemanager.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_has_every_command_and_late_options(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    # Nested subcommands, and options that are added when the command is called.
    for word in ("ctl", "fault", "simulate-pools", "no-start", "resource-name", "recover-device"):
        assert word in script, word


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ctl wait re", "resource"),
        ("ctl nodes fail-d", "fail-device"),
        ("ctl nodes leave --how sh", "shutdown"),
    ],
)
def test_bash_completes_commands_and_files(tmp_path, capsys, words, completed):
    main(["completion", "bash"])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    code = f"""
        . {script}
        function=$(complete -p devicemanager | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=(devicemanager {words}) COMP_CWORD={len(words.split())}
        $function devicemanager {" ".join(words.split()[:-3:-1])}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [completed], done.stderr


def test_missing_extra_is_an_error(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'kubelet-devicemanager[completion]'" in capsys.readouterr().err
