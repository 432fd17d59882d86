"""Stages of an iteration, in which a rank can be late; the names are those of labels, documents and files."""

from collections.abc import Sequence
from typing import Literal, get_args

Stage = Literal[
    "data",
    "embedding",
    "attentionForward",
    "attentionBackward",
    "ffnForward",
    "ffnBackward",
    "optimizer",
    "control",
    "other",
    "link",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
OWN_STAGES: tuple[Stage, ...] = STAGES[:-1]  # a rank's own clock measures these; "link" takes the clocks of all ranks
WORDS: dict[Stage, str] = {
    "data": "loading data",
    "embedding": "embedding and logits",
    "attentionForward": "attention, forward",
    "attentionBackward": "attention, backward",
    "ffnForward": "the FFN, forward",
    "ffnBackward": "the FFN, backward",
    "optimizer": "the optimizer",
    "control": "control",
    "other": "norms and loss",
    "link": "transfers",
}


def stages_text(stages: Sequence[str]) -> str:
    """Return the names of stages for people; both directions of a part together; unknown names are left out."""
    known = [stage for stage in STAGES if stage in stages]
    words: list[str] = []
    for stage in known:
        pair = next((part for part in ("attention", "ffn") if stage.startswith(part)), "")
        if pair and all(f"{pair}{way}" in known for way in ("Forward", "Backward")):
            word = "attention" if pair == "attention" else "the FFN"
        else:
            word = WORDS[stage]
        if word not in words:
            words.append(word)
    return " and ".join(words)
