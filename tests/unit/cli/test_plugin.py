"""`kubectl heterotp`: instant help, one-line errors, following."""

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from heterotp_cli.errors import Failed
from heterotp_cli.plugin import group
from heterotp_cli.registry import JOB_VERBS
from heterotp_cli.verbs.follow import PATIENCE_SECONDS, follow
from heterotp_cli.workdir import lock, prepare
from support.cli_process import cli_process, run_cli

HEAVY = ("torch", "pydantic", "matplotlib", "rich", "numpy", "yaml", "kubernetes")


def call(*arguments):
    return run_cli(*arguments, module="heterotp_cli.plugin")


@pytest.mark.parametrize(
    "arguments", [["--help"], *([verb.name, "--help"] for verb in JOB_VERBS)], ids=lambda given: given[0]
)
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys; from heterotp_cli.plugin import group\n"
        f"try: group({arguments})\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    assert arguments[0] in done.stdout


def test_the_help_shows_the_usage():
    assert call("--help").stdout.startswith("Usage: kubectl heterotp [OPTIONS] COMMAND")
    done = call()
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "Usage: kubectl heterotp [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize("name", [verb.name for verb in JOB_VERBS])
def test_every_verb_finds_its_cluster(name):
    output = CliRunner().invoke(group, [name, "--help"]).output
    assert all(option in output for option in ("--namespace", "--context", "--kubeconfig", "JOB"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["top", "--foo"], "kubectl heterotp top: no such option '--foo' (see kubectl heterotp top --help)"),
        (["inject"], "kubectl heterotp inject: missing argument 'JOB' (see kubectl heterotp inject --help)"),
        (["frob"], "kubectl heterotp: no such command 'frob' (see kubectl heterotp --help)"),
        (["top", ""], "JOB: '': name a HeteroTPJob"),
        (["top", "-A", "demo"], "--all-namespaces: with JOB 'demo': give one of them"),
        (["inject", "demo", "--off", "--chi", "4"], "--chi: with --off: give one of them"),
        (["inject", "demo", "--rank", "3", "--chi", "0.5"], "--chi: 0.5 input should be greater than or equal to 1"),
        (["policy", "demo"], "--strategy: is required, e.g. --strategy SEMI; --default takes a policy back"),
        (["policy", "demo", "--default", "--set", "window=1"], "--set: with --default: give one of them"),
        (["top", "--kubeconfig", "/none"], "--kubeconfig: '/none': Invalid kube-config file. No configuration found."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_2(arguments, line):
    done = call(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")


def test_an_invalid_number_is_one_line():
    done = call("inject", "demo", "--rank", "3", "--chi", "four")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "'--chi': 'four' is not a valid float" in done.stderr


def test_options_of_the_cluster_may_stand_before_the_verb(tmp_path):
    done = call("--kubeconfig", str(tmp_path / "none"), "top", "demo")
    assert done.stderr.startswith(f"--kubeconfig: '{tmp_path}/none': ")


def test_ctrl_c_while_following_exits_130_without_a_message(tmp_path):
    (tmp_path / "demo").mkdir()
    with lock(tmp_path / "demo"):
        prepare(tmp_path / "demo", "demo", 1, {})
        with cli_process("top", "demo", "-w", cwd=tmp_path) as process:
            assert process.stdout.readline() == "demo · starting · attempt 1\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_a_closed_pipe_causes_no_traceback(tmp_path):
    (tmp_path / "demo").mkdir()
    prepare(tmp_path / "demo", "demo", 1, {})
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "heterotp_cli", "top", "demo"]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert "Traceback" not in done.stderr


class Looks:
    """Answers one by one; a number is a server that does not answer at that time."""

    def __init__(self, *answers):
        self.answers, self.now, self.shown = list(answers), 0.0, []

    def look(self):
        answer = self.answers.pop(0)
        if answer is None:
            raise Failed("no answer")
        return answer

    def follow(self):
        draw = lambda seen, note: f"{seen} {note}".strip()  # noqa: E731
        follow(self.look, draw, lambda seen: seen == "end", self.shown.append, lambda: self.now, self.sleep)

    def sleep(self, seconds):
        self.now += seconds


def test_following_outlives_a_server_that_restarts():
    looks = Looks("a", None, None, "b", "end")
    looks.follow()
    assert looks.shown == ["a", "a as it was 1 s ago: no answer", "a as it was 2 s ago: no answer", "b", "end"]


def test_following_gives_up_in_the_end():
    looks = Looks("a", *[None] * 99)
    with pytest.raises(Failed, match="no answer"):
        looks.follow()
    assert looks.now == PATIENCE_SECONDS


def test_the_first_look_must_succeed():
    with pytest.raises(Failed, match="no answer"):
        Looks(None).follow()
