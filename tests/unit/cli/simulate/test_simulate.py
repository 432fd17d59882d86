"""heterotp simulate: from a manifest to every strategy's figures, and a trace of slow-downs for a fleet."""

import json
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner
from heterotp_api.load import load_manifest
from heterotp_api.policy import BalancingSettings, Reshard, Zero
from heterotp_cli.errors import BadInput
from heterotp_cli.main import group
from heterotp_cli.simulate.blocks import GATED_FFN, Blocks, Vocabulary, costs_of, grouped_attention, link_of
from heterotp_cli.simulate.machine import machine_of
from heterotp_cli.simulate.scenario import limit_seconds, policies, prospect
from heterotp_cli.simulate.trace import HOUR, Spell, chis_at, end_of, read_trace, replay
from heterotp_cli.simulate_command import parse_chis
from heterotp_trainer.balancing.simulation import Machine
from heterotp_trainer.plans.linears import UnitMoveCost
from heterotp_trainer.plans.unit_plan import USUAL_WEIGHTS, UnitPlan

MANIFEST = """
apiVersion: heterotp.io/v1alpha1
kind: HeteroTPJob
metadata: {name: four}
spec:
  tensorParallelDegree: 4
  workerGroups:
  - {name: a, processesPerPod: 3, relativeSpeed: 1, device: DEVICE, template: {spec: {containers: [{name: trainer}]}}}
  - {name: b, relativeSpeed: SPEED, device: DEVICE, template: {spec: {containers: [{name: trainer}]}}}
  training:
    model: {hiddenSize: 64, depth: 2, heads: 8, patchSize: 4}
    data: {name: synthetic}
    batchSize: 16
    initialShares: SHARES
"""
DEVICE = (
    "{type: emulated, teraflops: 0.001, fixedSeconds: 0.02, linkBytesPerSecond: 1.0e+9, linkLatencySeconds: 0.0001}"
)
HEAD = "job,rank,start_seconds,stop_seconds,slowdown\n"


def manifest(folder, device=DEVICE, shares="even", speed="1"):
    path = folder / "job.yaml"
    path.write_text(MANIFEST.replace("DEVICE", device).replace("SHARES", shares).replace("SPEED", speed))
    return path


def spec_of(path):
    return load_manifest(path)[0].spec


@pytest.fixture
def machine(tmp_path):
    return machine_of(spec_of(manifest(tmp_path)), None, None)


# 5 tokens of 16 images; 6 operations a row and weight, of which a block has 12 x 64 x 64
PRODUCTS = 6 * 80 * 12 * 64**2 * 2 / 4 / 1e9
COLLECTIVE = 0.0001 + 2 * 3 / 4 * 80 * 64 * 4 / 1e9


def test_an_iteration_takes_the_declared_times_of_devices_and_links(machine):
    found = prospect(machine, [1.0] * 4)
    assert found.homogeneous == pytest.approx(PRODUCTS + 0.02 + 8 * COLLECTIVE)
    assert found.limit == pytest.approx(found.homogeneous)
    assert {each.name: each.seconds for each in found.outcomes} == dict.fromkeys(
        ("None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"), pytest.approx(found.homogeneous)
    )


def test_every_strategy_is_compared_with_the_limit(machine):
    found = prospect(machine, [1.0, 1.0, 4.0, 1.0])
    outcomes = {each.name: each for each in found.outcomes}
    rest = 0.02 + 8 * COLLECTIVE
    assert found.untouched == pytest.approx(4 * PRODUCTS + rest)
    assert found.limit == pytest.approx(PRODUCTS * 4 / 3.25 + rest)
    assert outcomes["None"].seconds == pytest.approx(found.untouched)
    for name in ("RESHARD", "AUTO"):
        assert found.limit <= outcomes[name].seconds <= 1.06 * found.limit
        assert outcomes[name].deleted == 0 and outcomes[name].moved_seconds > 0
        assert outcomes[name].paid_back == pytest.approx(
            outcomes[name].moved_seconds / (found.untouched - outcomes[name].seconds)
        )
    assert outcomes["ZERO"].deleted > 0.1 and outcomes["ZERO"].paid_back is None
    assert outcomes["evict"].shares[2] == 0
    assert outcomes["evict"].seconds > outcomes["RESHARD"].seconds
    assert all(each.settled <= 10 for each in found.outcomes)


