"""Builders of panels over Grafana's SDK, and the layout that numbers panels and gives them their places."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    barchart,
    bargauge,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import common as viz
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from heterotp_dashboards import colours
from heterotp_dashboards.variables import DATASOURCE

Panel = (
    barchart.Panel | bargauge.Panel | heatmap.Panel | stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel
)
Kind = TypeVar(
    "Kind",
    barchart.Panel,
    bargauge.Panel,
    heatmap.Panel,
    stat.Panel,
    statetimeline.Panel,
    table.Panel,
    timeseries.Panel,
)
COLUMNS = 24
VALUE_AND_NAME = common.BigValueTextMode.VALUE_AND_NAME
FACTOR = "suffix:×"
RANK_LEGEND = "rank {{rank}} · {{node}}"


@dataclass(frozen=True)
class Query:
    """One query of a panel.

    now: at the end of the time range, else over the range. rows: now, as the rows of a table.
    buckets: the buckets of a classic histogram.
    """

    expr: str
    legend: str = ""
    now: bool = False
    rows: bool = False
    buckets: bool = False


@dataclass(frozen=True)
class PanelInfo:
    """Title, description and unit of a panel; the description names good values after "Good:"."""

    title: str
    description: str
    unit: str


def _target(number: int, query: Query) -> prometheus.Dataquery:
    ref = chr(ord("A") + number)
    target = prometheus.Dataquery().datasource(DATASOURCE).ref_id(ref).expr(query.expr).legend_format(query.legend)
    target = target.instant() if query.now or query.rows else target.range()
    if query.rows:
        return target.format(PromQueryFormat.TABLE)
    return target.format(PromQueryFormat.HEATMAP).exemplar(True) if query.buckets else target


def _begin(panel: Kind, info: PanelInfo, targets: Sequence[Query]) -> Kind:
    panel.title(info.title).description(info.description).unit(info.unit).datasource(DATASOURCE)
    for number, query in enumerate(targets):
        panel.with_target(_target(number, query))
    return panel


def _by_threshold() -> build.FieldColor:
    return build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)


def _legend(*calcs: str) -> viz.VizLegendOptions:
    """Return a visible legend: the SDK hides legends by default."""
    mode = common.LegendDisplayMode.TABLE if calcs else common.LegendDisplayMode.LIST
    place = common.LegendPlacement.RIGHT if calcs else common.LegendPlacement.BOTTOM
    return viz.VizLegendOptions().show_legend(True).display_mode(mode).placement(place).calcs(list(calcs))


def _last() -> viz.ReduceDataOptions:
    return viz.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")


def number(
    info: PanelInfo, *targets: Query, colors: build.ThresholdsConfig = colours.DEFAULT, name: bool = False
) -> stat.Panel:
    """Return a stat panel; `name`: the value with the name of its series, on a background in the threshold's colour."""
    text = VALUE_AND_NAME if name or len(targets) > 1 else common.BigValueTextMode.AUTO
    color = common.BigValueColorMode.BACKGROUND if name else common.BigValueColorMode.VALUE
    graph = common.BigValueGraphMode.NONE if all(query.now for query in targets) else common.BigValueGraphMode.AREA
    panel = _begin(stat.Panel(), info, targets).thresholds(colors).color_scheme(_by_threshold())
    return panel.text_mode(text).color_mode(color).graph_mode(graph).reduce_options(_last())


def series_name(info: PanelInfo, query: Query) -> stat.Panel:
    """Return a stat panel that shows only the name of its series."""
    return number(info, query).text_mode(common.BigValueTextMode.NAME)


def bars(info: PanelInfo, *targets: Query, colors: build.ThresholdsConfig = colours.DEFAULT) -> bargauge.Panel:
    """Return a bar gauge: one horizontal bar per series, the newest value."""
    panel = _begin(bargauge.Panel(), info, targets).thresholds(colors).color_scheme(_by_threshold()).min(0)
    panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
    panel.name_placement(common.BarGaugeNamePlacement.TOP).max_viz_height(40)
    return panel.legend(_legend()).reduce_options(_last())


