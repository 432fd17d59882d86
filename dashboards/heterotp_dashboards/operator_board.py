"""The board of the operator: is it there, does it keep up, what does it ask of the API server."""

from grafana_foundation_sdk.builders import dashboard as build

from heterotp_dashboards import frame, panels, variables
from heterotp_dashboards.panels import GREEN, ORANGE, RED, YELLOW, About, Ask, Layout, Panel, steps
from heterotp_dashboards.queries import NAMESPACES, OPERATOR, PHASE_NOW, added_up, quantile, rate, series

P = "heterotp_operator_"
PHASES = {
    "Pending": YELLOW,
    "Starting": "light-yellow",
    "Running": GREEN,
    "Restarting": ORANGE,
    "Suspended": "gray",
    "Succeeded": "blue",
    "Failed": RED,
}


def board() -> build.Dashboard:
    """Return the board."""
    made = frame.board("HeteroTP / Operator", frame.OPERATOR, "Is the operator there, and does it keep up.", "now-1h")
    made.with_variable(variables.datasource()).with_variable(variables.cluster(f"{P}leader"))
    made.with_variable(variables.many("job", "Scrape job", series(f"{P}leader", 'cluster=~"$cluster"'), all_value=None))
    made.with_variable(variables.many("namespace", "Namespaces", series(f"{P}jobs", 'cluster=~"$cluster"')))
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
    """Return the replicas that answer."""
    about = About("Replicas up", "Replicas whose metrics can be scraped. Good: all of them, 2 by default.", "none")
    ask = Ask(f"sum({series('up', OPERATOR)})", "up", now=True)
    return panels.number(about, ask, colors=steps(RED, (1, GREEN)))


def leader() -> Panel:
    """Return the replicas that lead."""
    about = About("Leaders", "Replicas that hold the Lease. Good: exactly 1. 0: nobody works; 2: ask for help.", "none")
    ask = Ask(f"sum({series(f'{P}leader', OPERATOR)}) or vector(0)", "leaders", now=True)
    return panels.number(about, ask, colors=steps(RED, (1, GREEN), (2, RED)))


def version() -> Panel:
    """Return the versions that run."""
    about = About("Version", "Versions of the operator that run. Good: one, except during an upgrade.", "none")
    ask = Ask(f"count by (version) ({series(f'{P}build_info', OPERATOR)})", "{{version}}", now=True)
    return panels.word(about, ask)


def queued() -> Panel:
    """Return what waits for a worker."""
    about = About("Waiting for a worker", "Objects in all work queues. Good: 0 nearly always.", "none")
    ask = Ask(f"sum({series(f'{P}workqueue_depth', OPERATOR)})", "waiting", now=True)
    return panels.number(about, ask, colors=steps(GREEN, (50, YELLOW), (500, RED)))


def handled() -> Panel:
    """Return reconciles per second."""
    about = About(
        "Reconciles/s", "Reconciles per second, by kind. Good: follows the number of jobs, without spikes.", "ops"
    )
    return panels.lines(about, Ask(f"sum by (kind) ({rate(f'{P}reconcile_total', OPERATOR)})", "{{kind}}")).min(0)


def errors() -> Panel:
    """Return the share of reconciles that fail."""
    about = About(
        "Errors", "Share of reconciles that end in an error. Good: 0; conflicts and re-queues are none.", "percentunit"
    )
    failed = rate(f"{P}reconcile_total", OPERATOR, 'result="error"')
    every = f"(sum by (kind) ({rate(f'{P}reconcile_total', OPERATOR)}) > 0)"
    expr = f"(sum by (kind) ({failed}) or 0 * {every})\n/ {every}"
    return panels.lines(about, Ask(expr, "{{kind}}")).min(0).axis_soft_max(0.05)


def duration() -> Panel:
    """Return quantiles of a reconcile."""
    about = About("Reconcile time", "Time of a reconcile: p50, p95, p99 of all kinds. Good: p99 below a second.", "s")
    buckets = f"{P}reconcile_duration_seconds_bucket"
    return panels.lines(
        about, *(Ask(quantile(q, buckets, OPERATOR), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99))
    ).min(0)


def inflight() -> Panel:
    """Return reconciles that run now."""
    about = About(
        "In flight", "Reconciles that run now. Good: below HETEROTP_WORKERS (24); at it, work queues up.", "none"
    )
    return (
        panels.lines(about, Ask(f"sum by (kind) ({series(f'{P}reconciles_inflight', OPERATOR)})", "{{kind}}"))
        .min(0)
        .axis_soft_max(5)
    )


