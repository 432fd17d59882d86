"""Tiny models of transformers, one per architecture that must pass, their inputs, and what is compared of them.

Nothing here draws at random unless asked with a seed. docs/convert-your-model.md lists what is here.
"""

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    BertConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
    ViTConfig,
)

ROWS, HIDDEN = 53, 48  # vocabulary rows, hidden units: neither divides by 3 or 4 ranks and more
SIZES = {"hidden_size": 32, "intermediate_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 8}
TOKENS = {"vocab_size": ROWS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {"num_key_value_heads": 4, "head_dim": 8}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 8, "n_inner": HIDDEN, "n_positions": 16}
GPT2_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
EIGHT_GROUPS = {**SIZES, "num_attention_heads": 16, "num_key_value_heads": 8}  # what tp_plan cannot cut in 3

CONFIGS = {
    "llama": LlamaConfig(**EIGHT_GROUPS, **TOKENS),
    "mistral": MistralConfig(**SIZES, **TOKENS, **GROUPED),
    "qwen2": Qwen2Config(**SIZES, **TOKENS, num_key_value_heads=4),
    "qwen3": Qwen3Config(**SIZES, **TOKENS, **GROUPED, tie_word_embeddings=True),
    "gemma2": Gemma2Config(**SIZES, **TOKENS, **GROUPED, attn_implementation="eager"),
    "gemma3": Gemma3TextConfig(**SIZES, **TOKENS, **GROUPED),
    "gpt2": GPT2Config(**GPT2, **GPT2_DROPOUT, vocab_size=ROWS, bos_token_id=1, eos_token_id=2),
    "gpt_neox": GPTNeoXConfig(**SIZES, **TOKENS),
    "bert": BertConfig(**SIZES, **TOKENS, **NO_DROPOUT),
    "roberta": RobertaConfig(**SIZES, **TOKENS, **NO_DROPOUT),
    "vit": ViTConfig(**SIZES, **NO_DROPOUT, image_size=8, patch_size=4, num_channels=1, num_labels=5),
}
MAKERS = {"bert": AutoModelForMaskedLM, "roberta": AutoModelForMaskedLM, "vit": AutoModelForImageClassification}
RANKS = (1, 2, 3, 4)
WRITING = (1, 3)  # numbers of ranks whose models write texts
BOUND = 1e-10  # of what is compared in float64, against the plain model
EXACT = ("stream", "loss", "logits", "gradients", "steps")
BIT_EQUAL = ("exported", "drawn")


def maker(name):
    """Return the class of transformers that makes the model."""
    return MAKERS.get(name, AutoModelForCausalLM)


def groups_of(name):
    """Return the number of units of attention."""
    config = CONFIGS[name]
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def plain_model(name, seed=0):
    """Return the whole model in float64, with biases and norms that matter."""
    torch.manual_seed(seed)
    model = maker(name).from_config(CONFIGS[name]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape, dtype=parameter.dtype)
    return model


def empty_model(name):
    """Return the model without values, for float64."""
    with torch.device("meta"):
        return maker(name).from_config(CONFIGS[name]).double()


def batch(name, seed):
    """Return the inputs of one call, with labels."""
    draw = torch.Generator().manual_seed(seed)
    if name == "vit":
        return {"pixel_values": torch.randn(3, 1, 8, 8, generator=draw).double(), "labels": torch.arange(3)}
    ids = torch.randint(3, ROWS, (2, 9), generator=draw)
    return {"input_ids": ids, "labels": torch.where(torch.rand(ids.shape, generator=draw) < 0.2, -100, ids)}


class Wide:
    """Models cast to fp32 in places (norms, softmax, logits): here these casts give float64, so that errors show.

    Functions are replaced, not watched by a mode: recomputation in the backward pass runs outside of modes.
    """

    def __init__(self):
        self._found = torch.Tensor.float, torch.Tensor.to, torch.nn.functional.softmax

    def __enter__(self):
        _, to, softmax = self._found
        torch.Tensor.float = torch.Tensor.double
        torch.Tensor.to = lambda x, *args, **kwargs: to(x, *map(wide, args), **{k: wide(v) for k, v in kwargs.items()})
        torch.nn.functional.softmax = lambda *args, dtype=None, **more: softmax(*args, dtype=wide(dtype), **more)

    def __exit__(self, *error):
        torch.Tensor.float, torch.Tensor.to, torch.nn.functional.softmax = self._found


def wide(value):
    """Return float64 in the place of fp32."""
    return torch.float64 if value is torch.float32 else value
