"""The command line: instant help, verdicts, one-line errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from heterotp_api.load import parse_object
from heterotp_api.names import GROUP
from heterotp_cli.errors import BadInput
from heterotp_cli.main import group
from heterotp_cli.registry import VERBS
from heterotp_cli.run_command import held_checkpoints, local_problem, read_manifest
from heterotp_cli.workdir import prepare, write_json
from support.cli_process import run_cli
from support.manifest_table import TABLE, manifest

HEAVY = ("torch", "pydantic", "matplotlib", "rich", "numpy", "yaml", "kopf", "heterotp_api", "requests")
EXAMPLES = Path(__file__).parents[3] / "examples"


def test_help_lists_all_commands_and_imports_nothing_heavy():
    code = (
        "import sys; from heterotp_cli.main import group\n"
        "try: group(['--help'])\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    assert all(verb.name in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_command_exists_and_helps(verb):
    result = CliRunner().invoke(group, [verb.name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: group {verb.name} [OPTIONS] ")
    assert not verb.on_jobs or "RUN_DIR" in result.output


def write(path, *bodies):
    path.write_text(yaml.safe_dump_all(bodies))
    return path


@pytest.mark.parametrize("example", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid(example):
    result = CliRunner().invoke(group, ["validate", str(example)])
    assert result.exit_code == 0, result.output
    assert f"ok {example}: " in result.output
    foreign = [body for body in yaml.safe_load_all(example.read_text()) if not body["apiVersion"].startswith(GROUP)]
    assert result.output.count(f"not judged {example}: ") == len(foreign)


def test_validate_judges_all_files_and_fails_for_one_bad(tmp_path):
    good = write(tmp_path / "good.yaml", *(manifest(case) for case in TABLE["good"][:2]))
    bad = write(tmp_path / "bad.yaml", manifest(TABLE["bad"][0]))
    result = CliRunner().invoke(group, ["validate", str(bad), str(good)])
    assert result.exit_code == 2
    assert result.stdout.count("ok ") == 2
    assert result.stderr.splitlines() == [result.stderr.strip()]
    assert result.stderr.startswith(f"{bad}: spec.tensorParallelDegree: ")


def test_bad_manifest_is_one_line_and_exit_2(tmp_path):
    bad = write(tmp_path / "bad.yaml", manifest(TABLE["bad"][0]))
    done = run_cli("run", bad, "--workdir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{bad}: spec.tensorParallelDegree: ")
    assert not (tmp_path / "run").exists()


def test_run_needs_exactly_one_job(tmp_path):
    two = write(tmp_path / "two.yaml", manifest(TABLE["good"][0]), manifest(TABLE["good"][0]))
    with pytest.raises(BadInput, match="2 HeteroTPJob objects: a run needs exactly one"):
        read_manifest(two)


MISSING = pytest.mark.parametrize("name", ["no", "a" * 300 + "no"], ids=["short", "longer than names may be"])


@MISSING
def test_missing_data_path_is_named(tmp_path, name):
    body = manifest({"patch": {"spec": {"training": {"data": {"name": "cifar10", "path": str(tmp_path / name)}}}}})
    with pytest.raises(BadInput, match=r"spec\.training\.data\.path: .*no' does not exist: name"):
        read_manifest(write(tmp_path / "job.yaml", body))


@MISSING
def test_a_missing_checkpoint_to_fine_tune_is_named(tmp_path, name):
    training = {"model": {"huggingface": str(tmp_path / name)}, "data": {"name": "pydoc"}}
    body = manifest({"patch": {"spec": {"training": training}}})
    with pytest.raises(BadInput, match=r"spec\.training\.model\.huggingface: .*no' does not exist: name the directory"):
        read_manifest(write(tmp_path / "job.yaml", body))


def test_a_job_without_training_needs_a_command(tmp_path):
    groups = [{"name": "a", "pods": 4, "template": {"spec": {"containers": [{"name": "trainer"}]}}}]
    body = manifest({"patch": {"spec": {"training": None, "workerGroups": groups}}})
    with pytest.raises(
        BadInput, match=r"job\.yaml: spec\.workerGroups\[0\]\.template\.spec\.containers: without training"
    ):
        read_manifest(write(tmp_path / "job.yaml", body))


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": 3}},
        {"spec": {"containers": [3]}},
        {"spec": {"containers": [{"name": "trainer", "env": [{"value": "x"}]}]}},
        {"spec": {"containers": [{"name": "trainer", "env": [3]}]}},
        {"spec": {"containers": [{"name": "trainer", "command": 7}]}},
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", ["run", "validate"])
def test_a_template_of_the_wrong_shape_is_one_line(tmp_path, template, verb):
    groups = [{"name": "a", "pods": 4, "template": template}]
    job = write(tmp_path / "job.yaml", manifest({"patch": {"spec": {"workerGroups": groups}}}))
    done = run_cli(verb, job)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"{job}: spec.workerGroups[0].template.spec.containers" in done.stderr


def attacked(tmp_path, **spec):
    return write(tmp_path / "job.yaml", manifest({"patch": {"spec": spec}}))


@pytest.mark.timeout(60)  # the anchor bomb took all memory
@pytest.mark.parametrize("verb", ["run", "validate", "simulate"])
def test_an_anchor_bomb_is_one_line(tmp_path, verb):
    bomb = tmp_path / "bomb.yaml"
    lines = [f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]" for number in range(1, 60)]
    bomb.write_text("\n".join(["a0: &a0 x", *lines]))
    done = run_cli(verb, bomb)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"{bomb}: holds more than 20000 values")


@pytest.mark.parametrize("verb", ["run", "validate", "simulate"])
def test_a_job_that_would_fail_later_is_one_line(tmp_path, verb):
    groups = [{"name": "a", "pods": 4, "template": {"spec": {"containers": [{"name": "trainer"}] * 2}}}]
    job = attacked(tmp_path, workerGroups=groups)
    done = run_cli(verb, job)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"{job}: spec.workerGroups[0].template.spec.containers[1].name: 'trainer' must")


def test_validate_asks_for_a_volume_at_the_checkpoint_path_and_run_does_not(tmp_path):
    job = attacked(tmp_path, checkpoint={"path": str(tmp_path / "kept")})
    result = CliRunner().invoke(group, ["validate", str(job)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{job}: spec.checkpoint.path: '{tmp_path}/kept' lies in no volume of rank 0's pod")
    assert read_manifest(job).job.spec.checkpoint.path == f"{tmp_path}/kept"


@pytest.mark.parametrize("verb", ["run", "validate"])
def test_a_policy_that_an_elastic_gang_cannot_have_is_refused(tmp_path, verb):
    groups = [{"name": "a", "pods": 4, "device": {"type": "cpu"}}]
    elastic, inline = {"elastic": {"minRanks": 2}}, {"policy": {"strategy": "SEMI"}}
    job = attacked(tmp_path, workerGroups=groups, runPolicy=elastic, balancing=inline)
    done = run_cli(verb, job)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"{job}: strategy: SEMI: prunes columns, which runPolicy.elastic does not support")
    job = attacked(tmp_path, workerGroups=groups, balancing=inline)
    assert CliRunner().invoke(group, ["validate", str(job)]).exit_code == 0


def test_a_generated_name_is_validated_and_run_under_a_name_of_the_same_length(tmp_path):
    job = write(tmp_path / "job.yaml", manifest({"patch": {"metadata": {"name": None, "generateName": "demo-"}}}))
    result = CliRunner().invoke(group, ["validate", str(job)])
    assert (result.exit_code, result.output) == (0, f"ok {job}: HeteroTPJob default/demo-*\n")
    assert read_manifest(job).job.metadata.name == "demo-local"


def test_a_given_name_wins_over_a_generated_one(tmp_path):
    job = write(tmp_path / "job.yaml", manifest({"patch": {"metadata": {"generateName": "other-"}}}))
    result = CliRunner().invoke(group, ["validate", str(job)])
    assert (result.exit_code, result.output) == (0, f"ok {job}: HeteroTPJob default/demo\n")


def test_a_bad_value_of_several_lines_is_shown_in_one(tmp_path):
    job = write(tmp_path / "job.yaml", manifest(TABLE["good"][0]))
    done = run_cli("run", job, "--resume", "--workdir", tmp_path / "a\nb")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a\\nb: --resume: there is no run to resume" in done.stderr


@pytest.mark.parametrize("left", ["step-000000004", "."], ids=["checkpoints", "only their owner"])
def test_a_run_does_not_start_over_beside_its_own_checkpoints(tmp_path, left):
    body = manifest({"patch": {"spec": {"checkpoint": {"path": str(tmp_path / "kept")}}}})
    (tmp_path / "kept" / left).mkdir(parents=True)
    (tmp_path / "kept" / "owner.json").write_text('{"attempt": 2}')
    job = write(tmp_path / "job.yaml", body)
    for options in ([], ["--fresh"]):
        done = run_cli("run", job, *options, "--workdir", tmp_path / "run")
        assert done.returncode == 2
        assert f"spec.checkpoint.path: '{tmp_path}/kept' holds checkpoints of an earlier run: remove" in done.stderr


def test_checkpoints_of_an_earlier_run_are_adopted_where_the_manifest_says_so(tmp_path):
    (tmp_path / "step-000000004").mkdir()
    for adopt, refused in ((None, True), (False, True), (True, False)):
        checkpoint = {"path": str(tmp_path)} | ({} if adopt is None else {"adopt": adopt})
        job = parse_object(manifest({"patch": {"spec": {"checkpoint": checkpoint}}}))
        assert (held_checkpoints(job) is not None) == refused


def test_missing_gpus_are_an_error_before_an_earlier_run_is_discarded(tmp_path):
    groups = [{"name": "a", "pods": 4, "device": {"type": "cuda"}}]
    job = write(tmp_path / "job.yaml", manifest({"patch": {"spec": {"workerGroups": groups}}}))
    (tmp_path / "run").mkdir()
    prepare(tmp_path / "run", "demo", 1, {})
    write_json(tmp_path / "run" / "report.json", {"state": "succeeded", "iterations": 9})
    none = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run_cli("run", job, "--fresh", "--workdir", tmp_path / "run", env=none)
    assert done.returncode == 2
    assert f"{job}: spec.workerGroups: device.type cuda on 4 ranks: this machine has 0 GPUs" in done.stderr
    assert (tmp_path / "run" / "report.json").exists()


def test_a_run_writes_its_worker_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("heterotp_cli.run_command.run_attempt", lambda *given: None)
    job = write(tmp_path / "job.yaml", manifest(TABLE["good"][0]))
    assert CliRunner().invoke(group, ["run", str(job), "--workdir", str(tmp_path / "run")]).exit_code == 0
    noted = json.loads((tmp_path / "run" / "run.json").read_text())["workerGroups"]
    assert [(each["name"], each["pods"], each["processesPerPod"]) for each in noted] == [("fast", 1, 3), ("slow", 1, 1)]
    assert all("template" not in each for each in noted)


def test_a_good_job_has_no_local_problem(tmp_path):
    chosen = read_manifest(write(tmp_path / "job.yaml", manifest(TABLE["good"][0])))
    assert local_problem(chosen.job) is None
    assert chosen.control.balancing.strategy == "AUTO"


def test_torch_absent_is_one_line_and_exit_1(tmp_path):
    job = write(tmp_path / "job.yaml", manifest(TABLE["good"][0]))
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        f"sys.argv = ['heterotp', 'run', {str(job)!r}, '--workdir', {str(tmp_path / 'run')!r}]\n"
        "from heterotp_cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "torch is not installed: pip install 'heterotp[trainer,cli]'\n"
