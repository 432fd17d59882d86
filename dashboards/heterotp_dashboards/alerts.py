"""Alerts: few, each with an action for the reader; every threshold is an argument."""

from dataclasses import dataclass

from heterotp_dashboards import frame
from heterotp_dashboards.queries import BUSY, IMBALANCE, JOB, SLOWDOWN, in_phase, phase, quantile, rate, series
from heterotp_dashboards.rules import WINDOW, Alert, Group

ERROR = 'result="error"'
THE_JOB = "{{ $labels.namespace }}/{{ $labels.heterotpjob }}"
# what the machine of the alert's rank says, the most frequent cause first; nothing where no cause is known
CAUSES = (
    "{{ with printf \"sort_desc(max by (cause) (heterotp_slow_cause{namespace='%s',heterotpjob='%s',rank='%s'}))\" "
    "$labels.namespace $labels.heterotpjob $labels.rank | query }} Its machine says why: "
    "{{ range $place, $found := . }}{{ if $place }}, {{ end }}{{ $found.Labels.cause }} "
    "({{ $found.Value | humanizePercentage }} of the time){{ end }}.{{ end }}"
)
PRESENT = f"count by ({JOB}) (count by ({JOB}, rank) (heterotp_iterations_total))"


@dataclass(frozen=True)
class Thresholds:
    """Thresholds and waiting times of the alerts, as text: each may be a Helm expression."""

    slowdown: str = "1.5"
    imbalance: str = "1.2"
    straggler_for: str = "10m"
    straggler_keep_firing_for: str = "5m"
    stalled_seconds: str = "600"
    policy_diverged_for: str = "5m"
    policy_updates: str = "30"
    pruned_ratio: str = "0.5"
    pruned_for: str = "30m"
    accuracy_drop: str = "0.03"
    metrics_missing_for: str = "10m"
    ranks_missing_for: str = "5m"
    pending_for: str = "30m"
    operator_absent_for: str = "15m"
    handler_error_ratio: str = "0.05"
    handler_seconds: str = "10"


def alerting(limits: Thresholds, operator_job: str) -> tuple[Group, ...]:
    """Return the groups of alerts; `operator_job` is the `job` label of the operator's scrape."""
    jobs = (
        *(straggler_unmitigated(limits), stalled(limits)),
        *(policy_diverged(limits), policy_flapping(limits), pruning_high(limits)),
        *(loss_not_finite(), accuracy_dropped(limits)),
        *(metrics_missing(limits), ranks_missing(limits), stuck_pending(limits)),
    )
    operator = (
        operator_absent(limits, operator_job),
        handler_errors(limits, operator_job),
        handler_slow(limits, operator_job),
    )
    return Group("heterotp-job-alerts", jobs), Group("heterotp-operator-alerts", operator)


def straggler_unmitigated(limits: Thresholds) -> Alert:
    """Return the alert on a slow rank that delays the job, which a rank with reduced work does not.

    Jobs with `metrics.level: basic` have no chi; for them a rank above the average time fires.
    """
    return Alert(
        "HeteroTPJobStragglerUnmitigated",
        f"({SLOWDOWN} > {limits.slowdown}\n  and on ({JOB}) {IMBALANCE} > {limits.imbalance})\n"
        f"or\n({BUSY} / on ({JOB}) group_left () avg by ({JOB}) ({BUSY}) > {limits.imbalance}\n"
        f"  unless on ({JOB}) {SLOWDOWN})",
        severity="warning",
        wait=limits.straggler_for,
        linger=limits.straggler_keep_firing_for,
        summary=f"Rank {{{{ $labels.rank }}}} of {THE_JOB} is slow and delays the job.",
        description='Rank {{ $labels.rank }} on {{ $labels.node }} takes {{ $value | printf "%.1f" }} times as long as '
        "its work should take (metrics.level basic: as the average rank). "
        f"The other ranks of {THE_JOB} wait for it; balancing does not compensate for it.{CAUSES}",
        board=frame.STRAGGLER,
    )


