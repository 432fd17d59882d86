"""Documents of text: from files in four layouts, or Python's own documentation.

A document is a .txt file, a line of a .jsonl file, a row of a .parquet file or of a saved folder of Hugging Face
datasets, or a topic of `pydoc_data`. Files are read in the order of their paths, so that all ranks read the same.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heterotp_trainer.errors import InputError

FIELD = "spec.training.data.path"
COLUMN = "text"
SAVED = ("dataset_dict.json", "dataset_info.json")  # of a folder that datasets' save_to_disk wrote
ROWS = 1024  # read at once from a table


def pydoc_topics() -> list[str]:
    """Return the topics of Python's documentation, in the order of their names."""
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def read_documents(path: str | None) -> list[str]:
    """Return the documents of a file or directory that hold more than white space.

    Raises InputError naming the file that is missing, empty, not UTF-8 or of another layout.
    """
    if path is None:
        raise InputError(f"{FIELD}: absent: data text needs a file or directory with .txt, .jsonl or .parquet files")
    root = Path(path)
    if not os.path.exists(root):
        raise InputError(f"{FIELD}: {path}: no such file or directory")
    if any((root / name).exists() for name in SAVED):
        return _not_empty(root, _saved(root))
    files = sorted(each for each in root.rglob("*") if each.suffix in READERS) if root.is_dir() else [root]
    if not files:
        raise InputError(f"{FIELD}: {path}: holds no .txt, .jsonl or .parquet file and is no saved folder of datasets")
    return [document for file in files for document in _read(file)]


def _read(file: Path) -> list[str]:
    reader = READERS.get(file.suffix)
    if reader is None:
        raise InputError(f"{FIELD}: {file}: must end in {', '.join(READERS)}")
    try:
        return _not_empty(file, reader(file))
    except OSError as error:
        raise InputError(f"{FIELD}: {file}: cannot be read: {error.strerror or error}") from None


def _not_empty(file: Path, documents: Iterator[str]) -> list[str]:
    found = [document for document in documents if document.strip()]
    if not found:
        raise InputError(f"{FIELD}: {file}: is empty: no text in it")
    return found


def _decoded(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"{FIELD}: {file}: is not UTF-8: byte 0x{byte:02x} at position {error.start}") from None


def _txt(file: Path) -> Iterator[str]:
    yield _decoded(file)


def _jsonl(file: Path) -> Iterator[str]:
    for number, line in enumerate(_decoded(file).split("\n"), start=1):
        if line.strip():
            yield _field(file, number, line)


def _field(file: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)[COLUMN]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise InputError(f'{FIELD}: {file}: line {number}: must be a JSON object with a text, {{"{COLUMN}": "..."}}')
    return text


def _parquet(file: Path) -> Iterator[str]:
    pyarrow, parquet = _package("pyarrow", file), _package("pyarrow.parquet", file)
    try:
        table = parquet.ParquetFile(file)
        if COLUMN not in table.schema_arrow.names:
            names = ", ".join(table.schema_arrow.names)
            raise InputError(f"{FIELD}: {file}: has no column '{COLUMN}'; it has {names}")
        for batch in table.iter_batches(ROWS, columns=[COLUMN]):
            yield from _texts(file, batch.column(0).to_pylist())
    except pyarrow.ArrowException as error:
        raise InputError(f"{FIELD}: {file}: is not parquet: {str(error).splitlines()[0]}") from None


def _saved(root: Path) -> Iterator[str]:
    """Yield the rows of a saved folder; of one with several splits those of `train`, else of all."""
    datasets = _package("datasets", root)
    try:
        loaded = datasets.load_from_disk(str(root))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{FIELD}: {root}: is no saved folder of datasets: {str(error).splitlines()[0]}") from None
    parts = [loaded]
    if isinstance(loaded, datasets.DatasetDict):
        parts = [loaded["train"]] if "train" in loaded else [loaded[name] for name in sorted(loaded)]
    for part in parts:
        if COLUMN not in part.column_names:
            raise InputError(f"{FIELD}: {root}: has no column '{COLUMN}'; it has {', '.join(part.column_names)}")
        for start in range(0, len(part), ROWS):
            yield from _texts(root, part[start : start + ROWS][COLUMN])


def _texts(file: Path, values: list[Any]) -> Iterator[str]:
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InputError(f"{FIELD}: {file}: column '{COLUMN}' holds {type(value).__name__}, not text")
        yield value or ""


def _package(name: str, file: Path) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        advice = "pip install 'heterotp[hf]', or give .txt or .jsonl"
        raise InputError(f"{FIELD}: {file}: needs the package {name}: {advice}") from None


READERS = {".txt": _txt, ".jsonl": _jsonl, ".parquet": _parquet}
