"""The buttons: requests of the page as changes of a job, by the code of the verbs `policy` and `inject`."""

import time
from dataclasses import replace
from typing import Any

from heterotp_api.base import Model
from heterotp_api.load import first_error
from pydantic import Field, ValidationError

from heterotp_cli.errors import BadInput
from heterotp_cli.verbs import change_requests
from heterotp_cli.verbs.target import Change, Target, await_change


class PolicyBody(Model):
    """A policy that is asked for; `default`: the one that applies without any setting."""

    strategy: str | None = Field(None, max_length=64)
    max_pruned_share: float | None = None
    default: bool = False


class InjectionBody(Model):
    """A slow-down that is asked for, or with `stop` the end of one; seconds: None: until it is stopped."""

    rank: int
    slowdown: float | None = None
    seconds: float | None = Field(None, gt=0, le=10**9)
    stop: bool = False


def change_policy(target: Target, body: dict[str, Any]) -> Change:
    """Change how a job balances; raise BadInput for what it cannot have."""
    asked = _parsed(PolicyBody, body)
    if asked.default:
        return target.set_default()
    if asked.strategy is None:
        raise BadInput("strategy: is required")
    return target.set_policy(asked.strategy, asked.max_pruned_share, ())


def change_injection(target: Target, body: dict[str, Any]) -> Change:
    """Slow a rank, or remove what slows it; raise BadInput for what the job does not have."""
    asked = _parsed(InjectionBody, body)
    selector = change_requests.rank_selector((asked.rank,), (), ())
    if asked.stop:
        return target.remove_injections(selector)
    slowdown = change_requests.slowdown_request(asked.slowdown, None, None)
    return target.inject(selector, replace(slowdown, seconds=asked.seconds))


def settled(change: Change) -> dict[str, str]:
    """Wait until a change is in force, bounded as in the verbs; return its verdict and what was done, as texts."""
    status, passed = await_change(change, time.monotonic, time.sleep)
    if status.verdict == "in force":
        return {"verdict": status.verdict, "message": f"{change.description}: in force after {passed:.1f} s"}
    return {"verdict": status.verdict, "message": f"{change.description}: {status.verdict}: {status.text}"}


def _parsed(kind: type[Any], body: dict[str, Any]) -> Any:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        field, value, message = first_error(error, kind)
        raise BadInput(f"{field}:{'' if value is None else f' {value!r}'} {message}") from None
