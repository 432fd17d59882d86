"""Small helpers round the SDK's builders: what every panel needs, and places that are given, numbered and checked."""

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
GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
RANK_LEGEND = "rank {{rank}} · {{node}}"


@dataclass(frozen=True)
class Ask:
    """One query of a panel: over the time range, or `now`, or `now` as the rows of a table."""

    expr: str
    legend: str = ""
    now: bool = False
    rows: bool = False
    buckets: bool = False


@dataclass(frozen=True)
class About:
    """What every panel says of itself."""

    title: str
    description: str
    unit: str


def _target(number: int, ask: Ask) -> prometheus.Dataquery:
    ref = chr(ord("A") + number)
    target = prometheus.Dataquery().datasource(DATASOURCE).ref_id(ref).expr(ask.expr).legend_format(ask.legend)
    target = target.instant() if ask.now or ask.rows else target.range()
    if ask.rows:
        return target.format(PromQueryFormat.TABLE)
    return target.format(PromQueryFormat.HEATMAP).exemplar(True) if ask.buckets else target


def _begin(panel: Kind, about: About, asks: Sequence[Ask]) -> Kind:
    panel.title(about.title).description(about.description).unit(about.unit).datasource(DATASOURCE)
    for number, ask in enumerate(asks):
        panel.with_target(_target(number, ask))
    return panel


def steps(base: str, *above: tuple[float, str]) -> build.ThresholdsConfig:
    """Return thresholds: a colour, and the colours from given values on."""
    made = [dashboard.Threshold(value=None, color=base)]
    made += [dashboard.Threshold(value=value, color=color) for value, color in above]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(made)


CALM = steps(GREEN)
SLOW = steps(GREEN, (1.2, YELLOW), (1.5, ORANGE), (2.0, RED))


def _by_threshold() -> build.FieldColor:
    return build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)


def _legend(*calcs: str) -> viz.VizLegendOptions:
    """Return a legend that is seen: without this the SDK hides it."""
    mode = common.LegendDisplayMode.TABLE if calcs else common.LegendDisplayMode.LIST
    place = common.LegendPlacement.RIGHT if calcs else common.LegendPlacement.BOTTOM
    return viz.VizLegendOptions().show_legend(True).display_mode(mode).placement(place).calcs(list(calcs))


def _last() -> viz.ReduceDataOptions:
    return viz.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")


def number(about: About, *asks: Ask, colors: build.ThresholdsConfig = CALM, name: bool = False) -> stat.Panel:
    """Return a stat; `name`: the value with its series' name, on a ground of the threshold's colour."""
    text = VALUE_AND_NAME if name or len(asks) > 1 else common.BigValueTextMode.AUTO
    color = common.BigValueColorMode.BACKGROUND if name else common.BigValueColorMode.VALUE
    graph = common.BigValueGraphMode.NONE if all(ask.now for ask in asks) else common.BigValueGraphMode.AREA
    panel = _begin(stat.Panel(), about, asks).thresholds(colors).color_scheme(_by_threshold())
    return panel.text_mode(text).color_mode(color).graph_mode(graph).reduce_options(_last())


def word(about: About, ask: Ask) -> stat.Panel:
    """Return a stat that shows its series' name alone."""
    return number(about, ask).text_mode(common.BigValueTextMode.NAME)


def bars(about: About, *asks: Ask, colors: build.ThresholdsConfig = CALM) -> bargauge.Panel:
    """Return horizontal bars of what is now."""
    panel = _begin(bargauge.Panel(), about, asks).thresholds(colors).color_scheme(_by_threshold()).min(0)
    panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
    panel.name_placement(common.BarGaugeNamePlacement.TOP).max_viz_height(40)
    return panel.legend(_legend()).reduce_options(_last())


