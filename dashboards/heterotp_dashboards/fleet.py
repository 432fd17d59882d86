"""The board of all jobs: which ones are slow, and what it costs."""

from grafana_foundation_sdk.builders import dashboard as build

from heterotp_dashboards import frame, panels, queries, variables
from heterotp_dashboards.panels import FACTOR, GREEN, ORANGE, RED, YELLOW, About, Ask, Layout, Line, Panel, steps
from heterotp_dashboards.queries import JOB, NAMESPACES, added_up, quantile, rate, series

JOBS = "heterotp_operator_jobs"
JOB_LEGEND = "{{namespace}}/{{heterotpjob}}"
IMBALANCED = steps(GREEN, (1.1, YELLOW), (1.2, RED))
TO_JOB = (
    f"/d/{frame.STRAGGLER}?var-datasource=${{datasource}}&var-cluster=${{cluster}}&var-namespace=${{__data.fields.namespace}}"
    "&var-heterotpjob=${__data.fields.job}&${__url_time_range}"
)


def board() -> build.Dashboard:
    """Return the board."""
    made = frame.board(
        "HeteroTP / Fleet", frame.FLEET, "All jobs: how they are, the worst ones, what waiting costs.", "now-6h"
    )
    made.with_variable(variables.datasource()).with_variable(variables.cluster(JOBS))
    made.with_variable(variables.many("namespace", "Namespaces", series(JOBS, 'cluster=~"$cluster"')))
    made.with_variable(variables.top())
    for annotation in frame.operator_events(NAMESPACES):
        made.annotation(annotation)
    layout = Layout(made)
    layout.row("Now", (6, [(10, phases()), (8, flagged()), (6, throughput())]))
    layout.row("Worst jobs", *worst())
    layout.row("Cost and flow", (8, [(8, lost()), (8, finished()), (8, startup())]))
    return made


def phases() -> Panel:
    """Return jobs by phase."""
    about = About(
        "Jobs by phase",
        "How many jobs are in which phase. Good: Running; Pending and Restarting only for a short while, Failed none.",
        "none",
    )
    expr = f"sum by (phase) (max by (cluster, namespace, phase) ({series(JOBS, NAMESPACES)}))"
    panel = panels.number(about, Ask(expr, "{{phase}}", now=True), colors=steps("text"))
    for phase, color in (("Running", GREEN), ("Pending", YELLOW), ("Restarting", ORANGE), ("Failed", RED)):
        panel.override_by_name(phase, [panels.setting("thresholds", steps("text", (1, color)).build())])
    return panel.text_mode(panels.VALUE_AND_NAME)


def flagged() -> Panel:
    """Return jobs with stragglers."""
    about = About(
        "Jobs with stragglers",
        "Ranks that the operator flags as slow for the work they have, by job; the ten jobs with most. Good: none.",
        "none",
    )
    flagged = f"max by (cluster, namespace, heterotpjob) ({series('heterotp_operator_stragglers', NAMESPACES)})"
    panel = panels.bars(about, Ask(f"topk(10, {flagged} > 0)", JOB_LEGEND, now=True), colors=steps(YELLOW, (2, RED)))
    return panel.no_value("none")


def throughput() -> Panel:
    """Return samples per second."""
    about = About("Samples/s, by namespace", "Training samples per second. Good: steady while jobs run.", "short")
    expr = f"sum by (namespace) ({rate('heterotp_samples_total', NAMESPACES)})"
    return panels.lines(about, Ask(expr, "{{namespace}}"), fill=10).min(0)


def worst() -> list[Line]:
    """Return the jobs that suffer most."""
    return [(10, [(12, worst_table()), (12, worst_over_time())])]


def worst_jobs() -> str:
    """Return the imbalance of the worst jobs at the end of the time range."""
    return f"topk($top, {of_job(queries.IMBALANCE)})"


def of_job(record: str) -> str:
    """Return what is recorded of each job, without its name, by which a table would tell equal jobs apart."""
    return f"max by ({JOB}) ({series(record, NAMESPACES)})"


