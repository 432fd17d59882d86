"""Models of the built-in trainers: presets by name, sizes, or a checkpoint of Hugging Face's layout."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from heterotp_api.base import DirectoryName, Model, Rule


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


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of one decoder: width D, depth, query heads, KV groups, width of a head, hidden units F of an FFN.

    kind: llama has RMSNorm, rotary positions and gated FFNs; gpt has LayerNorm, learned positions, biases and GELU, and
    its embedding is the head's weight, too.
    """

    kind: Literal["gpt", "llama"]
    hidden_size: int
    depth: int
    heads: int
    groups: int
    head_size: int
    ffn_units: int


# widths, depths and heads of the paper's ViT-1B and ViT-3B (section "Evaluation"); vit-tiny is for 8x8 digits
PRESETS = {
    "vit-tiny": ModelShape(hidden_size=128, depth=4, heads=16, patch_size=2, ffn_ratio=4),
    "vit-1b": ModelShape(hidden_size=2048, depth=24, heads=32, patch_size=4, ffn_ratio=4),
    "vit-3b": ModelShape(hidden_size=3072, depth=24, heads=48, patch_size=4, ffn_ratio=4),
}
# decoders of bytes; the tiny ones learn on two cores, llama-1b has the sizes of Llama 3.2 1B but for the vocabulary
DECODERS = {
    "gpt-tiny": DecoderShape("gpt", hidden_size=192, depth=2, heads=8, groups=8, head_size=24, ffn_units=768),
    "llama-tiny": DecoderShape("llama", hidden_size=192, depth=2, heads=16, groups=8, head_size=12, ffn_units=512),
    "llama-1b": DecoderShape("llama", hidden_size=2048, depth=16, heads=32, groups=8, head_size=64, ffn_units=8192),
}
BYTE_TOKENS = 257  # vocabulary of these decoders: a byte is a token, and 256 ends a document
SEQUENCE_LENGTH = 128  # tokens of a sequence, where the manifest has no sequenceLength
Preset = Literal["vit-tiny", "vit-1b", "vit-3b", "gpt-tiny", "llama-tiny", "llama-1b"]


class ModelSpec(Model):
    """A preset by name, a checkpoint to fine-tune, or the sizes of a vision transformer."""

    preset: Preset | None = Field(
        None, description="All sizes by one name; vit-*: a vision transformer, gpt-*, llama-*: a decoder of text."
    )
    huggingface: DirectoryName | None = Field(
        None,
        description="Directory, in the container, with config.json and *.safetensors of a language model; it is "
        "fine-tuned with its own tokenizer.",
    )
    hidden_size: int | None = Field(None, ge=1, le=65536, description="Width of a token.")
    depth: int | None = Field(None, ge=1, le=1000, description="Blocks.")
    heads: int | None = Field(None, ge=1, le=1024, description="Attention heads; may be fewer than ranks.")
    patch_size: int | None = Field(None, ge=1, le=1024, description="Side of a patch, pixels; absent: 4.")
    ffn_ratio: int | None = Field(None, ge=1, le=64, description="Hidden units over hiddenSize; absent: 4.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give preset or huggingface, not both",
            "!(has(self.preset) && has(self.huggingface))",
            lambda m: m.preset is None or m.huggingface is None,
            "huggingface",
        ),
        Rule(
            "give preset, huggingface, or hiddenSize, depth and heads",
            "has(self.preset) || has(self.huggingface) ? !(has(self.hiddenSize) || has(self.depth) || has(self.heads)"
            " || has(self.patchSize) || has(self.ffnRatio))"
            " : has(self.hiddenSize) && has(self.depth) && has(self.heads)",
            lambda m: m._name_or_sizes(),
        ),
        Rule(
            "hiddenSize must be divisible by heads",
            "!has(self.hiddenSize) || !has(self.heads) || self.hiddenSize % self.heads == 0",
            lambda m: not m.hidden_size or not m.heads or m.hidden_size % m.heads == 0,
            "hiddenSize",
        ),
    )

    def _name_or_sizes(self) -> bool:
        needed = (self.hidden_size, self.depth, self.heads)
        if self.preset is None and self.huggingface is None:
            return all(value is not None for value in needed)
        return all(value is None for value in (*needed, self.patch_size, self.ffn_ratio))

    @property
    def is_language(self) -> bool:
        """Whether it is a model of text."""
        return self.huggingface is not None or self.preset in DECODERS

    def resolve(self) -> ModelShape:
        """Return the sizes of a vision transformer; patchSize and ffnRatio default to 4 (the paper's)."""
        if self.preset is not None:
            return PRESETS[self.preset]
        assert self.hidden_size and self.depth and self.heads
        return ModelShape(self.hidden_size, self.depth, self.heads, self.patch_size or 4, self.ffn_ratio or 4)
