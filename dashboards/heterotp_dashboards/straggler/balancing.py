"""Row Balancing: what was done about it."""

from heterotp_dashboards import panels, queries
from heterotp_dashboards.panels import GREEN, RANK_LEGEND, RED, About, Ask, Line, Panel, steps
from heterotp_dashboards.queries import ONE_JOB, SOME_RANKS, Ranks, added_up, rate, series


def balancing() -> list[Line]:
    """Return what was done."""
    return [
        (9, [(8, taken_now()), (8, taken()), (8, moved_share())]),
        (8, [(8, share_of_work()), (8, columns()), (8, moved_bytes())]),
        (6, [(10, mode_over_time()), (5, spread()), (5, updates()), (4, resharding())]),
    ]


def taken_now() -> Panel:
    """Return gamma as pruned and moved, one bar a rank."""
    about = About(
        "Work taken from ranks, now (γ)",
        "Share of each rank's columns that it does not compute: pruned (nobody does, which costs accuracy) and moved "
        "(others do, which costs bandwidth). Good: nothing, or only on slow ranks.",
        "percentunit",
    )
    asks = [Ask(queries.named_rank(expr), rows=True) for expr in (queries.pruned(), queries.moved())]
    panel = panels.stacked_bars(about, *asks).min(0).max(1)
    names = {"Value #A": "pruned", "Value #B": "moved"}
    keep = {"names": [queries.WHO, *names]}
    panel.with_transformation(panels.transformation("joinByField", byField=queries.WHO, mode="outer"))
    panel.with_transformation(panels.transformation("filterFieldsByName", include=keep))
    panel.with_transformation(panels.transformation("organize", renameByName=names, excludeByName={}, indexByName={}))
    panel.with_transformation(panels.transformation("sortBy", fields={}, sort=[{"field": "pruned", "desc": True}]))
    return panels.color_fields(panel.x_field(queries.WHO), {"pruned": "red", "moved": "blue"})


def taken() -> Panel:
    """Return gamma over time."""
    about = About(
        "Work taken from ranks (γ)",
        "Pruned and moved together, over time. Good: 0, or a step up when a rank turns slow and back to 0 when it is "
        "well.",
        "percentunit",
    )
    return panels.lines(about, Ask(queries.gamma(), RANK_LEGEND), fill=10).min(0).max(1)


def moved_share() -> Panel:
    """Return beta over time."""
    about = About(
        "Moved instead of pruned (β)",
        "Of the work taken from a rank, the part that others compute. Good: 1, which loses nothing; at 0 all of it is "
        "pruned. No line: nothing is taken from anybody.",
        "percentunit",
    )
    return panels.lines(about, Ask(queries.beta(), RANK_LEGEND)).min(0).max(1).no_value("nothing is taken")


def share_of_work() -> Panel:
    """Return the work that ranks do."""
    about = About(
        "Work per iteration, of what it began with",
        "What each rank computes: 1 is the share that it began with, below 1 work was taken from it, above it computes "
        "for others. Evaluations count, too. Good: above 1 on ranks that keep up, below on those that fall behind.",
        "short",
    )
    return panels.lines(about, Ask(Ranks(SOME_RANKS).work(), RANK_LEGEND)).min(0)


def columns() -> Panel:
    """Return columns that migrate, out below the axis."""
    about = About(
        "Columns moved per iteration",
        "Columns of weights whose work goes to other ranks (below the axis) and comes from them (above). Good: both "
        "sides sum to the same.",
        "short",
    )
    asks = [Ask(queries.columns(way), f"{way}: {RANK_LEGEND}") for way in ("in", "out")]
    return panels.lines(about, *asks, fill=10).override_by_query(
        "B", [panels.setting("custom.transform", "negative-Y")]
    )


def moved_bytes() -> Panel:
    """Return what migration costs the network."""
    about = About(
        "Traffic of migration",
        "Bytes per second that moved work costs, over all ranks. Good: far below the network's bandwidth.",
        "Bps",
    )
    spent = rate("heterotp_migrated_bytes_total", ONE_JOB)
    return panels.lines(about, Ask(f"sum by (direction) ({spent})", "{{direction}}")).min(0)


def mode_over_time() -> Panel:
    """Return the strategy over time."""
    about = About(
        "Strategy over time",
        "Which strategy was in force when. Good: changes where somebody changed a policy, nowhere else.",
        "none",
    )
    return panels.timeline(about, Ask(queries.strategies(), "{{heterotp_policy_strategy}}"), colors=steps("blue"))


def spread() -> Panel:
    """Return how far ranks are apart in the policy they follow."""
    generations = series("heterotp_policy_generation", ONE_JOB)
    about = About(
        "Generation spread",
        "Newest minus oldest generation among the ranks. Good: 0; all ranks change at one iteration, so more than one "
        "scrape of anything else is a fault.",
        "none",
    )
    ask = Ask(f"max({generations}) - min({generations})", "spread")
    return panels.number(about, ask, colors=steps(GREEN, (1, RED)))


def updates() -> Panel:
    """Return decisions per minute."""
    about = About(
        "Decisions per minute",
        "New plans by strategy. Good: a few after a change of speed, then none. Always some: thresholds are too "
        "narrow.",
        "opm",
    )
    expr = f"sum by (strategy) ({rate('heterotp_policy_updates_total', ONE_JOB)}) * 60"
    return panels.lines(about, Ask(expr, "{{strategy}}"), fill=10).min(0)


def resharding() -> Panel:
    """Return what re-sharding cost."""
    about = About(
        "Spent moving units",
        "Seconds that RESHARD took to move units between ranks in this time range. Good: far below what it saves.",
        "s",
    )
    return panels.number(about, Ask(f"sum({added_up('heterotp_reshard_seconds_total', ONE_JOB)})", "moving", now=True))
