"""What parallelize, load_pretrained and save_pretrained refuse: one line each, and nothing is changed."""

import json

import pytest
import torch
import transformers
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import NullClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import initialize, load_pretrained, save_pretrained
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from heterotp_trainer.tensor_parallel.linear import ColumnParallelLinear
from safetensors.torch import load_file, save_file
from support.ranks.plain_decoder import PLAN, SIZES, Decoder
from torch import nn

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
TOKENS = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class Alone:
    """A session of one rank, or one that only seems to have more."""

    def __init__(self, ranks=1):
        self.ranks = ranks

    def shard(self):
        device = Device(torch.device("cpu"), "cpu")
        return TPContext(None, 0, self.ranks, device, NullClock(), UnitPlan.empty(self.ranks))


def of(config, maker="AutoModelForCausalLM"):
    with torch.device("meta"):
        return getattr(transformers, maker).from_config(config)


def decoder():
    with torch.device("meta"):
        return Decoder()


def refused(model, message, *, ranks=2, **options):
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(InputError, match=message) as caught:
        parallelize(model, Alone(ranks), **options)
    assert "\n" not in str(caught.value)
    assert {name: type(module) for name, module in model.named_modules()} == before


EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2}
CONFIGS = {
    "Mixtral": (EXPERTS, r"^mixtral: num_(local_)?experts=4: a mixture of experts cannot be cut"),
    "DeepseekV2": ({"num_key_value_heads": 4}, r"a mixture of experts|multi-head latent attention"),
    "Phi3": ({}, r"^plan \(transformers\): model\.layers\.\*\.self_attn\.\w+: \w+: .* cannot be cut|is not covered"),
    "OPT": ({"ffn_dim": 48}, r"^parallelize: no plan covers opt: it has no tp_plan .* give one, e\.g\. plan="),
    "Llama": ({"attention_dropout": 0.1}, r"^config: attention_dropout=0\.1: units change rank, .* set attention_dr"),
    "GPT2": ({"n_head": 4, "n_embd": 32, "n_layer": 1}, r"^config: attn_pdrop=0\.1: units change rank"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_an_architecture_that_cannot_be_cut_is_refused_by_name(name):
    options, message = CONFIGS[name]
    sizes = {} if name == "GPT2" else SMALL
    refused(of(getattr(transformers, f"{name}Config")(**sizes, **TOKENS, **options)), message)


def test_dropout_of_attention_on_one_rank_is_the_models_own_matter():
    model = parallelize(of(transformers.LlamaConfig(**SMALL, **TOKENS, attention_dropout=0.1)), Alone())
    attention = model.model.layers[0].self_attn
    assert isinstance(attention.q_proj, ColumnParallelLinear)
    assert attention.attention_dropout == 0.1


PLANS = {
    "a name that matches nothing": ({"blocks.*.wq": "heads.column"}, SIZES, r"^plan: 'blocks\.\*\.wq' matches no mod"),
    "an unknown role": ({"head": "logits"}, SIZES, r"^plan: 'head': unknown role 'logits': one of heads\.column, "),
    "no sizes": (PLAN, {}, r"^plan \(given\): layers\.0\.attn\.wq: heads\.column: the sizes of its heads are not"),
    "no width": (PLAN, {"heads": 4}, r"^parallelize: heads=4, head_dim=None: give both"),
    "groups that do not divide": (PLAN, {**SIZES, "kv_heads": 3}, r"heads=4, kv_heads=3: kv_heads must divide heads"),
    "another width": (PLAN, {**SIZES, "head_dim": 4}, r"wq: heads\.column: it has 32 outputs, but 2 key/value heads x"),
    "no linear": ({"layers.*.norm": "ffn.row"}, {}, r"^plan \(given\): layers\.0\.norm: ffn\.row: it is a LayerNorm"),
    "no embedding": ({"head": "vocab.embedding"}, {}, r"head: vocab\.embedding: it is a Linear: only torch\.nn\.Emb"),
    "two widths": (
        {"layers.*.up": "ffn.column", "layers.*.down": "ffn.row", "head": "ffn.column"},
        {},
        r"^plan \(given\): head: ffn\.column: its width is 40, but the feed-forward networks have 24 hidden units",
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_does_not_fit_is_refused_by_name(case):
    plan, sizes, message = PLANS[case]
    refused(decoder(), message, plan=plan, **sizes)


def test_a_model_without_a_plan_and_a_second_call_are_refused():
    refused(nn.Sequential(nn.Linear(2, 2)), r"^parallelize: no plan covers Sequential: .* give one")
    model = parallelize(decoder(), Alone(), plan=PLAN, **SIZES)
    with pytest.raises(InputError, match=r"^parallelize: this model is parallelized already"):
        parallelize(model, Alone(), plan=PLAN, **SIZES)


def test_a_gated_network_in_one_matrix_is_named():
    model = nn.ModuleDict({"up": nn.Linear(4, 12), "down": nn.Linear(6, 4)})
    refused(
        model,
        r"^plan \(given\): up: ffn\.column: 12 outputs are gate and up in one matrix: give them a linear",
        plan={"up": "ffn.column", "down": "ffn.row"},
    )


@pytest.fixture
def stored(tmp_path):
    """A directory with the weights of a decoder."""
    save_pretrained(initialize(parallelize(decoder(), Alone(), plan=PLAN, **SIZES), 1), tmp_path)
    return tmp_path


def change(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


DAMAGES = {
    "missing": (lambda tensors: tensors.pop("head.weight"), r"missing: head\.weight: give strict=False"),
    "surplus": (lambda tensors: tensors.update(other=torch.ones(2)), r"surplus: other: give strict=False"),
    "another shape": (
        lambda tensors: tensors.update({"head.weight": torch.ones(41, 32)}),
        r"head\.weight is \[41, 32\], the model has \[40, 32\]",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_does_not_fit_is_refused_with_names_and_nothing_is_loaded(stored, damage):
    edit, message = DAMAGES[damage]
    change(stored, edit)
    model = parallelize(decoder(), Alone(), plan=PLAN, **SIZES)
    with pytest.raises(InputError, match=rf"^load_pretrained: {stored}: {message}"):
        load_pretrained(model, stored)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_without_strict_what_is_missing_is_drawn(stored):
    change(stored, DAMAGES["missing"][0])
    model = load_pretrained(parallelize(decoder(), Alone(), plan=PLAN, **SIZES), stored, strict=False, seed=1)
    wanted = initialize(parallelize(decoder(), Alone(), plan=PLAN, **SIZES), 1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, wanted.get_parameter(name)), name


def test_a_directory_without_weights_and_a_torn_file_are_refused(stored, tmp_path):
    model = parallelize(decoder(), Alone(), plan=PLAN, **SIZES)
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no model\.safetensors and no model\.safetensors\.index\.json there"):
        load_pretrained(model, empty)
    (stored / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"^load_pretrained: .*model\.safetensors: "):
        load_pretrained(model, stored)


def test_files_of_an_index_are_read(stored):
    tensors = load_file(stored / "model.safetensors")
    (stored / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, stored / file)
    (stored / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    model = load_pretrained(parallelize(decoder(), Alone(), plan=PLAN, **SIZES), stored)
    assert all(torch.equal(parameter, tensors[name]) for name, parameter in model.named_parameters())


def test_a_model_that_is_not_parallelized_cannot_be_loaded():
    with pytest.raises(InputError, match=r"^Decoder: it is not parallelized: call heterotp\.parallelize"):
        load_pretrained(decoder(), "anywhere")


def test_drawing_leaves_torchs_generator_alone_and_gives_the_models_own_distribution():
    before = torch.get_rng_state()
    model = of(transformers.LlamaConfig(**{**SMALL, "hidden_size": 256}, **TOKENS, initializer_range=0.05))
    initialize(parallelize(model, Alone()), seed=2)
    assert torch.equal(before, torch.get_rng_state())
    weight = model.model.layers[0].mlp.up_proj.weight.detach()
    assert float(weight.std()) == pytest.approx(0.05, rel=0.02) and abs(float(weight.mean())) < 2e-3
    assert bool((model.model.norm.weight == 1).all())
