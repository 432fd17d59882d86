"""Tokenizers: bytes, or the one of a checkpoint in Hugging Face's layout."""

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from heterotp_api.models import BYTE_TOKENS

from heterotp_trainer.errors import InputError

FIELD = "spec.training.model.huggingface"
FAST = "tokenizer.json"
SLOW = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")  # read by transformers


class Tokenizer(Protocol):
    """Text as numbers 0..vocabulary-1."""

    @property
    def vocabulary(self) -> int:
        """One more than the greatest token."""

    @property
    def end(self) -> int | None:
        """The token that ends a document."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special ones."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""


class ByteTokenizer:
    """A token is a byte of UTF-8; 256 ends a document."""

    vocabulary = BYTE_TOKENS
    end = BYTE_TOKENS - 1

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        return list(text.encode("utf-8", errors="replace"))

    def decode(self, tokens: Sequence[int]) -> str:
        """See Tokenizer; bytes that are not UTF-8 become U+FFFD."""
        return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


class _Fast:
    """A tokenizer.json, read by the package tokenizers."""

    def __init__(self, inner: Any, end: int | None) -> None:
        self._inner, self.end = inner, end
        self.vocabulary = 1 + max(inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """See Tokenizer."""
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))


class _Slow:
    """Any other tokenizer that transformers reads."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.end = inner, inner.eos_token_id
        self.vocabulary = 1 + max(inner.get_vocab().values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        return list(self._inner.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """See Tokenizer."""
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))


def tokenizer_of(checkpoint: Path) -> Tokenizer:
    """Return a checkpoint's tokenizer, bytes where it has none; raises InputError where it cannot be read."""
    if (checkpoint / FAST).exists():
        return _fast(checkpoint)
    if any((checkpoint / name).exists() for name in SLOW):
        return _slow(checkpoint)
    return ByteTokenizer()


def check_vocabulary(tokenizer: Tokenizer, rows: int, where: str) -> None:
    """Raise InputError where a tokenizer has tokens that the model has no row for."""
    if tokenizer.vocabulary > rows:
        what = f"its tokenizer has tokens up to {tokenizer.vocabulary - 1}, the model a vocabulary of {rows}"
        raise InputError(f"{where}: {what}: put the model's own tokenizer.json beside its weights")


def _fast(checkpoint: Path) -> Tokenizer:
    tokenizers, file = _package("tokenizers", checkpoint), checkpoint / FAST
    try:
        inner = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises Exception itself
        raise InputError(f"{FIELD}: {file}: is no tokenizer: {str(error).splitlines()[0]}") from None
    return _Fast(inner, _end(checkpoint, inner))


def _slow(checkpoint: Path) -> Tokenizer:
    transformers = _package("transformers", checkpoint)
    try:
        found = transformers.AutoTokenizer.from_pretrained(
            str(checkpoint), local_files_only=True, trust_remote_code=False
        )
        return _Slow(found)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(f"{FIELD}: {checkpoint}: no tokenizer can be read: {str(error).splitlines()[0]}") from None


def _end(checkpoint: Path, inner: Any) -> int | None:
    """Return the token that ends a document: of tokenizer_config.json, else of config.json."""
    named = _json(checkpoint / "tokenizer_config.json").get("eos_token")
    text = named.get("content") if isinstance(named, dict) else named
    found = inner.token_to_id(text) if isinstance(text, str) else None
    if found is None:
        found = _json(checkpoint / "config.json").get("eos_token_id")
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, int) and inner.id_to_token(found) is not None else None


def _json(file: Path) -> dict[str, Any]:
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _package(name: str, checkpoint: Path) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise InputError(f"{FIELD}: {checkpoint}: needs the package {name}: pip install 'heterotp[hf]'") from None
