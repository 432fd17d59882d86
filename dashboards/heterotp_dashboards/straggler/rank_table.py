"""The table of ranks: one row per rank, the slowest first, with links to its pod, GPU and logs."""

from dataclasses import dataclass
from urllib.parse import quote

from grafana_foundation_sdk.models import dashboard

from heterotp_dashboards import colours, panels, queries
from heterotp_dashboards.panels import FACTOR, Panel, PanelInfo, Query
from heterotp_dashboards.queries import SOME_RANKS, Ranks, series

POD_BOARD = "6581e46e4e5c7ba40a07646395ef7b23"  # md5 of k8s-resources-pod.json, as kubernetes-mixin names it
GPU_BOARD = "Oxed_c6Wz"  # of dcgm-exporter
POD = "${__data.fields.pod}"
RANGE = "${__url_time_range}"


@dataclass(frozen=True)
class Column:
    """A column with one value per rank."""

    name: str
    expr: str
    unit: str
    decimals: int | None = None


CAUSE = "cause"  # a label of a query, shown as a column of its own


def recorded(name: str) -> str:
    """Return the value of a recording rule by rank."""
    return f"max by (rank) ({series(name, SOME_RANKS)})"


def columns() -> list[Column]:
    """Return the columns after rank, node and pod; the query of the first column also returns these three labels."""
    generation = f"max by (rank, node, pod) ({series('heterotp_policy_generation', SOME_RANKS)})"
    return [
        Column("generation", generation, "none"),
        Column("χ", recorded(queries.SLOWDOWN), FACTOR, 2),
        Column("cause holds", queries.likeliest_cause(), "percentunit"),
        Column("T", recorded(queries.BUSY), "s"),
        Column("M", recorded(queries.MATMUL), "s"),
        Column("wait", recorded(queries.WAIT), "s"),
        Column("γ", queries.gamma("rank"), "percentunit"),
        Column("β", queries.beta("rank"), "percentunit"),
        Column("work", Ranks(SOME_RANKS, by="rank").work(), "short", 2),
        Column("columns out", queries.columns("out", "rank"), "short"),
        Column("columns in", queries.columns("in", "rank"), "short"),
    ]


def table() -> Panel:
    """Return the table."""
    info = PanelInfo(
        "Ranks",
        "All values of each rank, the slowest first: χ slow-down; cause what its machine says most, and for which "
        "share of the time it holds; T computing, M matrix products and wait, in seconds "
        "per iteration (5 minutes); γ share of its work that was taken; β part of that which other ranks compute; "
        "work relative to its initial share. Good: χ below 1.2 on all ranks. A pod links to its resources and logs, "
        "a node to its GPUs.",
        "none",
    )
    made = columns()
    panel = panels.rows(info, *(Query(column.expr, rows=True) for column in made))
    for step in _joined(made):
        panel.with_transformation(step)
    for column in made:
        settings = [panels.setting("unit", column.unit)]
        if column.decimals is not None:
            settings.append(panels.setting("decimals", column.decimals))
        panel.override_by_name(
            column.name, settings + (panels.coloured(colours.SLOWDOWN) if column.name == "χ" else [])
        )
    panel.override_by_name("pod", [panels.setting("links", [*_to_pod()])])
    gpus = panels.link("GPUs", f"/d/{GPU_BOARD}?{RANGE}")
    return panel.override_by_name("node", [panels.setting("links", [gpus])])


def _joined(made: list[Column]) -> list[dashboard.DataTransformerConfig]:
    """Return the transformations that join all query results into one table, the slowest rank first."""
    values = {f"Value #{chr(ord('A') + number)}": column.name for number, column in enumerate(made)}
    _, slowdown, *others = values
    order = ["rank", "node", "pod", slowdown, CAUSE, *others, "Value #A"]
    return [
        panels.transformation("joinByField", byField="rank", mode="outer"),
        panels.transformation("filterFieldsByName", include={"names": order}),
        panels.transformation(
            "organize",
            indexByName={name: place for place, name in enumerate(order)},
            renameByName=values,
            excludeByName={},
        ),
        panels.transformation("sortBy", fields={}, sort=[{"field": "χ", "desc": True}]),
    ]


def _to_pod() -> list[dict[str, object]]:
    """Return the links of a pod: its resources, and its logs where a Loki is configured."""
    resources = f"/d/{POD_BOARD}?var-datasource=${{datasource}}&var-namespace=${{namespace}}&var-pod={POD}&{RANGE}"
    pane = (
        '{"a":{"datasource":"${logs}","queries":[{"refId":"A","expr":"{namespace=\\"${namespace}\\",pod=\\"'
        + POD
        + '\\"}"}],"range":{"from":"${__from}","to":"${__to}"}}}'
    )
    logs = f"/explore?schemaVersion=1&panes={quote(pane, safe='${}._')}"
    return [panels.link("Pod", resources), panels.link("Logs", logs)]