@pytest.mark.parametrize("shares", ["declared", "probe"])
def test_first_shares_are_those_of_the_session(tmp_path, shares):
    slow = DEVICE.replace("0.001", "0.00025") if shares == "probe" else DEVICE
    path = manifest(tmp_path, shares=shares, speed="0.25")
    text = path.read_text()
    head, _, tail = text.rpartition(DEVICE)
    path.write_text(head + slow + tail)
    unit_plan = machine_of(spec_of(path), None, None).unit_plan
    assert unit_plan.counts("heads") == (3, 3, 2, 0) or unit_plan.counts("heads")[3] <= 1
    assert unit_plan.counts("ffn")[3] == pytest.approx(256 * 0.25 / 3.25, abs=1)


def test_other_numbers_of_ranks_keep_the_proportions(tmp_path):
    machine = machine_of(spec_of(manifest(tmp_path, shares="declared", speed="0.25")), 8, None)
    counts = machine.unit_plan.counts("ffn")
    assert len(counts) == 8 and sum(counts) == 256
    assert counts[6] == counts[7] < counts[0] / 3


def test_the_costs_of_a_run_stand_for_its_devices(tmp_path, machine):
    rows = [
        {
            "fixedSeconds": 0.02 - rank / 1000,
            "unitSeconds": 0.0,
            "waitSeconds": 0.03 + rank,
            "heads": 1,
            "hiddenUnits": 3,
        }
        for rank in range(4)
    ]
    (tmp_path / "cost_calibration.json").write_text(json.dumps(asdict(machine.costs)))
    (tmp_path / "status.json").write_text(json.dumps({"ranks": rows}))
    spec = spec_of(manifest(tmp_path, device="{type: cpu}"))
    measured = machine_of(spec, None, tmp_path)
    assert (measured.costs, measured.unit_plan) == (machine.costs, machine.unit_plan)
    assert (measured.fixed, measured.wait) == (0.02, 0.03)
    slow = [1.0, 1.0, 4.0, 1.0]
    expected, found = (prospect(each, slow) for each in (replace(machine, wait=0.03), measured))
    assert found == expected
    words = run(manifest(tmp_path, device="{type: cpu}"), "--chi", "2=4", "--costs", tmp_path).output
    assert f"nothing done {expected.untouched:.3g} s, limit {expected.limit:.3g} s" in words


def run_of(folder, costs, **owned):
    """Write what a run leaves that had these costs, and rows with these units; return what simulate reads of it."""
    row = {"fixedSeconds": 0.02, "unitSeconds": 0.0, "waitSeconds": 0.03, "heads": 1, "hiddenUnits": 3, **owned}
    body = asdict(costs)
    if not owned:  # an earlier version
        del body["unit_move"]["vocab_bytes"]
    (folder / "cost_calibration.json").write_text(json.dumps(body))
    (folder / "status.json").write_text(json.dumps({"ranks": [row] * costs.ranks}))
    return machine_of(spec_of(manifest(folder, device="{type: cpu}")), None, folder)


def test_a_run_of_an_earlier_version_has_no_vocabulary(tmp_path, machine):
    found = run_of(tmp_path, machine.costs)
    assert (found.costs, found.unit_plan) == (machine.costs, machine.unit_plan)


# -- language models ------------------------------------------------------------------------------------------

SPEED = 1e-9  # seconds of an operation


def language(rows=1000, micro_batches=1, ranks=4):
    """Return two blocks of width 64 and a vocabulary as wide as eight of them, on 80 tokens."""
    plan = UnitPlan.even(ranks, 8, 256, rows)
    vocabulary = Vocabulary(rows, micro_batches, 2 * 64 * 12.0)
    blocks = replace(Blocks.plain(64, 8, 80, 2 * micro_batches, 24.0), vocabulary=vocabulary)
    costs = costs_of(blocks, plan, [SPEED] * ranks, link_of(ranks, 0.0, 1e-9), 4, 16)
    return blocks, Machine(costs, plan, fixed=0.02)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_logits_of_all_tokens_are_a_product_of_their_own(micro_batches):
    blocks, machine = language(micro_batches=micro_batches)
    operations = 6 * 80 * (2 * 12 * 64**2 + 1000 * 64) * micro_batches
    assert blocks.operations(machine.unit_plan) == operations
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(operations * SPEED / 4 + 0.02)
    assert machine.costs.unit_move.vocab_bytes == 2 * 64 * 12


