"""The built-in ViT trainer's settings and model presets."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from heterotp_api.base import MOST_SECONDS, DirectoryName, Model, Rule


@dataclass(frozen=True)
class ModelShape:
    """Sizes of one vision transformer: width D, depth, heads N, patch side, hidden units F of an FFN."""

    hidden_size: int
    depth: int
    heads: int
    patch_size: int
    ffn_ratio: int

    @property
    def ffn_units(self) -> int:
        """Hidden units of one FFN."""
        return self.hidden_size * self.ffn_ratio

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.heads


# widths, depths and heads of the paper's ViT-1B and ViT-3B (section "Evaluation"); vit-tiny is for 8x8 digits
PRESETS = {
    "vit-tiny": ModelShape(hidden_size=128, depth=4, heads=16, patch_size=2, ffn_ratio=4),
    "vit-1b": ModelShape(hidden_size=2048, depth=24, heads=32, patch_size=4, ffn_ratio=4),
    "vit-3b": ModelShape(hidden_size=3072, depth=24, heads=48, patch_size=4, ffn_ratio=4),
}


class ModelSpec(Model):
    """A preset by name, or the sizes themselves."""

    preset: Literal["vit-tiny", "vit-1b", "vit-3b"] | None = Field(None, description="All sizes by one name.")
    hidden_size: int | None = Field(None, ge=1, le=65536, description="Width of a token.")
    depth: int | None = Field(None, ge=1, le=1000, description="Blocks.")
    heads: int | None = Field(None, ge=1, le=1024, description="Attention heads; may be fewer than ranks.")
    patch_size: int | None = Field(None, ge=1, le=1024, description="Side of a patch, pixels; absent: 4.")
    ffn_ratio: int | None = Field(None, ge=1, le=64, description="Hidden units over hiddenSize; absent: 4.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give preset, or hiddenSize, depth and heads",
            "has(self.preset) ? !(has(self.hiddenSize) || has(self.depth) || has(self.heads) || has(self.patchSize)"
            " || has(self.ffnRatio)) : has(self.hiddenSize) && has(self.depth) && has(self.heads)",
            lambda m: m._preset_or_sizes(),
        ),
        Rule(
            "hiddenSize must be divisible by heads",
            "!has(self.hiddenSize) || !has(self.heads) || self.hiddenSize % self.heads == 0",
            lambda m: not m.hidden_size or not m.heads or m.hidden_size % m.heads == 0,
            "hiddenSize",
        ),
    )

    def _preset_or_sizes(self) -> bool:
        needed = (self.hidden_size, self.depth, self.heads)
        if self.preset is None:
            return all(value is not None for value in needed)
        return all(value is None for value in (*needed, self.patch_size, self.ffn_ratio))

    def resolve(self) -> ModelShape:
        """Return the sizes; patchSize and ffnRatio default to 4 (the paper's)."""
        if self.preset is not None:
            return PRESETS[self.preset]
        assert self.hidden_size and self.depth and self.heads
        return ModelShape(self.hidden_size, self.depth, self.heads, self.patch_size or 4, self.ffn_ratio or 4)


DatasetName = Literal["digits", "cifar10", "synthetic"]
IMAGE_SIZES: dict[DatasetName, int] = {"digits": 8, "cifar10": 32, "synthetic": 8}  # pixels of a side


class DataSpec(Model):
    """The data set: real digits by default; cifar10 is read from a path."""

    name: DatasetName = Field("digits", description="The data set.")
    path: DirectoryName | None = Field(None, description="Where its files are, in the container.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "data set cifar10 needs path, a directory with its python or binary files",
            "self.name != 'cifar10' || has(self.path)",
            lambda d: d.name != "cifar10" or d.path is not None,
            "path",
        ),
    )


Decay = Annotated[float, Field(ge=0, lt=1)]  # of a running mean


class Training(Model):
    """The built-in ViT trainer; leave it out to run your own command."""

    model: ModelSpec = ModelSpec(preset="vit-tiny")
    data: DataSpec = DataSpec()
    batch_size: int = Field(64, ge=1, le=1048576, description="Samples of one optimizer step.")
    epochs: int | None = Field(None, ge=1, description="Passes through the data; absent with iterations absent too: 1.")
    iterations: int | None = Field(None, ge=1, description="Optimizer steps, in place of epochs.")
    learning_rate: float = Field(0.003, gt=0, description="Of AdamW, after the warm-up.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="cosine: down to 0 at the end.")
    betas: list[Decay] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Of AdamW: decay of the running means of gradients and of their squares; absent: 0.9 and 0.999.",
    )
    eps: float | None = Field(
        None, gt=0, description="Of AdamW: added to the root of the mean of squares; absent: 1e-8."
    )
    weight_decay: float = Field(0, ge=0, description="Of AdamW; biases and norms do not decay.")
    decay_embeddings: bool | None = Field(
        None,
        description="Whether weightDecay holds for the position and class embeddings, too; absent: true. As in the "
        "checkpoint.",
    )
    warmup_iterations: int = Field(0, ge=0, description="Iterations of a linear rise to learningRate.")
    gradient_clip: float | None = Field(None, gt=0, description="Bound of the gradients' norm; absent: none.")
    on_non_finite: Literal["Stop", "Skip"] | None = Field(
        None,
        description="Where loss or gradients are not finite: stop the job, or skip up to 10 updates in a row; "
        "absent: Stop.",
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Of products and activations.")
    seed: int = Field(0, ge=0, le=2**53, description="Of weights and of the order of samples.")
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
