"""All known values of every rank, as text or JSON. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from heterotp_api.causes import cause_text
from heterotp_api.formatting import listed
from pydantic.alias_generators import to_camel

from heterotp_cli.rows import percent, seconds
from heterotp_cli.verbs.formatting import duration, ratio, seconds_since
from heterotp_cli.verbs.view import JobView, RankView


def describe(view: JobView, now: float) -> list[str]:
    """Return the lines of one block per rank, in rank order; values that are not known are left out."""
    found: list[str] = []
    for rank in sorted(view.ranks, key=lambda rank: rank.rank):
        facts = _facts(view, rank)
        found.append(_head(rank, now))
        found += [f"  {name:<10} {text}" for name, text in facts if text]
        found.append("")
    total = view.rank_count or len(view.ranks)
    if not view.ranks:
        return [f"{view.name}: no rank has reported yet; it is {view.state or 'new'}"]
    return [*found, f"{len(view.ranks)} of {total} ranks"] if len(view.ranks) < total else found[:-1]


def _head(rank: RankView, now: float) -> str:
    if not rank.straggler:
        return f"rank {rank.rank}"
    since = seconds_since(rank.straggling_since, now)
    return f"rank {rank.rank} · straggler" + (f" for {duration(since)}" if since is not None else "")


def _facts(view: JobView, rank: RankView) -> list[tuple[str, str]]:
    return [
        ("group", rank.group or ""),
        ("node", rank.node or ""),
        ("pod", rank.pod or ""),
        ("device", rank.device or ""),
        ("share", _share(rank)),
        ("times", _times(rank)),
        ("speed", _speed(rank)),
        ("balancing", _balancing(rank)),
        ("injected", _injected(rank)),
        ("slow", _why(view, rank)),
    ]


def _why(view: JobView, rank: RankView) -> str:
    return listed([cause_text(each) for each in view.causes if each.rank == rank.rank], separator="; ")


def _share(rank: RankView) -> str:
    if rank.share is None:
        return ""
    owned = (
        (rank.heads, "heads"),
        (rank.hidden_units, "hidden units"),
        (rank.vocabulary_rows or None, "vocabulary rows"),  # most models have none
    )
    units = [f"{count} {name}" for count, name in owned if count is not None]
    return f"{percent(rank.share)} of the work" + (f": {listed(units)}" if units else "")


def _times(rank: RankView) -> str:
    named = (("compute", rank.compute_seconds), ("matmul", rank.matmul_seconds), ("wait", rank.wait_seconds))
    known = [f"{name} {seconds(value)}" for name, value in named if value is not None]
    return f"{', '.join(known)} an iteration" if known else ""


def _speed(rank: RankView) -> str:
    parts = [f"{rank.relative_speed:.2f} of the fastest rank's"] if rank.relative_speed is not None else []
    if rank.slowdown is not None:
        parts.append(f"chi {ratio(rank.slowdown)}")
    return "; ".join(parts)


def _balancing(rank: RankView) -> str:
    parts = []
    if rank.pruned_ratio:
        parts.append(f"{percent(rank.pruned_ratio)} of its columns pruned")
    if rank.migrated_ratio:
        parts.append(f"{percent(rank.migrated_ratio)} computed by others")
    if rank.columns_in:
        parts.append(f"computes {rank.columns_in} columns for others")
    return ", ".join(parts)


def _injected(rank: RankView) -> str:
    if not rank.injected:
        return ""
    measured = f"{ratio(rank.measured_slowdown)} measured" if rank.measured_slowdown else "not measured yet"
    return f"{ratio(rank.injected_slowdown)} asked, {measured}" + (
        f": {rank.injection_problem}" if rank.injection_problem else ""
    )


def as_json(views: JobView | Sequence[JobView]) -> Any:
    """Return a view, or several, as JSON has it: camelCase names as in the API; what is not known is null."""
    if isinstance(views, JobView):
        return _camel(asdict(views))
    return [_camel(asdict(view)) for view in views]


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {to_camel(key): _camel(inner) for key, inner in value.items()}
    return [_camel(each) for each in value] if isinstance(value, (list, tuple)) else value
