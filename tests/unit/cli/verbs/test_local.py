"""The verbs on a run directory: real files, and a thread that plays rank 0."""

import json
import re
import threading
import time

import pytest
from click.testing import CliRunner
from heterotp_api.trainer_status import TrainerRank
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.main import group
from heterotp_cli.run_lock import alive, lock
from heterotp_cli.verbs import change_requests
from heterotp_cli.verbs.local import open_run
from heterotp_cli.workdir import prepare, write_json
from support.played_run import Run


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Commands wait as long as a busy machine needs."""
    monkeypatch.setattr("heterotp_cli.verbs.target.WAIT_SECONDS", 240.0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A live run in ./runs/demo."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs" / "demo"
    place.mkdir(parents=True)
    with lock(place):
        yield Run(place)


def call(*arguments):
    """Run the command line and return what it prints; what it raises is raised."""
    result = CliRunner().invoke(group, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_is_shown_by_its_directory_or_by_its_name_below_runs(run):
    for name in ("runs/demo", "demo"):
        assert call("top", name).startswith("demo · running · attempt 1 · 4 ranks · strategy AUTO\n")
    assert "slow  " in call("top", "demo")
    assert call("explain", "demo").startswith("Nothing slows demo: ")
    assert "rank 3\n  group      slow\n" in call("describe-ranks", "demo")
    assert json.loads(call("describe-ranks", "demo", "-o", "json"))["ranks"][3]["group"] == "slow"


def test_all_runs_are_listed(run, tmp_path):
    (tmp_path / "runs" / "other").mkdir()
    prepare(tmp_path / "runs" / "other", "vit", 2, {})
    lines = call("top").splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["demo", "running", "4"], ["vit", "unfinished", "-"]]
    assert [each["name"] for each in json.loads(call("top", "-o", "json"))] == ["demo", "vit"]


def test_an_empty_list_of_runs_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("top") == "there is no run below ./runs\n"


def test_following_ends_with_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(tmp_path)
    run.report(state="succeeded")
    assert call("top", ".", "-w").startswith("demo · succeeded · ")
    assert json.loads(call("top", ".", "-w", "-o", "json"))["state"] == "succeeded"


@pytest.mark.parametrize(
    ("reported", "report", "state"),
    [
        ("running", None, "unfinished"),
        ("running", {"state": "stopped"}, "stopped"),
        ("succeeded", None, "succeeded"),
        (None, {"state": "failed"}, "failed"),
        (None, None, "unfinished"),
    ],
)
def test_the_state_of_a_run_that_ended(tmp_path, reported, report, state):
    run = Run(tmp_path)
    if reported is None:
        (tmp_path / "status.json").unlink()
    else:
        run.report(state=reported)
    if report is not None:
        write_json(tmp_path / "report.json", report)
    assert json.loads(call("top", str(tmp_path), "-o", "json"))["state"] == state


def test_a_run_without_a_status_is_starting(run):
    (run.place / "status.json").unlink()
    assert call("top", "demo") == "demo · starting · attempt 1\n"
    with pytest.raises(BadInput, match=r"--rank: 9: the job has ranks 0 \.\. 3"):
        call("inject", "demo", "--rank", "9", "--chi", "2")


def test_a_directory_of_an_older_version_is_read(run):
    write_json(run.place / "run.json", {"job": "demo", "attempt": 1})
    assert "group" not in call("top", "demo")
    call("inject", "demo", "--rank", "3", "--chi", "4", "--no-wait")
    with pytest.raises(BadInput, match=r"--group: 'slow': run\.json lists no groups"):
        call("inject", "demo", "--group", "slow", "--chi", "4")
    (run.place / "status.json").unlink()
    with pytest.raises(Failed, match=r"^demo: rank 0 has not reported the ranks yet: try again in a moment$"):
        call("inject", "demo", "--rank", "3", "--chi", "4")


def test_an_injection_is_listed_beside_others_and_taken_back(run):
    text = call("inject", "demo", "--rank", "3", "--chi", "4", "--for", "10m", "--no-wait")
    assert text == (
        "injection demo-rank-3 slows rank 3 of demo 4x, for 10 min\ntake it back: heterotp inject demo --rank 3 --off\n"
    )
    assert run.injections == {"by-manifest": ([3], 2), "inject/demo-rank-3/2": ([3], 4)}
    assert (run.control.generation, run.control.injections[1].stop.seconds) == (2, 600)
    assert run.control.balancing.strategy == "AUTO"
    call("inject", "demo", "--group", "fast", "--chi", "2", "--mode", "spin", "--no-wait")
    assert run.injections["inject/demo-group-fast/3"] == ([0, 1, 2], 2)
    assert call("inject", "demo", "--rank", "3", "--off", "--no-wait") == "injection demo-rank-3 of demo: taken back\n"
    assert list(run.injections) == ["by-manifest", "inject/demo-group-fast/3"]
    call("inject", "demo", "--off", "--no-wait")
    assert list(run.injections) == ["by-manifest"]
    with pytest.raises(BadInput, match=r"^--off: no injection was made by this command: nothing to take back$"):
        call("inject", "demo", "--off")
    assert run.control.generation == 5


def test_the_same_injection_again_restarts_its_age(run):
    for _ in range(2):
        text = call("inject", "demo", "--rank", "3", "--chi", "4", "--no-wait")
    assert text.startswith(
        "injection demo-rank-3 slows rank 3 of demo 4x, until it is taken back; replaces the one that"
    )
    assert list(run.injections) == ["by-manifest", "inject/demo-rank-3/3"]


def test_a_policy_is_put_in_force_and_taken_back(run):
    with run.obeying():
        lines = call("policy", "demo", "--strategy", "semi", "--set", "semi.timeTolerance=0.1").splitlines()
    assert lines[:2] == [
        "demo: policy SEMI (semi.timeTolerance 0.1); replaces AUTO",
        "take it back: heterotp policy demo --default",
    ]
    assert re.fullmatch(r"in force on all ranks after \d+\.\d s", lines[2])
    assert (run.control.balancing.strategy, run.control.balancing.semi.time_tolerance) == ("SEMI", 0.1)
    assert list(run.injections) == ["by-manifest"]
    lines = call("policy", "demo", "--default", "--no-wait").splitlines()
    assert lines == [
        "demo: policy AUTO without loss; replaces SEMI",
        "take it back: heterotp policy demo --strategy SEMI --set semi.timeTolerance=0.1",
    ]
    assert (run.control.balancing.strategy, run.control.balancing.max_pruned_share) == ("AUTO", 0.0)
    assert call("policy", "demo", "--default", "--no-wait") == "demo: policy AUTO without loss; replaces AUTO\n"


def test_the_generation_is_above_all_that_rank_0_has_seen(run):
    run.report(control_generation=7, applied_generation=6)
    call("policy", "demo", "--strategy", "None", "--no-wait")
    assert run.control.generation == 8


def test_a_refusal_is_a_failure(run):
    with (
        run.obeying(refuse="control.json: balancing.zero: no"),
        pytest.raises(Failed, match=r"^refused: control\.json"),
    ):
        call("policy", "demo", "--strategy", "ZERO")


def test_a_run_that_ends_meanwhile_is_a_failure(tmp_path):
    handle = lock(tmp_path)
    run = Run(tmp_path)

    def end_after_the_change():
        while run.control.generation == 1:
            time.sleep(0.02)
        run.report(state="succeeded")
        handle.close()

    rank_0 = threading.Thread(target=end_after_the_change, daemon=True)
    rank_0.start()
    with pytest.raises(Failed, match=r"^refused: the job has ended \(succeeded\)$"):
        call("policy", str(tmp_path), "--strategy", "MIG")
    rank_0.join()


def test_a_run_that_is_over_cannot_be_changed(tmp_path):
    Run(tmp_path)
    for arguments in (["inject", "--rank", "3", "--chi", "4"], ["inject", "--off"], ["policy", "--strategy", "MIG"]):
        with pytest.raises(BadInput) as error:
            call(*arguments, str(tmp_path))
        assert str(error.value) == (
            f"RUN_DIR: '{tmp_path}': no run is alive there (unfinished): start one with heterotp run"
        )


@pytest.mark.parametrize("name", ["absent", "empty", ""])
def test_a_directory_without_a_run_is_refused(run, name):
    (run.place.parent.parent / "empty").mkdir()
    why = "holds no run" if name == "empty" else "there is no such directory"
    with pytest.raises(BadInput) as error:
        call("top", name)
    assert str(error.value) == (
        f"RUN_DIR: '{name}': {why}: name the directory of a `heterotp run`; there are runs/demo"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "invalid JSON: EOF while parsing an object at line 1 column 1: mend it first"),
        ('{"generation": -1}', "generation: -1 input should be greater than or equal to 0: mend it first"),
    ],
)
def test_an_invalid_control_document_is_not_overwritten(run, text, words):
    (run.place / "control.json").write_text(text)
    with pytest.raises(BadInput) as error:
        call("policy", "demo", "--strategy", "MIG")
    assert str(error.value) == f"runs/demo/control.json: {words}"
    assert (run.place / "control.json").read_text() == text


def test_edits_of_two_commands_do_not_lose_each_other(run, monkeypatch):
    def slowly(*given):
        time.sleep(0.05)  # in which the others would read what is about to be replaced
        write_json(*given)

    monkeypatch.setattr("heterotp_cli.workdir.write_json", slowly)
    how = change_requests.slowdown_request(2.0, None, None)
    edits = [
        threading.Thread(target=open_run("demo").inject, args=(change_requests.RankSelector((n,)), how))
        for n in range(4)
    ]
    for each in edits:
        each.start()
    for each in edits:
        each.join()
    assert run.control.generation == 5
    assert len(run.injections) == 5


def test_a_change_is_not_put_back_over_a_later_one_but_the_newest_is(run):
    first = open_run("demo").set_policy("SEMI", None, ())
    later = open_run("demo").set_policy("MIG", None, ())
    assert not first.put_back()
    assert (run.control.generation, run.control.balancing.strategy) == (3, "MIG")
    assert later.put_back()
    assert (run.control.generation, run.control.balancing.strategy) == (4, "SEMI")


def test_columns_computed_for_others_are_shown(run):
    run.report(ranks=(TrainerRank(rank=0, tp_rank=0, device="cpu", columns_in=82),))
    assert "+82" in call("top", "demo")
    assert "balancing  computes 82 columns for others" in call("describe-ranks", "demo")


def test_a_run_is_alive_while_its_lock_is_held(tmp_path):
    assert not alive(tmp_path)
    with lock(tmp_path):
        assert alive(tmp_path)
    assert not alive(tmp_path)
    lock(tmp_path).close()  # asking has left no lock
