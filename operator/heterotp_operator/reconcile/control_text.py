"""The control document in a ConfigMap: the text that is written, and what a store keeps of a text.

A text may be a megabyte, and anybody may write one: of a long text only its digest and its generation are kept.
"""

import json
from hashlib import sha256
from typing import Any

from heterotp_api.control import ControlDocument
from heterotp_api.schema import unset_undeclared

Body = dict[str, Any]
KEPT_CHARACTERS = 4096
DIGEST, GENERATION = "digest", "generation"


def control_text(document: ControlDocument) -> str:
    """Return the text of a control document as the operator writes it."""
    # compact: a ConfigMap holds 1 MiB, and injections.py counts on it
    body = document.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=unset_undeclared(document))
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def kept_text(text: Any) -> Any:
    """Return what a store keeps of the text of a ConfigMap."""
    if not isinstance(text, str) or len(text) <= KEPT_CHARACTERS:
        return text
    document = _parsed(text)
    generation = None if document is None else document.generation
    return {DIGEST: sha256(text.encode(errors="surrogatepass")).hexdigest(), GENERATION: generation}


def generation_of(kept: Any) -> int | None:
    """Return the generation of the document that a kept text holds; None: it is no control document."""
    if isinstance(kept, dict):
        return kept.get(GENERATION)
    document = _parsed(kept) if isinstance(kept, str) and kept else None
    return None if document is None else document.generation


def holds(kept: Any, wanted: ControlDocument) -> bool:
    """Return whether a kept text holds a document, whatever its generation is.

    Of a long text: whether it is as the operator writes it.
    """
    if isinstance(kept, dict):
        numbered = wanted.model_copy(update={GENERATION: kept.get(GENERATION)})
        return bool(kept == kept_text(control_text(numbered)))
    present = _parsed(kept) if isinstance(kept, str) and kept else None
    return present is not None and present.model_copy(update={GENERATION: wanted.generation}) == wanted


def _parsed(text: str) -> ControlDocument | None:
    try:
        return ControlDocument.model_validate_json(text)
    except (ValueError, RecursionError):
        return None
