"""What parallelize refuses: the line that docs/convert-your-model.md lists, and nothing is changed."""

import re

import pytest
import torch
import transformers
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from support.contexts import Alone
from support.mistakes import pattern, refusals
from support.ranks.plain_decoder import PLAN, SIZES, Decoder
from torch import nn

REFUSED = refusals("Before anything is cut")
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
TOKENS = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"n_head": 4, "n_embd": 32, "n_layer": 1}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
FFN = {"up": "ffn.column", "down": "ffn.row"}


def of(name, *, sizes=None, **options):
    """Return a function that makes a model of transformers without values."""

    def make():
        config = getattr(transformers, f"{name}Config")(**({**SMALL, **TOKENS} if sizes is None else sizes), **options)
        with torch.device("meta"):
            return transformers.AutoModelForCausalLM.from_config(config)

    return make


def llama(plan=None, **settings):
    """Return a function that makes a Llama with another plan of transformers, or with other settings in its config."""

    def make():
        model = of("Llama")()
        for name, value in settings.items():
            setattr(model.config, name, value)
        if plan is not None:
            model._tp_plan = plan
        return model

    return make


def decoder():
    with torch.device("meta"):
        return Decoder()


def linears(up, down, device="cpu", *, tied=False):
    """Return a function that makes two linears [inputs, outputs]; tied: with one weight."""

    def make():
        model = nn.ModuleDict({"up": nn.Linear(*up, device=device), "down": nn.Linear(*down, device=device)})
        if tied:
            model["down"].weight = model["up"].weight
        return model

    return make


def changed(change):
    """Return a function that makes two linears, the first of which computes its weight in another way."""

    def make():
        model = linears((8, 8), (8, 8))()
        change(model["up"])
        return model

    return make


def shared(plan):
    """Return a function that makes a model which holds one linear under two names, and options with a plan for it."""

    def make():
        model = linears((8, 8), (8, 8))()
        model["again"] = model["up"]
        return model

    return make, {"plan": plan}


def attention(**options):
    """Return a function that makes an attention of torch."""
    return lambda: nn.ModuleDict({"attn": nn.MultiheadAttention(8, 4, **options)})


def embeddings(*rows, **options):
    """Return a function that makes embeddings with these numbers of rows."""
    return lambda: nn.Sequential(*(nn.Embedding(each, 8, **options) for each in rows))


