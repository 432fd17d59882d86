"""Row Stragglers: what every rank does with its time."""

from heterotp_dashboards import panels, queries
from heterotp_dashboards.panels import FACTOR, RANK_LEGEND, About, Ask, Line, Panel
from heterotp_dashboards.queries import ONE_JOB, SOME_RANKS, Ranks, phase, rate, series
from heterotp_dashboards.straggler.rank_table import table

RANKS = Ranks(SOME_RANKS)
PHASE_COLORS = {
    "matmul": "blue",
    "unit": "light-blue",
    "fixed": "purple",
    "migrate": "orange",
    "data": "yellow",
    "control": "semi-dark-yellow",
    "wait": "dark-red",
}


def stragglers() -> list[Line]:
    """Return who is slow, and since when."""
    return [
        (9, [(12, busy()), (12, slowdown_over_time())]),
        (9, [(12, where_time_goes()), (6, matmul()), (6, wait())]),
        (10, [(24, table())]),
    ]


def busy() -> Panel:
    """Return T of every rank."""
    about = About(
        "Computing time per iteration, by rank",
        "T: what each rank computes in an iteration (matrix products, the rest of its units, fixed parts), without "
        "waiting. Good: all lines in one band. One above the others is the rank that everybody waits for.",
        "s",
    )
    spent = rate("heterotp_phase_seconds_total", ONE_JOB, phase(queries.COMPUTE))
    mean = f"sum({spent})\n/ (sum({rate('heterotp_iterations_total', ONE_JOB)}) > 0)"
    panel = panels.lines(about, Ask(RANKS.busy(), RANK_LEGEND), Ask(mean, "mean")).min(0)
    dashes = panels.setting("custom.lineStyle", {"fill": "dash", "dash": [6, 6]})
    return panel.override_by_name("mean", [panels.fixed("white"), dashes])


def slowdown_over_time() -> Panel:
    """Return chi, rank by time."""
    about = About(
        "Slow-down χ, rank by time",
        "How many times as long as on the fastest rank the same work takes (over 5 minutes): green below 1.2, yellow, "
        "from 1.5 orange, from 2 red. Good: all green. A row that turns red tells who and since when; it stays red "
        "when balancing has taken its work away, since the rank is still slow.",
        FACTOR,
    )
    ask = Ask(series(queries.SLOWDOWN, SOME_RANKS), RANK_LEGEND)
    return panels.timeline(about, ask, colors=panels.SLOW).decimals(2)


def where_time_goes() -> Panel:
    """Return each rank's time by phase."""
    about = About(
        "Where the time goes, by rank",
        "Each rank's time now, divided by phase; the rank that waits least is on top: the others wait for it. Good: "
        "bars alike, little dark red.",
        "percentunit",
    )
    shares = queries.phase_shares(SOME_RANKS)
    panel = panels.stacked_bars(about, Ask(queries.named_rank(shares), rows=True), share=True)
    matrix = {"columnField": "phase", "rowField": queries.WHO, "valueField": "Value", "emptyValue": "zero"}
    panel.with_transformation(panels.transformation("groupingToMatrix", **matrix))
    row = f"{queries.WHO}\\phase"
    panel.with_transformation(panels.transformation("sortBy", fields={}, sort=[{"field": "wait", "desc": False}]))
    return panels.color_fields(panel.x_field(row), PHASE_COLORS)


def matmul() -> Panel:
    """Return M of every rank."""
    about = About(
        "Matrix products per iteration (M)",
        "Time in the matrix products that balancing can prune or move. Good: one band; it is this part that balancing "
        "evens out.",
        "s",
    )
    return panels.lines(about, Ask(RANKS.seconds("matmul"), RANK_LEGEND)).min(0)


def wait() -> Panel:
    """Return the waiting time of every rank."""
    about = About(
        "Waiting per iteration",
        "Time inside collectives. Good: low and alike. The rank that waits less than the others is the one that they "
        "wait for.",
        "s",
    )
    return panels.lines(about, Ask(RANKS.seconds("wait"), RANK_LEGEND)).min(0)
