"""Data sets of the built-in trainers."""

from typing import ClassVar, Literal, get_args

from pydantic import Field

from heterotp_api.base import DirectoryName, Model, Rule

ImageDataset = Literal["digits", "cifar10", "shapes-32", "synthetic"]
TextDataset = Literal["text", "pydoc"]
DatasetName = Literal[ImageDataset, TextDataset]
IMAGE_SIZES: dict[ImageDataset, int] = {"digits": 8, "cifar10": 32, "shapes-32": 32, "synthetic": 8}  # pixels of a side


class DataSpec(Model):
    """The data set: real digits by default; cifar10 and text are read from a path."""

    name: DatasetName = Field(
        "digits",
        description="Images: digits, cifar10, synthetic, and shapes-32, 60,000 drawn images of ten shapes in the sizes "
        "of cifar10. For language models: text, from files, and pydoc, the "
        "documentation topics of Python's standard library, which every machine has.",
    )
    path: DirectoryName | None = Field(
        None,
        description="Where its files are, in the container. shapes-32: a folder in which it is kept; absent: the "
        "user's cache. text: a file or directory of .txt, .jsonl (with a field "
        'named "text") or .parquet files (with a column of that name), or a saved folder of Hugging Face datasets.',
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "data set cifar10 needs path, a directory with its python or binary files",
            "self.name != 'cifar10' || has(self.path)",
            lambda d: d.name != "cifar10" or d.path is not None,
            "path",
        ),
        Rule(
            "data set text needs path, a file or directory with .txt, .jsonl or .parquet files",
            "self.name != 'text' || has(self.path)",
            lambda d: d.name != "text" or d.path is not None,
            "path",
        ),
        Rule(
            "data set pydoc has no path: its text is Python's own",
            "self.name != 'pydoc' || !has(self.path)",
            lambda d: d.name != "pydoc" or d.path is None,
            "path",
        ),
    )

    @property
    def is_text(self) -> bool:
        """Whether language models train on it."""
        return self.name in get_args(TextDataset)
