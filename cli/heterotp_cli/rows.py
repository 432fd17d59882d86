"""A status document as text: rows of the table, the headline, plain lines. All pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_api.formatting import stall_text, utc_time
from heterotp_api.gang_text import gang_text
from heterotp_api.ranks import RankPlace
from heterotp_api.trainer_status import TrainerRank, TrainerStatus

PLAIN_EVERY_SECONDS = 5.0
ENDS = ("stopping", "succeeded", "failed")  # states in which the status changes no more
ABSENT = "-"
BALANCING_COLUMNS = (
    "pruned",
    "migrated",
    "chi",
    "injected",
)  # fields of Row that are shown only where a rank has a value


@dataclass(frozen=True)
class Row:
    """One rank's line; `busy` and `waiting` are shares 0..1 of the iteration, for the bar."""

    rank: int
    group: str
    device: str
    share: str
    matmul: str
    wait: str
    speed: str
    pruned: str
    migrated: str
    chi: str
    injected: str
    busy: float
    waiting: float
    straggler: bool


def seconds(value: float | None) -> str:
    """Return seconds as text: 0.8 ms, 85 ms, 2.41 s."""
    if value is None:
        return ABSENT
    if value < 0.01:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share 0..1 in percent."""
    return ABSENT if value is None else f"{value * 100:.{digits}f} %"


def clock(value: float | None) -> str:
    """Return seconds as m:ss or h:mm:ss."""
    if value is None:
        return ABSENT
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def migrated(rank: TrainerRank) -> str:
    """Return the share of columns that others compute for a rank, and `+N` columns that it computes for others."""
    out = percent(rank.migrated_ratio) if rank.migrated_ratio else ""
    into = f"+{rank.columns_in}" if rank.columns_in else ""
    return " ".join(filter(None, (out, into))) or ABSENT


def device_name(rank: TrainerRank, place: RankPlace) -> str:
    """Return the name of the device; an emulated one with its speed."""
    if place.device.type == "emulated" and place.device.teraflops is not None:
        return f"emulated {place.device.teraflops:g} TFLOPS"
    return rank.device.removeprefix("cuda:")


def row(rank: TrainerRank, place: RankPlace) -> Row:
    """Return one rank's line."""
    busy, wait = rank.compute_seconds or 0.0, rank.wait_seconds or 0.0
    total = busy + wait
    return Row(
        rank=rank.rank,
        group=place.group,
        device=device_name(rank, place),
        share=percent(rank.share),
        matmul=seconds(rank.matmul_seconds),
        wait=seconds(rank.wait_seconds),
        speed=ABSENT if rank.relative_speed is None else f"{rank.relative_speed:.2f}",
        pruned=percent(rank.pruned_ratio) if rank.pruned_ratio else ABSENT,
        migrated=migrated(rank),
        chi=f"{rank.slowdown:.1f}x" if rank.straggler and rank.slowdown else ABSENT,
        injected=f"{rank.injected_slowdown:.1f}x" if rank.injected_slowdown > 1 else ABSENT,
        busy=busy / total if total else 0.0,
        waiting=wait / total if total else 0.0,
        straggler=rank.straggler,
    )


def rows(status: TrainerStatus, places: Sequence[RankPlace], room: int) -> tuple[Row, ...]:
    """Return all ranks in order; where there are more than `room`, only those that compute longest."""
    known = [rank for rank in status.ranks if rank.rank < len(places)]
    if len(known) > room:
        known = sorted(known, key=lambda rank: -(rank.compute_seconds or 0.0))[: max(1, room)]
    return tuple(row(rank, places[rank.rank]) for rank in sorted(known, key=lambda rank: rank.rank))


def balancing_columns(status: TrainerStatus, places: Sequence[RankPlace]) -> tuple[str, ...]:
    """Return the balancing columns for which any rank of the job has a value."""
    all_rows = rows(status, places, len(places))
    return tuple(name for name in BALANCING_COLUMNS if any(getattr(r, name) != ABSENT for r in all_rows))


