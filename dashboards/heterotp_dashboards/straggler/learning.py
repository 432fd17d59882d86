"""Row Learning: loss and accuracy, and the cost in rank-hours."""

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import ONE_JOB, increase_in_range, phase, series


def learning() -> list[PanelRow]:
    """Return the panels of the row."""
    return [
        (8, [(8, loss()), (8, accuracy()), (8, step_histogram())]),
        (4, [(6, lost()), (6, checkpoint()), (6, refused()), (6, progress())]),
    ]


def loss() -> Panel:
    """Return the loss."""
    info = PanelInfo(
        "Loss", "Loss of training and of evaluations. Good: it falls, without a step where work is pruned.", "short"
    )
    return panels.lines(info, Query(f"max by (split) ({series('heterotp_loss', ONE_JOB)})", "{{split}}"))


def accuracy() -> Panel:
    """Return accuracy, with pruning beside it."""
    info = PanelInfo(
        "Accuracy, and pruning",
        "Accuracy of evaluations; on the right axis the largest pruned share of any rank. Good: the accuracy curve "
        "does not bend where pruning starts.",
        "percentunit",
    )
    targets = [
        Query(f"max by (split) ({series('heterotp_accuracy_ratio', ONE_JOB)})", "{{split}}"),
        Query(f"max({series('heterotp_pruned_ratio', ONE_JOB)})", "most pruned"),
    ]
    right = [
        panels.setting("custom.axisPlacement", "right"),
        panels.fixed(colours.MOST_PRUNED),
        panels.setting("custom.fillOpacity", 15),
    ]
    return panels.lines(info, *targets).min(0).max(1).override_by_name("most pruned", right)


def step_histogram() -> Panel:
    """Return the histogram of iteration times over time."""
    info = PanelInfo(
        "Step time, all iterations",
        "Distribution of iteration times. Good: one narrow band. A second band above it: a rank is slow in some "
        "iterations only.",
        "s",
    )
    increase = f"increase({series('heterotp_step_seconds_bucket', ONE_JOB)}[{queries.RATE_WINDOW}])"
    return panels.buckets(info, Query(f"sum by (le) ({increase})", "{{le}}", buckets=True))


def lost() -> Panel:
    """Return the rank-hours spent waiting."""
    info = PanelInfo(
        "Rank-hours lost to waiting",
        "Sum of the waiting time of all ranks in this time range: the cost of imbalance and communication. Good: small "
        "relative to ranks times hours.",
        "h",
    )
    waited = increase_in_range("heterotp_phase_seconds_total", ONE_JOB, phase("wait"))
    return panels.number(info, Query(f"sum({waited}) / 3600", "lost", now=True)).decimals(2)


def checkpoint() -> Panel:
    """Return the cost of a checkpoint."""
    info = PanelInfo(
        "Last checkpoint took",
        "Seconds to write the newest checkpoint. Good: small relative to the checkpoint interval.",
        "s",
    )
    query = Query(f"max({series('heterotp_checkpoint_seconds', ONE_JOB)} > 0)", "checkpoint", now=True)
    return panels.number(info, query).no_value("none yet")


def refused() -> Panel:
    """Return the number of refused control documents."""
    info = PanelInfo(
        "Control documents refused",
        "Control documents of the operator that rank 0 refused in this time range. Good: 0. Otherwise the image of "
        "the trainer is older than the operator.",
        "none",
    )
    query = Query(f"sum({increase_in_range('heterotp_control_errors_total', ONE_JOB)})", "refused", now=True)
    return panels.number(info, query, colors=colours.REFUSED_DOCUMENTS).decimals(0)


def progress() -> Panel:
    """Return the epoch and the attempt of the job."""
    info = PanelInfo(
        "Epoch, attempt",
        "Current epoch, and how often the gang was started. Good: the attempt does not change.",
        "none",
    )
    targets = [
        Query(f"max({series(metric, ONE_JOB)})", legend, now=True)
        for metric, legend in (("heterotp_epoch", "epoch"), ("heterotp_attempt", "attempt"))
    ]
    return panels.number(info, *targets)
