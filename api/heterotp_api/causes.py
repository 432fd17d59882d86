"""Why a rank is slow: the kinds of causes, and the words for them. Words are made here alone, of a kind and numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

CauseKind = Literal[
    "injection",
    "cpuLimit",
    "cpuContention",
    "cpuSteal",
    "memoryPressure",
    "swapping",
    "outOfMemory",
    "ioPressure",
    "gpuPower",
    "gpuThermal",
    "gpuShared",
    "gpuErrors",
    "network",
    "data",
]
CAUSE_KINDS: tuple[CauseKind, ...] = get_args(CauseKind)


class SlowCause(Protocol):
    """A rank, a kind of cause, its share of time 0..1, and its amount; the unit depends on the kind: see WORDS."""

    @property
    def rank(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def share(self) -> float: ...
    @property
    def amount(self) -> float | None: ...


@dataclass(frozen=True)
class Words:
    """What a cause is and what helps. {share}: a percentage; {amount}: `amount`, formatted, empty where not known."""

    text: str
    remedy: str
    amount: str = ""


WORDS: dict[CauseKind, Words] = {
    "injection": Words(
        "an injection slows it{amount}", "that is on purpose: it ends with the injection", " {0:.1f} times"
    ),
    "cpuLimit": Words(
        "its container was throttled by its CPU limit{amount} {share} of the time",
        "raise the limit, or leave it to AUTO",
        " of {0:.3g} CPUs",
    ),
    "cpuContention": Words(
        "it was ready to compute and had no CPU {share} of the time, because others use them",
        "move the others or its pod to another node, request more CPUs, or leave it to AUTO",
    ),
    "cpuSteal": Words("the hypervisor took {share} of its node's CPU time", "use another node, or leave it to AUTO"),
    "memoryPressure": Words(
        "processes of its container waited for memory {share} of the time",
        "raise its memory limit, or use another node",
    ),
    "swapping": Words(
        "its pages came from a disk {share} of the time{amount}",
        "raise its memory limit, or switch swap off",
        ", {0:.0f} a second",
    ),
    "outOfMemory": Words("the kernel killed a process in its container for lack of memory", "raise its memory limit"),
    "ioPressure": Words(
        "processes of its container waited for a disk {share} of the time", "use a faster disk, or fewer readers of it"
    ),
    "gpuPower": Words(
        "its GPU's power limit lowered the clock {share} of the time",
        "raise the power limit, check the power supply, or leave it to AUTO",
    ),
    "gpuThermal": Words(
        "its GPU was hot, which lowered the clock {share} of the time", "check the cooling, or leave it to AUTO"
    ),
    "gpuShared": Words("other processes were on its GPU {share} of the time", "end or move them, or leave it to AUTO"),
    "gpuErrors": Words("its GPU's memory has errors that were not corrected", "drain the node and check the GPU"),
    "network": Words(
        "its transfers took longer than they should, by {share} of an iteration{amount}",
        "check its link and who else uses it",
        ", with {0:.1%} of TCP segments sent again",
    ),
    "data": Words(
        "it loaded data for longer than the others, by {share} of an iteration",
        "use a faster disk or more workers of the loader",
    ),
}


def cause_text(cause: SlowCause) -> str:
    """Return what slows the rank, for people; empty: the kind is that of a newer trainer."""
    words = _words(cause.kind)
    if words is None:
        return ""
    amount = words.amount.format(cause.amount) if words.amount and cause.amount is not None else ""
    return words.text.format(share=f"{100 * cause.share:.0f} %", amount=amount)


def remedy_text(cause: SlowCause) -> str:
    """Return what helps, for people; empty as in cause_text."""
    words = _words(cause.kind)
    return words.remedy if words is not None else ""


def causes_text(causes: Sequence[SlowCause], rank: int, most: int = 2) -> str:
    """Return what slows one rank, the main cause first, with its remedy: `A, and B; do this`; empty: not known."""
    own = [each for each in causes if each.rank == rank and cause_text(each)][:most]
    if not own:
        return ""
    return f"{', and '.join(cause_text(each) for each in own)}; {remedy_text(own[0])}"


def _words(kind: str) -> Words | None:
    return next((words for known, words in WORDS.items() if known == kind), None)
