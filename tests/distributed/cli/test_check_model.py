"""`heterotp check-model`: what it says of a script and of a directory, and of both where they are wrong."""

import json

import pytest
from support.cli_process import run_cli
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "checked_decoder.py"
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {"model_type": "llama", **SIZES, "num_key_value_heads": 2, "vocab_size": 40}


def directory(place, **config):
    (place / "config.json").write_text(json.dumps(config))
    return place


def refused(*arguments):
    """Return the one line of a call that is refused."""
    done = run_cli("check-model", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert done.stdout == ""
    return line


def test_a_directory_without_weights_is_checked(tmp_path):
    done = run_cli("check-model", directory(tmp_path, **LLAMA))
    assert (done.returncode, done.stderr) == (0, "")
    said, _, error = done.stdout.partition(" within ")
    assert said == "LlamaForCausalLM: the outputs of 4 row-parallel layers equal those of the unsharded model"
    assert error.endswith(" on 3 ranks\n") and float(error.split()[0]) < 1e-10


def test_a_script_is_run_with_its_arguments_up_to_parallelize():
    done = run_cli("check-model", SCRIPT, "--ranks", "2", "--", "--what", "right")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Decoder: the outputs of 4 row-parallel layers equal") and "on 2 ranks" in done.stdout


def test_what_cannot_be_cut_is_named():
    line = refused(SCRIPT, "--ranks", "2", "--", "--what", "a mean over hidden units")
    assert line.startswith("check: layers.0.down: it differs from the unsharded model's by ")
    assert f"({SCRIPT}:" in line


MISTAKES = {
    "an error of its own": f"ValueError: invalid literal for int() with base 10: 'three' ({SCRIPT}:",
    "watch alone": "check-model: session.watch before heterotp.parallelize: no model is there to check",
    "nothing": f"{SCRIPT}: it ended without a call of heterotp.parallelize",
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_script_that_reaches_no_check_ends_with_one_line(what):
    assert refused(SCRIPT, "--ranks", "1", "--", "--what", what).startswith(MISTAKES[what])


def test_a_script_that_refuses_its_arguments_is_quoted():
    line = refused(SCRIPT, "--ranks", "1")
    assert line == "checked_decoder.py: error: the following arguments are required: --what"


def test_a_file_that_is_no_program_is_named(tmp_path):
    (tmp_path / "words.py").write_text("these are words\n")
    assert refused(tmp_path / "words.py", "--ranks", "1") == "SyntaxError: invalid syntax (words.py, line 1)"


def test_a_model_that_no_plan_covers_is_named(tmp_path):
    line = refused(directory(tmp_path, model_type="opt", **SIZES, ffn_dim=48), "--ranks", "1")
    assert line.startswith("parallelize: no plan covers opt: ") and "give one, e.g. plan=" in line


def test_a_path_that_cannot_be_checked_is_named(tmp_path):
    absent, help_ = tmp_path / "absent", "(see heterotp check-model --help)"
    assert refused(absent) == (
        f"heterotp check-model: invalid value for 'SCRIPT|DIRECTORY': Path '{absent}' does not exist {help_}"
    )
    assert refused(tmp_path, "--ranks", "0").startswith(
        "heterotp check-model: invalid value for '--ranks': 0 is not in"
    )
    assert refused(tmp_path, "--", "--what") == f"{tmp_path}: a directory has no arguments: leave out --what"
    assert refused(tmp_path, "--ranks", "1") == f"{tmp_path}: no config.json there: name the directory of a checkpoint"
