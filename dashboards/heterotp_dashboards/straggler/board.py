"""The board of one job: whether it is slow, which rank slows it, since when, the response and its cost."""

from grafana_foundation_sdk.builders import dashboard as build

from heterotp_dashboards import frame, queries, variables
from heterotp_dashboards.panels import Layout
from heterotp_dashboards.queries import ONE_JOB, series
from heterotp_dashboards.straggler.balancing import balancing
from heterotp_dashboards.straggler.learning import learning
from heterotp_dashboards.straggler.machines import machines
from heterotp_dashboards.straggler.now import now
from heterotp_dashboards.straggler.ranks import stragglers

ITERATIONS = "heterotp_iterations_total"
IN_CLUSTER = 'cluster=~"$cluster"'


def board() -> build.Dashboard:
    """Return the board."""
    made = frame.board(
        "HeteroTP / Stragglers",
        frame.STRAGGLER,
        "Whether the job is slow, which rank slows it and since when, how balancing responds, and what that costs.",
    )
    in_namespace = series(ITERATIONS, IN_CLUSTER, 'namespace="$namespace"')
    made.with_variable(variables.datasource()).with_variable(variables.cluster(ITERATIONS))
    made.with_variable(variables.label("namespace", "Namespace", series(ITERATIONS, IN_CLUSTER)))
    made.with_variable(variables.label("heterotpjob", "Job", in_namespace))
    made.with_variable(variables.multi_choice("rank", "Ranks", series(ITERATIONS, ONE_JOB), all_value=".+"))
    made.with_variable(variables.logs())
    for annotation in annotations():
        made.annotation(annotation)
    layout = Layout(made)
    layout.row("Now", *now())
    layout.row("Stragglers", *stragglers())
    layout.row("Balancing", *balancing())
    layout.row("Learning", *learning())
    layout.row("Machines", *machines(), collapsed=True)
    return made


def annotations() -> list[build.AnnotationQuery]:
    """Return the annotations of every panel with a time axis."""
    policy = queries.increased(series("heterotp_policy_generation", ONE_JOB, 'rank="0"'))
    moved = queries.increased(series("heterotp_reshards_total", ONE_JOB))
    attempt = series("heterotp_attempt", ONE_JOB)
    restart = queries.increased(
        attempt, before=f"max_over_time({attempt}[1h] offset 1m)"
    )  # no samples between two attempts
    firing = series("ALERTS", ONE_JOB, 'alertname=~"HeteroTPJob.*"', 'alertstate="firing"')
    return [
        frame.event("Policy change", policy, "A changed policy or injection takes effect"),
        frame.event("Injection", queries.injections(), "Injected slow-down: rank {{rank}} on {{node}}"),
        frame.event("Restart", restart, "The gang restarts"),
        frame.event("Re-shard", moved, "Units move between ranks"),
        frame.event("Alert", f"max by (alertname) ({firing})", "{{alertname}}"),
    ]
