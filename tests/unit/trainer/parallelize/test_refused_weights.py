"""What a model that is cut refuses: weights that do not fit, and calls that cannot work, by the lines of the page."""

import json
import re

import pytest
import torch
import transformers
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize import weight_files
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.pretrained import initialize, load_pretrained, save_pretrained
from safetensors.torch import load_file, save_file
from support.contexts import Alone
from support.mistakes import pattern, refusals
from support.ranks.plain_decoder import PLAN, SIZES, Decoder
from torch import nn

REFUSED = refusals("By weights, and in forward")
WEIGHTS = "model.safetensors"


def cut(model):
    return parallelize(model, Alone(), plan=PLAN, **SIZES)


def decoder():
    with torch.device("meta"):
        return Decoder()


@pytest.fixture
def stored(tmp_path):
    """A directory with the weights of a decoder."""
    save_pretrained(initialize(cut(decoder()), 1), tmp_path)
    return tmp_path


def change(folder, edit):
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)


# -- checkpoints ----------------------------------------------------------------------------------------------------

DAMAGES = {
    "a missing tensor": lambda tensors: tensors.pop("head.weight"),
    "a surplus tensor": lambda tensors: tensors.update(other=torch.ones(2)),
    "a tensor of another shape": lambda tensors: tensors.update({"head.weight": torch.ones(41, 32)}),
    "integers in place of weights": lambda tensors: tensors.update({"head.weight": torch.ones(40, 32).to(torch.int8)}),
}


def index(text):
    """Return a function that puts an index with this text in the place of the weights."""

    def put(folder):
        (folder / WEIGHTS).unlink()
        (folder / "model.safetensors.index.json").write_text(text)

    return put


FILES = {
    "a directory without weights": lambda folder: (folder / WEIGHTS).unlink(),
    "a torn file": lambda folder: (folder / WEIGHTS).write_bytes(b"torn"),
    "a torn index": index('{"weight'),
    "an index without a map": index('{"metadata": {}}'),
    **{name: lambda folder, edit=edit: change(folder, edit) for name, edit in DAMAGES.items()},
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_checkpoint_that_does_not_fit_is_refused_and_nothing_is_loaded(stored, mistake):
    FILES[mistake](stored)
    model = cut(decoder())
    with pytest.raises(InputError) as caught:
        load_pretrained(model, stored)
    assert re.fullmatch(pattern(REFUSED[mistake]), str(caught.value)), caught.value
    assert all(parameter.is_meta for parameter in model.parameters())


def test_tensors_of_bytes_that_are_no_integers_are_read(stored):
    change(stored, lambda tensors: tensors.update({"head.weight": torch.ones(40, 32).to(torch.float8_e4m3fn)}))
    assert bool((load_pretrained(cut(decoder()), stored).head.weight == 1).all())


def test_without_strict_what_is_missing_is_drawn(stored):
    change(stored, DAMAGES["a missing tensor"])
    model = load_pretrained(cut(decoder()), stored, strict=False, seed=1)
    wanted = initialize(cut(decoder()), 1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, wanted.get_parameter(name)), name


def tied(folder, **changed):
    """Write a checkpoint of a Llama with one weight for embedding and logits, load it, and return both."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, vocab_size=40, tie_word_embeddings=True)
    plain = transformers.AutoModelForCausalLM.from_config(config)
    plain.save_pretrained(folder)
    change(folder, lambda tensors: tensors.update(changed))
    with torch.device("meta"):
        model = parallelize(transformers.AutoModelForCausalLM.from_config(config), Alone())
    return plain, load_pretrained(model, folder)


def test_a_tied_weight_that_is_stored_twice_is_read_where_both_are_equal(tmp_path):
    torch.manual_seed(0)
    weight = tied(tmp_path)[0].lm_head.weight.detach()
    torch.manual_seed(0)
    _, model = tied(tmp_path, **{"lm_head.weight": weight.clone()})
    assert torch.equal(model.lm_head.weight, weight) and model.lm_head.weight is model.model.embed_tokens.weight


def test_files_of_an_index_are_read(stored):
    tensors = load_file(stored / WEIGHTS)
    (stored / WEIGHTS).unlink()
    names = sorted(tensors)
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, stored / file)
    (stored / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    model = load_pretrained(cut(decoder()), stored)
    assert all(torch.equal(parameter, tensors[name]) for name, parameter in model.named_parameters())


def parts_of(folder, model, count):
    """Save a model as a sharded checkpoint of about so many files."""
    size = sum(parameter.nbytes for parameter in model.parameters())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(weight_files, "FILE_BYTES", size // count)
        save_pretrained(model, folder)
    return sorted(file.name for file in folder.glob("model*"))


def test_a_model_that_is_saved_over_an_older_one_leaves_none_of_its_files(stored):
    first = load_pretrained(cut(decoder()), stored)
    many = parts_of(stored, first, 4)
    assert len(many) > 3 and WEIGHTS not in many
    second = initialize(cut(decoder()), 2)
    few = parts_of(stored, second, 2)
    assert set(few) & set(many) == {"model.safetensors.index.json"} and len(few) < len(many)
    assert_loaded(stored, second)
    (stored / "model-of-mine.txt").write_text("kept")
    assert parts_of(stored, first, 1) == ["model-of-mine.txt", WEIGHTS]
    assert_loaded(stored, first)


def assert_loaded(folder, wanted):
    model = load_pretrained(cut(decoder()), folder)
    assert all(torch.equal(each, wanted.get_parameter(name)) for name, each in model.named_parameters())


def test_a_single_file_goes_before_an_index_as_for_transformers(stored):
    (stored / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"head.weight": "gone"}}))
    assert_loaded(stored, initialize(cut(decoder()), 1))


# -- other calls ----------------------------------------------------------------------------------------------------


class Two(nn.Module):
    """Two linears, with more parts by name: a parameter that nobody initializes, a buffer, a strange way to begin."""

    def __init__(self, *parts):
        super().__init__()
        self.up, self.down = (Strange if "strange" in parts else nn.Linear)(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8)) if "scale" in parts else None
        if "mask" in parts:
            self.register_buffer("mask", torch.ones(8))


class Strange(nn.Linear):
    """Begins with the identity."""

    def reset_parameters(self):
        with torch.no_grad():
            self.weight.copy_(torch.eye(8, device=self.weight.device))


def drawn(part):
    with torch.device("meta"):
        model = Two(part)
    try:
        initialize(parallelize(model, Alone(), plan={"up": "ffn.column", "down": "ffn.row"}))
    finally:
        assert all(each.is_meta for each in model.parameters())  # nothing is changed


def completed(folder):
    """Load a model that had values from a directory that lacks some."""
    change(folder, lambda tensors: tensors.pop("embed.weight"))
    load_pretrained(cut(Decoder()), folder, strict=False)


def converted(folder):
    """Load a tensor from which transformers computes a weight."""
    change(folder, lambda tensors: (tensors.clear(), tensors.update({"old.weight": torch.ones(32)})))
    from transformers import conversion_mapping
    from transformers.core_model_loading import Concatenate, WeightConverter

    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=1, vocab_size=40)
    with torch.device("meta"):
        model = parallelize(transformers.AutoModelForCausalLM.from_config(config), Alone())
    with pytest.MonkeyPatch.context() as patched:  # no architecture with a plan has one today
        converter = WeightConverter(["old.weight"], "model.norm.weight", operations=[Concatenate(dim=0)])
        patched.setattr(conversion_mapping, "get_model_conversion_mapping", lambda model: [converter])
        load_pretrained(model, folder)


def attention(**changed):
    """Call the attention of torch's layer, which is cut, with something that moving heads rule out."""
    layer = parallelize(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), Alone())
    x = changed.pop("x", torch.randn(2, 3, 8))
    layer.self_attn(x, changed.pop("key", x), x, **changed)


