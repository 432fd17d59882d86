"""The ranks of models.py: a Llama in three ways, its iterations, the memory that its loading takes, and uneven ranks.

As a script, one rank of a gang: models_ranks.py --rank CHECKPOINT BATCH TOKENS WARM_UP MEASURED.
"""

import importlib.util
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import gang
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

TOLERANCE = 1e-4  # between the losses of all ways
SAMPLED = 0.001  # seconds between two looks at memory
Way = Callable[[str, int, int], nn.Module]


# -- ways -----------------------------------------------------------------------------------------------------------


def ours(path: str, rank: int, ranks: int) -> nn.Module:
    """Return the model of HeteroTP: even shares, made on the meta device."""
    import heterotp
    from heterotp_trainer.devices.device import Device
    from heterotp_trainer.devices.phase_clock import PhaseClock
    from heterotp_trainer.plans.unit_plan import UnitPlan
    from heterotp_trainer.tensor_parallel.context import TPContext
    from transformers import AutoConfig, AutoModelForCausalLM

    class Even:
        """A session that only gives out even shares."""

        def shard(self) -> TPContext:
            device = Device(torch.device("cpu"), "cpu")
            return TPContext(dist.group.WORLD, rank, ranks, device, PhaseClock(), UnitPlan.empty(ranks))

    config = AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    heterotp.parallelize(model, Even())
    heterotp.load_pretrained(model, path)
    return model  # type: ignore[no-any-return]


def dtensor(path: str, rank: int, ranks: int) -> nn.Module:
    """Return the model that torch's parallelize_module cuts after every rank has loaded it whole."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    plan: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        plan[f"model.layers.*.{name}"] = ColwiseParallel()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        plan[f"model.layers.*.{name}"] = RowwiseParallel()
    return parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)


def tp_plan(path: str, rank: int, ranks: int) -> nn.Module:
    """Return the model that transformers cuts while it loads it."""
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    config = DistributedConfig(tp_plan="auto", tp_size=ranks)
    return AutoModelForCausalLM.from_pretrained(path, distributed_config=config)  # type: ignore[no-any-return]


def ways() -> dict[str, Way]:
    """Return what is compared, by name: transformers' own way needs accelerate."""
    found: dict[str, Way] = {"ours": ours, "DTensor": dtensor}
    if importlib.util.find_spec("accelerate") is not None:
        return found | {"tp_plan": tp_plan}
    print("accelerate is not installed: transformers' own way is left out")
    return found


def start(rank: int, ranks: int, folder: str) -> str:
    """Join the others; return the directory of the checkpoint."""
    torch.set_num_threads(1)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    return f"{folder}/checkpoint"


def end(rank: int, folder: str, found: object) -> None:
    """Write what was found and leave (all ranks)."""
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


# -- iterations -----------------------------------------------------------------------------------------------------


def iterate(model: nn.Module, ids: Tensor, loss_context: AbstractContextManager[None]) -> float:
    """Compute loss and gradients once; return the loss."""
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=ids).logits
    with loss_context:
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
    whole = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
    return float(whole.detach())


def iterations(rank: int, ranks: int, folder: str, sizes: dict[str, int], rounds: int, repeat: int) -> None:
    """Measure seconds of an iteration of each way, in rotation."""
    from torch.distributed.tensor.parallel import loss_parallel

    path = start(rank, ranks, folder)
    models = {name: way(path, rank, ranks).train() for name, way in ways().items()}
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(sizes["rows"], (sizes["batch"], sizes["tokens"]), generator=draw)

    def step(name: str) -> float:
        return iterate(models[name], ids, loss_parallel() if name == "DTensor" else nullcontext())

    losses = {name: [step(name) for _ in range(2)][-1] for name in models}
    if max(losses.values()) - min(losses.values()) > TOLERANCE * min(losses.values()):
        sys.exit(f"the losses differ: {losses}")
    found = []
    for number in range(rounds):
        names = list(models)
        order = names[number % len(names) :] + names[: number % len(names)]
        seconds = {name: _seconds(lambda name=name: step(name), repeat) for name in order}  # type: ignore[misc]
        found.append({name: seconds[name] for name in names})
    end(rank, folder, found)


def _seconds(step: Callable[[], object], repeat: int) -> float:
    dist.barrier()
    started = time.perf_counter()
    for _ in range(repeat):
        step()
    dist.barrier()
    return (time.perf_counter() - started) / repeat


# -- memory of loading ----------------------------------------------------------------------------------------------


def memory(rank: int, ranks: int, folder: str, sizes: dict[str, int], name: str) -> None:
    """Measure the peak of memory while one way makes and loads the model, over what was in use before."""
    path = start(rank, ranks, folder)
    import heterotp  # what is imported is no part of loading
    from transformers import LlamaForCausalLM

    _ = heterotp.parallelize, LlamaForCausalLM
    with _Peaks() as peaks:
        model = ways()[name](path, rank, ranks)
    mine = {"share": _share(model), **peaks.found}
    every: list[list[Tensor]] = [[] for _ in range(ranks)]
    parts = torch.tensor([float(value) for value in mine.values()])
    gathered = [torch.zeros_like(parts) for _ in every]
    dist.all_gather(gathered, parts)
    end(rank, folder, [dict(zip(mine, each.tolist(), strict=True)) for each in gathered])


def _share(model: nn.Module) -> int:
    """Return the bytes of a rank's parameters."""
    parameters = (p.to_local() if hasattr(p, "to_local") else p for p in model.parameters())
    return sum(p.nbytes for p in parameters)


def _status(field: str) -> int:
    """Return bytes of a field of this process's memory."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


class _Peaks:
    """Peaks of resident and of anonymous memory over the level at its start, bytes."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._stop = threading.Event()

    def __enter__(self) -> "_Peaks":
        Path("/proc/self/clear_refs").write_text("5")  # the kernel's peak begins again
        self._before = _status("VmRSS"), _status("RssAnon")
        self._anonymous = self._before[1]
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(SAMPLED):
            self._anonymous = max(self._anonymous, _status("RssAnon"))

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        anonymous = max(self._anonymous, _status("RssAnon"))
        self.found = {"resident": _status("VmHWM") - self._before[0], "anonymous": anonymous - self._before[1]}


# -- uneven ranks -----------------------------------------------------------------------------------------------------


def rank_of_gang(path: str, batch: int, tokens: int, warm_up: int, measured: int) -> None:
    """Train on shares by speed; rank 0 prints the seconds of iterations and the fluid limit."""
    import heterotp
    from heterotp import Session
    from heterotp_trainer.balancing.limit import fluid_limit
    from heterotp_trainer.plans.unit_plan import FAMILIES
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    session = Session.from_environment()
    config = AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    heterotp.load_pretrained(heterotp.parallelize(model, session), path)
    model.train()
    session.watch(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
    ids = torch.randint(model.config.vocab_size, (batch, tokens), generator=torch.Generator().manual_seed(0))
    seconds = []
    for iteration in range(warm_up + measured):
        started = time.perf_counter()
        iterate(model, ids, nullcontext())
        session.step()
        session.boundary(iteration + 1)
        seconds.append(time.perf_counter() - started)
    limit = fluid_limit(session.reporter.run_status.costs())
    counts = {family: session.tp.unit_plan.counts(family) for family in FAMILIES}
    session.finish()
    if session.environment.rank == 0:
        gang.print_result({"seconds": seconds[warm_up:], "limit": limit, "counts": counts})


if __name__ == "__main__":
    rank_of_gang(sys.argv[2], *map(int, sys.argv[3:7]))
