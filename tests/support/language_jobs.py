"""Jobs of the language trainer on unequal ranks, the text that they train on, and plain models beside them."""

import json

import torch
import torch.nn.functional as F
from heterotp_api.data_sets import DataSpec
from heterotp_trainer.data.text import IGNORED, load_text
from heterotp_trainer.data.tokenizer import ByteTokenizer
from support.launched import spec

LENGTH, BATCH = 16, 8
SPEEDS = (1.0, 0.6, 0.3)
SMALL = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 257}
LLAMA = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6}


def write_text(folder):
    """Write documents that a small model can learn; return the data of a manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["rank", "unit", "plan", "moves", "holds", "splits", "the", "a"]
    draw = torch.Generator().manual_seed(5)
    lines = []
    for _ in range(120):
        chosen = torch.randint(len(words), (12,), generator=draw).tolist()
        lines.append(json.dumps({"text": " ".join(words[each] for each in chosen) + "."}))
    (folder / "lines.jsonl").write_text("\n".join(lines))
    return {"name": "text", "path": str(folder)}


def groups(speeds=SPEEDS, device=None):
    """Return a worker group for each speed."""
    extra = {"device": device} if device else {}
    return [{"name": f"g{number}", "relativeSpeed": speed, **extra} for number, speed in enumerate(speeds)]


def language(data, model, speeds=SPEEDS, device=None, checkpoint=None, **training):
    """Return the spec of a job; its launcher starts all ranks."""
    settings = {
        "model": model,
        "data": data,
        "sequenceLength": LENGTH,
        "batchSize": BATCH,
        "iterations": 12,
        "learningRate": 0.003,
        "gradientClip": 1.0,
        "sample": {"tokens": 6, "temperature": 0},
        **training,
    }
    return spec(len(speeds), groups(speeds, device), checkpoint, **settings)


def write_checkpoint(folder, kind, dtype=torch.float32, **config):
    """Write a checkpoint of transformers with random weights and no tokenizer, so that bytes are its tokens."""
    import transformers

    torch.manual_seed(3)
    if kind == "llama":
        made = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SMALL, **LLAMA, num_key_value_heads=3, max_position_embeddings=64, **config)
        )
    else:
        made = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**SMALL, n_embd=24, n_layer=2, n_head=6, n_positions=64, **config)
        )
    made.to(dtype).save_pretrained(folder)
    return {"huggingface": str(folder)}


def plain_loss(folder, data, **sequences):
    """Return the loss of held-out text that plain transformers measures with the model of a directory.

    sequences: how many, where not as many as by default.
    """
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    text = load_text(DataSpec(**data), ByteTokenizer(), LENGTH, BATCH)
    loss, count = 0.0, 0
    with torch.no_grad():
        for tokens, targets in text.evaluation(4, **sequences):
            logits = model(tokens).logits.flatten(0, 1)
            loss += float(F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum"))
            count += int((targets != IGNORED).sum())
    return loss / count
