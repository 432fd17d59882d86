"""The plain decoders: unsharded, beside transformers' Llama, and what they must not depend on."""

from dataclasses import replace

import pytest
import torch
from heterotp_api.models import DECODERS
from heterotp_trainer.model.decoder import Decoder

VOCABULARY, LENGTH = 23, 12
SMALL = {
    kind: replace(DECODERS[name], hidden_size=24, depth=2, heads=6, groups=groups, head_size=4, ffn_units=10)
    for kind, name, groups in (("llama", "llama-tiny", 3), ("gpt", "gpt-tiny", 6))
}


def filled(kind, **options):
    """Return a decoder in float64 with drawn weights."""
    with torch.device("meta"):
        model = Decoder(SMALL[kind], VOCABULARY, LENGTH, **options)
    model = model.to_empty(device="cpu").double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.5 if parameter.dim() == 1 else 0.0, 0.2, generator=generator)
    if kind == "gpt":
        model.head.weight = model.embedding.weight
    return model


def tokens(batch=2, length=LENGTH):
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kind", ["llama", "gpt"])
def test_a_token_depends_on_earlier_ones_alone(kind):
    model, first = filled(kind), tokens()
    other = first.clone()
    other[:, 7:] = (other[:, 7:] + 1) % VOCABULARY
    one, two = model(first), model(other)
    assert one.shape == (2, LENGTH, VOCABULARY)
    assert torch.equal(one[:, :7], two[:, :7]) and not torch.allclose(one[:, 7:], two[:, 7:])


@pytest.mark.parametrize("kind", ["llama", "gpt"])
def test_positions_count(kind):
    model = filled(kind)
    repeated = torch.tensor([[3, 5, 3, 5]])
    assert not torch.allclose(model(repeated)[0, 1], model(repeated)[0, 3])


@pytest.mark.parametrize("kind", ["llama", "gpt"])
def test_recomputation_changes_no_gradient(kind):
    plain, again = filled(kind), filled(kind, recompute=True)
    for model in (plain, again):
        model(tokens()).square().sum().backward()
    for one, two in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_gpt_ties_the_embedding_to_the_logits():
    model = filled("gpt")
    assert model.head.weight is model.embedding.weight and "head.weight" not in dict(model.named_parameters())
    assert filled("llama").head.weight is not filled("llama").embedding.weight


@pytest.mark.parametrize("name", list(DECODERS))
def test_the_plan_names_every_matrix(name):
    with torch.device("meta"):
        model = Decoder(replace(DECODERS[name], depth=1), 257, 8)
    ends = {pattern.rsplit(".", 1)[-1] for pattern in model.plan}
    matrices = {name.rsplit(".", 2)[-2] for name, p in model.named_parameters() if p.dim() == 2 and "." in name}
    assert matrices <= ends


def test_tiny_presets_hold_about_a_million_parameters():
    for name in ("gpt-tiny", "llama-tiny"):
        with torch.device("meta"):
            model = Decoder(DECODERS[name], 257, 128)
        assert 0.7e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.2e6


def test_llama_is_transformers_llama():
    import transformers

    shape, ours = SMALL["llama"], filled("llama")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.ffn_units,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        head_dim=shape.head_size,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    theirs = transformers.LlamaForCausalLM(config).double()
    names = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "blocks": "model.layers"}
    inner = {
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "ffn": "mlp",
        "gate": "gate_proj",
        "up": "up_proj",
        "down": "down_proj",
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
    }
    state = {}
    for name, value in ours.state_dict().items():
        first, _, rest = name.partition(".")
        for own, other in inner.items():
            rest = rest.replace(own, other)
        state[f"{names[first]}.{rest}"] = value
    theirs.load_state_dict(state)
    with torch.no_grad():
        # their RMSNorm computes in fp32
        torch.testing.assert_close(ours(tokens()), theirs(tokens()).logits, rtol=1e-4, atol=1e-5)
