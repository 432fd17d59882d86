"""The accuracy study: its cells, the time left, its claims, and what is kept; nothing is trained here."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from heterotp_api.policy import BalancingSettings, policy_problem
from heterotp_cli.bench.study import Study, seconds_left
from heterotp_cli.bench.study_cells import COMPARED, GAMMAS, GANGS, IMPUTATIONS, SELECTIONS, SIZES, cells
from heterotp_cli.bench.study_figures import accuracy, drawn_studies
from heterotp_cli.bench.study_gang import manifest, size_from
from heterotp_cli.bench_accuracy_command import command, spoken
from heterotp_cli.errors import BadInput

SMALL = SIZES["small"]


def test_the_study_has_every_cell_that_the_paper_is_about():
    names = {cell.name for cell in cells(SMALL)}
    for gamma in GAMMAS:
        for selection in SELECTIONS:
            plain = f"homogeneous {selection} {gamma}"
            assert {plain, *(f"{plain} {how}" for how in IMPUTATIONS[1:])} <= names
    assert {"baseline", *(f"gang {name}" for name in ("MIG", "SEMI", "RESHARD", "AUTO", COMPARED))} <= names
    for kind in ("one straggler", "round-robin", "several stragglers"):
        assert {f"{kind} {name}" for name in ("ZERO-Rd", "ZERO-Pri", "ZERO-PriDiffE", "SEMI")} <= names


@pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
def test_every_cell_has_a_file_and_a_policy_of_its_own(size):
    every = cells(size)
    assert len({cell.file for cell in every}) == len({cell.content(size) for cell in every}) == len(every)
    assert {cell.seed for cell in every} == {0, 1, 2}
    for cell in every:
        assert policy_problem(BalancingSettings.model_validate(cell.policy), size.ranks) is None
        assert cell.is_gang or [len(ranks) for ranks in cell.shares] == [size.ranks] * size.epochs


def test_the_full_size_is_the_contracts():
    from heterotp_cli.bench.training import contexts
    from heterotp_trainer.model.vit import VisionTransformer

    size = SIZES["full"]
    sizes = {"image_size": 32, "channels": 3, "classes": 10}
    model = VisionTransformer(contexts(1, size.shape)[0], size.shape, **sizes, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) >= 3_000_000
    assert (32 // size.shape.patch_size) ** 2 + 1 == 65
    assert (size.ranks, size.seeds, size.train, size.data) == (8, 3, None, "shapes-32")


def test_stragglers_prune_what_the_trainer_decides():
    found = {cell.name: cell.shares for cell in cells(SMALL)}
    assert found["one straggler ZERO-Pri"][0] == ((0.875,) * 4, *((0.0,) * 4,) * 7)
    assert found["round-robin ZERO-Pri"][3].index((0.875,) * 4) == 3
    several = found["several stragglers ZERO-Pri"][0]
    assert several[0] > several[1] > several[2] > several[3] > several[4] == (0.0,) * 4
    assert sum(found["one straggler SEMI"][0][0]) < sum(found["one straggler ZERO-PriDiffR"][0][0])


def test_a_gang_is_a_valid_job_with_one_slow_rank(tmp_path):
    import json

    import yaml
    from heterotp_api.load import load_manifest

    cell = next(cell for cell in cells(SMALL) if cell.name == "gang MIG")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump_all(manifest(cell, SMALL)))
    job, slow = load_manifest(path)
    assert (job.spec.process_count, job.spec.balancing.policy.strategy) == (8, "MIG")
    assert (slow.spec.targets.ranks, slow.spec.slowdown) == ([0], 8)
    container = job.spec.worker_groups[0].template["spec"]["containers"][0]
    again, size = size_from(json.loads(container["env"][0]["value"]))
    assert (again.name, again.policy, again.chis) == (cell.name, cell.policy, cell.chis)
    assert size.identity == SMALL.identity


def test_results_of_another_size_or_setting_are_trained_again(tmp_path):
    study = Study(tmp_path, SMALL)
    cell = study.cells[0]
    study.keep(cell, {"accuracy": 0.9, "loss": 0.3, "seconds": 5.0})
    assert study.result(cell)["accuracy"] == 0.9
    assert Study(tmp_path, replace(SMALL, epochs=13)).result(cell) is None
    assert Study(tmp_path, replace(SMALL, path="/elsewhere")).result(cell) is not None
    assert study.result(replace(cell, seed=1)) is None
    assert len(study.results()) == 1


def test_the_time_left_is_that_of_the_cells_so_far():
    alone = [cell for cell in cells(SMALL) if not cell.is_gang]
    gangs = [cell for cell in cells(SMALL) if cell.is_gang]
    assert seconds_left(alone[:4], [], 2) is None
    assert seconds_left(alone[:4], [(alone[5], 10.0), (alone[6], 20.0)], 2) == 30.0
    assert seconds_left([*alone[:4], gangs[0]], [(alone[5], 10.0)], 2) is None
    assert seconds_left([*alone[:4], gangs[0]], [(alone[5], 10.0), (gangs[1], 50.0)], 2) == 70.0
    assert [spoken(each) for each in (12, 600, 3 * 3600 + 120)] == ["12 s", "10 min", "3 h 02 min"]


def results(**accuracies):
    """Three seeds of each cell with these accuracies, spread by less than a point."""
    names = {cell.name for cell in cells(SMALL)}
    found = {}
    for name in names:
        mean = accuracies.get(name.replace(" ", "_").replace(".", "_").replace("-", "_"), 0.9)
        for seed in range(3):
            near = mean + 0.001 * seed
            found[f"trial/{name}/{seed}"] = {"accuracy": near, "loss": 1 - near}
            if name == f"gang {COMPARED}":
                found[f"trial/{name}/{seed}"]["replayed"] = {
                    "firstIterationsLossDifference": 1e-6, "largestLossDifference": 1e-3
                }  # fmt: skip
    return found


def verdicts(found):
    return {claim.text: claim.verdict for claim in accuracy(found, SMALL).claims}


def test_claims_follow_from_the_trainings():
    good = results(
        homogeneous_Pri_0_5_Same=0.92, homogeneous_Pri_0_5=0.91, homogeneous_Rd_0_9=0.5, homogeneous_Pri_0_9=0.7,
        homogeneous_Rd_0_5=0.8, homogeneous_Rd_0_25=0.85, homogeneous_Pri_0_5_Average=0.8,
        one_straggler_ZERO_PriDiffR=0.8, several_stragglers_ZERO_PriDiffR=0.8,
    )  # fmt: skip
    assert set(verdicts(good).values()) == {"holds"}
    bad = {**good, **{key: value for key, value in results(gang_MIG=0.7, round_robin_ZERO_Pri=0.7).items()
                      if key.startswith(("trial/gang MIG", "trial/round-robin ZERO-Pri/"))}}  # fmt: skip
    fails = {text for text, word in verdicts(bad).items() if word == "does not hold"}
    assert fails == {"MIG loses no accuracy, trained by real ranks", "round-robin ZERO-Pri loses little accuracy"}
    for key, each in good.items():
        if "replayed" in each:
            good[key] = {**each, "replayed": {**each["replayed"], "firstIterationsLossDifference": 0.1}}
    same = f"one process trains what a gang of real ranks trains ({COMPARED})"
    assert verdicts(good)[same] == "does not hold"


def test_cells_without_a_result_are_told(tmp_path):
    figure = accuracy({}, SMALL)
    assert {claim.verdict for claim in figure.claims} == {"not measured"}
    assert all("time" in claim.why for claim in figure.claims)
    assert "144 of 144 cells have no result" in figure.notes[1]
    study = Study(tmp_path, SMALL)
    study.keep(study.cells[0], {"accuracy": 0.9, "loss": 0.3, "seconds": 5.0})
    from heterotp_cli.bench.study import stored

    (found,) = drawn_studies(stored(tmp_path))
    assert (found.name, len(found.rows)) == ("accuracy-small", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cell", "nothing"], "--cell: 'nothing'"),
        (["--size", "digits", "--cifar10", "/data"], "--cifar10: size digits"),
    ],
)
def test_wrong_options_are_named(tmp_path, arguments, message):
    found = CliRunner().invoke(command, [*arguments, "--output", str(tmp_path)]).exception
    assert isinstance(found, BadInput) and message in str(found)


def test_the_study_needs_a_gang_of_every_strategy_that_moves_work():
    assert {"MIG", "SEMI", "RESHARD", "AUTO"} <= GANGS.keys()
