"""What the ranks of benchmarks/insight.py run: rounds with insight on and off, and faults of ranks in stages."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from random import Random
from typing import Any
from unittest import mock

import gang

STAGES = ("attention", "ffn", "data", "link")
LATE = (0.25, 1.0)  # a fault's lateness, in parts of a healthy iteration
WARM = 3  # iterations under a fault before those that are judged
HEALTHY = 8


@dataclass(frozen=True)
class Fault:
    """A rank that is late in a stage, by a part of a healthy iteration."""

    rank: int
    stage: str
    part: float


def faults(count: int, ranks: int, seed: int) -> list[Fault]:
    """Return random faults, the same on every rank."""
    chance = Random(seed)
    return [Fault(chance.randrange(ranks), chance.choice(STAGES), chance.uniform(*LATE)) for _ in range(count)]


class Trained:
    """A session of a small model, one call per iteration."""

    def __init__(self) -> None:
        from heterotp import Session
        from heterotp_trainer.training.loop import TrainingLoop
        from heterotp_trainer.training.vision import Vision

        self.session = Session.from_environment()
        training = self.session.environment.spec.training
        assert training is not None
        vision = Vision(self.session, training)
        self._loop = TrainingLoop(self.session, training, vision)
        self.session.watch(vision.model, vision.optimizer)
        size = training.batch_size
        self._batch = vision.data.train_images[:size], vision.data.train_labels[:size]
        self.iteration = 0

    def iterations(self, count: int, load: Callable[[], object] = lambda: None) -> float:
        """Train; return the mean seconds of an iteration. load: called in the stage data."""
        started = time.perf_counter()
        for _ in range(count):
            before = self.session.clock.switch("data")
            load()
            self.session.clock.switch(before)
            loss = self._loop._step(*self._batch, self.iteration)
            self.iteration += 1
            self.session.boundary(self.iteration, loss=loss, samples=len(self._batch[1]))
        return (time.perf_counter() - started) / count


def cost_rank(rounds: int, repeat: int) -> None:
    """Run one rank in alternating rounds with insight on and off; rank 0 prints the seconds of both."""
    trained = Trained()
    seconds: dict[str, list[float]] = {"on": [], "off": []}
    for number in range(rounds + 1):
        for mode in list(seconds) if number % 2 else list(reversed(seconds)):
            with off() if mode == "off" else ExitStack():
                taken = trained.iterations(repeat)
            if number:  # the first round warms up
                seconds[mode].append(taken)
    trained.session.finish()
    if trained.session.environment.rank == 0:
        gang.print_result(seconds)


def off() -> ExitStack:
    """Return a context without insight: no times by stage, no timeline, nothing judged."""
    from heterotp_trainer.devices.phase_clock import PhaseClock
    from heterotp_trainer.devices.stage_times import StageTimes
    from heterotp_trainer.reporting.insight import Insight

    def switch(clock: Any, phase: str) -> str:
        now = clock._now_ns()
        clock._spent[clock.current] += now - clock._since
        clock._since = now
        before, clock.current = clock.current, phase
        return before

    stack, nothing = ExitStack(), lambda *arguments: None
    replaced = [
        (PhaseClock, "switch", switch),
        (PhaseClock, "met", nothing),
        (PhaseClock, "take_stages", lambda clock: StageTimes()),
        (Insight, "take", nothing),
        (Insight, "judge", nothing),
        (Insight, "newest", nothing),
    ]
    for owner, name, instead in replaced:
        stack.enter_context(mock.patch.object(owner, name, instead))
    return stack


def faults_rank(count: int, seed: int, judged: int) -> None:
    """Run one rank through random faults; rank 0 prints each with the first rank and stage to blame."""
    trained = Trained()
    session, calls = trained.session, Counter[str]()
    with delayed(session, lambda stage: calls.update([stage])):
        trained.iterations(HEALTHY)
    calls = Counter({stage: number // HEALTHY for stage, number in calls.items()} | {"data": 1})
    healthy = agreed(session, trained.iterations(HEALTHY))
    found = []
    for fault in faults(count, session.environment.ranks, seed):
        late = fault.part * healthy if fault.rank == session.environment.rank else 0.0

        def wait(stage: str, late: float = late, fault: Fault = fault) -> None:
            if late and stage == fault.stage:
                time.sleep(late / calls[stage])

        with delayed(session, wait):
            trained.iterations(WARM + judged, lambda wait=wait: wait("data"))
        found.append(asdict(fault) | first_to_blame(session, judged))
        trained.iterations(WARM)
    session.finish()
    if session.environment.rank == 0:
        gang.print_result({"healthy": healthy, "faults": found})


def agreed(session: Any, seconds: float) -> float:
    """Return rank 0's seconds on all ranks."""
    import torch
    import torch.distributed as dist

    value = torch.tensor([seconds], dtype=torch.float64)
    dist.broadcast(value, 0, group=session.gang.control_group)
    return float(value)


@contextmanager
def delayed(session: Any, wait: Callable[[str], object]) -> Iterator[None]:
    """Call wait(stage) in every product of attention and FFN, and after every sum on its way to this rank."""
    device, clock = session.device, session.clock
    product, transfer = device.settle_gemm, device.settle_collective

    def settle_gemm(*arguments: Any) -> None:
        product(*arguments)
        stage = next((name for name in ("attention", "ffn") if clock.stage.startswith(name)), "")
        wait(stage)

    def settle_collective(*arguments: Any) -> None:
        transfer(*arguments)
        wait("link")

    with (
        mock.patch.object(device, "settle_gemm", settle_gemm),
        mock.patch.object(device, "settle_collective", settle_collective),
    ):
        yield


def first_to_blame(session: Any, judged: int) -> dict[str, Any]:
    """Return the first rank and stage to blame for the newest iterations, by means and medians; only on rank 0."""
    from heterotp_api.stages import STAGES as ALL
    from heterotp_trainer.insight.findings import findings

    if session.environment.rank != 0:
        return {}
    shown = findings(session.reporter.run_status.insight.timeline.laps(judged))
    if shown is None:
        return {}
    places = {
        name: divmod(int(each.argmax()), len(ALL)) for name, each in (("mean", shown.seconds), ("median", shown.steady))
    }
    return {name: [rank, ALL[stage]] for name, (rank, stage) in places.items()}


def right(found: Sequence[dict[str, Any]], by: str) -> tuple[list[bool], list[bool]]:
    """Return of each fault whether its rank, and whether its stage is the first to blame by `mean` or `median`."""
    named = [each.get(by) or [-1, ""] for each in found]
    ranks = [rank == each["rank"] for (rank, _), each in zip(named, found, strict=True)]
    return ranks, [stage.startswith(each["stage"]) for (_, stage), each in zip(named, found, strict=True)]