def stalled(limits: Thresholds) -> Alert:
    """Return the alert on a running job without a recent iteration; the gauge is 0 before the first one."""
    last = "heterotp_last_iteration_timestamp_seconds"
    running = series("heterotp_operator_job_status_phase", phase("Running"))
    seconds = limits.stalled_seconds
    return Alert(
        "HeteroTPJobStalled",
        f"(time() - max by ({JOB}) ({last} > 0) > {seconds}\n"
        f"  or (max by ({JOB}) ({last}) == 0) + {seconds}\n"
        f"    and on ({JOB}) max by ({JOB}) (min_over_time({running}[{seconds}s])) == 1\n"
        f"    and on ({JOB}) max by ({JOB}) ({running} offset {seconds}s) == 1)\n"
        f"and on ({JOB}) {in_phase('Running')}",
        severity="critical",
        wait="2m",
        summary=f"{THE_JOB} is Running, but no iteration ends.",
        description=f"No rank of {THE_JOB} has ended an iteration for {{{{ $value | humanizeDuration }}}} or more.",
        board=frame.STRAGGLER,
    )


def policy_diverged(limits: Thresholds) -> Alert:
    """Return the alert on ranks that follow different generations of the control document."""
    generation = "heterotp_policy_generation"
    return Alert(
        "HeteroTPJobPolicyDiverged",
        f"max by ({JOB}) ({generation}) != min by ({JOB}) ({generation})",
        severity="critical",
        wait=limits.policy_diverged_for,
        summary=f"Ranks of {THE_JOB} follow different policies.",
        description=f"Some ranks of {THE_JOB} follow generation {{{{ $value }}}} of the control document, others an "
        "older one. A change takes effect on all ranks at the same iteration, so this is a fault.",
        board=frame.STRAGGLER,
    )


def policy_flapping(limits: Thresholds) -> Alert:
    """Return the alert on decisions that are too frequent to save time."""
    return Alert(
        "HeteroTPJobPolicyFlapping",
        f"sum by ({JOB}) (increase(heterotp_policy_updates_total[15m])) > {limits.policy_updates}",
        severity="warning",
        wait="15m",
        summary=f"Balancing of {THE_JOB} changes its plan too often.",
        description=f'{{{{ $value | printf "%.0f" }}}} decisions in 15 minutes for {THE_JOB}: ranks change speed '
        "faster than balancing can follow, or the policy's thresholds are too narrow.",
        board=frame.STRAGGLER,
    )


def pruning_high(limits: Thresholds) -> Alert:
    """Return the alert on a rank with half of its work pruned for a long time."""
    return Alert(
        "HeteroTPJobPruningHigh",
        f"max by ({JOB}, rank) (avg_over_time(heterotp_pruned_ratio[30m])) > {limits.pruned_ratio}\n"
        f"and on ({JOB}, rank) heterotp_pruned_ratio",  # only ranks that are still scraped
        severity="info",
        wait=limits.pruned_for,
        summary=f"A large share of rank {{{{ $labels.rank }}}} of {THE_JOB} has long been pruned.",
        description=f"{{{{ $value | humanizePercentage }}}} of the work of rank {{{{ $labels.rank }}}} of {THE_JOB} "
        "was pruned over the last 30 minutes. RESHARD or AUTO would move the work without loss.",
        board=frame.STRAGGLER,
    )


def loss_not_finite() -> Alert:
    """Return the alert on a loss of NaN or infinity, which does not recover."""
    return Alert(
        "HeteroTPJobLossNotFinite",
        "heterotp_loss != heterotp_loss or abs(heterotp_loss) == +Inf",
        severity="critical",
        summary=f"The loss of {THE_JOB} is not a number.",
        description=f"The {{{{ $labels.split }}}} loss of {THE_JOB} is {{{{ $value }}}}: further training is "
        "useless. Restore an earlier checkpoint.",
        board=frame.STRAGGLER,
    )


def accuracy_dropped(limits: Thresholds) -> Alert:
    """Return the alert on an accuracy drop while work is pruned; best and current value are of the same pod."""
    accuracy = 'heterotp_accuracy_ratio{split="eval"}'
    return Alert(
        "HeteroTPJobAccuracyDropped",
        f"max by ({JOB}) (max_over_time({accuracy}[6h]) - {accuracy}) > {limits.accuracy_drop}\n"
        f"and on ({JOB}) max by ({JOB}) (heterotp_pruned_ratio) > 0",
        severity="warning",
        wait="30m",
        summary=f"Accuracy of {THE_JOB} drops while work is pruned.",
        description=f"Accuracy of {THE_JOB} is {{{{ $value | humanizePercentage }}}} below its best of the last 6 "
        "hours, and a rank is pruned. A lower maxPrunedShare, or RESHARD, costs time instead of accuracy.",
        board=frame.STRAGGLER,
    )


