"""`heterotp ui` as a process: what it prints, which run it takes, what it refuses in one line."""

import os
import signal
import socket
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.cli_process import cli_process, run_cli
from support.played_run import Run


def made(place, job="demo"):
    place.mkdir(parents=True)
    return Run(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_newest_run_is_served_at_a_secret_address_of_this_machine(tmp_path, number):
    for age, name in enumerate(("new", "old")):
        run = made(tmp_path / "runs" / name)
        for file in ("run.json", "status.json"):
            os.utime(run.place / file, (1000 - age, 1000 - age))
    with cli_process("ui", cwd=tmp_path) as process:
        line = process.stdout.readline()
        assert line.startswith("page of runs/new: http://127.0.0.1:")
        address = line.split()[-1]
        with urlopen(address, timeout=60) as answer:
            assert b"<title>demo - HeteroTP</title>" in answer.read()
        root, token = address[:-1].rsplit("/", 1)
        assert len(token) >= 32
        with pytest.raises(HTTPError, match="403") as refused:
            urlopen(root, timeout=60)
        refused.value.close()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.strip()) == (130 if number == signal.SIGINT else 0, "", "")


def test_a_folder_that_is_no_run_and_no_run_at_all_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    for arguments, named in (
        (["other"], "RUN_DIR: 'other': holds no run"),
        (["nowhere"], "there is no such directory"),
        ([], "RUN_DIR: there is no run below ./runs"),
        (["--port", "70000"], "--port"),
    ):
        done = run_cli("ui", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert named in done.stderr


def test_a_used_port_is_refused(tmp_path):
    made(tmp_path / "runs" / "demo")
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        done = run_cli("ui", "demo", "--port", port, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"--port: {port}: cannot listen" in done.stderr
