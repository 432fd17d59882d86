"""heterotp simulate: from a manifest to every strategy's figures, and a trace of slow-downs for a fleet."""

import json
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner
from heterotp_api.policy import BalancingSettings
from heterotp_api.strategy_blocks import Reshard, Zero
from heterotp_cli.errors import BadInput
from heterotp_cli.main import group
from heterotp_cli.simulate.machine import machine_of
from heterotp_cli.simulate.scenario import limit_seconds, policies, prospect
from heterotp_cli.simulate.trace import HOUR, Spell, chis_at, end_of, read_trace, replay
from heterotp_cli.simulate_command import parse_chis
from support.simulated_job import DEVICE, manifest, run_of, spec_of

HEAD = "job,rank,start_seconds,stop_seconds,slowdown\n"


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


def test_a_run_of_an_earlier_version_has_no_vocabulary(tmp_path, machine):
    found = run_of(tmp_path, machine.costs)
    assert (found.costs, found.unit_plan) == (machine.costs, machine.unit_plan)


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
    done = run(manifest(tmp_path), "--trace", path, "--seconds", 24, "--picture", tmp_path / "p.png")
    lines = done.output.splitlines()
    assert lines[0] == "2 jobs of four, 4 ranks, 24 s each (simulated, nothing was run)"
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