def test_rows_of_the_vocabulary_leave_a_straggler_in_every_simulation():
    _, machine = language()
    products = machine.costs.full_seconds(0)
    found = prospect(machine, [1.0, 1.0, 4.0, 1.0])
    outcomes = {each.name: each for each in found.outcomes}
    assert found.untouched == pytest.approx(4 * products + 0.02)
    assert found.limit == pytest.approx(products * 4 / 3.25 + 0.02, rel=1e-3)
    assert found.limit <= outcomes["RESHARD"].seconds <= 1.06 * found.limit
    assert "vocabulary rows" in outcomes["RESHARD"].reason
    assert outcomes["evict"].shares[2] == 0
    assert sum(outcomes["RESHARD"].shares) == pytest.approx(1)
    assert outcomes["RESHARD"].shares[2] == pytest.approx(0.25 / 3.25, rel=0.25)
    assert outcomes["ZERO"].deleted > 0.1


def test_families_weigh_as_much_as_their_products():
    _, machine = language()
    block, logits = 2 * 64**2, 1000 * 64
    whole = 12 * block + logits
    assert machine.costs.weights == pytest.approx((4 * block / whole, 8 * block / whole, logits / whole))
    assert replace(machine.costs, classes=(), curves=((),) * 4).weights == USUAL_WEIGHTS


def test_grouped_heads_and_gated_networks_have_their_own_linears():
    plan = UnitPlan.even(4, 8, 100, 300)
    linears = (*grouped_attention(2, 12), *GATED_FFN)
    blocks = Blocks(192, linears, 80, 2, 24.0, Vocabulary(300, 1, 1.0))
    weights = 192 * (8 * (2 + 1 + 1 + 2) * 12 + 3 * 100) * 2 + 192 * 300
    assert blocks.operations(plan) == 6 * 80 * weights
    machine = Machine(costs_of(blocks, plan, [SPEED] * 4, link_of(4, 0.0, 1e-9), 4, 16), plan)
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(6 * 80 * weights * SPEED / 4)
    assert machine.costs.unit_move == UnitMoveCost(192 * 24.0 * 6 * 12, 192 * 24.0 * 3, 1.0)


def of_text(folder, model, training="", **options):
    """Return the manifest of a language model on sequences of 10 tokens."""
    path = manifest(folder, **options)
    text = path.read_text().replace("{hiddenSize: 64, depth: 2, heads: 8, patchSize: 4}", model)
    path.write_text(text.replace("synthetic", "pydoc") + f"    sequenceLength: 10\n{training}")
    return path


# weights of a preset's blocks (query, key, value, out; FFN) and of its logits; matrices of the vocabulary
DECODER_WEIGHTS = {
    "gpt-tiny": (2 * (4 * 192 * 192 + 2 * 192 * 768), 257 * 192, 1),
    "llama-tiny": (2 * (2 * 192 * 192 + 2 * 192 * 96 + 3 * 192 * 512), 257 * 192, 2),
    "llama-1b": (16 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192), 257 * 2048, 2),
}
DEPTHS = {"gpt-tiny": 2, "llama-tiny": 2, "llama-1b": 16}
WIDTHS = {"gpt-tiny": 192, "llama-tiny": 192, "llama-1b": 2048}


def around_products(preset, micro_batches, sums_of_a_block):
    """Return the seconds of an iteration that are no products: of the devices' own, and sums over four ranks."""
    rows = 160 // micro_batches
    sums = {WIDTHS[preset]: sums_of_a_block * DEPTHS[preset] + 2, 1: 1, 2: 1}  # by numbers of a token
    ring = sum(count * (0.0001 + 2 * 3 / 4 * rows * each * 4 / 1e9) for each, count in sums.items())
    return 0.02 + micro_batches * ring


@pytest.mark.parametrize("preset", DECODER_WEIGHTS)
def test_a_language_preset_takes_the_declared_times(tmp_path, preset):
    blocks, logits, matrices = DECODER_WEIGHTS[preset]
    model = f"{{preset: {preset}}}"
    machine = machine_of(spec_of(of_text(tmp_path, model)), None, None)
    assert sum(machine.unit_plan.counts("vocab")) == 257
    assert machine.costs.unit_move.vocab_bytes == matrices * WIDTHS[preset] * 12
    # uneven: 257 rows, and all four wait for the rank with one more
    seconds = 6 * 160 * (blocks / 4 + 65 / 257 * logits) / 1e9
    assert machine.costs.full_seconds(0) == pytest.approx(seconds)
    assert prospect(machine, [1.0] * 4).homogeneous == pytest.approx(seconds + around_products(preset, 1, 4))
    options = of_text(tmp_path, model, "    recompute: true\n    accumulate: 2\n")
    again = machine_of(spec_of(options), None, None)
    more = 6 * 160 * (4 / 3 * blocks / 4 + 65 / 257 * logits) / 1e9
    assert prospect(again, [1.0] * 4).homogeneous == pytest.approx(more + around_products(preset, 2, 6))