ATTENTION = {"plan": {"attn": "heads.column", "attn.out_proj": "heads.row"}, "heads": 4, "head_dim": 2}
EMBEDDINGS = {"plan": {"*": "vocab.embedding"}}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
LATENT = {"num_key_value_heads": 4, "n_routed_experts": 0, "first_k_dense_replace": 1}
ONE, CHECKED = {"ranks": 1}, {"ranks": 1, "plan": FFN, "check": True}
CASES = {
    "a mixture of experts": (of("Mixtral", **EXPERTS), {}),
    "multi-head latent attention": (of("DeepseekV2", **LATENT), {}),
    "layers that share keys and values": (llama(num_kv_shared_layers=1), {}),
    "cross-attention": (of("GPT2", sizes={**GPT2, **NO_DROPOUT}, add_cross_attention=True), {}),
    "query, key and value in one linear, as Phi 3 has them": (of("Phi3"), {}),
    "gate and up in one matrix, by transformers' plan": (
        llama({"model.layers.*.mlp.down_proj": "colwise", "model.layers.*.mlp.gate_up_proj": "packed_colwise"}),
        {},
    ),
    "a linear whose module has an unusual name": (llama({"model.layers.*.input_layernorm": "colwise"}), {}),
    "groups of heads that do not fit": (llama(num_key_value_heads=3), {}),
    "dropout inside of attention": (of("Llama", attention_dropout=0.1), {}),
    "GPT-2 with the dropout of its config": (of("GPT2", sizes=GPT2), {}),
    "an architecture without a plan": (of("OPT", ffn_dim=48), {}),
    "modules of one's own without a plan": (lambda: nn.Sequential(nn.Linear(2, 2)), {}),
    "a pattern that matches nothing": (decoder, {"plan": {"blocks.*.wq": "heads.column"}, **SIZES}),
    "an unknown role": (decoder, {"plan": {"head": "logits"}, **SIZES}),
    "heads without their sizes": (decoder, {"plan": PLAN}),
    "heads without their width": (decoder, {"plan": PLAN, "heads": 4}),
    "groups that do not divide the heads": (decoder, {"plan": PLAN, **SIZES, "kv_heads": 3}),
    "heads of another width": (decoder, {"plan": PLAN, **SIZES, "head_dim": 2}),
    "query, key and value in one linear of one's own": (
        linears((8, 24), (8, 8)),
        {"plan": {"up": "heads.column", "down": "heads.row"}, "heads": 4, "head_dim": 2},
    ),
    "a module that is no linear": (decoder, {"plan": {"layers.*.norm": "ffn.row"}}),
    "a linear as an embedding": (decoder, {"plan": {"head": "vocab.embedding"}}),
    "two numbers of hidden units": (
        decoder,
        {"plan": {"layers.*.up": "ffn.column", "layers.*.down": "ffn.row", "head": "ffn.column"}},
    ),
    "gate and up in one linear": (linears((4, 12), (6, 4)), {"plan": FFN}),
    "a weight that two linears share and cut otherwise": (linears((8, 8), (8, 8), tied=True), {"plan": FFN, **ONE}),
    "one linear in two roles": shared({**FFN, "again": "ffn.row"}),
    "weights that are parametrized": (changed(nn.utils.parametrizations.weight_norm), {"plan": FFN}),
    "a norm of weights": (changed(nn.utils.weight_norm), {"plan": FFN}),
    "a spectral norm": (changed(nn.utils.spectral_norm), {"plan": FFN}),
    "an attention with a key of zeros": (attention(add_zero_attn=True), ATTENTION),
    "an attention with biases as a key": (attention(add_bias_kv=True), ATTENTION),
    "an embedding with a largest norm": (embeddings(8, max_norm=1.0), EMBEDDINGS),
    "an embedding with sparse gradients": (embeddings(8, sparse=True), EMBEDDINGS),
    "an embedding whose gradients are scaled": (embeddings(8, scale_grad_by_freq=True), EMBEDDINGS),
    "two vocabularies": (embeddings(8, 5), EMBEDDINGS),
    "a large model with values to check": (linears((20000, 20000), (20000, 20000), "meta"), CHECKED),
    "a model to check whose inputs are not known": (linears((8, 8), (8, 8)), CHECKED),
    "nothing to check": (decoder, {**CHECKED, "plan": {"embed": "vocab.embedding", "head": "vocab.logits"}}),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("mistake", CASES)
def test_it_is_refused_by_the_line_of_the_page_and_nothing_is_changed(mistake):
    make, options = CASES[mistake]
    model, options = make(), dict(options)
    session = Alone(options.pop("ranks", 2))
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(InputError) as caught:
        parallelize(model, session, **options)
    assert re.fullmatch(pattern(REFUSED[mistake]), str(caught.value)), caught.value
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_the_page_lists_no_other_one():
    assert set(REFUSED) == set(CASES)


def test_layers_by_hand_that_do_not_fit_are_told_before_anything_is_changed():
    session, model, mine = Held(), linears((8, 16), (16, 8))(), nn.Linear(1, 1)
    session.context.declare("down", mine, "ffn", 16)
    with pytest.raises(InputError, match="layer 'down': another layer has this name"):
        parallelize(model, session, plan=FFN)
    assert isinstance(model["up"], nn.Linear) and isinstance(model["down"], nn.Linear)


class Held(Alone):
    """A session that hands out one context."""

    def __init__(self):
        super().__init__()
        self.context = super().shard()

    def shard(self):
        return self.context


@pytest.mark.parametrize("names", [("up",), ("again",), ("up", "again")])
def test_a_linear_that_is_held_twice_is_cut_at_both_places(names):
    make, options = shared({"down": "ffn.row"} | dict.fromkeys(names, "ffn.column"))
    model = parallelize(make(), Alone(), **options)
    assert isinstance(model["up"], ColumnParallelLinear) and model["again"] is model["up"]


def test_of_several_patterns_that_match_the_last_one_holds():
    model = parallelize(decoder(), Alone(), plan={"layers.*.attn.*": "heads.column", **PLAN}, **SIZES)
    assert isinstance(model.layers[0].attn.wq, ColumnParallelLinear)
    assert isinstance(model.layers[0].attn.wo, RowParallelLinear)
    assert isinstance(model.layers[0].attn.scale, nn.RMSNorm)


def test_dropout_of_attention_on_one_rank_is_the_models_own_matter():
    model = parallelize(of("Llama", attention_dropout=0.1)(), Alone())
    attention = model.model.layers[0].self_attn
    assert isinstance(attention.q_proj, ColumnParallelLinear)
    assert attention.attention_dropout == 0.1
