"""Row Stragglers: which rank the others wait for, and in which stage of the iteration."""

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import RANK_LEGEND, Panel, PanelInfo, Query
from heterotp_dashboards.queries import SOME_RANKS


def lost_by_stage() -> Panel:
    """Return what the others lose to each rank, by stage."""
    info = PanelInfo(
        "Lost to a rank per iteration, by stage",
        "Blame: seconds of an iteration that the other ranks wait for this rank, by the stage in which it was late. "
        "Good: short bars. The longest bar is the rank to help; its longest part is where to look: data, a part of the "
        "model, the optimizer, or link (transfers). Balancing shortens the parts attention and ffn, and no other. "
        "Of many ranks: the 16 that cost most.",
        "s",
    )
    panel = panels.stacked_bars(info, Query(queries.named_rank(queries.lost_by_stage(SOME_RANKS)), rows=True))
    matrix = {"columnField": "stage", "rowField": queries.RANK_NODE, "valueField": "Value", "emptyValue": "zero"}
    panel.with_transformation(panels.transformation("groupingToMatrix", **matrix))
    panel.x_field(f"{queries.RANK_NODE}\\stage").no_value("no rank waits for another")
    return panels.color_fields(panel, colours.STAGES)


def lost_over_time() -> Panel:
    """Return the part of the time that the others lose to each rank, over time."""
    info = PanelInfo(
        "Lost to a rank, rank by time",
        "Part of the time for which the other ranks wait for this one: green below 5 %, yellow, from 15 % orange, from "
        "30 % red. Good: all green. Unlike χ it becomes green again when balancing has taken work from a slow rank, "
        "because nobody waits for it then. Of many ranks: the 16 that cost most.",
        "percentunit",
    )
    query = Query(queries.lost_share(SOME_RANKS), RANK_LEGEND)
    return panels.timeline(info, query, colors=colours.LOST_SHARE).decimals(2)
