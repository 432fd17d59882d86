"""Row Learning: what it cost, in accuracy and in machines."""

from heterotp_dashboards import panels, queries
from heterotp_dashboards.panels import GREEN, RED, About, Ask, Line, Panel, steps
from heterotp_dashboards.queries import ONE_JOB, added_up, phase, series


def learning() -> list[Line]:
    """Return the price of it all."""
    return [
        (8, [(8, loss()), (8, accuracy()), (8, step_histogram())]),
        (4, [(6, lost()), (6, checkpoint()), (6, refused()), (6, progress())]),
    ]


def loss() -> Panel:
    """Return the loss."""
    about = About(
        "Loss", "Loss of training and of evaluations. Good: falls, and no gap or step where work is pruned.", "short"
    )
    return panels.lines(about, Ask(f"max by (split) ({series('heterotp_loss', ONE_JOB)})", "{{split}}"))


def accuracy() -> Panel:
    """Return accuracy, with pruning beside it."""
    about = About(
        "Accuracy, and pruning",
        "Accuracy of evaluations; on the right axis the most that is pruned from any rank. Good: accuracy does not "
        "bend where pruning begins.",
        "percentunit",
    )
    asks = [
        Ask(f"max by (split) ({series('heterotp_accuracy_ratio', ONE_JOB)})", "{{split}}"),
        Ask(f"max({series('heterotp_pruned_ratio', ONE_JOB)})", "most pruned"),
    ]
    right = [
        panels.setting("custom.axisPlacement", "right"),
        panels.fixed("red"),
        panels.setting("custom.fillOpacity", 15),
    ]
    return panels.lines(about, *asks).min(0).max(1).override_by_name("most pruned", right)


def step_histogram() -> Panel:
    """Return the iteration's time as a histogram."""
    about = About(
        "Step time, all iterations",
        "How many iterations took how long. Good: one narrow band. A second band above it: some iterations meet a slow "
        "rank, others do not.",
        "s",
    )
    increase = f"increase({series('heterotp_step_seconds_bucket', ONE_JOB)}[{queries.RATE_WINDOW}])"
    return panels.buckets(about, Ask(f"sum by (le) ({increase})", "{{le}}", buckets=True))


def lost() -> Panel:
    """Return rank-hours of waiting."""
    about = About(
        "Rank-hours lost to waiting",
        "Time that ranks spent waiting in this time range, added up: what imbalance and communication cost in "
        "machines. Good: little against ranks times hours.",
        "h",
    )
    waited = added_up("heterotp_phase_seconds_total", ONE_JOB, phase("wait"))
    return panels.number(about, Ask(f"sum({waited}) / 3600", "lost", now=True)).decimals(2)


def checkpoint() -> Panel:
    """Return the cost of a checkpoint."""
    about = About(
        "Last checkpoint took", "Seconds to write the newest checkpoint. Good: small against its interval.", "s"
    )
    ask = Ask(f"max({series('heterotp_checkpoint_seconds', ONE_JOB)} > 0)", "checkpoint", now=True)
    return panels.number(about, ask).no_value("none yet")


def refused() -> Panel:
    """Return control documents that ranks did not take."""
    about = About(
        "Control documents refused",
        "Times that rank 0 refused what the operator told it, in this time range. Good: 0. Else: the trainer's image "
        "is older than the operator.",
        "none",
    )
    ask = Ask(f"sum({added_up('heterotp_control_errors_total', ONE_JOB)})", "refused", now=True)
    return panels.number(about, ask, colors=steps(GREEN, (0.5, RED))).decimals(0)


def progress() -> Panel:
    """Return how far the job is."""
    about = About(
        "Epoch, attempt", "The epoch it is in, and how often the gang was started. Good: attempt stays.", "none"
    )
    asks = [
        Ask(f"max({series(metric, ONE_JOB)})", legend, now=True)
        for metric, legend in (("heterotp_epoch", "epoch"), ("heterotp_attempt", "attempt"))
    ]
    return panels.number(about, *asks)
