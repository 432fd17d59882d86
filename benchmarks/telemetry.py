"""Cost of timing, reporting and checks: vit-tiny on real CPU ranks, with them on and off in alternating rounds.

    python benchmarks/telemetry.py [--ranks 2] [--rounds 20] [--repeat 10] [--hidden 768]

--hidden: a ViT of four layers of this width, a multiple of 8, in the place of vit-tiny (iterations of some 0.1 s).

On: phase clock, metrics, status and history files, and a client that reads /metrics and /status every second.
Off: the training loop uses none of them (the serving threads stay idle).
Unchecked: as on, without hashes of batches, the watch for random draws, the norm of the gradients (which finds values
that are not finite) and the comparison of replicas.
Printed: seconds per iteration of each and the ratios on / off and on / unchecked over the rounds, also of the sums of
all rounds, because replicas are compared in one iteration of 100 (targets <= 1.01). Rounds of two busy ranks differ by
more than that, so each check is timed by itself, too, on rank 0: its share of the seconds of the rounds in which it
ran. Nothing is emulated.
"""

import argparse
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import gang
from gang import summary

PORT = 29470


def rank(rounds: int, repeat: int) -> None:
    """Run one rank in alternating rounds with and without reporting; rank 0 prints the seconds of both."""
    from heterotp import Session
    from heterotp_trainer.devices.phase_clock import NullClock
    from heterotp_trainer.reporting.null_reporter import NullReporter
    from heterotp_trainer.training.loop import TrainingLoop
    from heterotp_trainer.training.vision import Vision

    session = Session.from_environment()
    training = session.environment.spec.training
    assert training is not None
    trainer = Vision(session, training)
    loop = TrainingLoop(session, training, trainer)
    session.watch(trainer.model, trainer.optimizer)
    images, labels = trainer.data.train_images[:64], trainer.data.train_labels[:64]
    shown = session.clock, session.reporter
    parts = {"on": shown, "off": (NullClock(), NullReporter()), "unchecked": shown}
    iteration, seconds = 0, {mode: [] for mode in parts}
    stop = threading.Event()
    if session.environment.rank == 0:
        threading.Thread(target=read_often, args=(stop,), daemon=True).start()
    with timed_checks(session.watched) as checks:
        for number in range(rounds + 1):
            for mode in list(parts) if number % 2 else reversed(parts):
                session.clock, session.reporter = parts[mode]
                session.tp.clock = session.clock
                started = time.perf_counter()
                with unchecked(session.watched) if mode == "unchecked" else nullcontext():
                    for _ in range(repeat):
                        loss = loop._step(images, labels, iteration)
                        iteration += 1
                        session.boundary(iteration, loss=loss, samples=len(labels))
                if number:  # the first round warms up
                    seconds[mode].append((time.perf_counter() - started) / repeat)
            if number == 0:
                for each in checks.values():
                    each.clear()
    stop.set()
    session.clock, session.reporter = parts["on"]
    session.finish()
    if session.environment.rank == 0:
        gang.print_result({"seconds": seconds, "checks": {name: sum(each) for name, each in checks.items()}})


@contextmanager
def timed_checks(watched: Any) -> Iterator[dict[str, list[float]]]:
    """Return a context in which the seconds of every call of a check are kept, by the check's name."""
    from heterotp_trainer import watched as updates
    from heterotp_trainer.tensor_parallel import gradients

    checks: dict[str, list[float]] = {}

    def timed(name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        seconds = checks.setdefault(name, [])

        def call(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return check(*arguments, **named)
            finally:
                seconds.append(time.perf_counter() - started)

        return call

    places = {
        "hash of the batch": (watched.batch_hash, "add"),
        "random draws": (watched.draws, "_states"),
        "norm of the gradients, with the wait": (updates, "gradient_norm"),
        "norm of the gradients, own work": (gradients, "_square"),
        "comparison of replicas": (watched, "differing_replicas"),
    }
    with ExitStack() as stack:
        for name, (owner, attribute) in places.items():
            stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        yield checks


def unchecked(watched: Any) -> ExitStack:
    """Return a context in which a session makes none of its checks."""
    from heterotp_trainer import session
    from heterotp_trainer import watched as updates

    without = ExitStack()
    without.enter_context(mock.patch.object(watched.batch_hash, "add", lambda *batch: None))
    without.enter_context(mock.patch.object(watched.draws, "_states", list))
    without.enter_context(mock.patch.object(updates, "gradient_norm", lambda *arguments: 0.0))
    without.enter_context(mock.patch.object(session, "COMPARE_EVERY", 1 << 62))
    return without


def read_often(stop: threading.Event) -> None:
    """Read /metrics and /status, as a Prometheus and an operator do."""
    while not stop.wait(1.0):
        for path in ("metrics", "status"):
            urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}/{path}", timeout=5).read()


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.rounds, arguments.repeat)
        return
    spec = {
        "tensorParallelDegree": arguments.ranks,
        "workerGroups": [{"name": "ranks", "processesPerPod": arguments.ranks}],
        "training": {"initialShares": "even"},
    }
    if arguments.hidden:
        spec["training"]["model"] = {"hiddenSize": arguments.hidden, "depth": 4, "heads": 8, "patchSize": 2}
    options = ["--rounds", str(arguments.rounds), "--repeat", str(arguments.repeat)]
    result = gang.run(__file__, options, spec, PORT)
    seconds, checked = result["seconds"], result["seconds"]["on"] + result["seconds"]["off"]
    model = f"a ViT of width {arguments.hidden}" if arguments.hidden else "vit-tiny"
    print(f"{model}, {arguments.ranks} ranks on CPU, {arguments.rounds} rounds of {arguments.repeat} iterations")
    for mode, each in seconds.items():
        print(summary(mode, each, " s"))
    for mode in ("off", "unchecked"):
        ratios = [on / other for on, other in zip(seconds["on"], seconds[mode], strict=True)]
        print(
            summary(f"on / {mode}", ratios), f"of sums {sum(seconds['on']) / sum(seconds[mode]):.4f} (target <= 1.01)"
        )
    for name, each in result["checks"].items():
        print(f"{name}: {each / (sum(checked) * arguments.repeat):.2%} of the iterations in which it ran")


if __name__ == "__main__":
    main()
