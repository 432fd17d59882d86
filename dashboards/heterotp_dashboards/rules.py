"""Recording rules: aggregates for boards and alerts, so that a query does not sum 64,000 series."""

from collections.abc import Sequence
from dataclasses import dataclass

from heterotp_dashboards import queries
from heterotp_dashboards.queries import JOB, RANK, Ranks

WINDOW = "5m"
INTERVAL = "30s"


@dataclass(frozen=True)
class Record:
    """One recording rule."""

    name: str
    expr: str

    def body(self, _: str) -> dict[str, object]:
        """Return the rule in the format of a rule file."""
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True)
class Alert:
    """One alerting rule.

    wait: how long the expression must hold (`for`). linger: how long the alert stays afterwards (`keep_firing_for`).
    """

    name: str
    expr: str
    severity: str
    summary: str
    description: str
    board: str
    wait: str = "0s"
    linger: str = ""

    def body(self, runbooks: str) -> dict[str, object]:
        """Return the rule in the format of a rule file; runbooks: URL of its page, with {alert} for its name."""
        lingering = {"keep_firing_for": self.linger} if self.linger else {}
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            **lingering,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": runbooks.replace("{alert}", self.name),
                "dashboard_uid": self.board,
            },
        }


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated in order; `detail` groups cost several series per rank."""

    name: str
    rules: Sequence[Record | Alert]
    detail: bool = False


def recording() -> tuple[Group, ...]:
    """Return the groups of recording rules; a rule follows the rules whose series it reads."""
    ranks = Ranks(selector="", window=WINDOW, by=RANK)
    slowest = f"max by ({JOB}) ({queries.SLOWDOWN})"
    waiting = queries.rate("heterotp_phase_seconds_total", queries.phase("wait"), window=WINDOW)
    jobs = (
        Record(queries.BUSY, ranks.present(ranks.busy())),
        Record(queries.IMBALANCE, queries.imbalance()),
        Record(queries.WAIT_SHARE, queries.wait_share(WINDOW)),
        Record(queries.WAIT_RATE, f"sum by (cluster, namespace) ({waiting})"),
        Record(queries.PHASE_NOW, f"max by ({JOB}, phase) (heterotp_operator_job_status_phase == 1)"),
    )
    details = (
        Record(queries.MATMUL, ranks.present(ranks.seconds("matmul"))),
        Record(queries.WAIT, ranks.present(ranks.seconds("wait"))),
        Record(queries.SLOWDOWN, queries.slowdown()),
        Record(queries.SLOWDOWN_MAX, slowest),
    )
    return Group("heterotp-jobs", jobs), Group("heterotp-ranks", details, detail=True)
