"""examples/own-llama: a plain script of transformers and the converted one, as docs/convert-your-model.md says."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from support.cli_process import DEADLINE_SECONDS, run_cli
from support.places import ROOT
from transformers import LlamaConfig, LlamaForCausalLM

EXAMPLE, CHECKPOINT = "examples/own-llama", "finetune/checkpoint"
ROUNDING = 1e-5  # of a loss in fp32
STEP = 2e-4  # AdamW's first steps are as long as the learning rate, also where a gradient is nothing but rounding
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def python(folder, *arguments):
    """Run Python in a folder, with one thread a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    settings = {"capture_output": True, "text": True, "timeout": DEADLINE_SECONDS}
    return subprocess.run(command, cwd=folder, env=environment, **settings)


def losses(done):
    """Return the loss of each iteration that a script printed, rounded; where ranks print it, it is the same one."""
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.findall(r"iteration (\d+): loss (\d+\.\d{6})", done.stdout)
    return {int(number): float(loss) for number, loss in printed}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the examples and the checkpoint, whose five K/V heads two and three do not divide."""
    made = tmp_path_factory.mktemp("own-llama")
    (made / "examples").symlink_to(ROOT / "examples")
    done = python(made, "examples/finetune/make_checkpoint.py", CHECKPOINT)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def plain(folder):
    """The losses of the plain script."""
    found = losses(python(folder, f"{EXAMPLE}/plain.py", CHECKPOINT, "finetune/plain"))
    assert len(found) == 10
    return found


@pytest.fixture(scope="module")
def converted(folder):
    """The run directory of the converted script on three unequal ranks."""
    done = run_cli("run", f"{EXAMPLE}/job.yaml", "--workdir", "run", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


def test_the_model_can_be_cut(folder):
    done = run_cli("check-model", CHECKPOINT, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "LlamaForCausalLM: the outputs of 4 row-parallel layers equal those of the unsharded model" in done.stdout


def test_unequal_ranks_have_the_losses_of_the_plain_script(converted, plain):
    lines = [json.loads(line) for line in (converted / "history.jsonl").read_text().splitlines()]
    found = {line["iteration"]: line["loss"] for line in lines}
    assert found == pytest.approx(plain, rel=ROUNDING)
    shares = json.loads((converted / "report.json").read_text())["shares"][:3]
    assert shares[0]["share"] > shares[2]["share"]


def test_what_it_saved_is_what_the_plain_script_saved(converted, plain, folder):
    ours, theirs = (load_file(folder / "finetune" / name / "model.safetensors") for name in ("trained", "plain"))
    assert ours.keys() == theirs.keys()
    assert max(float((ours[name] - tensor).abs().max()) for name, tensor in theirs.items()) < STEP
    before = load_file(folder / CHECKPOINT / "model.safetensors")
    assert max(float((before[name] - tensor).abs().max()) for name, tensor in theirs.items()) > 5 * STEP


@pytest.fixture(scope="module")
def even(folder):
    """A checkpoint whose heads and vocabulary two ranks can halve."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 1002, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4))
    model.save_pretrained(folder / "even")
    return "even"


def test_the_script_of_dtensor_has_the_losses_of_the_plain_one_on_equal_shares(folder, even):
    wanted = losses(python(folder, f"{EXAMPLE}/plain.py", even, "even-plain"))
    found = losses(python(folder, *TORCHRUN, f"{EXAMPLE}/dtensor.py", even, "even-dtensor"))
    assert found == pytest.approx(wanted, rel=ROUNDING)


def test_the_script_of_dtensor_needs_heads_that_its_ranks_divide(folder):
    done = python(folder, *TORCHRUN, f"{EXAMPLE}/dtensor.py", CHECKPOINT, "never")
    assert done.returncode != 0 and "shape '[4, 32, -1, 8]' is invalid" in done.stderr
