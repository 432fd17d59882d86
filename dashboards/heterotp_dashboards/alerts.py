"""Alerts: few, about what a person can act on, with every number an argument."""

from dataclasses import dataclass

from heterotp_dashboards import frame
from heterotp_dashboards.queries import BUSY, IMBALANCE, JOB, SLOWDOWN, in_phase, phase, quantile, rate, series
from heterotp_dashboards.rules import WINDOW, Alert, Group

ERROR = 'result="error"'
THE_JOB = "{{ $labels.namespace }}/{{ $labels.heterotpjob }}"
PRESENT = f"count by ({JOB}) (count by ({JOB}, rank) (heterotp_iterations_total))"


@dataclass(frozen=True)
class Thresholds:
    """What alerts compare with and how long they wait; text, since an expression of Helm may stand for each."""

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
    """A slow rank that holds the others up; one that balancing has relieved is as slow, but holds nobody up.

    Jobs with `metrics.level: basic` have no chi; there it is a rank that takes longer than the average one.
    """
    return Alert(
        "HeteroTPJobStragglerUnmitigated",
        f"({SLOWDOWN} > {limits.slowdown}\n  and on ({JOB}) {IMBALANCE} > {limits.imbalance})\n"
        f"or\n({BUSY} / on ({JOB}) group_left () avg by ({JOB}) ({BUSY}) > {limits.imbalance}\n"
        f"  unless on ({JOB}) {SLOWDOWN})",
        severity="warning",
        wait=limits.straggler_for,
        linger=limits.straggler_keep_firing_for,
        summary=f"Rank {{{{ $labels.rank }}}} of {THE_JOB} is slow and holds the others up.",
        description='Rank {{ $labels.rank }} on {{ $labels.node }} takes {{ $value | printf "%.1f" }} times as long as '
        "the fastest rank for its share (metrics.level basic: as the average rank). "
        f"The other ranks of {THE_JOB} wait for it, and balancing does not make up for it.",
        board=frame.STRAGGLER,
    )


def stalled(limits: Thresholds) -> Alert:
    """A job that runs while no iteration ends: the last one is long ago, or there never was one (the gauge is 0)."""
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
        summary=f"{THE_JOB} runs, but no iteration ends.",
        description=f"No rank of {THE_JOB} has ended an iteration for {{{{ $value | humanizeDuration }}}} or more.",
        board=frame.STRAGGLER,
    )


def policy_diverged(limits: Thresholds) -> Alert:
    """Ranks that follow different control documents compute different things."""
    generation = "heterotp_policy_generation"
    return Alert(
        "HeteroTPJobPolicyDiverged",
        f"max by ({JOB}) ({generation}) != min by ({JOB}) ({generation})",
        severity="critical",
        wait=limits.policy_diverged_for,
        summary=f"Ranks of {THE_JOB} follow different policies.",
        description=f"Some ranks of {THE_JOB} follow generation {{{{ $value }}}} of the control document, others an "
        "older one. A change takes effect on all ranks at one iteration, so this should not be.",
        board=frame.STRAGGLER,
    )


def policy_flapping(limits: Thresholds) -> Alert:
    """Decisions that follow each other so fast that none can pay."""
    return Alert(
        "HeteroTPJobPolicyFlapping",
        f"sum by ({JOB}) (increase(heterotp_policy_updates_total[15m])) > {limits.policy_updates}",
        severity="warning",
        wait="15m",
        summary=f"Balancing of {THE_JOB} changes its mind all the time.",
        description=f'{{{{ $value | printf "%.0f" }}}} decisions in 15 minutes for {THE_JOB}: ranks change speed '
        "faster than balancing can follow, or the policy's thresholds are too narrow.",
        board=frame.STRAGGLER,
    )


def pruning_high(limits: Thresholds) -> Alert:
    """A rank of which half the work has been left out for long: training on less of the model than people think."""
    return Alert(
        "HeteroTPJobPruningHigh",
        f"max by ({JOB}, rank) (avg_over_time(heterotp_pruned_ratio[30m])) > {limits.pruned_ratio}\n"
        f"and on ({JOB}, rank) heterotp_pruned_ratio",  # of ranks that are still there
        severity="info",
        wait=limits.pruned_for,
        summary=f"Much of rank {{{{ $labels.rank }}}} of {THE_JOB} is pruned, and has been for long.",
        description=f"{{{{ $value | humanizePercentage }}}} of what rank {{{{ $labels.rank }}}} of {THE_JOB} should "
        "compute was left out over the last 30 minutes. RESHARD or AUTO would move the work without loss.",
        board=frame.STRAGGLER,
    )


def loss_not_finite() -> Alert:
    """A loss of NaN or infinity never comes back."""
    return Alert(
        "HeteroTPJobLossNotFinite",
        "heterotp_loss != heterotp_loss or abs(heterotp_loss) == +Inf",
        severity="critical",
        summary=f"The loss of {THE_JOB} is not a number.",
        description=f"The {{{{ $labels.split }}}} loss of {THE_JOB} is {{{{ $value }}}}: what it computes from now on "
        "is of no use. Go back to a checkpoint from before.",
        board=frame.STRAGGLER,
    )


