"""Who may use a run directory, and which attempt comes next."""

import shutil

import pytest
from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.goal import Goal
from heterotp_cli.run_command import fails_without
from heterotp_cli.run_lock import lock
from heterotp_cli.workdir import claim, look, next_attempt, prepare, read_json, uid_of, write_json


@pytest.fixture
def run_of_demo(tmp_path):
    prepare(tmp_path, "demo", 1, {"generation": 1})
    return tmp_path


def test_an_absent_or_empty_directory_starts_attempt_1(tmp_path):
    assert next_attempt(look(tmp_path / "absent"), tmp_path, "demo") == 1
    assert next_attempt(look(tmp_path), tmp_path, "demo") == 1


def test_resume_without_a_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no run to resume: leave --resume out"):
        next_attempt(look(tmp_path), tmp_path, "demo", mode="resume")


def test_files_that_are_no_run_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match="holds files that are no run"):
        next_attempt(look(tmp_path), tmp_path, "demo", mode="resume")


def test_another_jobs_run_is_refused_even_with_resume(run_of_demo):
    with pytest.raises(BadInput, match="holds the run of job 'demo': name another directory"):
        next_attempt(look(run_of_demo), run_of_demo, "other", mode="resume")


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (None, "holds attempt 1 of job 'demo', unfinished: continue it with --resume"),
        ({"state": "failed", "iterations": 7}, "failed at iteration 7: continue it with --resume"),
        ({"state": "succeeded", "iterations": 9}, "succeeded at iteration 9: name another directory, discard it"),
    ],
    ids=["killed", "failed", "succeeded"],
)
def test_a_run_of_the_same_job_needs_resume(run_of_demo, report, text):
    if report is not None:
        write_json(run_of_demo / "report.json", report)
    with pytest.raises(BadInput, match=text):
        next_attempt(look(run_of_demo), run_of_demo, "demo")
    assert next_attempt(look(run_of_demo), run_of_demo, "demo", mode="resume") == 2


DONE = {"state": "succeeded", "iterations": 40, "epochs": 2}


@pytest.mark.parametrize(
    ("goal", "advice"),
    [
        (Goal(iterations=40), "spec.training.iterations: 40 must be more than 40 to train on"),
        (Goal(iterations=12), "spec.training.iterations: 12 must be more than 40 to train on"),
        (Goal(epochs=2), "spec.training.epochs: 2 must be more than 2 to train on"),
        (Goal(), "spec.training.epochs: 1 must be more than 2 to train on"),
        (Goal(program="a"), "change command or environment of the container trainer to train on"),
    ],
    ids=["iterations", "fewer", "epochs", "default", "own command"],
)
def test_a_run_that_has_succeeded_is_resumed_only_for_more(tmp_path, goal, advice):
    prepare(tmp_path, "demo", 1, {}, program="a")
    write_json(tmp_path / "report.json", DONE)
    with pytest.raises(BadInput) as error:
        claim(tmp_path, "demo", "resume", goal)
    held = "holds attempt 1 of job 'demo', succeeded at iteration 40"
    assert str(error.value) == f"{tmp_path}: --resume: {held}: {advice}, or discard the run with --fresh"
    assert next_attempt(look(tmp_path), tmp_path, "demo", "fresh", goal) == 1


@pytest.mark.parametrize("goal", [Goal(iterations=41), Goal(epochs=3), Goal(program="b")], ids=str)
def test_a_run_that_has_succeeded_goes_on_to_a_further_goal(tmp_path, goal):
    prepare(tmp_path, "demo", 1, {}, program="a")
    write_json(tmp_path / "report.json", DONE)
    assert next_attempt(look(tmp_path), tmp_path, "demo", "resume", goal) == 2


def test_a_run_without_iterations_may_be_started_again(run_of_demo):
    write_json(run_of_demo / "report.json", {"state": "failed", "iterations": 0})
    assert next_attempt(look(run_of_demo), run_of_demo, "demo") == 1


