"""One rank of the gang behind test_check.py: what parallelize(check=True) finds, by case: "" or the message.

Called as: check_model_checks.py RANK RANKS FOLDER.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from heterotp_trainer.devices.device import Device
from heterotp_trainer.devices.phase_clock import PhaseClock
from heterotp_trainer.errors import InputError
from heterotp_trainer.parallelize.model import parallelize
from heterotp_trainer.plans.unit_plan import UnitPlan
from heterotp_trainer.tensor_parallel.context import TPContext
from support.ranks.architectures import CONFIGS, maker
from support.ranks.plain_decoder import PLAN, SIZES, Decoder
from torch import nn
from transformers import AutoModelForSequenceClassification

MISTAKES = (
    "a number of heads",
    "a mean over hidden units",
    "dropout",
    "hidden units in the output",
    "a gradient that shards leave out",
)
SHARED = {"one up": ("up",), "one down": ("down",), "one network": ("up", "down")}


class Shares:
    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def shard(self) -> TPContext:
        device, empty = Device(torch.device("cpu"), "cpu"), UnitPlan.empty(self.ranks)
        return TPContext(dist.group.WORLD, self.rank, self.ranks, device, PhaseClock(), empty)


def found(make, session: Shares, **options) -> str:
    model, before = make(), torch.get_rng_state()
    try:
        parallelize(model, session, **{"check": True, **options})
    except InputError as error:
        return str(error)
    finally:
        assert torch.equal(before, torch.get_rng_state())
    return ""


class Encoder(nn.Module):
    """Ids [B, T] -> [B, T, rows], by torch's own layers, with both kinds of masks."""

    def __init__(
        self, dropout: float = 0.0, *, width: int = 32, heads: int = 4, units: int = 48, rows: int = 40
    ) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, units, dropout=dropout, batch_first=True)
        self.embed, self.head = nn.Embedding(rows, width), nn.Linear(width, rows)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        return self.head(self.encoder(self.embed(ids), mask=later, src_key_padding_mask=ids == int(ids[0, -1])))


class Twice(nn.Module):
    """[B, D] -> [B, D], by two feed-forward networks that hold some of their linears together."""

    def __init__(self, shared: tuple[str, ...]) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.one, self.two = (nn.ModuleDict({"up": nn.Linear(6, 8), "down": nn.Linear(8, 6)}) for _ in range(2))
        for name in shared:
            self.two[name] = self.one[name]

    def forward(self, x):
        x = self.first(x)
        for network in (self.one, self.two):
            x = x + network["down"](torch.relu(network["up"](x)))
        return x


def on_meta(make):
    def made():
        with torch.device("meta"):
            return make()

    return made


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    session = Shares(rank, ranks)
    results = {
        name: found(on_meta(lambda name=name, config=config: maker(name).from_config(config)), session)
        for name, config in CONFIGS.items()
    }
    classifier = AutoModelForSequenceClassification
    results["a classifier"] = found(on_meta(lambda: classifier.from_config(CONFIGS["bert"])), session)
    results["torch encoder"] = found(on_meta(Encoder), session)
    encoders = {
        "torch encoder with values": (0, 0.0),
        "dropout of torch's layers": (0, 0.1),
        "unlike values": (rank, 0),
    }
    for name, (seed, dropout) in encoders.items():
        torch.manual_seed(seed)
        results[name] = found(lambda dropout=dropout: Encoder(dropout), session, check=name != "unlike values")
    plain = {"plan": PLAN, **SIZES}
    results["plain"] = found(on_meta(Decoder), session, **plain)
    for mistake in MISTAKES:
        results[mistake] = found(on_meta(lambda mistake=mistake: Decoder(mistake)), session, **plain)
    inputs = (torch.linspace(-1, 1, 24).view(4, 6).double(),)
    for name, shared in SHARED.items():
        plan = {"*.up": "ffn.column", "*.down": "ffn.row"}
        results[name] = found(on_meta(lambda shared=shared: Twice(shared)), session, plan=plan, check=inputs)
    without = {name: role for name, role in PLAN.items() if role != "replicated.partial"}
    results["a norm of each head"] = found(on_meta(Decoder), session, plan=without, **SIZES)
    without = {name: role for name, role in PLAN.items() if not name.endswith("wv")}
    results["a linear that is left out"] = found(on_meta(Decoder), session, plan=without, **SIZES)
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