@pytest.mark.parametrize("preset", DECODER_WEIGHTS)
def test_slow_ranks_own_fewer_rows_of_the_vocabulary(tmp_path, preset):
    machine = machine_of(
        spec_of(of_text(tmp_path, f"{{preset: {preset}}}", shares="declared", speed="0.25")), None, None
    )
    rows = machine.unit_plan.counts("vocab")
    assert rows[3] == pytest.approx(257 * 0.25 / 3.25, abs=1) and sum(rows) == 257
    found = prospect(machine_of(spec_of(of_text(tmp_path, f"{{preset: {preset}}}")), None, None), [1.0, 1.0, 4.0, 1.0])
    outcomes = {each.name: each for each in found.outcomes}
    assert found.limit <= outcomes["RESHARD"].seconds < 0.6 * found.untouched
    assert "vocabulary rows" in outcomes["RESHARD"].reason and outcomes["evict"].shares[2] == 0


def test_a_checkpoint_is_simulated_from_a_run(tmp_path):
    path = of_text(tmp_path, "{huggingface: /models/llama}")
    with pytest.raises(BadInput) as caught:
        machine_of(spec_of(path), None, None)
    where = "spec.training.model.huggingface: /models/llama"
    words = "the sizes of a checkpoint are not read: give --costs RUN_DIR of a run of this job"
    assert str(caught.value) == f"{where}: {words}"


def test_the_costs_of_a_run_contain_its_vocabulary(tmp_path):
    _, machine = language()
    found = run_of(tmp_path, machine.costs, vocabularyRows=250)
    assert (found.costs, found.unit_plan) == (machine.costs, machine.unit_plan)
    embedding_alone = replace(machine.costs, classes=machine.costs.classes[:-1])  # no logits that were measured
    assert run_of(tmp_path, embedding_alone, vocabularyRows=7).unit_plan.counts("vocab") == (7,) * 4


@pytest.mark.parametrize(
    ("given", "expected"),
    [((), [1, 1, 1, 1]), (("2=4",), [1, 1, 4, 1]), (("8,6,4",), [8, 6, 4, 1]), (("1=2", "3=5"), [1, 2, 1, 5])],
    ids=str,
)
def test_slow_downs_are_given_by_rank_or_in_order(given, expected):
    assert parse_chis(given, 4) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("4=2", "the job has ranks 0 .. 3"),
        ("1,1,1,1,2", "the job has ranks 0 .. 3"),
        ("1=0.5", "a slow-down is 1 .. 1000"),
        ("nan", "a slow-down is 1 .. 1000"),
        ("two", "must be RANK=CHI, or slow-downs of ranks 0, 1, ...: 8,6,4,2"),
        ("1=", "must be RANK=CHI, or slow-downs of ranks 0, 1, ...: 8,6,4,2"),
    ],
)
def test_a_wrong_slow_down_is_named(given, words):
    with pytest.raises(BadInput, match=f"--chi: '{given}': "[:8]) as caught:
        parse_chis([given], 4)
    assert str(caught.value) == f"--chi: '{given}': {words}"


# -- traces ---------------------------------------------------------------------------------------------------


def trace(folder, *lines, head=HEAD):
    path = folder / "trace.csv"
    path.write_text(head + "\n".join(lines) + "\n")
    return path