def lines(info: PanelInfo, *targets: Query, fill: float = 0) -> timeseries.Panel:
    """Return a time series panel."""
    panel = _begin(timeseries.Panel(), info, targets).line_width(1).fill_opacity(fill)
    panel.show_points(common.VisibilityMode.NEVER).insert_nulls(300_000)
    panel.tooltip(viz.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    return panel.legend(_legend())


def timeline(
    info: PanelInfo, *targets: Query, colors: build.ThresholdsConfig = colours.DEFAULT, page: int = 20
) -> statetimeline.Panel:
    """Return a state timeline: one row per series, coloured by its value over time."""
    panel = _begin(statetimeline.Panel(), info, targets).thresholds(colors).color_scheme(_by_threshold())
    panel.show_value(common.VisibilityMode.NEVER).merge_values(True).row_height(0.9).line_width(0).fill_opacity(90)
    return panel.per_page(page).legend(_legend())


def stacked_bars(info: PanelInfo, *targets: Query, share: bool = False) -> barchart.Panel:
    """Return stacked bars, one per row of the transformed table; `share`: every bar is scaled to 100 %."""
    mode = common.StackingMode.PERCENT if share else common.StackingMode.NORMAL
    panel = _begin(barchart.Panel(), info, targets).stacking(mode).orientation(common.VizOrientation.HORIZONTAL)
    return panel.show_value(common.VisibilityMode.NEVER).fill_opacity(85).legend(_legend())


def buckets(info: PanelInfo, query: Query) -> heatmap.Panel:
    """Return a heatmap of a classic histogram over time."""
    panel = _begin(heatmap.Panel(), info, [query]).calculate(False).show_legend()
    panel.y_axis(heatmap.YAxisConfig().unit(info.unit).axis_placement(common.AxisPlacement.LEFT))
    scheme = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme(colours.HEATMAP_SCHEME).steps(64)
    return panel.color(scheme).unit("short").exemplars_color(colours.EXEMPLARS)


def rows(info: PanelInfo, *targets: Query) -> table.Panel:
    """Return a table panel."""
    return _begin(table.Panel(), info, targets).thresholds(colours.DEFAULT).min_width(60)


def transformation(kind: str, **options: object) -> dashboard.DataTransformerConfig:
    """Return a transformation of the query results."""
    return dashboard.DataTransformerConfig(id_val=kind, options=options)


def setting(name: str, value: object) -> dashboard.DynamicConfigValue:
    """Return one setting of a field override."""
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def fixed(color: str) -> dashboard.DynamicConfigValue:
    """Return the override that gives a field one fixed colour."""
    return setting("color", {"mode": "fixed", "fixedColor": color})


def coloured(thresholds: build.ThresholdsConfig) -> list[dashboard.DynamicConfigValue]:
    """Return the overrides of a column whose cells take the threshold's colour."""
    cell = {"type": "color-background", "mode": "basic"}
    return [setting("thresholds", thresholds.build()), setting("custom.cellOptions", cell)]


def color_fields(panel: Kind, colors: dict[str, str]) -> Kind:
    """Set the colour of fields by their names."""
    for name, color in colors.items():
        panel.override_by_name(name, [fixed(color)])
    return panel


def link(title: str, url: str) -> dict[str, object]:
    """Return a data link that opens in the same tab."""
    return {"title": title, "url": url, "targetBlank": False}


PanelRow = tuple[int, Sequence[tuple[int, Panel]]]  # height, and (width, panel) from left to right, in grid units


class Layout:
    """Adds panels to a board, row by row, with ids and grid positions."""

    def __init__(self, board: build.Dashboard) -> None:
        self._board, self._y, self._number = board, 0, 0

    def row(self, title: str, *panel_rows: PanelRow, collapsed: bool = False) -> None:
        """Add a titled section of panel rows; a collapsed section contains its panels.

        Raises ValueError for a panel row wider than the grid.
        """
        row = build.Row(title).id(self._next()).collapsed(collapsed)
        row.grid_pos(dashboard.GridPos(h=1, w=COLUMNS, x=0, y=self._y))
        placed = self._placed(panel_rows)
        if collapsed:
            for panel in placed:
                row.with_panel(panel)
            placed = []
        self._board.with_row(row)
        for panel in placed:
            self._board.with_panel(panel)

    def _placed(self, panel_rows: Sequence[PanelRow]) -> list[Panel]:
        self._y += 1
        placed: list[Panel] = []
        for height, panels in panel_rows:
            x = 0
            for width, panel in panels:
                panel.id(self._next()).grid_pos(dashboard.GridPos(h=height, w=width, x=x, y=self._y))
                placed.append(panel)
                x += width
            if x > COLUMNS:
                raise ValueError(f"a panel row is {x} columns wide; the grid has {COLUMNS}")
            self._y += height
        return placed

    def _next(self) -> int:
        self._number += 1
        return self._number
