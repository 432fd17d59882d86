"""The board of all jobs: the slowest jobs, and the cost of waiting."""

from grafana_foundation_sdk.builders import dashboard as build

from heterotp_dashboards import colours, frame, panels, queries, variables
from heterotp_dashboards.panels import FACTOR, Layout, Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import JOB, NAMESPACES, increase_in_range, quantile, rate, series

JOBS = "heterotp_operator_jobs"
JOB_LEGEND = "{{namespace}}/{{heterotpjob}}"
TO_JOB = (
    f"/d/{frame.STRAGGLER}?var-datasource=${{datasource}}&var-cluster=${{cluster}}&var-namespace=${{__data.fields.namespace}}"
    "&var-heterotpjob=${__data.fields.job}&${__url_time_range}"
)


def board() -> build.Dashboard:
    """Return the board."""
    made = frame.board(
        "HeteroTP / Fleet", frame.FLEET, "All jobs: their phases, the slowest ones, and the cost of waiting.", "now-6h"
    )
    made.with_variable(variables.datasource()).with_variable(variables.cluster(JOBS))
    made.with_variable(variables.multi_choice("namespace", "Namespaces", series(JOBS, 'cluster=~"$cluster"')))
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
    info = PanelInfo(
        "Jobs by phase",
        "Number of jobs in each phase. Good: Running; Pending and Restarting only for a short time; no Failed.",
        "none",
    )
    expr = f"sum by (phase) (max by (cluster, namespace, phase) ({series(JOBS, NAMESPACES)}))"
    panel = panels.number(info, Query(expr, "{{phase}}", now=True), colors=colours.JOBS_IN_PHASE)
    for phase in colours.HIGHLIGHTED_PHASES:
        above_zero = colours.steps(colours.TEXT, (1, colours.JOB_PHASES[phase]))
        panel.override_by_name(phase, [panels.setting("thresholds", above_zero.build())])
    return panel.text_mode(panels.VALUE_AND_NAME)


def flagged() -> Panel:
    """Return jobs with stragglers."""
    info = PanelInfo(
        "Jobs with stragglers",
        "Ranks that the operator flags as slow for their current work, by job: the ten jobs with most. Good: none.",
        "none",
    )
    flagged = f"max by (cluster, namespace, heterotpjob) ({series('heterotp_operator_stragglers', NAMESPACES)})"
    panel = panels.bars(info, Query(f"topk(10, {flagged} > 0)", JOB_LEGEND, now=True), colors=colours.STRAGGLERS_OF_JOB)
    return panel.no_value("none")


def throughput() -> Panel:
    """Return samples per second."""
    info = PanelInfo("Samples/s, by namespace", "Training samples per second. Good: steady while jobs run.", "short")
    expr = f"sum by (namespace) ({rate('heterotp_samples_total', NAMESPACES)})"
    return panels.lines(info, Query(expr, "{{namespace}}"), fill=10).min(0)


def worst() -> list[PanelRow]:
    """Return the panels about the jobs with the largest imbalance."""
    return [(10, [(12, worst_table()), (12, worst_over_time())])]


def worst_jobs() -> str:
    """Return the query of the largest imbalances, at the end of the time range."""
    return f"topk($top, {of_job(queries.IMBALANCE)})"


def of_job(record: str) -> str:
    """Return a recorded value by job, without the metric name: a table would not merge rows that differ in it."""
    return f"max by ({JOB}) ({series(record, NAMESPACES)})"


def worst_table() -> Panel:
    """Return the table of the jobs with the largest imbalance."""
    info = PanelInfo(
        "Worst jobs",
        "Jobs by imbalance (max T / mean T), with χ of their slowest rank and the share of time spent waiting. Good: "
        "imbalance below 1.1. A high χ with a low imbalance is a slow rank that balancing compensates for. The job's "
        "name links to its board.",
        "none",
    )
    slowest, waiting = of_job(queries.SLOWDOWN_MAX), of_job(queries.WAIT_SHARE)
    these = f"and on ({JOB}) {worst_jobs()}"
    panel = panels.rows(
        info, *(Query(e, rows=True) for e in (worst_jobs(), f"{slowest}\n{these}", f"{waiting}\n{these}"))
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
        "imbalance",
        [panels.setting("unit", FACTOR), panels.setting("decimals", 2), *panels.coloured(colours.IMBALANCE)],
    )
    panel.override_by_name("max χ", [panels.setting("unit", FACTOR), panels.setting("decimals", 2)])
    panel.override_by_name("waiting", [panels.setting("unit", "percentunit"), panels.setting("decimals", 1)])
    return panel.override_by_name("job", [panels.setting("links", [panels.link("Stragglers", TO_JOB)])])


def worst_over_time() -> Panel:
    """Return the imbalance of the same jobs over time."""
    info = PanelInfo(
        "Worst jobs over time",
        "Imbalance of the jobs in the table, over the time range: when it started, and whether it is periodic. Good: "
        "green.",
        FACTOR,
    )
    these = f"topk($top, {series(queries.IMBALANCE, NAMESPACES)} @ end())"
    expr = f"{series(queries.IMBALANCE, NAMESPACES)}\nand on ({JOB}) {these}"
    return panels.timeline(info, Query(expr, JOB_LEGEND), colors=colours.IMBALANCE, page=20).decimals(2)


def lost() -> Panel:
    """Return the rank-hours spent waiting, by namespace."""
    info = PanelInfo(
        "Rank-hours lost to waiting, by namespace",
        "Sum of the waiting time of all ranks in this time range: the cost of imbalance and communication. Good: small "
        "relative to ranks times hours.",
        "h",
    )
    per_minute = (
        f"sum_over_time({series(queries.WAIT_RATE, NAMESPACES)}[$__range:1m])"  # includes jobs that have ended since
    )
    return panels.bars(info, Query(f"sum by (namespace) ({per_minute}) / 60", "{{namespace}}", now=True)).decimals(1)


def finished() -> Panel:
    """Return the jobs that ended, by result."""
    info = PanelInfo(
        "Finished jobs, by result",
        "Jobs that ended in this time range: Succeeded, or the reason of the failure. Good: only Succeeded.",
        "none",
    )
    expr = f"sum by (result) ({increase_in_range('heterotp_operator_jobs_finished_total', NAMESPACES)}) > 0"
    panel = panels.bars(info, Query(expr, "{{result}}", now=True), colors=colours.JOB_RESULTS)
    return panels.color_fields(panel.decimals(0).no_value("none"), colours.RESULTS)


def startup() -> Panel:
    """Return quantiles of the start-up time."""
    info = PanelInfo(
        "Start-up time",
        "From creation until the whole gang runs: 50 % of the jobs take at most p50, 95 % at most p95. Good: seconds "
        "to a few minutes; more is queueing or image pulls.",
        "s",
    )
    targets = [
        Query(
            quantile(q, "heterotp_operator_job_startup_seconds_bucket", NAMESPACES, window="$__range"), name, now=True
        )
        for q, name in ((0.5, "p50"), (0.95, "p95"))
    ]
    return panels.number(info, *targets).no_value("no job started")
