"""A path that is longer than the file system takes is bad input of every command, told on one line."""

import pytest
from heterotp_cli.lazy import enter
from heterotp_cli.main import group
from support.places import ROOT

LONG = "a" * 300
EXAMPLE = str(ROOT / "examples" / "language.yaml")
COMMANDS = {
    "validate": [LONG],
    "run": [EXAMPLE, "--workdir", LONG],
    "simulate": [EXAMPLE, "--picture", f"{LONG}/x.png"],
    "top": [LONG],
    "explain": [LONG],
    "export": [str(ROOT), "--to", LONG],
    "check-model": [LONG],
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_path_that_is_too_long_is_one_line(verb, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["heterotp", verb, *COMMANDS[verb]])
    with pytest.raises(SystemExit) as ended:
        enter(group, "heterotp")
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and LONG in line
    assert list(tmp_path.iterdir()) == []