def depth() -> Panel:
    """Return the depth of the queues."""
    about = About("Queue depth", "Objects that wait for a worker. Good: 0, with short peaks.", "none")
    return (
        panels.lines(about, Ask(f"sum by (kind) ({series(f'{P}workqueue_depth', OPERATOR)})", "{{kind}}"))
        .min(0)
        .axis_soft_max(5)
    )


def queue_time() -> Panel:
    """Return how long objects wait."""
    about = About("Time in the queue, p99", "How long an object waits for a worker. Good: milliseconds.", "s")
    p99 = quantile(0.99, f"{P}workqueue_queue_duration_seconds_bucket", OPERATOR, by="kind")
    return panels.lines(about, Ask(p99, "{{kind}}")).min(0)


def retries() -> Panel:
    """Return additions and retries."""
    about = About(
        "Added and retried", "Objects that became due, and those put back after an error. Good: few retries.", "ops"
    )
    asks = [
        Ask(f"sum by (kind) ({rate(f'{P}workqueue_{name}_total', OPERATOR)})", f"{name} {{{{kind}}}}")
        for name in ("adds", "retries")
    ]
    return panels.lines(about, *asks).min(0)


def calls() -> Panel:
    """Return API calls."""
    about = About(
        "API calls/s",
        "Calls to the API server by verb and code; code 0 is no answer. Good: 2xx, some 404 and 409; below the limit "
        "of HETEROTP_API_REQUESTS_PER_SECOND (200).",
        "reqps",
    )
    return panels.lines(
        about, Ask(f"sum by (verb, code) ({rate(f'{P}api_requests_total', OPERATOR)})", "{{verb}} {{code}}")
    ).min(0)


def call_time() -> Panel:
    """Return how long API calls take."""
    about = About("API call time, p99", "How long a call takes, by verb. Good: below 0.1 s.", "s")
    p99 = quantile(0.99, f"{P}api_request_duration_seconds_bucket", OPERATOR, by="verb")
    return panels.lines(about, Ask(p99, "{{verb}}")).min(0)


def reconnects() -> Panel:
    """Return watches that were opened again."""
    about = About(
        "Watches opened again",
        "How often each watch was opened in this time range. Good: every five minutes, as the API server ends them.",
        "none",
    )
    expr = f"sum by (resource) ({added_up(f'{P}watch_reconnects_total', OPERATOR)})"
    return panels.bars(about, Ask(expr, "{{resource}}", now=True)).decimals(0).no_value("none")


def job_phases() -> Panel:
    """Return each job's phase over time."""
    about = About(
        "Phase of jobs",
        "A row per job and phase, while it is in it. Good: a short Pending and Starting, then Running until Succeeded. "
        "Needs the recording rules.",
        "none",
    )
    panel = panels.timeline(
        about, Ask(series(PHASE_NOW, NAMESPACES), "{{namespace}}/{{heterotpjob}} {{phase}}"), page=20
    )
    for phase, color in PHASES.items():
        panel.override_by_regexp(f"/ {phase}$/", [panels.fixed(color)])
    return panel


def restarts() -> Panel:
    """Return gang restarts."""
    about = About(
        "Gang restarts, by reason", "Restarts in this time range. Good: none, or those of drained nodes.", "none"
    )
    expr = f"sum by (reason) ({added_up(f'{P}rank_restarts_total', NAMESPACES)}) > 0"
    return panels.bars(about, Ask(expr, "{{reason}}", now=True), colors=steps(ORANGE)).decimals(0).no_value("none")


def published() -> Panel:
    """Return control documents written."""
    about = About(
        "Policies published/min",
        "Control documents written, by the strategy they carry. Good: some when a policy or an injection changes.",
        "opm",
    )
    expr = f"sum by (strategy) ({rate(f'{P}policy_published_total', NAMESPACES)}) * 60"
    return panels.lines(about, Ask(expr, "{{strategy}}")).min(0)


def memory() -> Panel:
    """Return the operator's memory."""
    about = About("Memory", "Resident memory by replica. Good: steady; some 190 MB with 1,000 jobs.", "bytes")
    return panels.lines(about, Ask(series("process_resident_memory_bytes", OPERATOR), "{{pod}}")).min(0)


def cpu() -> Panel:
    """Return the operator's CPU time."""
    about = About("CPU", "Cores in use by replica. Good: two thirds of a core with 1,000 running jobs.", "short")
    return panels.lines(about, Ask(rate("process_cpu_seconds_total", OPERATOR), "{{pod}}")).min(0)
