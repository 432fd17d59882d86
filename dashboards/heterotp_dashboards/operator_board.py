"""The board of the operator: its availability, its queues and reconciles, its calls to the API server."""

from grafana_foundation_sdk.builders import dashboard as build

from heterotp_dashboards import colours, frame, panels, variables
from heterotp_dashboards.panels import Layout, Panel, PanelInfo, Query
from heterotp_dashboards.queries import NAMESPACES, OPERATOR, PHASE_NOW, increase_in_range, quantile, rate, series

P = "heterotp_operator_"


def board() -> build.Dashboard:
    """Return the board."""
    made = frame.board("HeteroTP / Operator", frame.OPERATOR, "Availability and load of the operator.", "now-1h")
    made.with_variable(variables.datasource()).with_variable(variables.cluster(f"{P}leader"))
    made.with_variable(
        variables.multi_choice("job", "Scrape job", series(f"{P}leader", 'cluster=~"$cluster"'), all_value=None)
    )
    made.with_variable(variables.multi_choice("namespace", "Namespaces", series(f"{P}jobs", 'cluster=~"$cluster"')))
    for annotation in frame.operator_events(NAMESPACES):
        made.annotation(annotation)
    layout = Layout(made)
    layout.row("Now", (4, [(6, up()), (6, leader()), (6, version()), (6, queued())]))
    layout.row("Handlers", (8, [(6, handled()), (6, errors()), (6, duration()), (6, inflight())]))
    layout.row("Work queues", (8, [(8, depth()), (8, queue_time()), (8, retries())]))
    layout.row("Kubernetes API", (8, [(8, calls()), (8, call_time()), (8, reconnects())]))
    layout.row("Jobs", (9, [(12, job_phases()), (6, restarts()), (6, published())]))
    layout.row("Process", (8, [(12, memory()), (12, cpu())]))
    return made


def up() -> Panel:
    """Return the number of scraped replicas."""
    info = PanelInfo("Replicas up", "Replicas whose metrics can be scraped. Good: all of them, 2 by default.", "none")
    query = Query(f"sum({series('up', OPERATOR)})", "up", now=True)
    return panels.number(info, query, colors=colours.REPLICAS)


def leader() -> Panel:
    """Return the number of leading replicas."""
    info = PanelInfo("Leaders", "Replicas that hold the Lease. Good: exactly 1. 0: no reconciles; 2: a fault.", "none")
    query = Query(f"sum({series(f'{P}leader', OPERATOR)}) or vector(0)", "leaders", now=True)
    return panels.number(info, query, colors=colours.LEADERS)


def version() -> Panel:
    """Return the running versions."""
    info = PanelInfo("Version", "Running versions of the operator. Good: one, except during an upgrade.", "none")
    query = Query(f"count by (version) ({series(f'{P}build_info', OPERATOR)})", "{{version}}", now=True)
    return panels.series_name(info, query)


def queued() -> Panel:
    """Return the number of waiting objects."""
    info = PanelInfo("Waiting for a worker", "Objects in all work queues. Good: 0 most of the time.", "none")
    query = Query(f"sum({series(f'{P}workqueue_depth', OPERATOR)})", "waiting", now=True)
    return panels.number(info, query, colors=colours.WAITING_OBJECTS)


def handled() -> Panel:
    """Return reconciles per second."""
    info = PanelInfo(
        "Reconciles/s",
        "Reconciles per second, by kind. Good: proportional to the number of jobs, without spikes.",
        "ops",
    )
    return panels.lines(info, Query(f"sum by (kind) ({rate(f'{P}reconcile_total', OPERATOR)})", "{{kind}}")).min(0)


def errors() -> Panel:
    """Return the share of failed reconciles."""
    info = PanelInfo(
        "Errors",
        "Share of reconciles that end in an error. Good: 0; conflicts and re-queues do not count.",
        "percentunit",
    )
    failed = rate(f"{P}reconcile_total", OPERATOR, 'result="error"')
    every = f"(sum by (kind) ({rate(f'{P}reconcile_total', OPERATOR)}) > 0)"
    expr = f"(sum by (kind) ({failed}) or 0 * {every})\n/ {every}"
    return panels.lines(info, Query(expr, "{{kind}}")).min(0).axis_soft_max(0.05)


def duration() -> Panel:
    """Return quantiles of the duration of a reconcile."""
    info = PanelInfo(
        "Reconcile time", "Duration of a reconcile: p50, p95, p99 of all kinds. Good: p99 below a second.", "s"
    )
    buckets = f"{P}reconcile_duration_seconds_bucket"
    return panels.lines(
        info, *(Query(quantile(q, buckets, OPERATOR), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99))
    ).min(0)


def inflight() -> Panel:
    """Return the reconciles in progress."""
    info = PanelInfo(
        "In flight", "Reconciles in progress. Good: below HETEROTP_WORKERS (24); at that number objects wait.", "none"
    )
    return (
        panels.lines(info, Query(f"sum by (kind) ({series(f'{P}reconciles_inflight', OPERATOR)})", "{{kind}}"))
        .min(0)
        .axis_soft_max(5)
    )


