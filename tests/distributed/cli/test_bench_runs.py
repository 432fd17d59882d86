"""`heterotp bench paper` for real, at its smallest: a timing gang, trainings, the page, and going on after a stop."""

import csv
from dataclasses import replace

import pytest
import torch
from heterotp_api.policy import BalancingSettings
from heterotp_cli.bench import cpu_figures, real_cpu
from heterotp_cli.bench.emulation import VIT_1B
from heterotp_cli.bench.live import run_gang
from heterotp_cli.bench.scenarios import BASELINE, EVEN, QUICK, GangRun, Step, one
from heterotp_cli.bench.store import Store
from heterotp_cli.bench.training import SHAPE, AllRanks, contexts
from heterotp_cli.bench.trials import alike
from heterotp_cli.bench_command import Bench, measure
from heterotp_trainer.data import load_dataset
from heterotp_trainer.model.vit import VisionTransformer

SMALLEST = replace(QUICK, chis=(8.0,), gammas=(0.5,), seeds=2, epochs=1, samples=2, pace=0.1, splits=())


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", None, 0)


@pytest.mark.parametrize("ranks", [2, 8])
def test_all_ranks_in_one_process_are_the_model_itself(digits, ranks):
    alone = contexts(1, SHAPE)[0]
    sizes = {"image_size": digits.image_size, "channels": digits.channels, "classes": digits.classes}
    images = digits.train_images[:8]
    whole, cut = VisionTransformer(alone, SHAPE, **sizes, seed=3), AllRanks(digits, 3, ranks).model
    assert torch.allclose(whole(images), cut(images), atol=1e-5)
    for model in (whole, cut):
        model(images).square().mean().backward()
    assert torch.allclose(whole.patch_weight.grad, cut.patch_weight.grad, atol=1e-5)
    assert sum(p.numel() for p in whole.parameters()) == sum(p.numel() for p in cut.parameters())


def test_shares_reach_the_ranks_and_the_linears_that_they_are_for(digits):
    gang = AllRanks(digits, 0, 4)
    gang.choose(1, [alike(0.0), alike(0.5), (0.0, 0.25, 0.5, 0.75), alike(0.25)], BalancingSettings(strategy="ZERO"))
    kept = [
        {
            linear.name.rpartition(".")[2]: 1.0
            if linear.partition is None
            else len(linear.partition.kept) / linear.weight.shape[1]
            for linear in assigner.linears
        }
        for assigner in gang.assigner
    ]
    assert [set(kept[rank].values()) for rank in (0, 1, 3)] == [{1.0}, {0.5}, {0.75}]
    assert kept[2] == {"qkv": 1.0, "proj": 0.75, "fc1": 0.5, "fc2": 0.25}


def test_a_bench_measures_draws_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    figures = ("homogeneous",)
    measure(figures, SMALLEST, "quick", tmp_path)
    folder = tmp_path / "quick"
    assert str(folder / "index.html") in capsys.readouterr().out.replace("\n", "")
    assert 'class="verdict ' in (folder / "index.html").read_text()
    assert {path.name for path in folder.iterdir()} == {
        "index.html", "homogeneous.csv", "homogeneous.png", "results.jsonl"
    }  # fmt: skip
    before = Store(folder)
    found = before.results
    times = {name: result["steady"] for name, result in found.items() if name.startswith("time/")}
    assert len(times) == 3 and all(seconds > 0.1 for seconds in times.values())
    assert len([name for name in found if name.startswith("content/")]) == 3 * SMALLEST.seeds

    def nothing_runs(*arguments):
        raise AssertionError("measured once more")

    monkeypatch.setattr("heterotp_cli.bench.live.run_gang", nothing_runs)
    monkeypatch.setattr("heterotp_cli.bench.training.run_trial", nothing_runs)
    measure(figures, SMALLEST, "quick", tmp_path)
    assert without_clock(Store(folder)) == without_clock(before)
    assert Store(folder).results["spent"]["seconds"] > before.results["spent"]["seconds"]


def without_clock(store):
    return {key: entry for key, entry in store.results.items() if key != "spent"}


def test_a_gang_that_cannot_run_says_why(tmp_path, monkeypatch):
    from heterotp_cli.errors import Failed
    from rich.progress import Progress

    monkeypatch.setattr("heterotp_cli.bench.live.MODULE", "heterotp_cli.bench.absent")
    with (
        pytest.raises(Failed, match=r"step 'baseline' did not become steady: .*No module named"),
        Progress() as progress,
    ):
        Bench(Store(tmp_path), SMALLEST, ("homogeneous",), progress).run()


def test_a_straggler_wanders_through_a_running_gang(tmp_path):
    model = GangRun("vit-1b", VIT_1B, EVEN, (Step("baseline in turn", BASELINE, one(8.0, 0), (), 4, 2),))
    kept = {}
    run_gang(model, SMALLEST, lambda step, result: kept.setdefault(step.name, result))
    result = kept["baseline in turn"]
    slow = 0.63 + 0.37 * 8
    assert len(result["samples"]) == 2
    assert result["steady"] > 0.5 * slow * VIT_1B.iteration_seconds  # one rank is slow in every iteration


def test_real_ranks_are_measured_under_every_strategy(tmp_path, monkeypatch):
    """Small ones: the run is what is tested, no time."""
    small = real_cpu.RealMachine("cpu-2", 2, 64, 32, 2, heads=4)
    for module in (real_cpu, cpu_figures):
        monkeypatch.setattr(module, "CPU_2", small)
    measure(("real-cpu",), SMALLEST, "quick", tmp_path, "cpu")
    with (tmp_path / "quick" / "real-cpu.csv").open(newline="") as file:
        rows = {row["strategy"] for row in csv.DictReader(file)}
    assert rows >= {*real_cpu.strategies(), "oracle", "evict", *cpu_figures.LIMITS}
    found = Store(tmp_path / "quick").results
    assert not any(name.startswith("content/") for name in found)  # no trainings at this level
