"""Text: documents from files, the split by hash, packing into sequences, batches by seed and epoch."""

import json

import pytest
import torch
from heterotp_api.data_sets import DataSpec
from heterotp_trainer.data.documents import pydoc_topics, read_documents
from heterotp_trainer.data.text import IGNORED, SECTION, TextData, load_text, packed, sections, split
from heterotp_trainer.data.tokenizer import ByteTokenizer
from heterotp_trainer.errors import InputError

BYTES = ByteTokenizer()


def numbers(count, length=4, held_out=10):
    return TextData("numbers", torch.arange(count), torch.arange(held_out), length, end=None)


def test_python_documentation_is_there():
    topics = pydoc_topics()
    assert len(topics) > 50 and sum(len(topic) for topic in topics) > 300_000
    assert topics == pydoc_topics()


def test_a_directory_of_text_and_lines_is_read_in_the_order_of_paths(tmp_path):
    (tmp_path / "b.txt").write_text("second ä")
    (tmp_path / "a.jsonl").write_text('{"text": "first"}\n\n{"text": "line", "other": 1}\n')
    (tmp_path / "notes.md").write_text("not read")
    assert read_documents(str(tmp_path)) == ["first", "line", "second ä"]
    assert read_documents(str(tmp_path / "b.txt")) == ["second ä"]


