"""Loggers: what is written by TensorBoard's own library, what MLflow's and wandb's are asked for, and what fails."""

import os
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from heterotp_api.job import HeteroTPJobSpec
from heterotp_trainer.errors import InputError
from heterotp_trainer.reporting.loggers import opening, thread
from heterotp_trainer.reporting.loggers.entries import MOST_RANKS, Note, Numbers, of_history
from heterotp_trainer.reporting.loggers.opening import open_loggers, refusal
from heterotp_trainer.reporting.loggers.thread import Loggers
from heterotp_trainer.reporting.loggers.to_mlflow import MOST_IN_BATCH, ToMLflow
from heterotp_trainer.reporting.loggers.to_tensorboard import ToTensorBoard
from heterotp_trainer.reporting.loggers.to_wandb import ToWandB
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def losses(first, last, loss):
    return [Numbers(iteration, 1000.0 + iteration, {"loss/train": loss}) for iteration in range(first, last + 1)]


def line(iteration, chi, loss=0.5):
    ranks = [{"chi": each} for each in chi]
    return {"iteration": iteration, "time": 1000.0, "iterationSeconds": 0.25, "loss": loss, "ranks": ranks}


def read(path):
    events = EventAccumulator(str(path), size_guidance={"tensors": 0, "scalars": 0})
    return events.Reload()


def spec(**reporting):
    groups = [{"name": "a", "processesPerPod": 2}]
    body = {"tensorParallelDegree": 2, "workerGroups": groups, "training": {}, "reporting": reporting}
    return HeteroTPJobSpec.model_validate(body)


def place(reporting, **changes):
    given = {"rank": 0, "job": "demo", "attempt": 2, "workdir": Path("/w"), "checkpoint_dir": None}
    return SimpleNamespace(spec=spec(**reporting), **{**given, **changes})


class Failing:
    """A logger whose disk is full."""

    def write(self, numbers, notes):
        raise OSError("no space left\non the device")

    def close(self, state):
        raise AssertionError("it had failed")


class Keeping:
    """A logger that keeps what it gets."""

    def __init__(self):
        self.got, self.state, self.threads = [], None, set()

    def write(self, numbers, notes):
        self.threads.add(threading.current_thread())
        self.got += [*numbers, *notes]

    def close(self, state):
        self.state = state


def test_tensorboard_reads_back_what_was_written(tmp_path):
    loggers = Loggers({"tensorboard": ToTensorBoard(tmp_path, "demo")})
    loggers.add(of_history(line(7, (1.0, 2.5))))
    loggers.add(Numbers(7, 1001.0, {"accuracy/test": 0.75}))
    loggers.add(Note(8, 1002.0, "decisions", "decision 1: rank 1 is 2.5x slower"))
    loggers.close("succeeded")
    events = read(tmp_path / "demo")
    found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    values = {
        "loss/train": 0.5,
        "seconds/iteration": 0.25,
        "slowdown/most": 2.5,
        "slowdown/rank_0": 1.0,
        "slowdown/rank_1": 2.5,
        "accuracy/test": 0.75,
    }
    assert {tag: [(each.step, each.value) for each in list_] for tag, list_ in found.items()} == {
        tag: [(7, value)] for tag, value in values.items()
    }
    assert found["loss/train"][0].wall_time == 1000.0
    (text,) = events.Tensors("decisions/text_summary")
    assert (text.step, text.tensor_proto.string_val[0]) == (8, b"decision 1: rank 1 is 2.5x slower")


def test_a_run_that_continues_hides_iterations_that_it_repeats(tmp_path):
    for first, last, loss in ((1, 5, 1.0), (4, 6, 2.0)):
        logger = ToTensorBoard(tmp_path, "demo")
        logger.write(losses(first, last, loss), [])
        logger.close("failed")
    got = [(each.step, each.value) for each in read(tmp_path / "demo").Scalars("loss/train")]
    assert got == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]


def test_numbers_are_finite_and_bounded_for_large_gangs():
    assert of_history(line(1, (None, None), float("nan"))).values == {"seconds/iteration": 0.25}
    many = of_history(line(1, (1.5,) * MOST_RANKS + (3.0,))).values
    assert many == {"loss/train": 0.5, "seconds/iteration": 0.25, "slowdown/most": 3.0}


def test_a_logger_that_fails_costs_only_itself_and_one_line(capsys, monkeypatch):
    monkeypatch.setattr(thread, "PAUSE_SECONDS", 0.001)
    keeping = Keeping()
    loggers = Loggers({"wandb": Failing(), "mlflow": keeping})
    for entry in losses(1, 3, 1.0):
        loggers.add(entry)
    loggers.close("failed")
    loggers.close("succeeded")
    assert (keeping.got, keeping.state) == (losses(1, 3, 1.0), "failed")
    assert threading.current_thread() not in keeping.threads
    (told,) = capsys.readouterr().err.splitlines()
    assert told.endswith("spec.reporting.wandb: OSError: no space left: it writes no more, training goes on")


def test_a_place_that_cannot_be_written_costs_only_the_logging(tmp_path, capsys):
    (tmp_path / "demo").write_text("in the way")
    loggers = Loggers({"tensorboard": ToTensorBoard(tmp_path, "demo")})
    loggers.add(losses(1, 1, 1.0)[0])
    loggers.close("succeeded")
    (told,) = capsys.readouterr().err.splitlines()
    assert "spec.reporting.tensorboard: " in told and "training goes on" in told


