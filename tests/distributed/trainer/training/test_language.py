"""The language trainer on unequal ranks: as on one rank, over a restart, and while units of all three kinds move."""

import math

import pytest
from support.balancing_gang import write_control
from support.language_jobs import language, write_text
from support.launched import Launched

ITERATIONS = 12
LLAMA = {"preset": "llama-tiny"}
SETTINGS = {"accumulate": 2, "recompute": True, "evaluateEvery": 4, "labelSmoothing": 0.1}


def losses(run):
    return {line["iteration"]: line["loss"] for line in run.history() if line["loss"] is not None}


def samples(run):
    return [line.partition(": sample: ")[2] for line in run.text().splitlines() if ": sample: " in line]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "text")


def finished(folder, body):
    """Return a run in a folder that ended well, without balancing."""
    write_control(folder, 1, "None")
    run = Launched(folder, body)
    assert run.wait() == 0, run.text()
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, data):
    return finished(tmp_path_factory.mktemp("undisturbed"), language(data, LLAMA, iterations=ITERATIONS, **SETTINGS))


def test_three_unequal_ranks_learn_what_one_learns(undisturbed, tmp_path, data):
    alone = finished(tmp_path, language(data, LLAMA, speeds=(1.0,), iterations=ITERATIONS, **SETTINGS))
    one, three = losses(alone), losses(undisturbed)
    assert list(one) == list(three) == list(range(1, ITERATIONS + 1))
    early = range(1, 5)  # sums in another order differ by 1e-7; every step makes that some times larger
    assert [three[i] for i in early] == pytest.approx([one[i] for i in early], rel=1e-6)
    assert [three[i] for i in one] == pytest.approx([one[i] for i in one], rel=1e-4)
    reports = [run.read("report.json") for run in (alone, undisturbed)]
    assert reports[1]["testLoss"] == pytest.approx(reports[0]["testLoss"], rel=1e-4)
    assert len({rank["share"] for rank in reports[1]["ranks"]}) == 3
    assert samples(alone) == samples(undisturbed) and len(samples(alone)) == 3


def test_loss_perplexity_and_a_sample_are_shown(undisturbed):
    report, status = undisturbed.read("report.json"), undisturbed.read("status.json")
    assert report["testLoss"] < losses(undisturbed)[1] < 1.02 * math.log(257)
    assert report["testPerplexity"] == pytest.approx(math.exp(report["testLoss"]))
    assert (status["perplexity"], status["testLoss"]) == (report["testPerplexity"], report["testLoss"])
    assert status["accuracy"] is report["testAccuracy"] is None
    assert repr(report["sample"]) == repr(status["sample"]) == samples(undisturbed)[-1]
    lines = [line for line in undisturbed.text().splitlines() if ": test loss " in line]
    assert [line.split("iteration ")[1].split(":")[0] for line in lines] == ["4", "8", "12"]
    assert all(", perplexity " in line for line in lines)


def test_training_continues_bit_by_bit_after_a_restart(undisturbed, tmp_path, data):
    settings = {**SETTINGS, "keepBest": True}
    finished(tmp_path, language(data, LLAMA, iterations=7, **settings))
    assert (tmp_path / "checkpoints" / "best" / "manifest.json").exists()
    again = Launched(tmp_path, language(data, LLAMA, iterations=ITERATIONS, **settings), attempt=2)
    assert again.wait() == 0, again.text()
    assert again.read("status.json")["resumedFrom"] == 7
    assert losses(again) == losses(undisturbed)
    assert again.read("report.json")["testLoss"] == undisturbed.read("report.json")["testLoss"]


def test_units_of_all_kinds_move_and_the_losses_stay(tmp_path, data):
    body = language(data, LLAMA, speeds=(1.0, 1.0, 1.0), iterations=40, evaluateEvery=1000)
    plain = finished(tmp_path / "plain", body)
    write_control(tmp_path / "moved", 1, "AUTO", reshard={"evict": [2]})  # moves units however busy the machine is
    moved = Launched(tmp_path / "moved", body)
    assert moved.wait() == 0, moved.text()
    report = moved.read("report.json")
    assert report["moves"], report["reason"]
    named = " ".join(decision["reason"] for decision in report["decisions"])
    assert all(kind in named for kind in ("heads", "hidden units", "vocabulary rows")), named
    one, other = losses(plain), losses(moved)
    assert [other[i] for i in one] == pytest.approx([one[i] for i in one], rel=1e-4)


def test_training_ends_early_and_stays_ended(launch, data):
    """With a far too high rate evaluations soon become worse."""
    write_control(launch.workdir, 1, "None")
    body = language(
        data, LLAMA, speeds=(1.0,), iterations=400, evaluateEvery=1, patience=2, learningRate=3.0, sample={"tokens": 0}
    )
    run = launch(body)
    assert run.wait() == 0, run.text()
    report = run.read("report.json")
    assert report["state"] == "succeeded" and 3 <= report["iterations"] < 400
    again = launch(body, attempt=2)
    assert again.wait() == 0, again.text()
    assert again.read("report.json")["iterations"] == report["iterations"]
    assert samples(again) == []


def test_gpt_learns_in_bf16_on_a_rank_with_next_to_nothing(tmp_path, data):
    body = language(data, {"preset": "gpt-tiny"}, speeds=(1.0, 1.0, 0.05), precision="bf16", iterations=20)
    run = finished(tmp_path, body)
    report = run.read("report.json")
    assert report["testLoss"] < 0.75 * math.log(257)
    assert report["ranks"][2]["share"] < 0.05