def test_parquet_and_saved_folders_are_read(tmp_path):
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["one", "two", ""], "id": [1, 2, 3]})
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(tmp_path / "splits")
    for place in ("rows.parquet", "saved", "splits"):
        assert read_documents(str(tmp_path / place)) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "a.txt: is empty: no text in it"),
        ("a.txt", b" \n\t\n", "a.txt: is empty: no text in it"),
        ("a.txt", b"gr\xfcn", "a.txt: is not UTF-8: byte 0xfc at position 2"),
        ("a.jsonl", b"\n", "a.jsonl: is empty"),
        ("a.jsonl", b'{"text": "a"}\n{"words": "b"}\n', 'a.jsonl: line 2: must be a JSON object with a text, {"text"'),
        ("a.jsonl", b'{"text": 5}', "a.jsonl: line 1: must be a JSON object"),
        ("a.jsonl", b"text", "a.jsonl: line 1: must be a JSON object"),
        ("a.jsonl", b'["text"]', "a.jsonl: line 1: must be a JSON object"),
        ("a.csv", b"text", "a.csv: must end in .txt, .jsonl, .parquet"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_documents(str(tmp_path / name))
    assert message in str(caught.value) and str(caught.value).startswith("spec.training.data.path: ")
    assert "\n" not in str(caught.value)


def test_broken_and_foreign_tables_are_named(tmp_path):
    import datasets

    (tmp_path / "broken.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(InputError, match=r"broken\.parquet: is not parquet: "):
        read_documents(str(tmp_path / "broken.parquet"))
    datasets.Dataset.from_dict({"words": ["a"]}).to_parquet(tmp_path / "words.parquet")
    with pytest.raises(InputError, match=r"words\.parquet: has no column 'text'; it has words"):
        read_documents(str(tmp_path / "words.parquet"))
    datasets.Dataset.from_dict({"text": [5]}).to_parquet(tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match=r"numbers\.parquet: column 'text' holds int, not text"):
        read_documents(str(tmp_path / "numbers.parquet"))
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    with pytest.raises(InputError, match=r"saved: is no saved folder of datasets: "):
        read_documents(str(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("path", "message"),
    [(None, "absent: data text needs"), ("/nowhere/text", "/nowhere/text: no such file"), ("", "holds no .txt")],
)
def test_a_missing_path_and_a_directory_without_text_are_named(tmp_path, path, message):
    with pytest.raises(InputError, match=message):
        read_documents(str(tmp_path) if path == "" else path)


def test_one_broken_file_of_a_directory_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("good")
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(InputError, match=r"b\.txt: is empty"):
        read_documents(str(tmp_path))


def test_long_documents_are_cut_at_line_ends():
    lines = [f"line {number} {'x' * 90}\n" for number in range(300)]
    parts = sections("".join(lines))
    assert "".join(parts) == "".join(lines)
    assert all(len(part) <= SECTION and part.endswith("\n") for part in parts)
    assert sections("short") == ["short"]
    assert [len(part) for part in sections("y" * (2 * SECTION + 1))] == [SECTION, SECTION, 1]


def test_a_tenth_is_held_out_by_hash():
    documents = [f"document {number}" for number in range(100)]
    train, held_out = split(documents)
    assert (len(train), len(held_out)) == (90, 10)
    assert {*train} | {*held_out} == {*documents}
    assert (train, held_out) == split(documents[::-1])
    again = split([*documents, held_out[0], train[0]])  # copies are not on both sides
    assert again == (train, held_out)


def test_documents_end_with_the_end_token():
    assert packed(["ab", "ä"], BYTES).tolist() == [97, 98, 256, 0xC3, 0xA4, 256]


def test_each_token_is_a_target_exactly_once():
    data = numbers(22, length=4)
    assert data.sequences == 5
    targets = torch.cat([targets for _, targets in data.batches(1, seed=0, epoch=0)])
    assert sorted(targets.flatten().tolist()) == list(range(1, 21))
    for tokens, targets in data.batches(2, seed=0, epoch=0):
        assert torch.equal(tokens + 1, targets) and tokens.dtype == torch.int64


def test_batches_depend_on_seed_and_epoch_and_continue_anywhere():
    data = numbers(402)
    orders = ((1, 0), (1, 0), (2, 0), (1, 1))
    first, again, other, next_ = ([tokens.tolist() for tokens, _ in data.batches(8, *order)] for order in orders)
    assert first == again and len(first) == 12
    assert first != other and first != next_
    assert [tokens.tolist() for tokens, _ in data.batches(8, 1, 0, start=5)] == first[5:]
    assert list(data.batches(8, 1, 0, start=12)) == []


def test_an_evaluation_covers_all_held_out_tokens_once():
    data = numbers(50, length=4, held_out=11)
    found = list(data.evaluation(2))
    targets = torch.cat([targets.flatten() for _, targets in found])
    assert targets[targets != IGNORED].tolist() == list(range(1, 11))
    assert [len(tokens) for tokens, _ in found] == [2, 1]
    assert all(tokens.min() >= 0 for tokens, _ in found)


@pytest.mark.parametrize(("sequences", "last"), [(1, 4), (2, 8), (3, 10), (4, 10)])
def test_an_evaluation_reads_so_many_sequences_from_the_beginning(sequences, last):
    data = numbers(50, length=4, held_out=11)
    targets = torch.cat([targets.flatten() for _, targets in data.evaluation(2, sequences)])
    assert targets[targets != IGNORED].tolist() == list(range(1, last + 1))


def test_pydoc_is_packed_for_bytes():
    data = load_text(DataSpec(name="pydoc"), BYTES, length=64, batch_size=16)
    assert data.sequences > 3000 and 0.05 < len(data.held_out) / len(data.train) < 0.2
    text = BYTES.decode(data.held_out[:2000].tolist())
    assert " the " in text and "\ufffd" not in text[:-1]


def test_fewer_tokens_than_a_batch_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(20)))
    spec = DataSpec(name="text", path=str(tmp_path))
    assert load_text(spec, BYTES, length=4, batch_size=8).sequences >= 8
    with pytest.raises(InputError) as caught:
        load_text(spec, BYTES, length=64, batch_size=8)
    assert "spec.training.batchSize: 8: text has 136 " in str(caught.value)
    assert str(caught.value).endswith("tokens to train on, 2 sequences of 64: less than one batch")


def test_one_short_document_leaves_nothing_to_evaluate_on(tmp_path):
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(InputError, match="one short document: none is left to evaluate on"):
        load_text(DataSpec(name="text", path=str(tmp_path)), BYTES, length=2, batch_size=1)
