"""One rank of the gang behind test_drawn_models.py: models of drawn sizes on drawn plans against the plain ones.

Called as: drawn_model_checks.py RANK RANKS FOLDER. All in float64; an error is max |a - b|. The sizes are drawn by
hypothesis, the same on all ranks and in every run.
"""

import copy
import json
import random
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.parallelize.replace import shards_of
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.tensor_parallel.gradients import sum_partial
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.ranks.architectures import GPT2_DROPOUT, NO_DROPOUT, TOKENS
from support.ranks.check_model_checks import Encoder
from support.ranks.parallel_model_checks import Shares, error, gradients_unlike, one_call
from torch import Tensor, nn

COUNT, RANKS, LEAST_ROWS = 60, 3, 8
GROUPED = {"llama": "Llama", "qwen3": "Qwen3", "mistral": "Mistral"}  # with head_dim beside hidden_size
KINDS = (*GROUPED, "qwen2", "gpt2", "gpt_neox", "bert", "torch")


@dataclass(frozen=True)
class Drawn:
    """The sizes of one model, and the ranks that own units of heads, ffn and vocab in each of two plans."""

    kind: str
    groups: int
    queries: int
    half_size: int  # of a head: rotary embeddings need an even size
    width_per_head: int
    units: int
    rows: int
    layers: int
    tied: bool
    owners: tuple[tuple[tuple[int, ...], ...], ...]
    seed: int

    def families(self) -> tuple[int, int, int]:
        """Return the units of heads, ffn and vocab; torch's layers have no rows of a vocabulary."""
        return self.groups, self.units, 0 if self.kind == "torch" else self.rows

    def plan(self, number: int) -> UnitPlan:
        """Return one of its plans, whose ranks own units from all over."""
        draw, families = random.Random(self.seed + number), []
        for count, owners in zip(self.families(), self.owners[number], strict=True):
            dealt = [draw.choice(owners) for _ in range(count)]
            families.append(tuple(tuple((u, u + 1) for u in range(count) if dealt[u] == r) for r in range(RANKS)))
        return UnitPlan(*families[:2], families[2] if self.kind != "torch" else ())


def drawn_models() -> st.SearchStrategy[Drawn]:
    some = st.sets(st.integers(0, RANKS - 1), min_size=1).map(lambda ranks: tuple(sorted(ranks)))
    return st.builds(
        Drawn,
        kind=st.sampled_from(KINDS),
        groups=st.integers(1, 7),
        queries=st.integers(1, 3),
        half_size=st.integers(1, 4),
        width_per_head=st.integers(1, 6),
        units=st.integers(1, 40),
        rows=st.integers(LEAST_ROWS, 70),
        layers=st.integers(1, 2),
        tied=st.booleans(),
        owners=st.tuples(*[st.tuples(some, some, some)] * 2),
        seed=st.integers(0, 10**6),
    )


def examples() -> list[Drawn]:
    found: list[Drawn] = []

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn_models())
    def take(example: Drawn) -> None:
        found.append(example)

    take()
    return found


def plain_model(drawn: Drawn) -> nn.Module:
    """Return the whole model in float64, the same on all ranks."""
    torch.manual_seed(drawn.seed)
    size, heads = 2 * drawn.half_size, drawn.groups
    sizes = {"intermediate_size": drawn.units, "num_hidden_layers": drawn.layers}
    sizes |= {**TOKENS, "vocab_size": drawn.rows, "tie_word_embeddings": drawn.tied}
    if drawn.kind == "torch":
        return Encoder(width=heads * size, heads=heads, units=drawn.units, rows=drawn.rows).double()
    if drawn.kind in (*GROUPED, "qwen2"):
        heads = drawn.groups * drawn.queries
        width = drawn.width_per_head if drawn.kind in GROUPED else size
        sizes |= {"num_key_value_heads": drawn.groups} | ({"head_dim": size} if drawn.kind in GROUPED else {})
        config = getattr(transformers, f"{GROUPED.get(drawn.kind, 'Qwen2')}Config")
        made = config(**sizes, num_attention_heads=heads, hidden_size=heads * width)
    elif drawn.kind == "gpt2":
        sizes = {"n_inner": drawn.units, "n_layer": drawn.layers, "vocab_size": drawn.rows, "n_positions": 8}
        made = transformers.GPT2Config(
            **sizes, **GPT2_DROPOUT, n_head=heads, n_embd=heads * size, bos_token_id=1, eos_token_id=2
        )
    elif drawn.kind == "gpt_neox":
        sizes |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}
        made = transformers.GPTNeoXConfig(**sizes, num_attention_heads=heads, hidden_size=heads * size)
    else:
        made = transformers.BertConfig(**sizes, **NO_DROPOUT, num_attention_heads=heads, hidden_size=heads * size)
    maker = transformers.AutoModelForMaskedLM if drawn.kind == "bert" else transformers.AutoModelForCausalLM
    return maker.from_config(made).double()


def compared(drawn: Drawn, model: nn.Module, plain: nn.Module, ids: Tensor) -> float:
    """Return the largest error of one forward and backward."""
    if drawn.kind != "torch":
        return max(one_call(model, plain, {"input_ids": ids, "labels": ids}).values())
    got, want = (each(ids) for each in (model, plain))
    for out in (got, want):
        F.cross_entropy(out.flatten(0, 1), ids.flatten()).backward()
    sum_partial(model.parameters(), shards_of(model).tp)
    return max(error(got, want), gradients_unlike(model, plain))


def check(drawn: Drawn, group, rank: int) -> dict[str, float]:
    """Return the errors on the first plan, and on the second one after a step and a move."""
    plain = plain_model(drawn).train()
    model = parallelize(copy.deepcopy(plain), Shares(group, rank, drawn.plan(0)))
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-3) for each in (model, plain)]
    found = {}
    for number, name in enumerate(("first", "moved")):
        if number:
            tp = shards_of(model).tp
            UnitMover(tp, dict(model.named_parameters()), optimizers[0], lambda parameter: ()).move(drawn.plan(number))
        ids = torch.randint(3, drawn.rows, (2, 5), generator=torch.Generator().manual_seed(drawn.seed + number))
        found[name] = compared(drawn, model, plain, ids)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return found


def main(rank: int, ranks: int, folder: Path) -> None:
    assert ranks == RANKS
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    results = [{"drawn": asdict(each), "errors": check(each, dist.group.WORLD, rank)} for each in examples()]
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
