"""From options to injections and policies, or one line of what is wrong."""

import shlex

import pytest
from heterotp_api.policy import BalancingSettings
from heterotp_cli.errors import BadInput
from heterotp_cli.verbs import change_requests
from heterotp_cli.verbs.view import places_of

PLACES = places_of([{"name": "fast", "processesPerPod": 3}, {"name": "slow"}])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (([3], [], []), "demo-rank-3"),
        (([3, 1, 3], [], []), "demo-ranks-1-3"),
        (([], ["slow"], []), "demo-group-slow"),
        (([], ["slow", "fast"], []), "demo-groups-fast-slow"),
        (([], [], ["Worker_1.example"]), "demo-node-worker-1.example"),
    ],
)
def test_the_same_targets_have_the_same_name(given, name):
    assert change_requests.injection_name("demo", change_requests.rank_selector(*given)) == name


def test_a_long_name_is_cut_and_stays_its_own():
    names = [
        change_requests.injection_name("demo", change_requests.rank_selector(range(count), [], []))
        for count in (200, 201)
    ]
    assert [len(name) <= 253 for name in names] == [True, True]
    assert names[0] != names[1]


def test_one_kind_of_target():
    with pytest.raises(BadInput, match=r"^--rank 3 --group slow: give one kind of --rank, --group and --node$"):
        change_requests.rank_selector([3], ["slow"], [])


def test_an_injection_has_only_the_requested_fields():
    made = change_requests.injection(
        "demo", "team", change_requests.rank_selector([3], [], []), change_requests.slowdown_request(4.0, "10m", "spin")
    )
    assert made.dump()["metadata"] == {
        "name": "demo-rank-3",
        "namespace": "team",
        "labels": {"app.kubernetes.io/created-by": "kubectl-heterotp"},
    }
    assert made.spec.model_dump(exclude_unset=True, by_alias=True) == {
        "jobRef": {"name": "demo"},
        "targets": {"ranks": [3]},
        "slowdown": 4.0,
        "mode": "spin",
        "stop": {"seconds": 600.0},
    }


@pytest.mark.parametrize(
    ("ranks", "chi", "length", "mode", "line"),
    [
        (
            [3],
            None,
            None,
            None,
            "--chi: is required, e.g. --chi 4 for four times slower; --off takes an injection back",
        ),
        ([3], 0.5, None, None, "--chi: 0.5 input should be greater than or equal to 1"),
        ([3], 1001.0, None, None, "--chi: 1001.0 input should be less than or equal to 1000"),
        ([3], float("nan"), None, None, "--chi: nan must be a finite number"),
        ([3], 4.0, "10x", None, "--for: '10x' must be longer than 0, e.g. 10m, 90s, 1h30m or plain seconds"),
        ([3], 4.0, None, "nap", "--mode: 'nap' input should be 'sleep', 'spin' or 'repeat'"),
        ([-1], 4.0, None, None, "--rank: -1 input should be greater than or equal to 0"),
        ([], 4.0, None, None, "--rank: is required, e.g. --rank 3 or --group NAME"),
    ],
)
def test_a_wrong_option_is_one_line(ranks, chi, length, mode, line):
    with pytest.raises(BadInput) as error:
        change_requests.injection(
            "demo",
            "default",
            change_requests.rank_selector(ranks, [], []),
            change_requests.slowdown_request(chi, length, mode),
        )
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (([9], [], []), "--rank: 9: the job has ranks 0 .. 3"),
        (([], ["new"], []), "--group: 'new': the job has the groups fast, slow"),
        (([], [], ["n9"]), "--node: n9: no rank of the job runs there"),
    ],
)
def test_a_target_that_the_job_does_not_have(given, line):
    made = change_requests.injection(
        "demo", "default", change_requests.rank_selector(*given), change_requests.slowdown_request(4.0, None, None)
    )
    with pytest.raises(BadInput) as error:
        change_requests.target_ranks(made.spec.targets, PLACES, {0: "n0"})
    assert str(error.value) == line


def test_targets_of_the_job_are_its_ranks():
    made = change_requests.injection(
        "demo",
        "default",
        change_requests.rank_selector([], ["fast"], []),
        change_requests.slowdown_request(4.0, None, None),
    )
    assert change_requests.target_ranks(made.spec.targets, PLACES, None) == [0, 1, 2]


def test_a_policy_has_only_the_requested_fields():
    request = change_requests.policy_request(
        "semi", 0.1, ("semi.timeTolerance=1e-3", "window=7", "semi.zero.selection=Rd"), 4
    )
    assert request.given == {
        "strategy": "SEMI",
        "maxPrunedShare": 0.1,
        "semi": {"timeTolerance": 0.001, "zero": {"selection": "Rd"}},
        "window": 7,
    }
    assert (
        request.description() == "SEMI (maxPrunedShare 0.1, semi.timeTolerance 0.001, semi.zero.selection Rd, window 7)"
    )
    assert change_requests.policy_request("none", None, (), 4).description() == "None"