def accuracy_dropped(limits: Thresholds) -> Alert:
    """Accuracy below its best while work is pruned; best and now are of one pod, so an older run does not count."""
    accuracy = 'heterotp_accuracy_ratio{split="eval"}'
    return Alert(
        "HeteroTPJobAccuracyDropped",
        f"max by ({JOB}) (max_over_time({accuracy}[6h]) - {accuracy}) > {limits.accuracy_drop}\n"
        f"and on ({JOB}) max by ({JOB}) (heterotp_pruned_ratio) > 0",
        severity="warning",
        wait="30m",
        summary=f"{THE_JOB} gets worse while work is pruned.",
        description=f"Accuracy of {THE_JOB} is {{{{ $value | humanizePercentage }}}} below its best of the last 6 "
        "hours, and a rank is pruned. A lower maxPrunedShare, or RESHARD, costs time instead of accuracy.",
        board=frame.STRAGGLER,
    )


def metrics_missing(limits: Thresholds) -> Alert:
    """A running job that Prometheus knows nothing of."""
    return Alert(
        "HeteroTPJobMetricsMissing",
        f"{in_phase('Running')}\nunless on ({JOB}) {PRESENT}",
        severity="warning",
        wait=limits.metrics_missing_for,
        summary=f"No metrics arrive from {THE_JOB}.",
        description=f"{THE_JOB} runs, but none of its ranks is scraped: boards and the other alerts are blind to it.",
        board=frame.OPERATOR,
    )


def ranks_missing(limits: Thresholds) -> Alert:
    """Ranks that do not report while others do; how many there should be is rank 0's to say, if it is there."""
    expected = f"max by ({JOB}) (heterotp_world_ranks)"
    return Alert(
        "HeteroTPJobRanksMissing",
        f"({PRESENT} < on ({JOB}) {expected}\n  or {PRESENT} unless on ({JOB}) {expected})\n"
        f"unless on ({JOB}) {in_phase('Pending|Starting|Restarting')}",
        severity="warning",
        wait=limits.ranks_missing_for,
        summary=f"Some ranks of {THE_JOB} do not report.",
        description=f"Metrics of only {{{{ $value }}}} ranks of {THE_JOB} arrive. A slow rank may be among the others.",
        board=frame.STRAGGLER,
    )


def stuck_pending(limits: Thresholds) -> Alert:
    """A gang that does not come to work; going back and forth between these phases is no progress."""
    return Alert(
        "HeteroTPJobStuckPending",
        in_phase("Pending|Starting|Restarting"),
        severity="warning",
        wait=limits.pending_for,
        summary=f"{THE_JOB} does not get to run.",
        description=f"{THE_JOB} has been Pending, Starting or Restarting. Its status.waitingFor says what for.",
        board=frame.OPERATOR,
    )


def operator_absent(limits: Thresholds, operator_job: str) -> Alert:
    """No replica of the operator answers."""
    return Alert(
        "HeteroTPOperatorAbsent",
        f'absent(up{{job="{operator_job}"}} == 1)',
        severity="critical",
        wait=limits.operator_absent_for,
        summary="The HeteroTP operator is not there.",
        description="No replica of the operator is scraped. Running ranks go on, but nothing starts, restarts or is "
        "balanced by a changed policy.",
        board=frame.OPERATOR,
    )


def handler_errors(limits: Thresholds, operator_job: str) -> Alert:
    """Reconciles that end in an error."""
    metric, own = "heterotp_operator_reconcile_total", f'job="{operator_job}"'
    failed = f"sum by (kind) ({rate(metric, own, ERROR, window=WINDOW)})"
    return Alert(
        "HeteroTPOperatorHandlerErrors",
        f"{failed}\n/ (sum by (kind) ({rate(metric, own, window=WINDOW)}) > 0) > {limits.handler_error_ratio}",
        severity="warning",
        wait="15m",
        summary="The HeteroTP operator fails at {{ $labels.kind }} objects.",
        description="{{ $value | humanizePercentage }} of the reconciles of {{ $labels.kind }} end in an error; its "
        "log names the objects.",
        board=frame.OPERATOR,
    )


def handler_slow(limits: Thresholds, operator_job: str) -> Alert:
    """Slow reconciles; `>=`, since a quantile beyond the last bucket reads as that bucket's bound, which is 10 s."""
    buckets = "heterotp_operator_reconcile_duration_seconds_bucket"
    p99 = quantile(0.99, buckets, f'job="{operator_job}"', by="kind", window=WINDOW)
    return Alert(
        "HeteroTPOperatorHandlerSlow",
        f"{p99} >= {limits.handler_seconds}",
        severity="warning",
        wait="15m",
        summary="The HeteroTP operator is slow with {{ $labels.kind }} objects.",
        description="One in a hundred reconciles of {{ $labels.kind }} takes {{ $value | humanizeDuration }} or more: "
        "an API server that answers slowly, or a rate limit that is too low.",
        board=frame.OPERATOR,
    )
