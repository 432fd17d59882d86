"""What all boards share: settings, links between boards, annotations on the time axis, export to JSON."""

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from heterotp_dashboards import colours
from heterotp_dashboards.queries import series
from heterotp_dashboards.variables import DATASOURCE

TAG = "heterotp"
STRAGGLER, FLEET, OPERATOR = "heterotp-straggler", "heterotp-fleet", "heterotp-operator"  # uids, and file names
Json = dict[str, Any]


def board(title: str, uid: str, description: str, time_range: str = "now-30m") -> build.Dashboard:
    """Return an empty board: UTC, shared crosshair, read-only in the browser, links to the other boards."""
    made = build.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly()
    made.refresh("30s").time(time_range, "now").timezone("utc").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    links = build.DashboardLink("HeteroTP").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
    return made.link(links.keep_time(True).include_vars(True))


def event(name: str, expr: str, text: str) -> build.AnnotationQuery:
    """Return an annotation where an expression has values; consecutive values form one region."""
    query = (
        build.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .hide(False)
        .icon_color(colours.ANNOTATIONS[name])
    )
    return query.expr(expr).step("1m").title_format(name).text_format(text)


def operator_events(selector: str) -> list[build.AnnotationQuery]:
    """Return the annotations of the boards about many jobs."""
    counted = series("heterotp_operator_rank_restarts_total", selector)
    restarts = f"sum by (namespace, reason) (increase({counted}[1m])) > 0"
    firing = series("ALERTS", 'cluster=~"$cluster"', 'alertname=~"HeteroTP.*"', 'alertstate="firing"')
    return [
        event("Gang restart", restarts, "A gang in {{namespace}}: {{reason}}"),
        event("Alert", f"max by (alertname) ({firing})", "{{alertname}}"),
    ]


def as_json(made: build.Dashboard) -> Json:
    """Return the board's JSON without the keys that the SDK adds and Grafana's schema lacks."""
    content: Json = json.loads(JSONEncoder(sort_keys=True).encode(made.build()))
    for each in (*content["links"], *content["annotations"]["list"]):
        each.pop("placement", None)  # it would hide them in a menu
    for variable in content["templating"]["list"]:
        for key in [key for key in variable if key.startswith("auto")]:
            del variable[key]
    for panel in content["panels"]:
        panel.get("options", {}).pop("footer", None)  # of tables; newer Grafanas have it among the fields
    return content
