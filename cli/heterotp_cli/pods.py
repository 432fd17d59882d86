"""The command and environment of each pod of a local gang; pure except for the search for free ports."""

import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterotp_api.job import HeteroTPJob
from heterotp_api.names import CONTAINER, Env
from heterotp_api.ranks import PodPlace, pods

from heterotp_cli.gpus import VARIABLE
from heterotp_cli.workdir import CHECKPOINTS, last_words_file

LOOPBACK = "127.0.0.1"
FIRST_PORT, LAST_PORT = 20000, 32000  # below the range that the kernel hands out by itself


@dataclass(frozen=True)
class Ports:
    """Ports of a local gang: of the rendezvous, and the first metrics port of every pod."""

    rendezvous: int
    metrics: tuple[int, ...]


@dataclass(frozen=True)
class PodCommand:
    """One launcher process to start."""

    place: PodPlace
    arguments: tuple[str, ...]
    environment: dict[str, str]

    @property
    def name(self) -> str:
        """Name as in Kubernetes, without job and attempt."""
        return local_name(self.place)

    @property
    def ranks(self) -> range:
        """The ranks that the launcher starts."""
        return range(self.place.first_rank, self.place.first_rank + self.place.processes)


def local_name(place: PodPlace) -> str:
    """Return the name of a pod of a local gang: as in Kubernetes, without job and attempt."""
    return f"{place.group}-{place.index}"


def spec_json(job: HeteroTPJob) -> str:
    """Return the job's spec without pod templates, as the trainer reads it."""
    spec = job.spec.dump()
    for group in spec["workerGroups"]:
        group.pop("template", None)
    return json.dumps(spec, separators=(",", ":"))


def pod_environment(
    job: HeteroTPJob, place: PodPlace, attempt: int, workdir: Path, ports: Ports, pod_index: int
) -> dict[str, str]:
    """Return the environment that the operator would set in a pod, with the run directory in place of volumes."""
    checkpoint = job.spec.checkpoint
    given = checkpoint.path if checkpoint is not None else None
    device = job.spec.worker_groups[place.group_index].device
    return {
        Env.JOB: job.metadata.name,
        Env.NAMESPACE: job.metadata.namespace,
        Env.ATTEMPT: str(attempt),
        Env.GROUP: place.group,
        Env.FIRST_RANK: str(place.first_rank),
        Env.PROCESSES: str(place.processes),
        Env.SPEC: spec_json(job),
        Env.CONTROL_DIR: str(workdir),
        Env.CHECKPOINT_DIR: given or str(workdir / CHECKPOINTS),
        Env.STATUS_PORT: str(ports.metrics[pod_index]),
        Env.DEVICE: json.dumps(device.dump()),
        Env.WORKDIR: str(workdir),
        Env.LAST_WORDS: str(last_words_file(workdir, local_name(place))),
        Env.WORLD_SIZE: str(job.spec.process_count),
        Env.MASTER_ADDR: LOOPBACK,
        Env.MASTER_PORT: str(ports.rendezvous),
    }


def pod_commands(
    job: HeteroTPJob,
    attempt: int,
    workdir: Path,
    ports: Ports,
    python: str,
    base: Mapping[str, str],
    gpus: Sequence[str | None],
    identity: Mapping[str, str] | None = None,
) -> list[PodCommand]:
    """Return one launcher per pod; base: this process's environment; gpus: as `gpus.deal` returns them.

    identity: variables by which ranks and checkpoints of this run are told from those of other runs.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // job.spec.process_count))}
    # `python3` of a user's command is the one with the library, also where no environment is activated
    path = {"PATH": os.pathsep.join([str(Path(python).parent), base.get("PATH", os.defpath)])}
    commands = []
    for index, place in enumerate(pods(job.spec)):
        command, template_environment = own_command(job.spec.worker_groups[place.group_index].template)
        arguments: tuple[str, ...] = (
            python,
            "-P",
            "-m",
            "heterotp_trainer.launch",
        )  # -P: imports nothing from the working directory
        if job.spec.training is None:
            arguments += ("--", *command)
        settings = pod_environment(job, place, attempt, workdir, ports, index)
        seen = gpus[index]
        devices = {} if seen is None else {VARIABLE: seen}
        environment = {
            **threads,
            **base,
            **path,
            "PYTHONUNBUFFERED": "1",
            **devices,
            **template_environment,
            **settings,
            **(identity or {}),
        }
        commands.append(PodCommand(place, arguments, environment))
    return commands


def own_command(template: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return command and literal environment of the container `trainer` of a valid template."""
    containers = (template.get("spec") or {}).get("containers") or []
    container: Mapping[str, Any] = next((c for c in containers if c.get("name") == CONTAINER), {})
    command = tuple(str(part) for part in [*(container.get("command") or []), *(container.get("args") or [])])
    literal = {e["name"]: str(e["value"]) for e in container.get("env") or [] if "value" in e}
    return command, literal


def program_digest(job: HeteroTPJob) -> str:
    """Return a digest of the groups' own commands and environments: it changes when one of them does."""
    programs = [own_command(group.template) for group in job.spec.worker_groups]
    return hashlib.sha256(json.dumps(programs, sort_keys=True).encode()).hexdigest()


def free_ports(job: HeteroTPJob) -> Ports:
    """Return ports that are free now: one for the rendezvous, and consecutive ones for the ranks of each pod."""
    with ExitStack() as held:
        start = FIRST_PORT + os.getpid() * 37 % (LAST_PORT - FIRST_PORT - 2000)
        rendezvous = _run_of_free_ports(held, start, 1)
        metrics = []
        after = rendezvous + 1
        for place in pods(job.spec):
            metrics.append(_run_of_free_ports(held, after, place.processes))
            after = metrics[-1] + place.processes
    return Ports(rendezvous, tuple(metrics))


def free_port() -> int:
    """Return a port that is free now."""
    with ExitStack() as held:
        return _run_of_free_ports(held, FIRST_PORT + os.getpid() * 37 % (LAST_PORT - FIRST_PORT - 2000), 1)


def _run_of_free_ports(held: ExitStack, start: int, length: int) -> int:
    """Return the first of `length` consecutive free ports at or after `start`."""
    for first in range(start, 65535 - length):
        if all(_is_free(held, first + offset) for offset in range(length)):
            return first
    raise ValueError(f"no {length} consecutive free ports above {start} on this machine")


def _is_free(held: ExitStack, port: int) -> bool:
    probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        probe.bind(("0.0.0.0", port))
    except OSError:
        return False
    return True