def test_a_place_that_goes_away_costs_one_line_and_no_traceback(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # put back at the end
    logger = ToTensorBoard(tmp_path, "demo")
    logger.write(losses(1, 1, 1.0), [])
    shutil.rmtree(tmp_path / "demo")
    loggers = Loggers({"tensorboard": logger})
    loggers.add(losses(2, 2, 1.0)[0])
    loggers.close("succeeded")
    (told,) = capsys.readouterr().err.splitlines()
    assert "spec.reporting.tensorboard: FileNotFoundError" in told


def test_entries_that_wait_are_bounded_and_one_line_says_so(capsys, monkeypatch):
    monkeypatch.setattr(thread, "MOST_WAITING", 2)
    keeping = Keeping()
    loggers = Loggers({"mlflow": keeping})
    for entry in losses(1, 5, 1.0):
        loggers.add(entry)
    loggers.close("succeeded")
    assert keeping.got[:2] == losses(1, 2, 1.0)
    assert capsys.readouterr().err.count("2 entries wait to be written") == 1


def test_a_logger_that_hangs_does_not_hold_the_end(capsys, monkeypatch):
    monkeypatch.setattr(thread, "CLOSE_SECONDS", 0.01)
    release, keeping = threading.Event(), Keeping()
    keeping.write = lambda numbers, notes: release.wait()
    loggers = Loggers({"mlflow": keeping})
    loggers.add(losses(1, 1, 1.0)[0])
    loggers.close("succeeded")
    release.set()
    assert "reporting: not written to the end within 0.01 s" in capsys.readouterr().err


@pytest.fixture
def mlflow(monkeypatch):
    """What MLflow documents of its client and of Metric (key, value, timestamp in ms, step)."""
    client = MagicMock()
    client.get_experiment_by_name.return_value = None
    client.create_experiment.return_value = "7"
    client.create_run.return_value.info.run_id = "r1"
    metric = lambda key, value, timestamp, step: (key, value, timestamp, step)  # noqa: E731
    made = MagicMock(return_value=client)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=metric))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=made))
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    return SimpleNamespace(client=client, made=made)


def test_mlflow_gets_metrics_in_batches_and_notes_as_text(mlflow, tmp_path):
    logger = ToMLflow(tmp_path / "mlruns", "demo", 2)
    logger.write(losses(1, MOST_IN_BATCH + 1, 0.5), [Note(3, 1.0, "decisions", "because")])
    logger.close("failed")
    client = mlflow.client
    mlflow.made.assert_called_once_with(tracking_uri=f"file://{tmp_path}/mlruns")
    client.create_run.assert_called_once_with("7", run_name="attempt 2")
    batches = [call.kwargs["metrics"] for call in client.log_batch.call_args_list]
    assert [len(batch) for batch in batches] == [MOST_IN_BATCH, 1]
    assert batches[0][0] == ("loss/train", 0.5, 1001000, 1)
    client.set_tag.assert_called_once_with("r1", "heterotp.decisions", "because")
    client.log_text.assert_called_once_with("r1", "iteration 3: because\n", "notes.txt")
    client.set_terminated.assert_called_once_with("r1", "FAILED")


def test_mlflow_sends_nothing_about_its_use(mlflow, tmp_path):
    ToMLflow(tmp_path, "demo", 1)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_wandb_writes_rows_offline_beside_the_other_files(monkeypatch, tmp_path):
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logger = ToWandB(tmp_path / "run" / "wandb", "demo", 2, "offline")
    logger.write(losses(3, 3, 0.5), [Note(4, 1.0, "moves", "units moved")])
    logger.close("succeeded")
    given, run = wandb.init.call_args.kwargs, wandb.init.return_value
    assert (given["mode"], given["dir"], given["project"]) == ("offline", str(tmp_path / "run"), "demo")
    assert wandb.Settings.call_args.kwargs["disable_code"] is True and (tmp_path / "run").is_dir()
    rows = [call.args[0] for call in run.log.call_args_list]
    assert rows == [{"iteration": 3, "loss/train": 0.5}, {"iteration": 4, "moves": "units moved"}]
    run.finish.assert_called_once_with(exit_code=0)


@pytest.mark.parametrize(
    ("reporting", "changes", "said"),
    [
        ({}, {}, ""),
        ({"tensorboard": {}}, {}, ""),
        ({"tensorboard": {}}, {"rank": 1, "workdir": None, "checkpoint_dir": None}, ""),
        ({"tensorboard": {}}, {"workdir": None, "checkpoint_dir": Path("/c")}, ""),
        (
            {"tensorboard": {}},
            {"workdir": None, "checkpoint_dir": None},
            "no place for its files: give spec.checkpoint",
        ),
        (
            {"mlflow": {}},
            {},
            "spec.reporting.mlflow: the package mlflow cannot be used: pip install 'heterotp[mlflow]'",
        ),
        ({"wandb": {"mode": "online"}}, {}, "spec.reporting.wandb.mode: online needs WANDB_API_KEY"),
        ({"wandb": {}}, {}, ""),
    ],
)
def test_what_cannot_work_is_told_before_training(reporting, changes, said, monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == "mlflow" else name)
    found = refusal(place(reporting, **changes), {})
    assert said in found and bool(said) == bool(found)


def test_a_key_of_the_user_allows_online(monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: name)
    assert refusal(place({"wandb": {"mode": "online"}}), {"WANDB_API_KEY": "k"}) == ""


def test_a_library_that_cannot_be_imported_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"spec\.reporting\.wandb: .*pip install 'heterotp\[wandb\]'"):
        open_loggers(place({"wandb": {}}, workdir=tmp_path))


def test_files_lie_in_the_run_directory_under_a_safe_name(tmp_path):
    loggers = open_loggers(place({"tensorboard": {}}, workdir=tmp_path, job="../x"))
    loggers.add(losses(1, 1, 1.0)[0])
    loggers.close("succeeded")
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == ["_._x"]


def test_no_logger_is_made_without_the_field():
    assert not open_loggers(place({})).active