def decision(status: TrainerStatus) -> str:
    """Return the last decision, its reason, and predicted beside measured time; empty where none was made."""
    if not status.reason:
        return ""
    times = ""
    if status.predicted_iteration_seconds is not None:
        times = f" (predicted {seconds(status.predicted_iteration_seconds)}/iteration"
        times += f", measured now {seconds(status.iteration_seconds)})"
    return f"decision {status.decision_id}{_since(status)}: {status.reason}{times}"


def _since(status: TrainerStatus) -> str:
    """Return the iteration and the time of the last decision; empty where the trainer does not report them."""
    if status.decision_at is None:
        return ""
    return f" at iteration {status.decision_iteration}, {utc_time(status.decision_at)}"


def progress(status: TrainerStatus) -> str:
    """Return the progress of the run, e.g. `iteration 120/1350 (epoch 3)`."""
    of = f"/{status.total_iterations}" if status.total_iterations else ""
    return f"iteration {status.iteration}{of} (epoch {status.epoch})"


def numbers(status: TrainerStatus) -> str:
    """Return iteration time, its limit, throughput, loss, and accuracy (else the test loss) in one line."""
    parts = []
    if status.iteration_seconds is not None:
        limit = status.limit_iteration_seconds
        parts.append(f"{seconds(status.iteration_seconds)}/iteration" + (f" (limit {seconds(limit)})" if limit else ""))
    if status.samples_per_second is not None:
        parts.append(f"{status.samples_per_second:.0f} samples/s")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    if status.accuracy is not None:
        parts.append(f"test accuracy {percent(status.accuracy)}")
    elif status.test_loss is not None:
        parts.append(f"test loss {status.test_loss:.4f}")
    if status.perplexity is not None:
        parts.append(f"perplexity {status.perplexity:.2f}")
    return " · ".join(parts)


def headline(status: TrainerStatus) -> str:
    """Return job, attempt, state, and the message or error of the run."""
    parts = [status.job, f"attempt {status.attempt}", status.state]
    if status.resumed_from is not None:
        parts.append(f"resumed from iteration {status.resumed_from}")
    if status.emulated:
        parts.append("emulated")
    if status.strategy != "None":
        parts.append(f"strategy {status.strategy}")
    if status.message:
        parts.append(status.message)
    if status.control_error:
        parts.append(f"control document refused: {status.control_error}")
    return " · ".join(parts)


def stall(status: TrainerStatus) -> str:
    """Return for how long no iteration has ended, and where the ranks are; empty while iterations end."""
    return "" if status.stalled_seconds is None else stall_text(f"for {status.stalled_seconds:.0f} s", status.stall)


def plain_line(status: TrainerStatus, now: float) -> str:
    """Return the line that a run without a terminal prints every few seconds; now: unix seconds."""
    parts = [utc_time(now), headline(status), progress(status), numbers(status)]
    if gang := gang_text(status.gang):
        parts.append(gang)
    if stalled := stall(status):
        parts.append(stalled)
    elif status.eta_seconds is not None:
        parts.append(f"{clock(status.eta_seconds)} left")
    return " · ".join(filter(None, parts))


def decision_line(status: TrainerStatus, now: float) -> str:
    """Return the line that a run without a terminal prints once per decision; now: unix seconds."""
    return f"{utc_time(now)} · {status.job} · strategy {status.strategy} · {decision(status)}"


@dataclass(frozen=True)
class Printed:
    """State and decision of the last printed lines, and when they were printed (seconds)."""

    state: str = ""
    at: float = float("-inf")
    decision_id: int = -1


def plain_due(status: TrainerStatus, printed: Printed, now: float) -> bool:
    """Whether the state has changed, or the last line is PLAIN_EVERY_SECONDS old.

    After the last iteration it may be twice as old, for the line on the end of the run follows; that one comes once.
    """
    if status.state in ENDS:
        return status.state != printed.state
    age = now - printed.at
    if status.total_iterations is not None and status.iteration >= status.total_iterations:
        return age >= 2 * PLAIN_EVERY_SECONDS
    return status.state != printed.state or age >= PLAIN_EVERY_SECONDS


def decision_due(status: TrainerStatus, printed: Printed) -> bool:
    """Whether a decision was made that is not printed yet."""
    return bool(status.reason) and status.decision_id != printed.decision_id
