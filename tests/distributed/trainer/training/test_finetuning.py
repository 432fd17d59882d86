"""Checkpoints of transformers, fine-tuned on unequal ranks: what is exported is what was evaluated."""

import json

import pytest
import torch
from heterotp_api.names import EXIT_BAD_INPUT
from safetensors.torch import load_file, save_file
from support.balancing_gang import write_control
from support.cli_process import run_cli
from support.language_jobs import language, plain_loss, write_checkpoint, write_text

KINDS = ["llama", "gpt2"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_export_has_the_loss_that_was_evaluated(launch, kind):
    data = write_text(launch.workdir / "text")
    model = write_checkpoint(launch.workdir / "checkpoint", kind)
    some = {"sequences": 5} if kind == "gpt2" else {}
    before = plain_loss(launch.workdir / "checkpoint", data, **some)
    write_control(launch.workdir, 1, "AUTO", reshard={"evict": [2]})  # moves units however busy the machine is
    settings = {"iterations": 40, "accumulate": 2, "recompute": True, "learningRate": 0.01}
    run = launch(language(data, model, evaluationSequences=some.get("sequences", 100), **settings))
    assert run.wait() == 0, run.text()
    report = run.read("report.json")
    assert report["testLoss"] < 0.8 * before and report["moves"]
    assert plain_loss(launch.workdir / "exported", data, **some) == pytest.approx(report["testLoss"], rel=1e-6)
    again = launch.workdir / "exported again"
    done = run_cli("export", launch.workdir, "--to", again)
    assert (done.returncode, done.stdout) == (0, f"{again}: the model of iteration 40\n"), done.stderr
    assert plain_loss(again, data, **some) == pytest.approx(report["testLoss"], rel=1e-6)
    shares = [rank["share"] for rank in report["ranks"]]
    assert shares[2] == 0 < min(shares[:2]) and shares[0] != shares[1]
    configs = [json.loads((launch.workdir / name / "config.json").read_text()) for name in ("checkpoint", "exported")]
    dropouts = ["attention_dropout"] if kind == "llama" else ["attn_pdrop", "resid_pdrop", "embd_pdrop"]
    assert [configs[1][name] for name in dropouts] == [configs[0][name] for name in dropouts]
    if kind == "gpt2":
        assert configs[1]["attn_pdrop"] == 0.1
        assert "attn_pdrop 0.1 is set to 0: dropout is not used in fine-tuning" in run.text()


def test_a_checkpoint_in_bf16_is_exported_in_bf16(launch):
    data = write_text(launch.workdir / "text")
    model = write_checkpoint(launch.workdir / "checkpoint", "llama", torch.bfloat16)
    run = launch(language(data, model, speeds=(1.0, 0.5), iterations=8, learningRate=0.01))
    assert run.wait() == 0, run.text()
    exported, begun = (tensors_of(launch.workdir / name) for name in ("exported", "checkpoint"))
    assert exported.keys() == begun.keys()
    assert {each.dtype for each in exported.values()} == {torch.bfloat16}
    config = json.loads((launch.workdir / "exported" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    loss = plain_loss(launch.workdir / "exported", data)
    assert loss == pytest.approx(run.read("report.json")["testLoss"], rel=0.01)  # of weights rounded to 8 bits
    assert any(not torch.equal(each, begun[name]) for name, each in exported.items())


def tensors_of(folder):
    """Return the tensors of a checkpoint by name."""
    return {name: each for file in folder.glob("*.safetensors") for name, each in load_file(file).items()}


def broken(folder, data, what):
    """Break a checkpoint; return the settings of a job on it."""
    if what == "no config":
        (folder / "config.json").unlink()
    elif what == "an unknown kind":
        (folder / "config.json").write_text('{"model_type": "unheard-of"}')
    elif what == "a missing tensor":
        _without_first_tensor(folder / "model.safetensors")
    elif what == "another tokenizer":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 200}))
    return {"sequenceLength": 65} if what == "too long sequences" else {}


def _without_first_tensor(file):
    tensors = load_file(file)
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no config", "no config.json there: name the directory of a checkpoint"),
        ("an unknown kind", "config.json: "),
        ("a missing tensor", "missing: model.layers.1.mlp.up_proj.weight"),
        ("another tokenizer", "its tokenizer has tokens up to 256, the model a vocabulary of 200"),
        ("too long sequences", "spec.training.sequenceLength: 65: "),
    ],
)
def test_a_checkpoint_that_does_not_fit_ends_with_one_line(launch, what, message):
    data, folder = write_text(launch.workdir / "text"), launch.workdir / "checkpoint"
    model = write_checkpoint(folder, "llama")
    options = broken(folder, data, what)
    run = launch(language(data, model, speeds=(1.0,), **options))
    assert run.wait() == EXIT_BAD_INPUT, run.text()
    (line,) = {line.partition("error: ")[2] for line in run.text().splitlines() if "error: " in line}
    assert message in line and "Traceback" not in run.text()
    assert not (launch.workdir / "exported").exists()


def test_an_export_that_cannot_be_written_ends_all_ranks_with_its_line(launch):
    data, model = write_text(launch.workdir / "text"), write_checkpoint(launch.workdir / "checkpoint", "llama")
    (launch.workdir / "exported").touch()
    run = launch(language(data, model, speeds=(1.0, 1.0), iterations=1))
    assert run.wait() == 1, run.text()
    line = f"error: save_pretrained: {launch.workdir}/exported cannot be written: File exists"
    assert [f"[rank {rank}] {line}" in run.text() for rank in range(2)] == [True, True]
    assert "Traceback" not in run.text()
