"""What a rank reads from its environment: torchrun's variables, and HETEROTP_* where they are set."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heterotp_api.job import Device, HeteroTPJobSpec
from heterotp_api.load import first_error
from heterotp_api.names import Env
from heterotp_api.ranks import rank_table
from pydantic import ValidationError

from heterotp_trainer.errors import InputError

LEAST_SECRET = 16  # characters
UID = "[A-Za-z0-9-]{0,64}"  # it becomes a part of a directory's name


@dataclass(frozen=True)
class RankEnvironment:
    """One rank's place in the gang and its directories; everything but rank and world has a default."""

    rank: int
    ranks: int
    local_rank: int
    master_address: str
    master_port: int
    job: str
    attempt: int
    spec: HeteroTPJobSpec
    device: Device
    status_port: int | None = None
    control_dir: Path | None = None
    checkpoint_dir: Path | None = None
    workdir: Path | None = None
    last_words: Path | None = None
    job_uid: str = ""  # empty: ranks were started by hand
    secret: str = field(default="", repr=False)  # of the rendezvous, see door.py; empty: none is needed
    comeback: int = 0  # how often this rank was started again (runPolicy.elastic.rejoin)
    members: tuple[int, ...] = ()  # the numbers that the ranks started with; empty: those of now

    @property
    def origins(self) -> tuple[int, ...]:
        """The number that each rank started with: others follow where ranks were lost (runPolicy.elastic)."""
        return self.members or tuple(range(self.ranks))

    @property
    def groups(self) -> tuple[str, ...]:
        """Worker group of each rank."""
        table = rank_table(self.spec)
        return tuple(table[origin].group for origin in self.origins)


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name}: {text!r} must be a whole number; start ranks by the launcher or torchrun") from None


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _uid(environ: Mapping[str, str]) -> str:
    uid = environ.get(Env.JOB_UID, "")
    if not re.fullmatch(UID, uid):
        raise InputError(f"{Env.JOB_UID}: {uid!r} must be up to 64 letters, digits and '-', as a UUID")
    return uid


def _secret(environ: Mapping[str, str]) -> str:
    secret = environ.get(Env.RENDEZVOUS_SECRET, "")
    if secret and len(secret) < LEAST_SECRET:
        raise InputError(f"{Env.RENDEZVOUS_SECRET}: has {len(secret)} characters: give at least {LEAST_SECRET}")
    return secret


def _model(what: str, model: Any, text: str) -> Any:
    """Return a model parsed from JSON; InputError naming the variable and the field."""
    try:
        return model.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise InputError(f"{what}: is not JSON: {error}") from None
    except ValidationError as error:
        field, value, message = first_error(error)
        raise InputError(f"{what}: {field}: {value!r} {message}") from None


def parse_spec(text: str | None, ranks: int) -> HeteroTPJobSpec:
    """Return the job's spec; without one, the default training on `ranks` equal ranks."""
    if not text:
        groups = [{"name": "ranks", "pods": ranks}]
        body: Any = {"tensorParallelDegree": ranks, "workerGroups": groups, "training": {"initialShares": "even"}}
        return HeteroTPJobSpec.model_validate(body)
    body = json.loads(text)
    for group in body.get("workerGroups", ()):
        group.setdefault("template", {"spec": {}})  # templates stay with the operator
    spec: HeteroTPJobSpec = _model(Env.SPEC, HeteroTPJobSpec, json.dumps(body))
    return spec


def read_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """Return this rank's environment; raises InputError naming the variable that is missing or wrong."""
    ranks = _number(environ, Env.WORLD_SIZE)
    spec = parse_spec(environ.get(Env.SPEC), ranks)
    if spec.process_count != ranks:
        raise InputError(f"{Env.WORLD_SIZE}: {ranks} ranks, but the spec's worker groups make {spec.process_count}")
    rank = _number(environ, Env.RANK)
    local_rank = _number(environ, Env.LOCAL_RANK, 0)
    port = environ.get(Env.STATUS_PORT)
    device = environ.get(Env.DEVICE)
    return RankEnvironment(
        rank=rank,
        ranks=ranks,
        local_rank=local_rank,
        master_address=environ.get(Env.MASTER_ADDR, "127.0.0.1"),
        master_port=_number(environ, Env.MASTER_PORT, 29500),
        job=environ.get(Env.JOB, "local"),
        attempt=_number(environ, Env.ATTEMPT, 0),
        spec=spec,
        device=_model(Env.DEVICE, Device, device) if device else rank_table(spec)[rank].device,
        status_port=_number(environ, Env.STATUS_PORT) + local_rank if port else None,
        control_dir=_path(environ, Env.CONTROL_DIR),
        checkpoint_dir=_path(environ, Env.CHECKPOINT_DIR),
        workdir=_path(environ, Env.WORKDIR),
        last_words=_path(environ, Env.LAST_WORDS),
        job_uid=_uid(environ),
        secret=_secret(environ),
        comeback=_number(environ, Env.COMEBACK, 0) if spec.run_policy.elastic is not None else 0,
    )
