"""The accuracy study at its smallest: interrupted and resumed, and one process beside a gang of real ranks."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from heterotp_cli.bench import study_training
from heterotp_cli.bench.study import Study, run
from heterotp_cli.bench.study_cells import COMPARED, GANGS, SIZES, StudyCell
from heterotp_cli.bench.study_gang import train_gang
from heterotp_cli.bench.study_training import train_cell
from heterotp_cli.bench.training import Course
from heterotp_cli.bench.trials import alike, always

TINY = replace(SIZES["digits"], epochs=3, seeds=1, ranks=4, batch_size=256, gang_seconds=0.1)


def cell_of(block):
    shares = always([alike(0.5), *[alike(0.25)] * 3], TINY.epochs)
    return StudyCell("cell", 1, {"strategy": "ZERO", "zero": block}, shares)


@pytest.mark.parametrize(
    "block", [{"selection": "Pri"}, {"selection": "Rd", "imputation": "Same"}, {"selection": "PriDiffR"}], ids=str
)
def test_a_cell_that_is_interrupted_ends_as_if_it_were_not(tmp_path, monkeypatch, block):
    cell = cell_of(block)
    whole = train_cell(cell, TINY, tmp_path / "whole")
    assert len(whole["curve"]) == TINY.epochs and whole["accuracy"] == whole["curve"][-1]["accuracy"]
    run_epoch = Course.run_epoch

    def interrupted(course):
        if course.epoch == 2:
            raise KeyboardInterrupt
        run_epoch(course)

    monkeypatch.setattr(Course, "run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_cell(cell, TINY, tmp_path / "part")
    epochs = []
    monkeypatch.setattr(Course, "run_epoch", lambda course: epochs.append(course.epoch) or run_epoch(course))
    again = train_cell(cell, TINY, tmp_path / "part")
    assert epochs == [2]
    assert again["curve"] == whole["curve"]
    assert not list(tmp_path.iterdir())


def test_a_torn_state_and_that_of_another_cell_are_left_out(tmp_path):
    part = tmp_path / "part"
    part.write_bytes(b"torn")
    course = Course(study_training.setting_of(cell_of({"selection": "Pri"}), TINY), study_training.data_of(TINY))
    assert study_training._resume(course, part, "this") == ([], 0.0)
    study_training._keep(course, part, {"content": "other", "curve": [], "seconds": 1.0})
    assert study_training._resume(course, part, "this") == ([], 0.0)
    assert study_training._resume(course, part, "other") == ([], 1.0)


def test_one_process_trains_what_a_gang_of_real_ranks_trains(tmp_path):
    """With decisions in the loop: one rank becomes slow, and the gang prunes it by what it measures."""
    policy = {**GANGS[COMPARED], "zero": {"selection": "Pri", "statisticsEvery": 4}}
    cell = StudyCell(f"gang {COMPARED}", 0, policy, chis=(1.0, 4.0, 1.0, 1.0))
    size = replace(TINY, epochs=6)
    result = train_gang(cell, size, tmp_path / "run", compare=True)
    pruning = [plan for plan in result["plans"] if plan["pruned"]]
    assert [rank for rank, _ in pruning[0]["pruned"]] == [1]
    assert result["replayed"]["largestLossDifference"] < 1e-3
    assert result["replayed"]["accuracy"] == pytest.approx(result["accuracy"], abs=0.02)


def test_the_study_keeps_what_it_trained(tmp_path, monkeypatch):
    from heterotp_cli import bench_accuracy_command
    from heterotp_cli.bench import study_cells

    size = replace(TINY, ranks=8, epochs=1)
    monkeypatch.setitem(study_cells.SIZES, "digits", size)
    arguments = ["--size", "digits", "--cell", "baseline", "--cell", "homogeneous Pri 0.5", "--output", str(tmp_path)]
    first = CliRunner().invoke(bench_accuracy_command.command, arguments)
    assert first.exit_code == 0, first.output
    assert "0 of 2 cells are trained" in first.output and "1 cells to go, about" in first.output
    study = Study(tmp_path / "accuracy-digits", size)
    kept = study.results()
    assert set(kept) == {"trial/baseline/0", "trial/homogeneous Pri 0.5/0"}
    assert {"torch", "cores", "date"} <= kept["trial/baseline/0"]["on"].keys()
    assert "homogeneous Pri 0.5" in (tmp_path / "accuracy-digits" / "accuracy-digits.csv").read_text()
    run(
        study, [cell for cell in study.cells if cell.name == "baseline"], 1, lambda *ended: pytest.fail("trained again")
    )
    second = CliRunner().invoke(bench_accuracy_command.command, [*arguments, "--list"])
    assert "homogeneous Pri 0.5, seed 0: " in second.output and "- \n" not in second.output
