"""``devicemanager completion``: scripts that know the whole command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devicemanager.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_every_command_and_late_options(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    # Of subcommands of subcommands, and options that are added when the command is called.
    for word in ("ctl", "fault", "simulate-pools", "no-start", "resource-name", "recover-device"):
        assert word in script, word


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ctl wait re", "resource"),
        ("ctl nodes fa", "fail-device"),
        ("ctl nodes leave --how sh", "shutdown"),
    ],
)
def test_bash_completes(tmp_path, capsys, words, completed):
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


def test_without_the_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'kubelet-devicemanager[completion]'" in capsys.readouterr().err
