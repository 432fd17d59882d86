"""parallelize(check=True): a small copy on shards against the unsharded one; what it finds is named."""

import pytest

CASES = {
    "a number of heads": "check: the forward of Decoder fails on shards: shape '[2, 8, 4, 8]' is invalid",
    "a mean over hidden units": "check: layers.0.down: it differs from the unsharded model's by ",
    "dropout": "model: random numbers are drawn in training between layers.0.attn.wq and layers.0.attn.wo",
    "torch encoder with dropout": "model: random numbers are drawn in training between encoder.layers.0.self_attn.in_",
    "torch encoder with unlike values": "parallelize: embed.weight, head.weight, head.bias and 12 more: ",
    "a norm of heads": "check: the gradient of layers.0.attn.scale.weight differs",
    "a linear that is left out": "check: the forward of Decoder fails on shards: The size of tensor a",
}
RIGHT = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2", "gpt_neox", "bert", "roberta", "vit")


@pytest.mark.parametrize("case", [*RIGHT, "a classifier", "plain", "torch encoder", "torch encoder with values"])
def test_a_model_that_can_be_cut_passes(gang, case):
    assert [result[case] for result in gang("check_model_checks.py", 2)] == ["", ""]


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_cut_is_named(gang, case):
    for result in gang("check_model_checks.py", 2):
        assert result[case].startswith(CASES[case]), result[case]
