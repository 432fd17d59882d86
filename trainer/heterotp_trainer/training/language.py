"""The built-in trainer of language models: presets from random weights, or a checkpoint that is fine-tuned.

Shapes: B batch, T tokens of a sequence, V vocabulary.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from heterotp_api.models import SEQUENCE_LENGTH
from heterotp_api.training import SampleSpec, Training
from torch import Tensor, nn

from heterotp_trainer.data.text import EVALUATED, IGNORED, TextData, load_text
from heterotp_trainer.data.tokenizer import ByteTokenizer, Tokenizer, tokenizer_of
from heterotp_trainer.session import Session
from heterotp_trainer.training.evaluations import Evaluation
from heterotp_trainer.training.optimizer import adamw
from heterotp_trainer.training.sample import generate, sample_generator

SAMPLE, TEMPERATURE = 64, 0.8
PROMPT = 32  # tokens of held-out text, where the manifest has no prompt
MOST_LOSS = 700.0  # whose exponential is still a number


class Language:
    """One language model on one text."""

    def __init__(self, session: Session, training: Training) -> None:
        self.session, self.training = session, training
        self.length = training.sequence_length or SEQUENCE_LENGTH
        checkpoint = training.model.huggingface
        self.tokenizer: Tokenizer = tokenizer_of(Path(checkpoint)) if checkpoint else ByteTokenizer()
        self.data: TextData = load_text(training.data, self.tokenizer, self.length, training.batch_size)
        self.model = self._model()
        self.device = session.device.torch_device
        embeddings = [p for each in self.model.modules() if isinstance(each, nn.Embedding) for p in each.parameters()]
        self.optimizer = adamw(self.model.named_parameters(), training, embeddings)
        # a cache of keys and values, which transformers keeps by default, is read by nothing here
        self._options = {"use_cache": False} if checkpoint else {}
        self.per_epoch = self.data.sequences // training.batch_size

    def _model(self) -> nn.Module:
        """Return the model with this rank's units (all ranks)."""
        if self.training.model.huggingface is not None:
            from heterotp_trainer.training.finetuned import finetuned

            return finetuned(self.session, self.training, self.tokenizer, self.length)
        from heterotp_trainer.training.fresh import fresh_decoder

        return fresh_decoder(self.session, self.training, self.tokenizer, self.length)

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """See Task."""
        return self.data.batches(self.training.batch_size, self.training.seed, epoch, start)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """See Task."""
        return F.cross_entropy(
            self._logits(inputs).flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            label_smoothing=self.training.label_smoothing or 0.0,
        )

    def _logits(self, tokens: Tensor) -> Tensor:
        """Return logits, of which each rank may hold its rows of the vocabulary: [B, T] -> [B, T, V]."""
        out: Any = self.model(tokens, **self._options)
        logits: Tensor = out if isinstance(out, Tensor) else out.logits
        return logits

    def evaluate(self, iteration: int) -> Evaluation:
        """Measure the mean loss of held-out tokens, and write a sample (all ranks)."""
        loss, count = 0.0, 0
        rows = max(1, self.training.batch_size // self.training.accumulate)
        for tokens, targets in self.data.evaluation(rows, self.training.evaluation_sequences or EVALUATED):
            logits, answers = self._logits(tokens.to(self.device)).flatten(0, 1), targets.flatten().to(self.device)
            loss += float(F.cross_entropy(logits, answers, ignore_index=IGNORED, reduction="sum"))
            count += int((answers != IGNORED).sum())
        mean = loss / count
        return Evaluation(mean, perplexity=perplexity(mean), sample=self._sample(iteration))

    def _sample(self, iteration: int) -> str:
        """Return what the prompt is continued with; empty where no sample is wanted."""
        asked = self.training.sample or SampleSpec()
        count = SAMPLE if asked.tokens is None else asked.tokens
        if not count:
            return ""
        found = generate(
            self._last_logits,
            self._prompt(asked),
            count,
            longest=self.length,
            temperature=TEMPERATURE if asked.temperature is None else asked.temperature,
            generator=sample_generator(self.training.seed, iteration),
            end=self.tokenizer.end,
        )
        return self.tokenizer.decode(found)

    def _prompt(self, asked: SampleSpec) -> list[int]:
        """Return the tokens to continue: at least one."""
        if asked.prompt is None:
            return [int(token) for token in self.data.held_out[:PROMPT]]
        return self.tokenizer.encode(asked.prompt) or [self.tokenizer.end or 0]

    def _last_logits(self, tokens: Tensor) -> Tensor:
        """Return the whole logits of the last token: [1, T] -> [V]; only these are gathered."""
        last: Any = self._logits(tokens.to(self.device))[:, -1]
        whole: Tensor = last if type(last) is Tensor else last.whole()
        return whole[0]


def perplexity(loss: float) -> float | None:
    """Return exp(loss); None where it is no finite number."""
    return math.exp(loss) if loss <= MOST_LOSS else None