def test_a_trace_is_read_by_job(tmp_path):
    jobs = read_trace(trace(tmp_path, "a,2,10,20,4", "b,0,0,,2", "a,2,15,30,1.5"), 4)
    assert jobs == {
        "a": [Spell("a", 2, 10, 20, 4), Spell("a", 2, 15, 30, 1.5)],
        "b": [Spell("b", 0, 0, float("inf"), 2)],
    }
    assert [chis_at(jobs["a"], 4, now)[2] for now in (0, 10, 15, 20, 30)] == [1, 4, 6, 1.5, 1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,4,0,1,2", "line 2: rank: '4': the job has ranks 0 .. 3"),
        ("a,1.5,0,1,2", "line 2: rank: '1.5': the job has ranks 0 .. 3"),
        ("a,x,0,1,2", "line 2: rank: 'x': must be a number >= 0"),
        ("a,1,5,4,2", "line 2: stop_seconds: '4': must be a number >= 5"),
        ("a,1,-1,4,2", "line 2: start_seconds: '-1': must be a number >= 0"),
        ("a,1,0,4,0.5", "line 2: slowdown: '0.5': must be a number >= 1"),
        ("a,1,0,4,", "line 2: slowdown: '': must be a number >= 1"),
        ("a,1,0,4,2000", "line 2: slowdown: 2000: at most 1000"),
        ("a,inf,0,4,2", "line 2: rank: 'inf': must be a number >= 0"),
        ("a,1,inf,inf,2", "line 2: start_seconds: 'inf': must be a number >= 0"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(tmp_path, line, words):
    with pytest.raises(BadInput) as caught:
        read_trace(trace(tmp_path, line), 4)
    assert str(caught.value) == f"{tmp_path / 'trace.csv'}: {words}"


def test_a_trace_without_a_column_without_lines_or_without_a_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="line 1: column stop_seconds is missing"):
        read_trace(trace(tmp_path, "a,1,0,2", head="job,rank,start_seconds,slowdown\n"), 4)
    with pytest.raises(BadInput, match="nothing to replay"):
        read_trace(trace(tmp_path), 4)
    with pytest.raises(BadInput, match="No such file"):
        read_trace(tmp_path / "nowhere.csv", 4)


def test_a_replay_is_as_long_as_its_iterations(machine):
    policy = BalancingSettings(strategy="None")
    second = 1 / prospect(machine, [1.0] * 4).homogeneous
    alone = replay(machine, policy, "a", [], 100.0)
    assert alone.iterations == pytest.approx(100 * second, abs=1)
    slow = replay(machine, policy, "a", [Spell("a", 1, 20.0, 60.0, 2.0)], 100.0)
    doubled = 1 / limit_seconds(machine, [1.0] * 4), 1 / (2 * PRODUCTS + 0.02 + 8 * COLLECTIVE)
    assert slow.iterations == pytest.approx(60 * doubled[0] + 40 * doubled[1], rel=0.01)
    balanced = replay(machine, BalancingSettings(strategy="AUTO"), "a", [Spell("a", 1, 20.0, 60.0, 2.0)], 100.0)
    assert slow.iterations < balanced.iterations < alone.iterations
    assert balanced.moves == 2 and balanced.deleted == 0


def test_a_trace_is_replayed_past_a_slow_down_that_stays():
    spells = [Spell("a", 1, 20.0, 60.0, 2.0), Spell("b", 1, 10.0, float("inf"), 2.0)]
    assert end_of({"a": spells[:1]}) == 60
    assert end_of({"a": spells[:1], "b": spells[1:]}) == 60 + HOUR
    assert end_of({"c": [Spell("c", 0, 0.0, 0.0, 1.0)]}) == HOUR


def test_a_move_that_takes_no_time_is_a_move(tmp_path):
    bare = machine_of(spec_of(manifest(tmp_path, device="{type: emulated, teraflops: 0.001}")), None, None)
    found = {each.name: each for each in prospect(bare, [1.0, 1.0, 4.0, 1.0]).outcomes}
    assert found["RESHARD"].moved and found["RESHARD"].moved_seconds == 0 and found["RESHARD"].paid_back == 0
    assert not found["None"].moved


def test_a_forward_that_is_done_again_takes_its_time(tmp_path):
    path = manifest(tmp_path)
    path.write_text(path.read_text().replace("batchSize: 16", "batchSize: 16\n    recompute: true"))
    again = prospect(machine_of(spec_of(path), None, None), [1.0] * 4)
    assert again.homogeneous == pytest.approx(4 / 3 * PRODUCTS + 0.02 + 12 * COLLECTIVE)


def test_the_policy_of_the_job_counts_but_for_its_strategy():
    job = BalancingSettings(
        strategy="AUTO", window=9, max_pruned_share=0.1, zero=Zero(gamma_max=0.5), reshard=Reshard(min_units=32)
    )
    found = policies([1.0, 4.0], job)
    assert {each.window for name, each in found.items() if name != "evict"} == {9}
    assert found["ZERO"].zero == found["AUTO"].zero == job.zero and found["AUTO"].reshard == job.reshard
    assert found["RESHARD"].reshard == job.reshard and found["RESHARD"].zero is None
    assert [found[name].max_pruned_share for name in ("ZERO", "SEMI", "AUTO")] == [0.1] * 3
    asked = policies([1.0, 4.0], job, 0.3)
    assert [asked[name].max_pruned_share for name in ("ZERO", "SEMI", "AUTO")] == [0.3, 0.3, 0.1]
    fixed = BalancingSettings(strategy="ZERO", zero=Zero(fixed_ratio=0.5, ranks=[0]))
    assert policies([1.0, 4.0], fixed)["ZERO"].zero is None
    assert {each.pruned_share_limit for each in policies([1.0]).values()} == {0.0, 1.0}


def test_costs_of_another_run_or_version_are_refused(tmp_path, machine):
    spec = spec_of(manifest(tmp_path))
    row = {"fixedSeconds": 0, "unitSeconds": 0, "waitSeconds": 0, "heads": 1, "hiddenUnits": 3}
    (tmp_path / "status.json").write_text(json.dumps({"ranks": [row] * 8}))
    (tmp_path / "cost_calibration.json").write_text(json.dumps({"classes": []}))
    with pytest.raises(
        BadInput, match=r"--costs: .*: cost_calibration.json is of another version: no 'link': train again"
    ):
        machine_of(spec, None, tmp_path)
    other = machine_of(spec, 8, None)
    (tmp_path / "cost_calibration.json").write_text(json.dumps(asdict(other.costs)))
    with pytest.raises(BadInput, match=r"--costs: .*: a run of 8 ranks; the manifest has 4"):
        machine_of(spec, None, tmp_path)


# -- the command ----------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(group, ["simulate", *map(str, arguments)], catch_exceptions=True)


def test_the_command_shows_a_table_and_draws(tmp_path):
    done = run(manifest(tmp_path), "--chi", "2=4", "--picture", tmp_path / "p.png")
    lines = done.output.splitlines()
    assert lines[0] == "four, 4 ranks: rank 2 4x slower (simulated, nothing was run)"
    assert [line.split()[0] for line in lines[4:11]] == ["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO", "evict"]
    assert any(line.startswith("RESHARD: rank 2 is 4.0x slower than expected: ") for line in lines)
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_the_command_replays_a_fleet(tmp_path):
    path = trace(tmp_path, "a,2,10,20,4", "b,0,0,,2")
    done = run(manifest(tmp_path), "--trace", path, "--seconds", 60, "--picture", tmp_path / "p.png")
    lines = done.output.splitlines()
    assert lines[0] == "2 jobs of four, 4 ranks, 60 s each (simulated, nothing was run)"
    mean = {line.split()[0]: float(line.split()[1].rstrip(",")) for line in lines[2:8]}
    assert mean["None"] < mean["RESHARD"] == mean["AUTO"] < 1
    assert (tmp_path / "p.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("device", "options", "words"),
    [
        ("{type: cpu}", [], "rank 0: device.type: 'cpu': its speed is not known here: give --costs RUN_DIR"),
        (
            DEVICE,
            ["--costs", "/nowhere"],
            "--costs: /nowhere: no run directory with cost_calibration.json and status.json",
        ),
        (
            DEVICE,
            ["--trace", "/nowhere", "--chi", "1=2"],
            "--chi: with --trace: the trace holds the slow-downs: give one of them",
        ),
        (DEVICE, ["--ranks", "8", "--costs", "/nowhere"], "--ranks: 8: leave it out with --costs"),
        (DEVICE, ["--seconds", "inf"], "--seconds: inf: must be a finite number"),
        (DEVICE, ["--loss", "nan"], "--loss: nan: must be a finite number"),
        (DEVICE, ["--picture", "/nowhere/p.png"], "--picture: '/nowhere/p.png': there is no directory /nowhere"),
        (DEVICE, ["--picture", "p.pdf"], "--picture: 'p.pdf': must end in .png"),
    ],
)
def test_a_job_that_cannot_be_simulated_is_refused(tmp_path, device, options, words):
    done = run(manifest(tmp_path, device=device), *options)
    assert isinstance(done.exception, BadInput)
    assert str(done.exception).startswith(words)
