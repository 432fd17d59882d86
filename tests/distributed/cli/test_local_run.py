"""`heterotp run` with real ranks: done, resumed, interrupted, killed; no process is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml
from support.run_processes import processes_of

DEADLINE_SECONDS = 240
LONG = 100_000


def write_job(path, iterations, **training):
    body = {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "HeteroTPJob",
        "metadata": {"name": "small"},
        "spec": {
            "tensorParallelDegree": 2,
            "workerGroups": [
                {"name": "fast", "relativeSpeed": 1.0},
                {"name": "slow", "relativeSpeed": 0.5, "device": {"type": "emulated", "teraflops": 1.0}},
            ],
            "training": {
                "model": {"hiddenSize": 32, "depth": 1, "heads": 4, "patchSize": 4},
                "iterations": iterations,
                **training,
            },
        },
    }
    path.write_text(yaml.safe_dump(body))
    return path


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "heterotp_cli", "run", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    try:
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()  # closes the pipes
        raise
    return process.returncode, out, err


def history(workdir):
    path = workdir / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["iteration"] for line in lines if line.endswith("}")]


def first_shares(workdir):
    line = (workdir / "history.jsonl").read_text().splitlines()[0]
    return [rank["share"] for rank in json.loads(line)["ranks"]]


def until(condition, process):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def gone(workdir):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while processes_of(workdir):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def rank_process(workdir, rank):
    return next(pid for pid, found in processes_of(workdir).items() if found.rank == rank)


def test_a_run_to_its_end_and_what_the_directory_then_holds(tmp_path, workdir):
    job = write_job(tmp_path / "job.yaml", 12)
    code, out, err = finish(start(job, "--workdir", workdir))
    assert code == 0, err + out
    report = json.loads((workdir / "report.json").read_text())
    assert (report["state"], report["iterations"], report["attempt"]) == ("succeeded", 12, 1)
    assert [rank["group"] for rank in report["ranks"]] == ["fast", "slow"]
    first, second = first_shares(workdir)  # the plan's: AUTO may have moved units since, on a loaded machine
    assert first > second > 0
    assert sum(rank["share"] for rank in report["ranks"]) == pytest.approx(1.0)
    assert report["emulated"] is True
    assert history(workdir) == list(range(1, 13))
    assert (workdir / "report.png").stat().st_size > 10_000
    assert "<h2>Decisions</h2>" in (workdir / "report.html").read_text()
    assert json.loads((workdir / "control.json").read_text())["generation"] == 1
    assert str(workdir / "report.json") in out
    assert "no rank made a session" not in out
    assert len(out.splitlines()) < 60
    assert gone(workdir)

    code, _, err = finish(start(job, "--workdir", workdir))
    assert code == 2
    assert "succeeded at iteration 12" in err

    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    code, _, err = finish(start(job, "--workdir", workdir, "--resume"))
    assert (code, err.count("\n")) == (2, 1), err
    assert "--resume: holds attempt 1 of job 'small', succeeded at iteration 12: " in err
    assert "spec.training.iterations: 12 must be more than 12" in err
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before

    code, out, err = finish(start(write_job(job, 15), "--workdir", workdir, "--resume"))
    assert code == 0, err + out
    assert history(workdir) == list(range(1, 16))


def decisions(workdir):
    """Return the decisions that the running attempt has kept so far."""
    journal = workdir / "journal.json"
    return json.loads(journal.read_text())["decisions"] if journal.exists() else []


def test_ctrl_c_checkpoints_and_resume_goes_on_from_there(tmp_path, workdir):
    run = start(write_job(tmp_path / "job.yaml", LONG), "--workdir", workdir)
    until(lambda: len(history(workdir)) >= 5 and decisions(workdir), run)
    run.send_signal(signal.SIGINT)
    code, out, err = finish(run)
    assert code == 130, err + out
    assert (
        "small · attempt 1 · stopping · emulated · strategy AUTO · iteration" in out
    )  # the status of rank 0 is shown while the run is alive
    assert gone(workdir)
    stopped = json.loads((workdir / "report.json").read_text())
    assert stopped["state"] == "stopped"

    job = write_job(tmp_path / "job.yaml", stopped["iterations"] + 10)
    code, out, err = finish(start(job, "--workdir", workdir, "--resume"))
    assert code == 0, err + out
    status = json.loads((workdir / "status.json").read_text())
    assert status["resumedFrom"] == stopped["iterations"]
    report = json.loads((workdir / "report.json").read_text())
    assert report["attempt"] == 2
    begun = [(each["attempt"], each["iteration"]) for each in report["shares"] if each["rank"] == 1]
    assert begun[0] == (1, 1) and (2, stopped["iterations"] + 1) in begun
    assert [each["attempt"] for each in report["decisions"]][:: len(report["decisions"]) - 1] == [1, 2]
    assert history(workdir) == list(range(1, stopped["iterations"] + 11))


def test_a_killed_rank_0_leaves_what_had_happened(tmp_path, workdir):
    run = start(write_job(tmp_path / "job.yaml", LONG), "--workdir", workdir)
    until(lambda: (workdir / "journal.json").exists() and "reason" in (workdir / "journal.json").read_text(), run)
    os.kill(rank_process(workdir, "0"), signal.SIGKILL)
    code, out, err = finish(run)
    assert code == 1, err + out
    report = json.loads((workdir / "report.json").read_text())
    assert report["state"] == "failed"
    assert report["decisions"][0]["strategy"] == "AUTO"
    assert {each["rank"] for each in report["shares"]} == {0, 1}


def test_a_killed_rank_fails_the_run_and_is_named(tmp_path, workdir):
    run = start(write_job(tmp_path / "job.yaml", LONG), "--workdir", workdir)
    until(lambda: len(history(workdir)) >= 3, run)
    os.kill(rank_process(workdir, "1"), signal.SIGKILL)
    code, out, err = finish(run)
    assert code == 1, err + out
    assert "rank 1 (pod slow-0) was killed by SIGKILL" in err
    assert "--resume" in err
    assert str(workdir / "logs" / "rank-1.log") in err
    assert json.loads((workdir / "report.json").read_text())["state"] == "failed"
    assert gone(workdir)


def test_a_killed_command_line_takes_its_ranks_with_it(tmp_path, workdir):
    run = start(write_job(tmp_path / "job.yaml", LONG), "--workdir", workdir)
    until(lambda: len(history(workdir)) >= 3, run)
    other = start(tmp_path / "job.yaml", "--workdir", workdir, "--resume")
    code, _, err = finish(other)
    assert code == 2
    assert "a run is alive there" in err
    run.kill()
    run.communicate()
    assert gone(workdir)


def test_a_loss_that_is_not_finite_is_told_in_plain_words(tmp_path, workdir):
    job = write_job(tmp_path / "job.yaml", LONG, learningRate=1e30)
    code, out, err = finish(start(job, "--workdir", workdir))
    assert code == 1, err + out
    words = r"stopped before an update because the loss or a gradient was not finite \(NaN or infinite\); continue with"
    assert re.match(rf"rank [01] \(pod \w+-0\) {words}", err), err
    assert "error: iteration " in err and "Traceback" not in err
    assert json.loads((workdir / "report.json").read_text())["state"] == "failed"
    assert gone(workdir)


def test_what_the_trainer_refuses_is_bad_input(tmp_path, workdir):
    (tmp_path / "empty").mkdir()
    job = write_job(tmp_path / "job.yaml", 5, data={"name": "cifar10", "path": str(tmp_path / "empty")})
    code, out, err = finish(start(job, "--workdir", workdir))
    assert code == 2, err + out
    assert err.count("\n") == 1
    assert re.match(rf"{re.escape(str(job))}: spec\.training\.data\.path: ", err)
    assert re.search(r" \(said by rank [01], log: .*/rank-[01]\.log\)\n$", err)
    assert str(tmp_path / "empty") in err
    assert "Traceback" not in err
    assert gone(workdir)


def test_what_an_own_script_refuses_is_bad_input(tmp_path, workdir):
    job = write_job(tmp_path / "job.yaml", 1)
    body = yaml.safe_load(job.read_text())
    del body["spec"]["training"]
    script = "import sys; print('reading'); print('error: plan: no such module', file=sys.stderr); sys.exit(2)"
    container = {"name": "trainer", "command": [sys.executable, "-c", script]}
    for group in body["spec"]["workerGroups"]:
        group["template"] = {"spec": {"containers": [container]}}
    job.write_text(yaml.safe_dump(body))
    code, out, err = finish(start(job, "--workdir", workdir))
    log = rf"{re.escape(str(workdir))}/logs/rank-[01]\.log"
    assert code == 2, err + out
    assert re.fullmatch(rf"{re.escape(str(job))}: plan: no such module \(said by rank [01], log: {log}\)\n", err), err
    assert gone(workdir)


def test_own_command_runs_on_every_rank(tmp_path, workdir):
    code = "import os; e = os.environ; print('I am', e['RANK'], 'of', e['WORLD_SIZE'], 'with', e['LOCAL_WORLD_SIZE'])"
    container = {"name": "trainer", "command": [sys.executable, "-c", code]}
    template = {"spec": {"containers": [container]}}
    body = yaml.safe_load(write_job(tmp_path / "job.yaml", 1).read_text())
    del body["spec"]["training"]
    body["spec"]["tensorParallelDegree"] = 3
    groups = [{"name": "a", "processesPerPod": 2, "template": template}, {"name": "b", "template": template}]
    body["spec"]["workerGroups"] = groups
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(body))
    status, out, err = finish(start(tmp_path / "job.yaml", "--workdir", workdir))
    assert status == 0, err + out
    last_lines = [(workdir / "logs" / f"rank-{rank}.log").read_text().splitlines()[-1] for rank in range(3)]
    assert last_lines == ["I am 0 of 3 with 2", "I am 1 of 3 with 2", "I am 2 of 3 with 1"]
    assert json.loads((workdir / "report.json").read_text())["state"] == "succeeded"
    assert [line for line in out.splitlines() if "no rank made a session: nothing was balanced" in line]


def test_a_hanging_rank_is_named_and_killed(tmp_path, workdir):
    job = write_job(tmp_path / "job.yaml", LONG, collectiveTimeoutSeconds=10)
    run = start(job, "--workdir", workdir)
    until(lambda: len(history(workdir)) >= 3, run)
    os.kill(rank_process(workdir, "1"), signal.SIGSTOP)
    code, out, err = finish(run)
    assert code == 1, err + out
    assert "rank 1 (pod slow-0) was killed: it did not end after its peers had failed" in err
    assert gone(workdir)