def lines(about: About, *asks: Ask, fill: float = 0) -> timeseries.Panel:
    """Return lines over time."""
    panel = _begin(timeseries.Panel(), about, asks).line_width(1).fill_opacity(fill)
    panel.show_points(common.VisibilityMode.NEVER).insert_nulls(300_000)
    panel.tooltip(viz.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    return panel.legend(_legend())


def timeline(about: About, *asks: Ask, colors: build.ThresholdsConfig = CALM, page: int = 32) -> statetimeline.Panel:
    """Return a row per series, coloured by its value over time."""
    panel = _begin(statetimeline.Panel(), about, asks).thresholds(colors).color_scheme(_by_threshold())
    panel.show_value(common.VisibilityMode.NEVER).merge_values(True).row_height(0.9).line_width(0).fill_opacity(90)
    return panel.per_page(page).legend(_legend())


def stacked_bars(about: About, *asks: Ask, share: bool = False) -> barchart.Panel:
    """Return a bar per row of the table that the transformations leave; `share`: all bars equally long."""
    mode = common.StackingMode.PERCENT if share else common.StackingMode.NORMAL
    panel = _begin(barchart.Panel(), about, asks).stacking(mode).orientation(common.VizOrientation.HORIZONTAL)
    return panel.show_value(common.VisibilityMode.NEVER).fill_opacity(85).legend(_legend())


def buckets(about: About, ask: Ask) -> heatmap.Panel:
    """Return a classic histogram over time."""
    panel = _begin(heatmap.Panel(), about, [ask]).calculate(False).show_legend()
    panel.y_axis(heatmap.YAxisConfig().unit(about.unit).axis_placement(common.AxisPlacement.LEFT))
    scheme = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    return panel.color(scheme).unit("short").exemplars_color("rgba(255,0,255,0.7)")


def rows(about: About, *asks: Ask) -> table.Panel:
    """Return a table."""
    return _begin(table.Panel(), about, asks).thresholds(CALM).min_width(60)


def transformation(kind: str, **options: object) -> dashboard.DataTransformerConfig:
    """Return a transformation of what was answered."""
    return dashboard.DataTransformerConfig(id_val=kind, options=options)


def setting(name: str, value: object) -> dashboard.DynamicConfigValue:
    """Return one setting of a field, for overrides."""
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def fixed(color: str) -> dashboard.DynamicConfigValue:
    """Return the setting of a field's colour."""
    return setting("color", {"mode": "fixed", "fixedColor": color})


def coloured(thresholds: build.ThresholdsConfig) -> list[dashboard.DynamicConfigValue]:
    """Return the settings of a column whose cells take the threshold's colour."""
    cell = {"type": "color-background", "mode": "basic"}
    return [setting("thresholds", thresholds.build()), setting("custom.cellOptions", cell)]


def color_fields(panel: Kind, colors: dict[str, str]) -> Kind:
    """Give fields colours by their names."""
    for name, color in colors.items():
        panel.override_by_name(name, [fixed(color)])
    return panel


def link(title: str, url: str) -> dict[str, object]:
    """Return a data link."""
    return {"title": title, "url": url, "targetBlank": False}


Line = tuple[int, Sequence[tuple[int, Panel]]]  # height, and panels with their widths from left to right


class Layout:
    """Gives panels their places and numbers, line by line."""

    def __init__(self, board: build.Dashboard) -> None:
        self._board, self._y, self._number = board, 0, 0

    def row(self, title: str, *lines: Line, collapsed: bool = False) -> None:
        """Add a row; the panels of a collapsed one are inside it."""
        row = build.Row(title).id(self._next()).collapsed(collapsed)
        row.grid_pos(dashboard.GridPos(h=1, w=COLUMNS, x=0, y=self._y))
        placed = self._placed(lines)
        if collapsed:
            for panel in placed:
                row.with_panel(panel)
            placed = []
        self._board.with_row(row)
        for panel in placed:
            self._board.with_panel(panel)

    def _placed(self, lines: Sequence[Line]) -> list[Panel]:
        self._y += 1
        placed: list[Panel] = []
        for height, panels in lines:
            x = 0
            for width, panel in panels:
                panel.id(self._next()).grid_pos(dashboard.GridPos(h=height, w=width, x=x, y=self._y))
                placed.append(panel)
                x += width
            if x > COLUMNS:
                raise ValueError(f"a line of {x} columns: {COLUMNS} are there")
            self._y += height
        return placed

    def _next(self) -> int:
        self._number += 1
        return self._number
