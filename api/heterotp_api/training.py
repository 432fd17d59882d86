"""The built-in trainers' settings."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from heterotp_api.base import MOST_SECONDS, Model, Rule
from heterotp_api.data_sets import IMAGE_SIZES as IMAGE_SIZES
from heterotp_api.data_sets import DatasetName as DatasetName
from heterotp_api.data_sets import DataSpec as DataSpec
from heterotp_api.models import PRESETS as PRESETS
from heterotp_api.models import ModelShape as ModelShape
from heterotp_api.models import ModelSpec as ModelSpec

Decay = Annotated[float, Field(ge=0, lt=1)]  # of a running mean
NamePattern = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class ParameterGroup(Model):
    """Settings of AdamW for the parameters whose names match."""

    names: NamePattern = Field(
        description="Pattern of names, * for any characters, e.g. *.bias or embed.*; as in the model's state_dict."
    )
    weight_decay: float | None = Field(None, ge=0, description="In place of training.weightDecay.")
    learning_rate_factor: float | None = Field(None, ge=0, le=1000, description="Times the schedule's rate; absent: 1.")


class SampleSpec(Model):
    """Text that the model writes at each evaluation, in the log and in report.json."""

    tokens: int | None = Field(None, ge=0, le=4096, description="How many; 0: none; absent: 64.")
    prompt: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="What it continues; absent: the beginning of the held-out text."
    )
    temperature: float | None = Field(None, ge=0, le=100, description="0: the likeliest token each time; absent: 0.8.")


Schedule = Literal["constant", "linear", "cosine", "warmup-stable-decay"]
Augmentation = Literal["crop", "flip"]
_LANGUAGE = "has(self.model.huggingface) || (has(self.model.preset) && !self.model.preset.startsWith('vit-'))"
_TEXT = "self.data.name in ['text', 'pydoc']"


class Training(Model):
    """The built-in trainers, of vision transformers and of language models; leave it out to run your own command."""

    model: ModelSpec = ModelSpec(preset="vit-tiny")
    data: DataSpec = DataSpec()
    batch_size: int = Field(64, ge=1, le=1048576, description="Samples of one optimizer step.")
    epochs: int | None = Field(None, ge=1, description="Passes through the data; absent with iterations absent too: 1.")
    iterations: int | None = Field(None, ge=1, description="Optimizer steps, in place of epochs.")
    sequence_length: int | None = Field(
        None, ge=2, le=1048576, description="Tokens of a sample, of a language model; absent: 128."
    )
    learning_rate: float = Field(0.003, gt=0, description="Learning rate of AdamW after the warm-up.")
    schedule: Schedule = Field(
        "constant",
        description="After the warm-up: constant, or down to learningRateFloor at the end: in a line, as half a "
        "cosine, or constant until the last decayIterations and then in a line (warmup-stable-decay).",
    )
    learning_rate_floor: float | None = Field(
        None, ge=0, description="What linear, cosine and warmup-stable-decay end at; absent: 0."
    )
    decay_iterations: int | None = Field(
        None, ge=1, description="Length of the decline of warmup-stable-decay; absent: a tenth of all iterations."
    )
    betas: list[Decay] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="AdamW: decay of the running means of gradients and of their squares; absent: 0.9 and 0.999.",
    )
    eps: float | None = Field(None, gt=0, description="AdamW: added to the root of the mean of squares; absent: 1e-8.")
    weight_decay: float = Field(0, ge=0, description="Weight decay of AdamW; biases and norms do not decay.")
    decay_embeddings: bool | None = Field(
        None,
        description="Whether weightDecay holds for the position and class embeddings, too; absent: true. As in the "
        "checkpoint.",
    )
    parameter_groups: list[ParameterGroup] | None = Field(
        None,
        min_length=1,
        max_length=16,
        description="Parameters with settings of their own; the first group whose names match holds.",
    )
    label_smoothing: float | None = Field(
        None, ge=0, lt=1, description="Share of a target that all classes, or tokens, divide in training; absent: 0."
    )
    augmentation: list[Augmentation] | None = Field(
        None,
        min_length=1,
        max_length=2,
        description="Of training images: crop, shifted by up to an eighth of a side; flip, left and right exchanged "
        "in half of them.",
    )
    evaluate_every: int | None = Field(
        None, ge=1, description="Iterations between two evaluations on held-out data; absent: each epoch's end."
    )
    evaluation_sequences: int | None = Field(
        None,
        ge=1,
        le=1048576,
        description="Of a language model: sequences of held-out text that an evaluation reads at most; absent: 128.",
    )
    keep_best: bool | None = Field(
        None,
        description="Keep the checkpoint of the lowest loss on held-out data, in the folder best of the checkpoints.",
    )
    patience: int | None = Field(
        None, ge=1, description="End after so many evaluations in a row without a lower loss; absent: never."
    )
    sample: SampleSpec | None = None
    warmup_iterations: int = Field(0, ge=0, description="Iterations of a linear rise to learningRate.")
    gradient_clip: float | None = Field(None, gt=0, description="Bound of the gradients' norm; absent: none.")
    on_non_finite: Literal["Stop", "Skip"] | None = Field(
        None,
        description="Where loss or gradients are not finite: stop the job, or skip up to 10 updates in a row; "
        "absent: Stop.",
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Number format of products and activations.")
    seed: int = Field(0, ge=0, le=2**53, description="Seed of the first weights and of the order of samples.")
    recompute: bool = Field(False, description="Compute activations again in the backward pass, to save memory.")
    accumulate: int = Field(1, ge=1, le=4096, description="Micro-batches that a batch is cut into.")
    initial_shares: Literal["even", "declared", "probe"] | None = Field(
        None, description="Absent: declared if every group has relativeSpeed, else probe."
    )
    collective_timeout_seconds: int | None = Field(
        None,
        ge=1,
        le=MOST_SECONDS,
        description="As runPolicy.collectiveTimeoutSeconds, which is for own commands, too.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a language model trains on data text or pydoc, e.g. data: {name: pydoc}",
            f"!({_LANGUAGE}) || {_TEXT}",
            lambda t: not t.model.is_language or t.data.is_text,
            "data.name",
        ),
        Rule(
            "data text and pydoc are for language models: give model.preset gpt-* or llama-*, or model.huggingface",
            f"({_LANGUAGE}) || !({_TEXT})",
            lambda t: t.model.is_language or not t.data.is_text,
            "data.name",
        ),
        Rule(
            "sequenceLength and sample are for language models",
            f"({_LANGUAGE}) || !(has(self.sequenceLength) || has(self.sample))",
            lambda t: t.model.is_language or (t.sequence_length is None and t.sample is None),
        ),
        Rule(
            "evaluationSequences is for language models: others are evaluated on all held-out images",
            f"({_LANGUAGE}) || !has(self.evaluationSequences)",
            lambda t: t.model.is_language or t.evaluation_sequences is None,
            "evaluationSequences",
        ),
        Rule(
            "augmentation is for images",
            f"!({_LANGUAGE}) || !has(self.augmentation)",
            lambda t: not t.model.is_language or t.augmentation is None,
            "augmentation",
        ),
        Rule(
            "learningRateFloor must be at most learningRate, and needs a schedule that declines",
            "!has(self.learningRateFloor)"
            " || (self.learningRateFloor <= self.learningRate && self.schedule != 'constant')",
            lambda t: (
                t.learning_rate_floor is None or (t.learning_rate_floor <= t.learning_rate and t.schedule != "constant")
            ),
            "learningRateFloor",
        ),
        Rule(
            "decayIterations is for schedule warmup-stable-decay",
            "!has(self.decayIterations) || self.schedule == 'warmup-stable-decay'",
            lambda t: t.decay_iterations is None or t.schedule == "warmup-stable-decay",
            "decayIterations",
        ),
        Rule(
            "give epochs or iterations, not both",
            "!(has(self.epochs) && has(self.iterations))",
            lambda t: t.epochs is None or t.iterations is None,
        ),
        Rule(
            "batchSize must be divisible by accumulate",
            "self.batchSize % self.accumulate == 0",
            lambda t: t.batch_size % t.accumulate == 0,
            "batchSize",
        ),
    )