@pytest.mark.parametrize("kept", ["history.jsonl", "checkpoints/model.pt"])
def test_a_failed_run_that_left_files_is_not_started_over(run_of_demo, kept):
    write_json(run_of_demo / "report.json", {"state": "failed", "iterations": 0})
    (run_of_demo / kept).parent.mkdir(exist_ok=True)
    (run_of_demo / kept).write_text("{}\n")
    with pytest.raises(BadInput, match="failed at iteration 0: continue it with --resume"):
        next_attempt(look(run_of_demo), run_of_demo, "demo")
    assert next_attempt(look(run_of_demo), run_of_demo, "demo", mode="resume") == 2


def test_a_live_run_locks_its_directory(tmp_path):
    with lock(tmp_path), pytest.raises(BadInput, match="a run is alive there"):
        lock(tmp_path)
    lock(tmp_path).close()


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "there"])
def test_an_error_of_a_file_is_told_as_the_loss_of_the_directory_where_it_is_gone(tmp_path, removed):
    place = tmp_path / "run"
    with lock(place) as handle:
        expected = (Failed, "was removed or replaced during the run") if removed else (FileNotFoundError, "rank-0.log")
        with pytest.raises(expected[0], match=expected[1]), fails_without(place, handle.fileno()):
            if removed:
                shutil.rmtree(place)
            (place / "logs" / "rank-0.log").open("ab")


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        lock(tmp_path / "file" / "run")


def test_prepare_clears_reports_of_an_older_attempt_but_keeps_its_history(run_of_demo):
    for name in ("status.json", "report.json", "report.png", "report.html", "history.jsonl"):
        (run_of_demo / name).touch()
    uid = uid_of(run_of_demo)
    assert uid  # checkpoints are this run's by it
    prepare(run_of_demo, "demo", 2, {"generation": 1})
    left = {path.name for path in run_of_demo.iterdir()}
    assert left == {"run.json", "control.json", "history.jsonl", "logs", "last_words"}
    assert read_json(run_of_demo / "run.json") == {"job": "demo", "uid": uid, "attempt": 2}


def test_prepare_writes_the_worker_groups(tmp_path):
    groups = [{"name": "a", "pods": 2}]
    prepare(tmp_path, "demo", 1, {}, groups)
    run = {"job": "demo", "uid": uid_of(tmp_path), "attempt": 1, "workerGroups": groups}
    assert read_json(tmp_path / "run.json") == run
    prepare(tmp_path, "demo", 1, {}, groups)
    assert uid_of(tmp_path) != run["uid"]  # another run


def test_a_half_written_document_is_none(tmp_path):
    (tmp_path / "status.json").write_text('{"a": ')
    assert read_json(tmp_path / "status.json") is None


def test_fresh_starts_over_and_discards_the_earlier_run(run_of_demo):
    (run_of_demo / "history.jsonl").touch()
    (run_of_demo / "checkpoints").mkdir()
    handle, attempt = claim(run_of_demo, "demo", "fresh")
    handle.close()
    assert attempt == 1
    prepare(run_of_demo, "demo", attempt, {"generation": 1})
    assert {path.name for path in run_of_demo.iterdir()} == {
        "run.json",
        "run.lock",
        "control.json",
        "logs",
        "last_words",
    }
    with pytest.raises(BadInput, match="holds the run of job 'demo'"):
        claim(run_of_demo, "other", "fresh")


@pytest.mark.parametrize("attempt", [1, 2])
def test_files_of_loggers_go_with_the_run_that_wrote_them(run_of_demo, attempt):
    for folder in ("tensorboard", "mlruns", "wandb"):
        (run_of_demo / folder).mkdir()
    prepare(run_of_demo, "demo", attempt, {})
    assert [(run_of_demo / folder).exists() for folder in ("tensorboard", "mlruns", "wandb")] == [attempt == 2] * 3


def test_a_refused_directory_is_left_as_it_was(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput):
        claim(tmp_path, "demo", "fresh")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    lock(tmp_path / "run").close()


def test_a_refused_claim_gives_the_lock_back(run_of_demo):
    with pytest.raises(BadInput, match="unfinished"):
        claim(run_of_demo, "demo", "new")
    claim(run_of_demo, "demo", "resume")[0].close()
