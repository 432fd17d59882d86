"""Policies and models of the user in a bench."""

import pytest
from heterotp_cli.bench.cpu_figures import real_cpu
from heterotp_cli.bench.drawn import DRAWN
from heterotp_cli.bench.own_rows import with_own_rows
from heterotp_cli.bench.real_cpu import cpu_runs
from heterotp_cli.bench.scenarios import FIGURES, QUICK, gang_runs
from heterotp_cli.errors import BadInput
from support.paper_results import cpu_times, paper_times

POLICY = """
apiVersion: heterotp.io/v1alpha1
kind: BalancingPolicy
metadata: {name: gentle}
spec: {strategy: ZERO, zero: {selection: Rd, gammaMax: 0.3}}
"""
MODEL = "{name: vit-small, width: 1024, heads: 16, rows: 4160, iterationSeconds: 0.2, matmulShare: 0.5}"


@pytest.fixture
def size(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "model.yaml").write_text(MODEL)
    return with_own_rows(QUICK, [tmp_path / "policy.yaml"], [tmp_path / "model.yaml"])


def test_a_policy_is_measured_at_every_slow_down_and_has_its_rows(size):
    steps = {step.name: step for run in gang_runs(size, FIGURES) if run.name == "vit-1b" for step in run.steps}
    assert {f"gentle chi {chi:g}" for chi in size.chis} <= steps.keys()
    assert steps["gentle chi 8"].policy["zero"]["gammaMax"] == 0.3
    results = paper_times(**{f"gentle chi {chi:g}": 1.5 for chi in size.chis})
    for figure in ("dynamic", "one-straggler"):
        rows = [row for row in DRAWN[figure](results, size).rows if row[0] == "gentle"]
        assert len(rows) == len(size.chis) and all(row[2] for row in rows)


def test_a_policy_is_measured_on_real_ranks(size):
    assert "gentle chi 8" in {step.name for run in cpu_runs(size) for step in run.steps}
    assert any(row[2] == "gentle" for row in real_cpu(cpu_times(**{"gentle chi 8": 3.0}), size).rows)


def test_a_model_is_measured_and_has_its_rows(size):
    assert "vit-small" in {run.name for run in gang_runs(size, ["homogeneous"])}
    found = {key.replace("vit-1b", "vit-small"): each for key, each in paper_times().items()}
    figure = DRAWN["homogeneous"](found, size)
    assert any(row[0] == "vit-small" for row in figure.rows)
    assert not any("vit-small" in claim.text for claim in figure.claims)  # the paper says nothing of it


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("policy", POLICY.replace("gammaMax: 0.3", "gammaMax: 3"), r"--policy: .*spec.zero.gammaMax"),
        ("policy", POLICY.replace("gammaMax: 0.3", "fixedRatio: 0.3, ranks: [9]"), r"zero.ranks: 9: .*0 .. 7"),
        ("policy", "{}", r"--policy: .*"),
        ("model", MODEL.replace("0.5", "1.5"), r"--model: .*matmulShare: 1.5"),
        ("model", MODEL.replace("1024", "1000"), r"--model: .*width: 1000: width must be a multiple of 32"),
        ("model", MODEL.replace("vit-small", "vit-1b"), r"--model: .*name: 'vit-1b': is a model of the paper"),
        ("model", "{name: [", r"--model: .*cannot be read"),
    ],
)
def test_bad_files_are_refused_by_field_and_value(tmp_path, option, text, message):
    path = tmp_path / "given.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        with_own_rows(QUICK, [path] if option == "policy" else [], [path] if option == "model" else [])


def test_two_policies_of_one_name_are_refused(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    with pytest.raises(BadInput, match="two policies have the name 'gentle'"):
        with_own_rows(QUICK, [tmp_path / "policy.yaml"] * 2, [])