CALLS = {
    "a tied weight that is stored as two": lambda folder: tied(folder, **{"lm_head.weight": torch.ones(40, 32)}),
    "a second call": lambda folder: cut(cut(decoder())),
    "weights before the cut": lambda folder: load_pretrained(decoder(), folder),
    "a tensor from which weights are computed": converted,
    "a missing tensor of a model with values": completed,
    "an initialization that is no drawing": lambda folder: drawn("strange"),
    "a parameter that nobody initializes": lambda folder: drawn("scale"),
    "a buffer without values": lambda folder: drawn("mask"),
    "cross-attention of torch's layers": lambda folder: attention(key=torch.randn(2, 3, 8)),
    "a mask for each head": lambda folder: attention(attn_mask=torch.zeros(4, 3, 3)),
    "weights of the attention": lambda folder: attention(need_weights=True),
    "one sample without a batch": lambda folder: attention(x=torch.randn(3, 8)),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_a_call_that_cannot_work_is_refused_by_the_line_of_the_page(stored, mistake):
    with pytest.raises(InputError) as caught:
        CALLS[mistake](stored)
    assert re.fullmatch(pattern(REFUSED[mistake]), str(caught.value)), caught.value


def test_the_page_lists_no_other_one():
    assert set(REFUSED) == {*FILES, *CALLS}


def test_drawing_leaves_torchs_generator_alone_and_gives_the_models_own_distribution():
    sizes = {"hidden_size": 256, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, vocab_size=40, initializer_range=0.05)
    before = torch.get_rng_state()
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    initialize(parallelize(model, Alone()), seed=2)
    assert torch.equal(before, torch.get_rng_state())
    weight = model.model.layers[0].mlp.up_proj.weight.detach()
    assert float(weight.std()) == pytest.approx(0.05, rel=0.02) and abs(float(weight.mean())) < 2e-3
    assert bool((model.model.norm.weight == 1).all())
