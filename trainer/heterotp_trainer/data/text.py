"""Text for language models: documents, split by hash, packed into sequences. Shapes: B batch, T tokens of a sequence.

Documents are joined with an end token after each, and cut into sequences of T tokens whatever document they belong to;
each token is the target of the one before it, exactly once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from heterotp_api.data_sets import DataSpec
from torch import Tensor

from heterotp_trainer.data.batches import order_of
from heterotp_trainer.data.documents import pydoc_topics, read_documents
from heterotp_trainer.data.tokenizer import Tokenizer
from heterotp_trainer.errors import InputError

HELD_OUT = 0.1  # of the documents
SECTION = 8192  # characters; longer documents are cut at a line's end, so that a file of one document can be split, too
IGNORED = -100  # a target that counts in no loss, as in torch's cross_entropy
EVALUATED = 128  # sequences of an evaluation by default: it takes as long for a large corpus as for a small one


@dataclass(frozen=True)
class TextData:
    """Tokens in a row, for training and held out; a sequence is `length` of them."""

    name: str
    train: Tensor
    held_out: Tensor
    length: int
    end: int | None

    @property
    def sequences(self) -> int:
        """Number of whole training sequences."""
        return max(0, (len(self.train) - 1) // self.length)

    def batches(self, batch_size: int, seed: int, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (tokens [B, T], targets [B, T]) of shuffled whole sequences, from batch `start` on."""
        count = self.sequences // batch_size
        if start >= count:
            return
        order, windows = order_of(self.sequences, seed, epoch), self.train.unfold(0, self.length + 1, self.length)
        for index in range(start, count):
            chosen = windows[order[index * batch_size : (index + 1) * batch_size]].long()
            yield chosen[:, :-1], chosen[:, 1:]

    def evaluation(self, batch_size: int, sequences: int = EVALUATED) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (tokens [B, T], targets [B, T]) of the first held-out sequences; targets beyond the end are ignored.

        sequences: how many at most, of all batches together.
        """
        tokens = self.held_out[: sequences * self.length + 1].long()
        whole = -(-(len(tokens) - 1) // self.length)
        padded = torch.full((whole * self.length + 1,), IGNORED)
        padded[: len(tokens)] = tokens
        windows = padded.unfold(0, self.length + 1, self.length)
        for part in windows.split(batch_size):
            yield part[:, :-1].clamp_min(0), part[:, 1:]


def load_text(data: DataSpec, tokenizer: Tokenizer, length: int, batch_size: int) -> TextData:
    """Return the tokens of a data set; raises InputError where it cannot be read or is less than one batch."""
    documents = pydoc_topics() if data.name == "pydoc" else read_documents(data.path)
    train, held_out = split([part for document in documents for part in sections(document)])
    found = TextData(data.name, packed(train, tokenizer), packed(held_out, tokenizer), length, tokenizer.end)
    if len(found.held_out) < 2:
        raise InputError(f"spec.training.data: {data.name}: one short document: none is left to evaluate on")
    if found.sequences < batch_size:
        have = f"{data.name} has {len(found.train)} tokens to train on, {found.sequences} sequences of {length}"
        raise InputError(f"spec.training.batchSize: {batch_size}: {have}: less than one batch")
    return found


def sections(document: str) -> list[str]:
    """Return a document, a long one in parts that end where a line does; a line that is too long is cut anywhere."""
    parts, begin = [], 0
    while len(document) - begin > SECTION:
        line_end = document.rfind("\n", begin + 1, begin + SECTION)
        end = line_end + 1 if line_end > 0 else begin + SECTION
        parts.append(document[begin:end])
        begin = end
    return [part for part in (*parts, document[begin:]) if part.strip()]


def split(documents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the documents to train on and those held out: the last tenth by hash, each in the order of hashes.

    Copies of a document count once: none is held out while another one is trained on.
    """
    ordered = sorted(set(documents), key=lambda each: hashlib.sha256(each.encode("utf-8", errors="replace")).digest())
    held_out = max(1, round(HELD_OUT * len(ordered))) if len(ordered) > 1 else 0
    return ordered[: len(ordered) - held_out], ordered[len(ordered) - held_out :]


def packed(documents: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    """Return the tokens of all documents in a row, each followed by the end token: int32 [tokens]."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    parts = [torch.tensor([*tokenizer.encode(each), *end], dtype=torch.int32) for each in documents]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int32)
