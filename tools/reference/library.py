"""The page about the library, from the public names of `heterotp` and their docstrings."""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import heterotp

from reference.markdown import document, plain

SOURCE = "the docstrings of the names that trainer/heterotp/__init__.py lists"
INTRO = """\
`import heterotp` is the library behind the built-in trainer; [Convert your own model](../convert-your-model.md) shows
it in a script. "(all ranks)" marks what all ranks must call, in the same order. B batch, T tokens, D width."""
OURS = "heterotp_"
MODULE_PATH = re.compile(r"\b(?:\w+\.)+(?=[A-Za-z_])")


class Undocumented(Exception):
    """A public name without a docstring."""


def page() -> str:
    """Return the page. Raises Undocumented."""
    return document("The library", SOURCE, INTRO, *(_section(title) for title in heterotp.SECTIONS))


def _section(title: str) -> str:
    found = {name: getattr(heterotp, name) for name in heterotp.SECTIONS[title]}
    parts = [f"## {title}", *(_entry(name, thing) for name, thing in found.items())]
    return "\n\n".join(filter(None, parts))


def _entry(name: str, thing: Any) -> str:
    """Return heading, signature and docstring of a public name, then those of its public members."""
    parts = [f"### {name}", _declared(name, thing), _text(thing, name), _of_module(thing)]
    if inspect.isclass(thing):
        for member, value in _members(thing):
            title = f"{name}.{member}"
            parts += [f"#### {title}", _declared(title, value), _text(value, title)]
    return "\n\n".join(filter(None, parts))


def _of_module(thing: Any) -> str:
    """Return the table that the docstring of a module holds besides its first line: exit codes, shapes of layers."""
    if thing is heterotp.run_rank:
        _, _, codes = _documented(sys.modules[thing.__module__], thing.__module__).partition("\n\n")
        return f"```text\n{codes}\n```"
    if thing is heterotp.ColumnParallelLinear:
        return plain(_documented(sys.modules[thing.__module__], thing.__module__).partition("Links:")[0].rstrip())
    return ""


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties that our own classes define, in the order of their definition."""
    seen: set[str] = set()
    for each in (each for each in reversed(kind.__mro__) if each.__module__.startswith(OURS)):
        for name, value in vars(each).items():
            if _is_member(name, value) and name not in seen:
                seen.add(name)
                yield name, inspect.getattr_static(kind, name)


def _is_member(name: str, value: Any) -> bool:
    return not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, (classmethod, property)))


# -- signature and docstring -----------------------------------------------------------------------------------


def _declared(name: str, thing: Any) -> str:
    """Return the signature in a code block; of an error there is none."""
    if inspect.isclass(thing):
        if issubclass(thing, Exception):
            return f"```python\nclass {name}({thing.__bases__[0].__name__})\n```"
        if dataclasses.is_dataclass(thing):
            return f"```python\n{_fields(name, thing)}\n```"
    if isinstance(thing, property):
        returned = _annotation(inspect.signature(thing.fget).return_annotation) if thing.fget else ""
        return f"```python\n{name}: {returned}  # a property\n```"
    return f"```python\n{name}{_signature(thing)}\n```"


def _fields(name: str, kind: type) -> str:
    shown = (field for field in dataclasses.fields(kind) if not field.name.startswith("_"))
    return "\n".join([f"class {name}:", *(f"    {field.name}: {_annotation(field.type)}" for field in shown)])


def _signature(thing: Any) -> str:
    """Return parameters and result, on lines of their own where they are long; without self."""
    found = inspect.signature(thing.__func__ if isinstance(thing, classmethod) else thing)
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    shown = [_parameter(each) for each in parameters]
    named = next((n for n, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if named is not None:
        shown.insert(named, "*")
    result = found.return_annotation
    end = "" if inspect.isclass(thing) or result is found.empty else f" -> {_annotation(result)}"
    line = f"({', '.join(shown)}){end}"
    return line if len(line) < 90 else "(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    given = parameter.default
    default = "" if given is parameter.empty else " = " + (f'"{given}"' if isinstance(given, str) else repr(given))
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    return f"{star}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _annotation(kind: object) -> str:
    """Return a type without the modules of its parts, and with bars for unions."""
    if isinstance(kind, str):
        return kind
    if get_origin(kind) is Union:
        return " | ".join(_annotation(each) for each in get_args(kind))
    return MODULE_PATH.sub("", inspect.formatannotation(kind)).replace("NoneType", "None").replace("'", '"')


def _documented(thing: Any, name: str) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise Undocumented(f"{name}: has no docstring")
    return text


def _text(thing: Any, name: str) -> str:
    return plain(_documented(thing, name))
