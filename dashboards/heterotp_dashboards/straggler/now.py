"""Row Now: who is slow, how much, and is it being dealt with."""

from heterotp_dashboards import panels, queries
from heterotp_dashboards.panels import FACTOR, GREEN, ORANGE, RANK_LEGEND, RED, YELLOW, About, Ask, Line, Panel, steps
from heterotp_dashboards.queries import ONE_JOB, quantile, rate, series


def now() -> list[Line]:
    """Return the answer of three seconds: who, how much, and is it being dealt with."""
    return [
        (5, [(8, slowest()), (4, imbalance()), (4, waiting()), (5, step_time()), (3, samples())]),
        (4, [(4, reporting()), (4, mode()), (4, generation()), (4, last_iteration()), (4, injected()), (4, outlook())]),
    ]


def slowest() -> Panel:
    """Return the slowest rank, with its node and chi."""
    about = About(
        "Slowest rank",
        "The rank whose matrix products take longest for the same work, and how many times as long as on the fastest "
        "rank (χ, over 5 minutes). Good: green, below 1.2. A rank that began with less work, as its device is "
        "known to be slower, is measured by that. Needs the recording rules and metrics.level full.",
        FACTOR,
    )
    ask = Ask(f"topk(1, {series(queries.SLOWDOWN, ONE_JOB)})", RANK_LEGEND, now=True)
    return panels.number(about, ask, colors=panels.SLOW, name=True).decimals(2).no_value("no χ")


def imbalance() -> Panel:
    """Return the slowest rank's time over the average rank's."""
    about = About(
        "Imbalance",
        "Computing time of the slowest rank over that of the average rank (T, over 5 minutes). Good: below 1.1. Above "
        "1.2 the others wait a sixth of their time or more: balancing has not dealt with the slow rank.",
        FACTOR,
    )
    colors = steps(GREEN, (1.1, YELLOW), (1.2, RED))
    ask = Ask(series(queries.IMBALANCE, ONE_JOB), "max / mean", now=True)
    return panels.bars(about, ask, colors=colors).decimals(2).min(1).max(2)


def waiting() -> Panel:
    """Return the share of time that goes into waiting."""
    about = About(
        "Time waiting",
        "Share of all ranks' time inside collectives, over 5 minutes: waiting for the slowest rank, and communication. "
        "Good: what the job has with even ranks, mostly below 10 %. It rises with the imbalance.",
        "percentunit",
    )
    ask = Ask(series(queries.WAIT_SHARE, ONE_JOB), "waiting", now=True)
    return panels.bars(about, ask, colors=steps(GREEN, (0.15, YELLOW), (0.3, RED))).max(1)


def step_time() -> Panel:
    """Return quantiles of the iteration."""
    buckets = "heterotp_step_seconds_bucket"
    about = About(
        "Step time",
        "Wall time of an iteration, which is that of the slowest rank: half of them are below p50, all but one in a "
        "hundred below p99. Good: both close together and near the limit.",
        "s",
    )
    asks = [Ask(quantile(q, buckets, ONE_JOB), f"p{round(100 * q)}") for q in (0.5, 0.99)]
    return panels.number(about, *asks)


def samples() -> Panel:
    """Return throughput."""
    about = About("Samples/s", "Training samples per second, the whole job. Good: steady, and as before.", "short")
    return panels.number(about, Ask(f"sum({rate('heterotp_samples_total', ONE_JOB)})", "samples/s")).decimals(1)


def reporting() -> Panel:
    """Return the share of ranks that are scraped."""
    about = About(
        "Ranks reporting",
        "Ranks whose metrics arrive, of those that the job should have. Good: 100 %. Below, the slow rank may be among "
        "those that are not seen.",
        "percentunit",
    )
    present = f"count(count by (rank) ({series('heterotp_iterations_total', ONE_JOB)}))"
    ask = Ask(f"{present} / max({series('heterotp_world_ranks', ONE_JOB)})", "reporting", now=True)
    return panels.number(about, ask, colors=steps(RED, (1, GREEN)))


def mode() -> Panel:
    """Return the strategy in force."""
    about = About(
        "Strategy in force",
        "How balancing deals with slow ranks now. None only watches, ZERO prunes, MIG lets others compute, SEMI does "
        "both, RESHARD moves work for good, AUTO decides. Good: the one that you chose.",
        "none",
    )
    return panels.word(about, Ask(queries.strategies(), "{{heterotp_policy_strategy}}", now=True))


def generation() -> Panel:
    """Return the control document's generation."""
    about = About(
        "Policy generation",
        "Generation of the control document that ranks follow; it counts up with every change of policy or injections. "
        "Good: the spread further down is 0.",
        "none",
    )
    return panels.number(about, Ask(f"max({series('heterotp_policy_generation', ONE_JOB)})", "generation", now=True))


def last_iteration() -> Panel:
    """Return the time since an iteration ended."""
    last = series("heterotp_last_iteration_timestamp_seconds", ONE_JOB)
    about = About(
        "Since last iteration",
        "Time since any rank ended an iteration. Good: about a step and a scrape interval. Minutes mean that the gang "
        "hangs, or is gone.",
        "s",
    )
    ask = Ask(f"time() - max({last} > 0)", "since last iteration", now=True)
    return panels.number(about, ask, colors=steps(GREEN, (120, YELLOW), (600, RED))).decimals(0)


def injected() -> Panel:
    """Return ranks that are slowed on purpose."""
    about = About(
        "Slowed on purpose",
        "Ranks that a StragglerInjection slows now, and how much was asked for. Good: none, unless somebody is "
        "testing.",
        FACTOR,
    )
    ask = Ask(queries.injections(), RANK_LEGEND, now=True)
    return panels.number(about, ask, colors=steps(ORANGE), name=True).no_value("nobody")


def outlook() -> Panel:
    """Return what the plan promises, and what no lossless method can beat."""
    about = About(
        "Predicted, limit",
        "Iteration time that the plan in force predicts, and the limit that no lossless balancing can beat. Good: the "
        "step time meets the prediction; a large gap to the limit is what a better strategy could win.",
        "s",
    )
    asks = [
        Ask(f"max({series(metric, ONE_JOB)} > 0)", legend, now=True)
        for metric, legend in (("heterotp_plan_predicted_seconds", "predicted"), ("heterotp_limit_seconds", "limit"))
    ]
    return panels.number(about, *asks).no_value("none yet")
