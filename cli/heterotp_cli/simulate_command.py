"""`heterotp simulate`: the predicted effect of every strategy on a job, without training."""

import importlib.util
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
from heterotp_api.slowdown import MOST_SLOWDOWN

from heterotp_cli.errors import BadInput, Failed
from heterotp_cli.run_command import read_manifest, require_trainer

if TYPE_CHECKING:
    from heterotp_api.policy import BalancingSettings
    from heterotp_trainer.balancing.simulation import Machine

    from heterotp_cli.simulate.scenario import Outcome, Prospect

MOST_RANKS = 1024


def _finite(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise BadInput(f"{parameter.opts[0]}: {value}: must be a finite number")
    return value


def _drawable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Raise BadInput or Failed before the computation where the picture could not be written after it."""
    if path is None:
        return None
    if path.suffix.lower() != ".png":
        raise BadInput(f"--picture: '{path}': must end in .png")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"--picture: '{path}': there is no directory {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise Failed("--picture: matplotlib is not installed: pip install 'heterotp[cli]'")
    return path


@click.command("simulate")
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--ranks", type=click.IntRange(2, MOST_RANKS), help="Simulate this number of ranks, in the same proportions."
)
@click.option("--chi", "chis", multiple=True, metavar="RANK=CHI|CHI,...", help="Slow-downs; may be given again.")
@click.option("--costs", "run", type=click.Path(path_type=Path), help="Run directory of this job: its measured costs.")
@click.option("--trace", type=click.Path(path_type=Path), help="CSV of slow-downs over time, for a fleet of such jobs.")
@click.option("--seconds", type=click.FloatRange(min=1), callback=_finite, help="How long to replay the trace.")
@click.option(
    "--loss", type=click.FloatRange(0, 1), callback=_finite, help="Share of work that lossy strategies may delete."
)
@click.option("--picture", type=click.Path(path_type=Path), callback=_drawable, help="Write a PNG.")
def command(
    manifest: Path,
    ranks: int | None,
    chis: tuple[str, ...],
    run: Path | None,
    trace: Path | None,
    seconds: float | None,
    loss: float | None,
    picture: Path | None,
) -> None:
    """Predict iteration time, moves and break-even of every strategy for the HeteroTPJob of MANIFEST.

    Uses the trainer's own decisions on computed times; nothing is trained. Devices must be emulated, or --costs names
    a run that measured them. The job's own policy is used except for its strategy. Default of --seconds: the last
    begin or end in the trace, an hour more where a slow-down has no end; of --loss: the policy's maxPrunedShare,
    else 1. Exits 0, or 2 for bad input.
    """
    require_trainer()
    from heterotp_cli.simulate.machine import machine_of

    if trace is not None and chis:
        raise BadInput("--chi: with --trace: the trace holds the slow-downs: give one of them")
    job = read_manifest(manifest, to_run=False).job
    machine = machine_of(job.spec, ranks, run)
    title = f"{job.metadata.name}, {machine.unit_plan.ranks} ranks"
    own = job.spec.balancing.policy
    if trace is not None:
        from heterotp_cli.simulate.scenario import EVICT, policies

        chosen = policies([1.0] * machine.unit_plan.ranks, own, loss)
        _fleet(machine, title, trace, seconds, {k: v for k, v in chosen.items() if k != EVICT}, picture)
        return
    slow = parse_chis(chis, machine.unit_plan.ranks)
    from heterotp_cli.simulate.scenario import prospect

    found = prospect(machine, slow, own, loss)
    click.echo("\n".join(prospect_lines(title, slow, found)))
    if picture is not None:
        from heterotp_cli.simulate.picture import draw_prospect

        draw_prospect(found, f"{title}: {chis_text(slow)}", picture)
        click.echo(f"picture: {picture}")


def parse_chis(given: Sequence[str], ranks: int) -> list[float]:
    """Return every rank's slow-down; raises BadInput naming the option's value."""
    chis = [1.0] * ranks
    for text in given:
        for number, part in enumerate(text.split(",")):
            rank_text, equals, chi_text = part.rpartition("=")
            try:
                rank, chi = int(rank_text) if equals else number, float(chi_text)
            except ValueError:
                raise BadInput(
                    f"--chi: '{text}': must be RANK=CHI, or slow-downs of ranks 0, 1, ...: 8,6,4,2"
                ) from None
            if not 0 <= rank < ranks:
                raise BadInput(f"--chi: '{text}': the job has ranks 0 .. {ranks - 1}")
            if not 1 <= chi <= MOST_SLOWDOWN:
                raise BadInput(f"--chi: '{text}': a slow-down is 1 .. {MOST_SLOWDOWN:g}")
            chis[rank] = chi
    return chis


def chis_text(chis: Sequence[float]) -> str:
    """Return which ranks are slowed by which factor."""
    from heterotp_api.formatting import listed

    slow = [f"rank {rank} {chi:g}x" for rank, chi in enumerate(chis) if chi > 1]
    return f"{listed(slow, 4)} slower" if slow else "no rank slow"


def prospect_lines(title: str, chis: Sequence[float], found: "Prospect") -> list[str]:
    """Return the table of all strategies."""
    head = f"{title}: {chis_text(chis)} (simulated, nothing was run)"
    times = f"no rank slow {found.homogeneous:.3g} s, nothing done {found.untouched:.3g} s, limit {found.limit:.3g} s"
    columns = f"{'strategy':<9}{'seconds':>9}{'x limit':>9}{'deleted':>9}{'settled':>9}{'moving':>11}{'paid back':>11}"
    rows = [_row(each, found.limit) for each in found.outcomes]
    reasons = [f"{each.name}: {each.reason}" for each in found.outcomes if each.moved]
    return [head, times, "", columns, *rows, "", *reasons] if reasons else [head, times, "", columns, *rows]


def _row(each: "Outcome", limit: float) -> str:
    deleted = f"{each.deleted:.1%}" if each.deleted else "-"
    moving = f"{each.moved_seconds:.3g} s" if each.moved else "-"
    paid = f"{each.paid_back:.1f} it" if each.paid_back is not None else "-"
    numbers = f"{each.seconds:>9.3g}{each.seconds / limit:>9.3f}{deleted:>9}{f'{each.settled} it':>9}"
    return f"{each.name:<9}{numbers}{moving:>11}{paid:>11}"


def _fleet(
    machine: "Machine",
    title: str,
    trace: Path,
    seconds: float | None,
    every: Mapping[str, "BalancingSettings"],
    picture: Path | None,
) -> None:
    from heterotp_cli.simulate.trace import end_of, read_trace, replay, replay_fleet

    jobs = read_trace(trace, machine.unit_plan.ranks)
    end = seconds or end_of(jobs)
    undisturbed = replay(machine, every["None"], "", [], end).iterations
    done: dict[str, list[float]] = {}
    click.echo(f"{len(jobs)} jobs of {title}, {end:.0f} s each (simulated, nothing was run)")
    click.echo(
        f"{'strategy':<9}{'iterations of those without slow-downs: mean, worst job':<58}{'deleted':>9}{'moves':>8}"
    )
    with ProcessPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        for name, policy in every.items():
            found = replay_fleet(pool, machine, policy, jobs, end)
            done[name] = [each.iterations / undisturbed for each in found]
            deleted, moves = statistics.fmean(each.deleted for each in found), sum(each.moves for each in found)
            numbers = f"{statistics.fmean(done[name]):.3f}, {min(done[name]):.3f}"
            click.echo(f"{name:<9}{numbers:<58}{f'{deleted:.2%}' if deleted else '-':>9}{moves:>8}")
    if picture is not None:
        from heterotp_cli.simulate.picture import draw_fleet

        draw_fleet(done, f"{len(jobs)} jobs of {title}", picture)
        click.echo(f"picture: {picture}")
