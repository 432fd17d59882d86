"""Row Stragglers: how every rank spends its time."""

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import FACTOR, RANK_LEGEND, Panel, PanelInfo, PanelRow, Query
from heterotp_dashboards.queries import ONE_JOB, SOME_RANKS, Ranks, phase, rate
from heterotp_dashboards.straggler.blame import lost_by_stage, lost_over_time
from heterotp_dashboards.straggler.rank_table import table

RANKS = Ranks(SOME_RANKS)


def stragglers() -> list[PanelRow]:
    """Return the panels that show which rank is slow, and since when."""
    return [
        (9, [(12, busy()), (12, slowdown_over_time())]),
        (8, [(12, lost_by_stage()), (12, lost_over_time())]),
        (8, [(12, where_time_goes()), (6, matmul()), (6, wait())]),
        (7, [(24, table())]),  # four ranks and the heading; the slowest of more
    ]


def busy() -> Panel:
    """Return T of every rank."""
    info = PanelInfo(
        "Computing time per iteration, by rank",
        "T: computing time of each rank in an iteration (matrix products, other work on its units, fixed work), "
        "without waiting. Good: all lines in one band. All ranks wait for a rank whose line is above the others.",
        "s",
    )
    spent = rate("heterotp_phase_seconds_total", ONE_JOB, phase(queries.COMPUTE))
    mean = f"sum({spent})\n/ (sum({rate('heterotp_iterations_total', ONE_JOB)}) > 0)"
    panel = panels.lines(info, Query(RANKS.busy(), RANK_LEGEND), Query(mean, "mean")).min(0)
    dashes = panels.setting("custom.lineStyle", {"fill": "dash", "dash": [6, 6]})
    return panel.override_by_name("mean", [panels.fixed(colours.MEAN), dashes])


def slowdown_over_time() -> Panel:
    """Return chi of every rank over time."""
    info = PanelInfo(
        "Slow-down χ, rank by time",
        "Time of a rank's matrix products over the time that its work should take: green below 1.2, yellow, from 1.5 "
        "orange, from 2 red. Good: all green. A red row shows which rank is slow and since when; it stays red after "
        "balancing has taken work from the rank, because the rank is still slow. Of many ranks: the 16 slowest.",
        FACTOR,
    )
    query = Query(queries.slowdown_over_time(SOME_RANKS), RANK_LEGEND)
    return panels.timeline(info, query, colors=colours.SLOWDOWN).decimals(2)


def where_time_goes() -> Panel:
    """Return each rank's time by phase."""
    info = PanelInfo(
        "Where the time goes, by rank",
        "Current time of each rank by phase. The rank at the top waits least: the other ranks wait for it. Good: "
        "similar bars, little dark red. Of many ranks: the 16 that wait least.",
        "percentunit",
    )
    shares = queries.phase_shares(SOME_RANKS)
    panel = panels.stacked_bars(info, Query(queries.named_rank(shares), rows=True), share=True)
    matrix = {"columnField": "phase", "rowField": queries.RANK_NODE, "valueField": "Value", "emptyValue": "zero"}
    panel.with_transformation(panels.transformation("groupingToMatrix", **matrix))
    row = f"{queries.RANK_NODE}\\phase"
    panel.with_transformation(panels.transformation("sortBy", fields={}, sort=[{"field": "wait", "desc": False}]))
    return panels.color_fields(panel.x_field(row), colours.RANK_PHASES)


def matmul() -> Panel:
    """Return M of every rank."""
    info = PanelInfo(
        "Matrix products per iteration (M)",
        "Time in the matrix products that balancing can prune or move. Good: one band; balancing equalizes this part.",
        "s",
    )
    return panels.lines(info, Query(RANKS.seconds("matmul"), RANK_LEGEND)).min(0)


def wait() -> Panel:
    """Return the waiting time of every rank."""
    info = PanelInfo(
        "Waiting per iteration",
        "Time inside collectives. Good: low and similar. The other ranks wait for the rank that waits least.",
        "s",
    )
    return panels.lines(info, Query(RANKS.seconds("wait"), RANK_LEGEND)).min(0)
