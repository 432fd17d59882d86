"""The text of a failed run: the rank that ended it, with the last lines of its log."""

import signal
from collections.abc import Sequence
from pathlib import Path

from heterotp_api.formatting import ranks_listed
from heterotp_api.last_words import RankFailure
from heterotp_api.names import (
    EXIT_CHECKPOINT_OWNER,
    EXIT_LEFT,
    EXIT_NAME_UNRESOLVED,
    EXIT_NO_PROGRESS,
    EXIT_NON_FINITE,
    EXIT_NOT_LET_IN,
    EXIT_PEER_LOST,
)

from heterotp_cli.follow import tail
from heterotp_cli.logs import ATTEMPT_LINE, pod_log, rank_log

LOG_LINES = 12
REASONS = {
    EXIT_PEER_LOST: "lost a peer, and no other rank reported a cause",
    EXIT_NAME_UNRESOLVED: "did not find the address of rank 0",
    EXIT_CHECKPOINT_OWNER: "was refused by its checkpoints: a newer attempt or another job owns them",
    EXIT_NON_FINITE: "stopped before an update because the loss or a gradient was not finite (NaN or infinite)",
    EXIT_LEFT: "was asked to leave (SIGTERM), and the others did not go on",
    EXIT_NOT_LET_IN: "was not let in by the others, which went on without it",
    EXIT_NO_PROGRESS: "ended no iteration within runPolicy.progressDeadlineSeconds",
}
NO_DOCUMENT = "its launcher left no document that names the failed rank"


def reason(code: int | None) -> str:
    """Return the meaning of an exit code; None: killed by the command line."""
    if code is None:
        return "was killed: it did not end after its peers had failed"
    if code > 128 and code - 128 in {int(s) for s in signal.Signals}:
        return f"was killed by {signal.Signals(code - 128).name}"
    return REASONS.get(code, f"ended with exit code {code}")


def failure_text(
    pod: str, ranks: Sequence[int], code: int | None, failure: RankFailure | None, logs: Path, advice: str
) -> str:
    """Return which rank failed and how, what to do next, the end of its log and the path of the log.

    ranks, code: the pod's ranks and its launcher's exit code; failure: the document that the launcher left.
    """
    if failure is not None:
        cause = f"rank {failure.rank} (pod {pod}) {reason(failure.exit_code)}"
        log = rank_log(logs, failure.rank)
    elif code is None and len(ranks) == 1:
        cause, log = f"rank {ranks[0]} (pod {pod}) {reason(code)}", rank_log(logs, ranks[0])
    else:
        cause, log = f"pod {pod} ({ranks_listed(ranks)}) {reason(code)}; {NO_DOCUMENT}", pod_log(logs, pod)
    lines = own_lines(log) or list(filter(None, [failure.message if failure is not None else ""]))
    head = f"{cause}; {advice} after you have removed the cause"
    return "\n".join([head, *(f"  | {line}" for line in lines), f"  log: {log}"])


def own_lines(log: Path) -> list[str]:
    """Return the last lines of a log that belong to its last attempt, for people."""
    lines = tail(log, LOG_LINES)
    starts = [index for index, line in enumerate(lines) if line.startswith(ATTEMPT_LINE)]
    return lines[starts[-1] + 1 :] if starts else lines
