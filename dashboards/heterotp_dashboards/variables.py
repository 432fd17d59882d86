"""Variables of the boards, and the data source of all queries."""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common, dashboard

DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
ANY_DATASOURCE = "/.*/"  # the chart replaces it with monitoring.dashboards.datasourceRegex
ALL = dashboard.VariableOption(selected=True, text="All", value="$__all")


def datasource() -> build.DatasourceVariable:
    """Return the choice of a Prometheus data source."""
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus").regex(ANY_DATASOURCE)


def logs() -> build.DatasourceVariable:
    """Return the hidden choice of the Loki that log links open; without a Loki the links do nothing."""
    return build.DatasourceVariable("logs").type("loki").hide(dashboard.VariableHide.HIDE_VARIABLE)


def label(name: str, title: str, series: str) -> build.QueryVariable:
    """Return the choice of one value of a label of these series."""
    return (
        build.QueryVariable(name)
        .label(title)
        .datasource(DATASOURCE)
        .query(f"label_values({series}, {name})")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.NATURAL_ASC)
    )


def multi_choice(name: str, title: str, series: str, all_value: str | None = ".*") -> build.QueryVariable:
    """Return the choice of several values, initially all; without `all_value`, "all" is the list of values."""
    variable = label(name, title, series).multi(True).include_all(True).current(ALL)
    return variable if all_value is None else variable.all_value(all_value)


def cluster(series: str) -> build.QueryVariable:
    """Return the hidden choice of the cluster, initially any: most Prometheus servers have no such label."""
    variable = label("cluster", "Cluster", series).include_all(True).all_value(".*").current(ALL)
    return variable.hide(dashboard.VariableHide.HIDE_VARIABLE)


def top() -> build.CustomVariable:
    """Return the choice of how many jobs are shown."""
    options = [dashboard.VariableOption(selected=n == "10", text=n, value=n) for n in ("5", "10", "20")]
    return build.CustomVariable("top").label("Worst").values("5,10,20").options(options).current(options[1])