def depth() -> Panel:
    """Return the depth of the queues."""
    info = PanelInfo("Queue depth", "Objects that wait for a worker. Good: 0, with short peaks.", "none")
    return (
        panels.lines(info, Query(f"sum by (kind) ({series(f'{P}workqueue_depth', OPERATOR)})", "{{kind}}"))
        .min(0)
        .axis_soft_max(5)
    )


def queue_time() -> Panel:
    """Return the time that objects wait."""
    info = PanelInfo("Time in the queue, p99", "Time that an object waits for a worker. Good: milliseconds.", "s")
    p99 = quantile(0.99, f"{P}workqueue_queue_duration_seconds_bucket", OPERATOR, by="kind")
    return panels.lines(info, Query(p99, "{{kind}}")).min(0)


def retries() -> Panel:
    """Return additions and retries."""
    info = PanelInfo(
        "Added and retried",
        "Objects added to the queue, and objects added again after an error. Good: few retries.",
        "ops",
    )
    targets = [
        Query(f"sum by (kind) ({rate(f'{P}workqueue_{name}_total', OPERATOR)})", f"{name} {{{{kind}}}}")
        for name in ("adds", "retries")
    ]
    return panels.lines(info, *targets).min(0)


def calls() -> Panel:
    """Return API calls per second."""
    info = PanelInfo(
        "API calls/s",
        "Calls to the API server by verb and code; code 0: no answer. Good: 2xx, some 404 and 409; below the limit "
        "of HETEROTP_API_REQUESTS_PER_SECOND (200).",
        "reqps",
    )
    return panels.lines(
        info, Query(f"sum by (verb, code) ({rate(f'{P}api_requests_total', OPERATOR)})", "{{verb}} {{code}}")
    ).min(0)


def call_time() -> Panel:
    """Return the duration of API calls."""
    info = PanelInfo("API call time, p99", "Duration of a call, by verb. Good: below 0.1 s.", "s")
    p99 = quantile(0.99, f"{P}api_request_duration_seconds_bucket", OPERATOR, by="verb")
    return panels.lines(info, Query(p99, "{{verb}}")).min(0)


def reconnects() -> Panel:
    """Return how often watches were opened again."""
    info = PanelInfo(
        "Watches opened again",
        "How often each watch was opened in this time range. Good: once in five minutes, when the API server ends it.",
        "none",
    )
    expr = f"sum by (resource) ({increase_in_range(f'{P}watch_reconnects_total', OPERATOR)})"
    return panels.bars(info, Query(expr, "{{resource}}", now=True)).decimals(0).no_value("none")


def job_phases() -> Panel:
    """Return each job's phase over time."""
    info = PanelInfo(
        "Phase of jobs",
        "One row per job and phase, drawn while the job is in the phase. Good: a short Pending and Starting, then "
        "Running until Succeeded. Needs the recording rules.",
        "none",
    )
    panel = panels.timeline(
        info, Query(series(PHASE_NOW, NAMESPACES), "{{namespace}}/{{heterotpjob}} {{phase}}"), page=20
    )
    for phase, color in colours.JOB_PHASES.items():
        panel.override_by_regexp(f"/ {phase}$/", [panels.fixed(color)])
    return panel


def restarts() -> Panel:
    """Return gang restarts."""
    info = PanelInfo(
        "Gang restarts, by reason", "Gang restarts in this time range. Good: none, or those of drained nodes.", "none"
    )
    expr = f"sum by (reason) ({increase_in_range(f'{P}rank_restarts_total', NAMESPACES)}) > 0"
    return panels.bars(info, Query(expr, "{{reason}}", now=True), colors=colours.RESTARTS).decimals(0).no_value("none")


def published() -> Panel:
    """Return the control documents written per minute."""
    info = PanelInfo(
        "Policies published/min",
        "Written control documents, by strategy. Good: a few when a policy or an injection changes.",
        "opm",
    )
    expr = f"sum by (strategy) ({rate(f'{P}policy_published_total', NAMESPACES)}) * 60"
    return panels.lines(info, Query(expr, "{{strategy}}")).min(0)


def memory() -> Panel:
    """Return the operator's memory."""
    info = PanelInfo("Memory", "Resident memory by replica. Good: steady; about 190 MB with 1,000 jobs.", "bytes")
    return panels.lines(info, Query(series("process_resident_memory_bytes", OPERATOR), "{{pod}}")).min(0)


def cpu() -> Panel:
    """Return the operator's CPU time."""
    info = PanelInfo("CPU", "Cores in use by replica. Good: two thirds of a core with 1,000 running jobs.", "short")
    return panels.lines(info, Query(rate("process_cpu_seconds_total", OPERATOR), "{{pod}}")).min(0)