def worst_table() -> Panel:
    """Return the worst jobs with what makes them so."""
    about = About(
        "Worst jobs",
        "Jobs by imbalance (max T / mean T): their slowest rank's χ, and the share of time that goes into waiting. "
        "Good: imbalance below 1.1. A high χ beside a low imbalance is a slow rank that balancing has dealt with. A "
        "row leads to the job's board.",
        "none",
    )
    slowest, waiting = of_job(queries.SLOWDOWN_MAX), of_job(queries.WAIT_SHARE)
    these = f"and on ({JOB}) {worst_jobs()}"
    panel = panels.rows(
        about, *(Ask(e, rows=True) for e in (worst_jobs(), f"{slowest}\n{these}", f"{waiting}\n{these}"))
    )
    names = {"Value #A": "imbalance", "Value #B": "max χ", "Value #C": "waiting", "heterotpjob": "job"}
    order = {"namespace": 0, "heterotpjob": 1, "Value #A": 2, "Value #B": 3, "Value #C": 4}
    panel.with_transformation(panels.transformation("merge"))
    panel.with_transformation(panels.transformation("filterFieldsByName", include={"names": list(order)}))
    panel.with_transformation(
        panels.transformation("organize", indexByName=order, renameByName=names, excludeByName={})
    )
    panel.with_transformation(panels.transformation("sortBy", fields={}, sort=[{"field": "imbalance", "desc": True}]))
    panel.override_by_name(
        "imbalance", [panels.setting("unit", FACTOR), panels.setting("decimals", 2), *panels.coloured(IMBALANCED)]
    )
    panel.override_by_name("max χ", [panels.setting("unit", FACTOR), panels.setting("decimals", 2)])
    panel.override_by_name("waiting", [panels.setting("unit", "percentunit"), panels.setting("decimals", 1)])
    return panel.override_by_name("job", [panels.setting("links", [panels.link("Stragglers", TO_JOB)])])


def worst_over_time() -> Panel:
    """Return the same jobs over time."""
    about = About(
        "Worst jobs over time",
        "Imbalance of the jobs on the left, over the time range: since when, and whether it comes and goes. Good: "
        "green.",
        FACTOR,
    )
    these = f"topk($top, {series(queries.IMBALANCE, NAMESPACES)} @ end())"
    expr = f"{series(queries.IMBALANCE, NAMESPACES)}\nand on ({JOB}) {these}"
    return panels.timeline(about, Ask(expr, JOB_LEGEND), colors=IMBALANCED, page=20).decimals(2)


def lost() -> Panel:
    """Return rank-hours of waiting."""
    about = About(
        "Rank-hours lost to waiting, by namespace",
        "Time that ranks spent waiting in this time range, added up: what imbalance and communication cost in "
        "machines. Good: little against ranks times hours.",
        "h",
    )
    per_minute = f"sum_over_time({series(queries.WAIT_RATE, NAMESPACES)}[$__range:1m])"  # also of jobs that ended since
    return panels.bars(about, Ask(f"sum by (namespace) ({per_minute}) / 60", "{{namespace}}", now=True)).decimals(1)


def finished() -> Panel:
    """Return jobs that ended, by result."""
    about = About(
        "Finished jobs, by result",
        "Jobs that ended in this time range; the others than Succeeded name the reason. Good: Succeeded alone.",
        "none",
    )
    expr = f"sum by (result) ({added_up('heterotp_operator_jobs_finished_total', NAMESPACES)}) > 0"
    panel = panels.bars(about, Ask(expr, "{{result}}", now=True), colors=steps(RED))
    return panels.color_fields(panel.decimals(0).no_value("none"), {"Succeeded": "green"})


def startup() -> Panel:
    """Return how long jobs take to start."""
    about = About(
        "Start-up time",
        "From creation to the whole gang running: half of the jobs below p50, all but one in twenty below p95. Good: "
        "seconds to a few minutes; more is queueing or image pulls.",
        "s",
    )
    asks = [
        Ask(quantile(q, "heterotp_operator_job_startup_seconds_bucket", NAMESPACES, window="$__range"), name, now=True)
        for q, name in ((0.5, "p50"), (0.95, "p95"))
    ]
    return panels.number(about, *asks).no_value("no job started")
