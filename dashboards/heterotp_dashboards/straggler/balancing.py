"""Row Balancing: how work is distributed now, and the decisions that led to it."""

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import RANK_LEGEND, Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import ONE_JOB, SOME_RANKS, Ranks, increase_in_range, rate, series


def balancing() -> list[PanelRow]:
    """Return the panels of the row."""
    return [
        (9, [(8, work_now()), (8, taken()), (8, moved_share())]),
        (8, [(8, share_of_work()), (8, columns()), (8, moved_bytes())]),
        (6, [(10, mode_over_time()), (5, spread()), (5, updates()), (4, resharding())]),
    ]


def work_now() -> Panel:
    """Return what each rank computes of its initial share, and what was taken from it."""
    info = PanelInfo(
        "Work of ranks, now",
        "Work of each rank; 100 % is its initial share. Computed by the rank itself: above 100 % for other ranks, too; "
        "below it without another colour: units moved away for good. Moved in each iteration: others compute it, which "
        "costs bandwidth. Pruned: nobody computes it, which costs accuracy. Good: slow ranks compute less, and nothing "
        "is pruned. Of many ranks: the 16 that compute least.",
        "percentunit",
    )
    work = Ranks(SOME_RANKS).work()
    shown = [queries.first_ranks(expr, smallest=work) for expr in (work, queries.moved(), queries.pruned())]
    panel = panels.stacked_bars(info, *(Query(queries.named_rank(expr), rows=True) for expr in shown)).min(0)
    names = {f"Value #{ref}": name for ref, name in zip("ABC", colours.WORK_NOW, strict=True)}
    keep = {"names": [queries.RANK_NODE, *names]}
    panel.with_transformation(panels.transformation("joinByField", byField=queries.RANK_NODE, mode="outer"))
    panel.with_transformation(panels.transformation("filterFieldsByName", include=keep))
    panel.with_transformation(panels.transformation("organize", renameByName=names, excludeByName={}, indexByName={}))
    panel.with_transformation(panels.transformation("sortBy", fields={}, sort=[{"field": "computed", "desc": False}]))
    return panels.color_fields(panel.x_field(queries.RANK_NODE), colours.WORK_NOW)


def taken() -> Panel:
    """Return gamma over time."""
    info = PanelInfo(
        "Work taken from ranks (γ)",
        "Pruned and moved share together, over time. Good: 0, or a step up when a rank becomes slow and back to 0 when "
        "it recovers.",
        "percentunit",
    )
    return panels.lines(info, Query(queries.gamma(), RANK_LEGEND), fill=10).min(0).max(1)


def moved_share() -> Panel:
    """Return beta over time."""
    info = PanelInfo(
        "Moved instead of pruned (β)",
        "Part of the work taken from a rank that other ranks compute. Good: 1, no loss. At 0 all of it is pruned. No "
        "line: no work is taken from any rank.",
        "percentunit",
    )
    return panels.lines(info, Query(queries.beta(), RANK_LEGEND)).min(0).max(1).no_value("no work taken")


def share_of_work() -> Panel:
    """Return the work of each rank per iteration."""
    info = PanelInfo(
        "Work per iteration, relative to the initial share",
        "Computed work of each rank: 1 is its initial share, below 1 work was taken from it, above 1 it computes for "
        "other ranks. Evaluations count. Good: above 1 on fast ranks, below 1 on slow ranks.",
        "short",
    )
    return panels.lines(info, Query(Ranks(SOME_RANKS).work(), RANK_LEGEND)).min(0)


def columns() -> Panel:
    """Return migrated columns, outgoing ones below the axis."""
    info = PanelInfo(
        "Columns moved per iteration",
        "Weight columns that a rank gives to other ranks (below the axis) and receives from them (above). Good: both "
        "sides have the same sum.",
        "short",
    )
    targets = [Query(queries.columns(way), f"{way}: {RANK_LEGEND}") for way in ("in", "out")]
    return panels.lines(info, *targets, fill=10).override_by_query(
        "B", [panels.setting("custom.transform", "negative-Y")]
    )


def moved_bytes() -> Panel:
    """Return the network traffic of migration."""
    info = PanelInfo(
        "Traffic of migration",
        "Bytes per second that moved work transfers, over all ranks. Good: far below the bandwidth of the network.",
        "Bps",
    )
    spent = rate("heterotp_migrated_bytes_total", ONE_JOB)
    return panels.lines(info, Query(f"sum by (direction) ({spent})", "{{direction}}")).min(0)


def mode_over_time() -> Panel:
    """Return the strategy over time."""
    info = PanelInfo(
        "Strategy over time",
        "The strategy in force. Good: it changes only where a policy was changed.",
        "none",
    )
    return panels.timeline(info, Query(queries.strategies(), "{{heterotp_policy_strategy}}"), colors=colours.STRATEGY)


def spread() -> Panel:
    """Return the difference between the generations that ranks follow."""
    generations = series("heterotp_policy_generation", ONE_JOB)
    info = PanelInfo(
        "Generation spread",
        "Newest minus oldest generation over the ranks. Good: 0. All ranks change at the same iteration, so another "
        "value in more than one scrape is a fault.",
        "none",
    )
    query = Query(f"max({generations}) - min({generations})", "spread")
    return panels.number(info, query, colors=colours.GENERATION_SPREAD)


def updates() -> Panel:
    """Return decisions per minute."""
    info = PanelInfo(
        "Decisions per minute",
        "New plans by strategy. Good: a few after a change of speed, then none. If they never stop, the thresholds are "
        "too narrow.",
        "opm",
    )
    expr = f"sum by (strategy) ({rate('heterotp_policy_updates_total', ONE_JOB)}) * 60"
    return panels.lines(info, Query(expr, "{{strategy}}"), fill=10).min(0)


def resharding() -> Panel:
    """Return the seconds spent on resharding."""
    info = PanelInfo(
        "Spent moving units",
        "Seconds that RESHARD took to move units between ranks in this time range. Good: far below the time it saves.",
        "s",
    )
    return panels.number(
        info, Query(f"sum({increase_in_range('heterotp_reshard_seconds_total', ONE_JOB)})", "moving", now=True)
    )
