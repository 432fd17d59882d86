"""One rank of the gang behind test_policies_on_llama.py: a Llama of transformers in sessions, under every policy.

Called as: llama_sessions.py RANK RANKS FOLDER. Sums are in float64. Result: by case what this rank saw.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import heterotp
import torch
from support.language_model import BATCH, HEADS, ROWS, TOKENS, UNITS, WIDTH
from support.ranks.architectures import Wide
from support.ranks.resume_checks import Gang
from support.ranks.vocabulary_sessions import CASES as OF_LANGUAGE
from support.ranks.vocabulary_sessions import Run, check
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

PERIOD = 7
LEARNING = 30  # iterations with a plan that prunes
NAMES = (
    "undisturbed",
    "undisturbed, tied",
    "ZERO",
    "ZERO, tied",
    "MIG",
    "SEMI",
    "RESHARD",
    "AUTO",
    "AUTO, tied",
)
PRUNING = ("ZERO", "ZERO, tied", "SEMI")
CASES = {name: replace(OF_LANGUAGE[name], after=LEARNING if name in PRUNING else 4) for name in NAMES}
SIZES = {"hidden_size": WIDTH, "intermediate_size": UNITS, "vocab_size": ROWS, "num_attention_heads": 2 * HEADS}


class LlamaRun(Run):
    """One training of a Llama whose units are groups of two heads, and of two columns each."""

    rate = 0.1

    def make(self) -> nn.Module:
        config = LlamaConfig(
            **SIZES, num_hidden_layers=1, num_key_value_heads=HEADS, tie_word_embeddings=self.case.tied
        )
        with torch.device("meta"):
            model = LlamaForCausalLM(config).double()
        heterotp.parallelize(model, self)
        return heterotp.initialize(model, seed=3)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return a part of a text of period PERIOD."""
        starts = torch.randint(PERIOD, (BATCH, 1), generator=torch.Generator().manual_seed(self.iteration))
        text = (starts + torch.arange(TOKENS + 1)) % PERIOD * (ROWS // PERIOD)  # rows of all ranks
        return text[:, :-1], text[:, 1:]

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        targets = targets.contiguous()
        with Wide():
            return self.model(input_ids=tokens, labels=targets, shift_labels=targets, use_cache=False).loss


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    gang = Gang(rank, ranks, folder)
    results = {
        name: check(gang, case, folder / f"case{number}", LlamaRun) for number, (name, case) in enumerate(CASES.items())
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