def metrics_missing(limits: Thresholds) -> Alert:
    """Return the alert on a running job without any series in Prometheus."""
    return Alert(
        "HeteroTPJobMetricsMissing",
        f"{in_phase('Running')}\nunless on ({JOB}) {PRESENT}",
        severity="warning",
        wait=limits.metrics_missing_for,
        summary=f"No metrics arrive from {THE_JOB}.",
        description=f"{THE_JOB} is Running, but none of its ranks is scraped: boards and other "
        "alerts have no data of it.",
        board=frame.OPERATOR,
    )


def ranks_missing(limits: Thresholds) -> Alert:
    """Return the alert on missing ranks; rank 0 reports the expected number."""
    expected = f"max by ({JOB}) (heterotp_world_ranks)"
    return Alert(
        "HeteroTPJobRanksMissing",
        f"({PRESENT} < on ({JOB}) {expected}\n  or {PRESENT} unless on ({JOB}) {expected})\n"
        f"unless on ({JOB}) {in_phase('Pending|Starting|Restarting')}",
        severity="warning",
        wait=limits.ranks_missing_for,
        summary=f"Some ranks of {THE_JOB} do not report.",
        description=f"Metrics of only {{{{ $value }}}} ranks of {THE_JOB} arrive. The slow rank may be "
        "one of the missing ranks.",
        board=frame.STRAGGLER,
    )


def stuck_pending(limits: Thresholds) -> Alert:
    """Return the alert on a gang that does not start; a change between these phases is no progress."""
    return Alert(
        "HeteroTPJobStuckPending",
        in_phase("Pending|Starting|Restarting"),
        severity="warning",
        wait=limits.pending_for,
        summary=f"{THE_JOB} does not start.",
        description=f"{THE_JOB} has been Pending, Starting or Restarting. status.waitingFor names the cause.",
        board=frame.OPERATOR,
    )


def operator_absent(limits: Thresholds, operator_job: str) -> Alert:
    """Return the alert on an operator without a scraped replica."""
    return Alert(
        "HeteroTPOperatorAbsent",
        f'absent(up{{job="{operator_job}"}} == 1)',
        severity="critical",
        wait=limits.operator_absent_for,
        summary="No replica of the HeteroTP operator is up.",
        description="No replica of the operator is scraped. Running ranks continue, but no job starts or restarts, "
        "and changed policies have no effect.",
        board=frame.OPERATOR,
    )


def handler_errors(limits: Thresholds, operator_job: str) -> Alert:
    """Return the alert on failing reconciles."""
    metric, own = "heterotp_operator_reconcile_total", f'job="{operator_job}"'
    failed = f"sum by (kind) ({rate(metric, own, ERROR, window=WINDOW)})"
    return Alert(
        "HeteroTPOperatorHandlerErrors",
        f"{failed}\n/ (sum by (kind) ({rate(metric, own, window=WINDOW)}) > 0) > {limits.handler_error_ratio}",
        severity="warning",
        wait="15m",
        summary="The HeteroTP operator fails to reconcile {{ $labels.kind }} objects.",
        description="{{ $value | humanizePercentage }} of the reconciles of {{ $labels.kind }} end in an error; the "
        "log of the operator names the objects.",
        board=frame.OPERATOR,
    )


def handler_slow(limits: Thresholds, operator_job: str) -> Alert:
    """Return the alert on slow reconciles; `>=`: a quantile beyond the last bucket equals its bound, 10 s."""
    buckets = "heterotp_operator_reconcile_duration_seconds_bucket"
    p99 = quantile(0.99, buckets, f'job="{operator_job}"', by="kind", window=WINDOW)
    return Alert(
        "HeteroTPOperatorHandlerSlow",
        f"{p99} >= {limits.handler_seconds}",
        severity="warning",
        wait="15m",
        summary="The HeteroTP operator reconciles {{ $labels.kind }} objects slowly.",
        description="1 % of the reconciles of {{ $labels.kind }} take {{ $value | humanizeDuration }} or more: "
        "the API server answers slowly, or the rate limit is too low.",
        board=frame.OPERATOR,
    )
