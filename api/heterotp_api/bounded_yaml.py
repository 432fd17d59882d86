"""Reads YAML of unknown origin as kubectl does, within bounds that are checked before any value is made."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

MOST_BYTES = 2**20
MOST_LEVELS = 64  # of lists and maps in each other
MOST_VALUES = 20_000  # of a file, with those that aliases repeat
MOST_DIGITS = 4_300  # of a number; Python converts no longer ones
MOST_DIRECTIVES = 64  # libyaml compares each %TAG with all others
_LONGEST = 10**MOST_DIGITS
_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")  # what the API server's JSON can hold


class TooMuch(ValueError):
    """A text is beyond a bound; the message names it."""


@dataclass
class _Collection:
    """An open list or map: its anchor, how many values came before it, and the levels below it up to now."""

    anchor: str | None
    before: int
    height: int = 0


@dataclass
class _Count:
    """Counts values and levels of a text, event by event, as if every alias were written out."""

    values: int = 0
    open: list[_Collection] = field(default_factory=list)
    anchored: dict[str, tuple[int, int]] = field(default_factory=dict)  # values and levels of finished anchors

    def see(self, event: yaml.Event) -> None:
        """Count one event; raise TooMuch at the first one beyond a bound."""
        match event:
            case yaml.DocumentStartEvent():
                self.anchored = {}
            case yaml.CollectionStartEvent():
                self._add(1, 1)
                self.open.append(_Collection(event.anchor, self.values))
            case yaml.CollectionEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._add(*self._repeated(event.anchor))
            case yaml.ScalarEvent():
                self._add(1, 0)
                if event.anchor is not None:
                    self.anchored[event.anchor] = (1, 0)

    def _repeated(self, anchor: str | None) -> tuple[int, int]:
        if any(each.anchor == anchor for each in self.open):
            raise TooMuch(f"alias *{str(anchor)[:60]} lies within its own anchor: a value must not hold itself")
        return self.anchored.get(str(anchor), (1, 0))  # an unknown one is refused by name later

    def _add(self, values: int, levels: int) -> None:
        self.values += values
        if self.values > MOST_VALUES:
            raise TooMuch(f"holds more than {MOST_VALUES} values, those that aliases repeat included")
        if len(self.open) + levels > MOST_LEVELS:
            raise TooMuch(f"holds more than {MOST_LEVELS} levels of lists and maps")
        if self.open:
            self.open[-1].height = max(self.open[-1].height, levels)

    def _close(self) -> None:
        done = self.open.pop()
        levels = done.height + 1
        if done.anchor is not None:
            self.anchored[done.anchor] = (self.values - done.before + 1, levels)
        if self.open:
            self.open[-1].height = max(self.open[-1].height, levels)


_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is


class _Loader(_Base):  # type: ignore[misc, valid-type]
    """Makes JSON values alone: keys are strings, dates are texts, 1e-3 is a number, a key twice is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as the base declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TAG + "timestamp", _TAG + "value")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors: dict[Any, Any] = {  # noqa: RUF012
        tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (None, *(_TAG + name for name in _JSON_TAGS))
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the map of a node; raises ConstructorError naming a key that is no string or occurs twice."""
        if not isinstance(node, yaml.MappingNode):
            raise _error("must be a map", node)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key must be a string", key)
            if key.value in seen and key.tag != _TAG + "merge":
                raise _error(f"key {key.value[:60]!r} occurs twice", key)
            seen.add(key.value)
        self.flatten_mapping(node)
        node.value = [(_text(key), value) for key, value in node.value]
        return yaml.constructor.BaseConstructor.construct_mapping(self, node, deep)


def _error(message: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _text(key: yaml.ScalarNode) -> yaml.ScalarNode:
    return yaml.ScalarNode(_TAG + "str", key.value, key.start_mark, key.end_mark)


def _checked(construct: Callable[[Any, yaml.Node], Any], name: str) -> Callable[[Any, yaml.Node], Any]:
    """Return the constructor of a scalar with an error for every text that does not fit its tag."""

    def checked(loader: Any, node: yaml.Node) -> Any:
        try:
            value = construct(loader, node) if len(node.value) <= MOST_DIGITS else _LONGEST
        except (ValueError, LookupError, OverflowError):
            raise _error(f"{str(node.value)[:60]!r} is no {name}", node) from None
        if isinstance(value, int) and abs(value) >= _LONGEST:  # also a shorter hexadecimal one
            raise _error(f"holds a number of more than {MOST_DIGITS} digits", node)
        return value

    return checked


for _name in ("null", "bool", "int", "float"):
    _Loader.add_constructor(_TAG + _name, _checked(_Loader.yaml_constructors[_TAG + _name], _name))
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_documents(text: str) -> list[Any]:
    """Return the values of all YAML documents of a text; raise TooMuch, or yaml.YAMLError where it is no YAML."""
    if text.count("\n%TAG") > MOST_DIRECTIVES:
        raise TooMuch(f"holds more than {MOST_DIRECTIVES} %TAG directives")
    count = _Count()
    for event in yaml.parse(text, Loader=_Base):
        count.see(event)
    return list(yaml.load_all(text, Loader=_Loader))
