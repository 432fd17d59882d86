"""Checks of PromQL against the exported metrics: the labels of a result, and unknown metrics or labels."""

import re
from collections.abc import Iterator
from typing import Any

import promql_parser as parser
from support.expositions import Metric

KEEPS_LABELS = ("topk", "bottomk")


def without_variables(expr: str) -> str:
    """Replace Grafana's variables where the grammar requires a duration or a number."""
    expr = re.sub(r"\$__(rate_interval|range|interval)\b", "5m", expr)
    return re.sub(r"\$top\b", "5", expr)


def _matches(matcher: Any, value: str) -> bool:
    pattern = matcher.op in (parser.MatchOp.Re, parser.MatchOp.NotRe)
    same = re.fullmatch(matcher.value, value) is not None if pattern else matcher.value == value
    return same == (matcher.op in (parser.MatchOp.Re, parser.MatchOp.Equal))


class Reader:
    """Reads expressions and collects their errors in `complaints`."""

    def __init__(self, known: dict[str, Metric]) -> None:
        self._known = known
        self.complaints: list[str] = []

    def read(self, expr: str) -> set[str]:
        """Return the labels of the result of an expression."""
        try:
            tree = parser.parse(without_variables(expr))
        except ValueError as error:
            self.complaints.append(f"does not parse: {error}")
            return set()
        return self._labels(tree)

    def _labels(self, node: Any) -> set[str]:
        match node:
            case parser.VectorSelector():
                return self._selector(node)
            case parser.MatrixSelector():
                return self._selector(node.vector_selector)
            case parser.SubqueryExpr() | parser.ParenExpr() | parser.UnaryExpr():
                return self._labels(node.expr)
            case parser.Call():
                return self._call(node)
            case parser.AggregateExpr():
                return self._aggregate(node)
            case parser.BinaryExpr():
                return self._binary(node)
        return set()  # numbers and strings

    def _selector(self, node: Any) -> set[str]:
        metric = self._known.get(node.name)
        if metric is None:
            self.complaints.append(f"no such metric: {node.name}")
            return set()
        for matcher in node.matchers.matchers:
            if matcher.name not in metric.labels:
                self.complaints.append(f"{node.name} has no label {matcher.name}")
            values = metric.values.get(matcher.name)
            if values and "$" not in matcher.value and not any(_matches(matcher, value) for value in values):
                self.complaints.append(f"{node.name}: no {matcher.name} is like {matcher.value}")
        return set(metric.labels)

    def _call(self, node: Any) -> set[str]:
        inner = [self._labels(each) for each in node.args]
        name = node.func.name
        if name == "label_join":
            made, _, *sources = (each.val for each in node.args[1:])
            self._need(sources, inner[0], "label_join")
            return inner[0] | {made}
        if name == "histogram_quantile":
            self._need(["le"], inner[1], name)
            return inner[1] - {"le"}
        return set().union(*inner)

    def _aggregate(self, node: Any) -> set[str]:
        inner = self._labels(node.expr)
        grouped = list(node.modifier.labels) if node.modifier else []
        if node.modifier and node.modifier.type != parser.AggModifierType.By:
            self.complaints.append("without: name the labels to group by instead")
        self._need(grouped, inner, str(node.op))
        return inner if any(name in str(node.op) for name in KEEPS_LABELS) else set(grouped)

    def _binary(self, node: Any) -> set[str]:
        left, right = self._labels(node.lhs), self._labels(node.rhs)
        matching = node.modifier.matching if node.modifier else None
        if matching is not None:
            self._need(matching.labels, left, "on, left")
            self._need(matching.labels, right, "on, right")
        elif left and right and left != right and str(node.op) != "or":
            self.complaints.append(f"{node.op}: nothing matches, {sorted(left ^ right)} stand on one side alone")
        many = bool(node.modifier) and node.modifier.card == parser.VectorMatchCardinality.ManyToOne
        if many:
            self._need(node.modifier.group_labels, right, "group_left")
            return left | set(node.modifier.group_labels)
        op = str(node.op)
        if op == "or":
            return left | right
        if matching is None or op in ("and", "unless", ">", "<", "==", "!=", ">=", "<="):
            return left if left else right
        return set(matching.labels)

    def _need(self, wanted: list[str], there: set[str], where: str) -> None:
        self.complaints += [f"{where}: there is no label {label}" for label in wanted if label not in there]


def counters_without_rate(expr: str) -> Iterator[str]:
    """Yield counters that are used without rate(); counting or grouping their series is allowed."""
    yield from _bare(parser.parse(without_variables(expr)))


def _bare(node: Any) -> Iterator[str]:
    if isinstance(node, parser.VectorSelector):
        if node.name.endswith(("_total", "_bucket", "_sum")):
            yield node.name
        return
    asks_presence = isinstance(node, parser.AggregateExpr) and any(w in str(node.op) for w in ("count", "group"))
    if isinstance(node, parser.MatrixSelector) or asks_presence:
        return
    for name in ("lhs", "rhs", "expr"):
        if getattr(node, name, None) is not None:
            yield from _bare(getattr(node, name))
    for argument in getattr(node, "args", ()) or ():
        yield from _bare(argument)
