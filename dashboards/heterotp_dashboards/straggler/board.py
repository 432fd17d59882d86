"""The board of one job: is it slow, who slows it, since when, what was done, what did it cost."""

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
        "Is the job slow, who slows it, since when, what was done about it and what did it cost.",
    )
    in_namespace = series(ITERATIONS, IN_CLUSTER, 'namespace="$namespace"')
    made.with_variable(variables.datasource()).with_variable(variables.cluster(ITERATIONS))
    made.with_variable(variables.label("namespace", "Namespace", series(ITERATIONS, IN_CLUSTER)))
    made.with_variable(variables.label("heterotpjob", "Job", in_namespace))
    made.with_variable(variables.many("rank", "Ranks", series(ITERATIONS, ONE_JOB), all_value=".+"))
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
    """Return what is marked on every panel with a time axis."""
    policy = queries.rose(series("heterotp_policy_generation", ONE_JOB, 'rank="0"'))
    moved = queries.rose(series("heterotp_reshards_total", ONE_JOB))
    attempt = series("heterotp_attempt", ONE_JOB)
    restart = queries.rose(attempt, before=f"max_over_time({attempt}[1h] offset 1m)")  # there is a gap between attempts
    firing = series("ALERTS", ONE_JOB, 'alertname=~"HeteroTPJob.*"', 'alertstate="firing"')
    return [
        frame.event("Policy change", policy, "purple", "Another policy or injection takes effect"),
        frame.event("Injection", queries.injections(), "orange", "Slowed on purpose: rank {{rank}} on {{node}}"),
        frame.event("Restart", restart, "red", "The gang starts again"),
        frame.event("Re-shard", moved, "blue", "Units change rank"),
        frame.event("Alert", f"max by (alertname) ({firing})", "dark-red", "{{alertname}}"),
    ]