@pytest.mark.parametrize(
    ("strategy", "share", "sets", "line"),
    [
        ("FASTER", None, (), "--strategy: 'FASTER' input should be 'None', 'ZERO', 'MIG', 'SEMI', 'RESHARD' or 'AUTO'"),
        ("MIG", None, ("zero.selection=Rd",), "--set zero: zero belongs to strategy ZERO or AUTO"),
        ("ZERO", 2.0, (), "--max-pruned-share: 2.0 input should be less than or equal to 1"),
        ("ZERO", float("nan"), (), "--max-pruned-share: nan input should be less than or equal to 1"),
        ("ZERO", None, ("maxPrunedShare=2",), "--set maxPrunedShare: 2 input should be less than or equal to 1"),
        (
            "MIG",
            0.1,
            (),
            "--max-pruned-share: 0.1 maxPrunedShare belongs to strategies ZERO, SEMI, AUTO, RESHARD: the others delete "
            "nothing",
        ),
        (
            "ZERO",
            None,
            ("zero.selektion=Rd",),
            "--set zero.selektion: is not a known field; did you mean zero.selection?",
        ),
        ("ZERO", None, ("selection=Rd",), "--set selection: is not a known field; did you mean zero.selection?"),
        ("ZERO", None, ("grain=0.5",), "--set grain: is not a known field"),
        (
            "ZERO",
            None,
            ("returnToEven=true",),
            "--set returnToEven: is not a known field; did you mean reshard.returnToEven?",
        ),
        ("ZERO", None, ("windw=3",), "--set windw: is not a known field; did you mean window?"),
        (
            "ZERO",
            None,
            ("zero.selection=Best",),
            "--set zero.selection: 'Best' input should be 'Rd', 'Pri', 'PriDiffE' or 'PriDiffR'",
        ),
        ("ZERO", None, ("window=ten",), "--set window: 'ten' input should be a valid integer"),
        ("ZERO", None, ("enter=.nan",), "--set enter: .nan must be a finite number"),
        ("ZERO", None, ("enter=0.01",), "--set exit: 0.05 exit must be below enter"),
        ("ZERO", None, ("window",), "--set: 'window' must be KEY=VALUE, e.g. window=10 or zero.selection=Rd"),
        (
            "ZERO",
            None,
            ("zero..alpha=1",),
            "--set: 'zero..alpha=1' must be KEY=VALUE, e.g. window=10 or zero.selection=Rd",
        ),
        ("ZERO", None, ("window=1", "window=2"), "--set window: '2' was given before: give it once"),
        (
            "ZERO",
            None,
            ("zero=1", "zero.alpha=1"),
            "--set zero.alpha: '1' lies below a value that was given, too: give one of them",
        ),
        ("ZERO", None, ("zero={",), "--set zero: '{' is not YAML"),
        ("ZERO", None, (f"zero={'[' * 9999}",), f"--set zero: '{'[' * 56}... is not YAML"),
        ("ZERO", None, ("zero=&a [*a]",), "--set zero: '&a [*a]' is not YAML"),
        ("ZERO", None, (f"window={'9' * 5000}",), f"--set window: '{'9' * 56}... is not YAML"),
        ("ZERO", None, ("strategy=MIG",), "--set strategy: 'MIG' is what --strategy is for"),
        ("ZERO", None, ("zero.fixedRatio=0.5", "zero.ranks=[9]"), "--set zero.ranks: 9: the job has ranks 0 .. 3"),
    ],
)
def test_a_wrong_policy_is_one_line(strategy, share, sets, line):
    with pytest.raises(BadInput) as error:
        change_requests.policy_request(strategy, share, sets, 4)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"strategy": "SEMI"}, "--strategy SEMI"),
        ({"strategy": "AUTO", "maxPrunedShare": 0.0}, "--strategy AUTO --set maxPrunedShare=0.0"),
        (
            {"strategy": "ZERO", "window": 7, "zero": {"selection": "Rd", "ranks": [0, 3], "fixedRatio": 0.5}},
            "--strategy ZERO --set window=7 --set zero.selection=Rd --set zero.fixedRatio=0.5 "
            "--set 'zero.ranks=[0, 3]'",
        ),
    ],
)
def test_options_of_settings_give_the_same_settings(settings, options):
    assert change_requests.options_of(BalancingSettings.model_validate(settings)) == options
    words = shlex.split(options)
    again = change_requests.policy_request(words[1], None, tuple(words[3::2]), 4)
    assert again.settings == BalancingSettings.model_validate(settings)
