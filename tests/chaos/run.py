"""One run, on the bare API server or on kind: schedule, world, driver, checker."""

from collections import Counter

from chaos.checker import check
from chaos.driver import Driver
from chaos.faults.registry import kinds
from chaos.history import Recorder, read
from chaos.kind_world import KindWorld
from chaos.schedule import SECONDS_BETWEEN_ON_KIND, schedule
from chaos.timeline import faults, of
from chaos.world import World


def run_on_api(guardian, kubeconfig, directory, seed, minutes):
    """Run a schedule on a bare API server; return the violations. The history is written into the directory."""
    planned = schedule(seed, minutes, kinds("api"))
    return _run("api", lambda recorder: World(guardian, kubeconfig, recorder, seed), planned, directory, seed, minutes)


def run_on_kind(kubeconfig, directory, seed, minutes):
    """Run a schedule on a kind cluster with the chart installed; return the violations, as `run_on_api`."""
    planned = schedule(seed, minutes, kinds("kind"), SECONDS_BETWEEN_ON_KIND)
    return _run("kind", lambda recorder: KindWorld(kubeconfig, recorder, minutes), planned, directory, seed, minutes)


def _run(where, make, planned, directory, seed, minutes):
    recorder = Recorder(directory)
    recorder.write("run", seed=seed, minutes=minutes, where=where)
    world = make(recorder)
    try:
        world.start()
        Driver(world, recorder).run(planned)
    finally:
        world.close()
        recorder.close()
    return check(read(directory))


def summary(history):
    """Return lines for people: numbers of faults by kind, jobs, operator processes, the most memory."""
    jobs = of(history, "object", plural="heterotpjobs")
    most = max((record["bytes"] for record in of(history, "sample")), default=0)
    counts = Counter(each.kind for each in faults(history))
    skipped = Counter(record["kind"] for record in of(history, "fault", state="skipped"))
    lines = [f"{counts[kind]:4d} {kind} (and {skipped[kind]} that met nothing)" for kind in sorted(counts | skipped)]
    attempts = {record["uid"]: record.get("attempt") or 0 for record in jobs}
    lines.append(f"{sum(counts.values())} faults; {len(attempts)} jobs, {sum(attempts.values())} attempts")
    lines.append(f"{len(of(history, 'process', state='started'))} operator processes; at most {most >> 20} MiB")
    return lines
