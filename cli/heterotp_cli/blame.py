"""The rank that ended a run, with the last lines of its log."""

import signal
from collections.abc import Sequence
from pathlib import Path

from heterotp_api.names import EXIT_CHECKPOINT_OWNER, EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST

from heterotp_cli.follow import tail
from heterotp_cli.logs import ATTEMPT_LINE, pod_log, rank_log

LOG_LINES = 12
REASONS = {
    EXIT_PEER_LOST: "lost a peer, and no other rank told why",
    EXIT_NAME_UNRESOLVED: "did not find the address of rank 0",
    EXIT_CHECKPOINT_OWNER: "was refused by its checkpoints: a newer attempt owns them",
}


def reason(code: int | None) -> str:
    """Return the meaning of an exit code; None: killed by the command line."""
    if code is None:
        return "was killed: it did not end after its peers had failed"
    if code > 128 and code - 128 in {int(s) for s in signal.Signals}:
        return f"was killed by {signal.Signals(code - 128).name}"
    return REASONS.get(code, f"ended with exit code {code}")


def suspect(logs: Path, ranks: Sequence[int]) -> int:
    """Return the rank of a failed pod that stopped writing first; its peers write later that they lost it."""
    return min(ranks, key=lambda rank: (_last_write(rank_log(logs, rank)), rank))


def _last_write(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return float("inf")


def failure_text(pod: str, ranks: Sequence[int], code: int | None, logs: Path, advice: str) -> str:
    """Return which rank failed and how, what to do next, the end of its log and the path of the log."""
    rank = suspect(logs, ranks)
    log = rank_log(logs, rank)
    lines = own_lines(log) or own_lines(pod_log(logs, pod))
    head = f"rank {rank} (pod {pod}) {reason(code)}; {advice} once that is mended"
    return "\n".join([head, *(f"  | {line}" for line in lines), f"  log: {log}"])


def own_lines(log: Path) -> list[str]:
    """Return the last lines of a log that belong to its last attempt."""
    lines = tail(log, LOG_LINES)
    starts = [index for index, line in enumerate(lines) if line.startswith(ATTEMPT_LINE)]
    return lines[starts[-1] + 1 :] if starts else lines
