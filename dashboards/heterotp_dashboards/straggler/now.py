"""Row Now: the slowest rank, its slow-down, and whether balancing compensates for it."""

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import FACTOR, RANK_LEGEND, Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import ONE_JOB, quantile, rate, series


def now() -> list[PanelRow]:
    """Return the panels that a reader takes in within three seconds."""
    return [
        (5, [(8, slowest()), (4, imbalance()), (4, waiting()), (5, step_time()), (3, samples())]),
        (4, [(4, reporting()), (4, mode()), (4, generation()), (4, last_iteration()), (4, injected()), (4, outlook())]),
    ]


def slowest() -> Panel:
    """Return the slowest rank, with its node and chi."""
    info = PanelInfo(
        "Slowest rank",
        "The rank with the largest χ: how many times longer its matrix products take than those of its work should, as "
        "status and decisions show it. Good: green, below 1.2. A rank with a smaller share, because its device is "
        "known to be slower, is measured against that share. Needs the recording rules and metrics.level full.",
        FACTOR,
    )
    query = Query(f"topk(1, {series(queries.SLOWDOWN, ONE_JOB)})", RANK_LEGEND, now=True)
    return panels.number(info, query, colors=colours.SLOWDOWN, name=True).decimals(2).no_value("no χ")


def imbalance() -> Panel:
    """Return the time of the slowest rank over that of the average rank."""
    info = PanelInfo(
        "Imbalance",
        "Computing time of the slowest rank over that of the average rank (T, over 5 minutes). Good: below 1.1. Above "
        "1.2 the other ranks wait a sixth of their time or more: balancing does not compensate for the slow rank.",
        FACTOR,
    )
    query = Query(series(queries.IMBALANCE, ONE_JOB), "max / mean", now=True)
    return panels.bars(info, query, colors=colours.IMBALANCE).decimals(2).min(1).max(2)


def waiting() -> Panel:
    """Return the share of time that ranks wait."""
    info = PanelInfo(
        "Time waiting",
        "Share of all ranks' time inside collectives, over 5 minutes: waiting for the slowest rank, and communication. "
        "Good: the value of the job with equal ranks, usually below 10 %. It rises with the imbalance.",
        "percentunit",
    )
    query = Query(series(queries.WAIT_SHARE, ONE_JOB), "waiting", now=True)
    return panels.bars(info, query, colors=colours.WAIT_SHARE).max(1)


def step_time() -> Panel:
    """Return quantiles of the iteration."""
    buckets = "heterotp_step_seconds_bucket"
    info = PanelInfo(
        "Step time",
        "Wall time of an iteration, set by the slowest rank: 50 % of the iterations take at most p50, 99 % at most "
        "p99. Good: both close together and near the limit.",
        "s",
    )
    targets = [Query(quantile(q, buckets, ONE_JOB), f"p{round(100 * q)}") for q in (0.5, 0.99)]
    return panels.number(info, *targets)


def samples() -> Panel:
    """Return throughput."""
    info = PanelInfo("Samples/s", "Training samples per second of the whole job. Good: steady, as before.", "short")
    return panels.number(info, Query(f"sum({rate('heterotp_samples_total', ONE_JOB)})", "samples/s")).decimals(1)


def reporting() -> Panel:
    """Return the share of ranks that are scraped."""
    info = PanelInfo(
        "Ranks reporting",
        "Share of the job's ranks whose metrics arrive. Good: 100 %. Below that, the slow rank may be one of the "
        "missing ranks.",
        "percentunit",
    )
    present = f"count(count by (rank) ({series('heterotp_iterations_total', ONE_JOB)}))"
    query = Query(f"{present} / max({series('heterotp_world_ranks', ONE_JOB)})", "reporting", now=True)
    return panels.number(info, query, colors=colours.RANKS_REPORTING)


def mode() -> Panel:
    """Return the strategy in force."""
    info = PanelInfo(
        "Strategy in force",
        "How balancing responds to slow ranks. None: only observes. ZERO: prunes. MIG: other ranks compute columns. "
        "SEMI: both. RESHARD: units move. AUTO: chooses. Good: the strategy that you selected.",
        "none",
    )
    return panels.series_name(info, Query(queries.strategies(), "{{heterotp_policy_strategy}}", now=True))


def generation() -> Panel:
    """Return the control document's generation."""
    info = PanelInfo(
        "Policy generation",
        "Generation of the control document that the ranks follow; each change of policy or injections increases it. "
        "Good: Generation spread, further down, is 0.",
        "none",
    )
    return panels.number(info, Query(f"max({series('heterotp_policy_generation', ONE_JOB)})", "generation", now=True))


def last_iteration() -> Panel:
    """Return the seconds since an iteration ended."""
    last = series("heterotp_last_iteration_timestamp_seconds", ONE_JOB)
    info = PanelInfo(
        "Since last iteration",
        "Time since any rank ended an iteration. Good: about a step and a scrape interval. Minutes: the gang hangs or "
        "has ended.",
        "s",
    )
    query = Query(f"time() - max({last} > 0)", "since last iteration", now=True)
    return panels.number(info, query, colors=colours.SECONDS_SINCE_ITERATION).decimals(0)


def injected() -> Panel:
    """Return ranks with an injected slow-down."""
    info = PanelInfo(
        "Slowed on purpose",
        "Ranks that a StragglerInjection slows now, and the requested slow-down. Good: none, except during a test.",
        FACTOR,
    )
    query = Query(queries.injections(), RANK_LEGEND, now=True)
    return panels.number(info, query, colors=colours.INJECTED, name=True).no_value("none")


def outlook() -> Panel:
    """Return the predicted seconds of the plan, and the lower bound of lossless methods."""
    info = PanelInfo(
        "Predicted, limit",
        "Predicted iteration time of the plan in force, and the lower bound of lossless balancing. Good: the step time "
        "agrees with the prediction; a large gap to the limit is what another strategy could gain.",
        "s",
    )
    targets = [
        Query(f"max({series(metric, ONE_JOB)} > 0)", legend, now=True)
        for metric, legend in (("heterotp_plan_predicted_seconds", "predicted"), ("heterotp_limit_seconds", "limit"))
    ]
    return panels.number(info, *targets).no_value("none yet")
