"""A history that grows, is cut, is replaced, and is damaged."""

import pytest
from heterotp_cli.ui import history_file
from heterotp_cli.ui.history_file import HistoryFile
from support.played_run import append_history, history_entry


def numbers(found):
    return [entry["iteration"] for entry in found[1]]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def test_only_what_was_added_is_read(path):
    file = HistoryFile(path)
    assert file.look() == (False, [])  # there is no file yet
    append_history(path.parent, history_entry(1), history_entry(2))
    assert numbers(file.look()) == [1, 2]
    append_history(path.parent, history_entry(3))
    assert numbers(file.look()) == [3]
    assert numbers(file.look()) == []


def test_a_line_is_read_when_it_is_complete(path):
    file = HistoryFile(path)
    path.write_text('{"iteration": 1}\n{"itera')
    assert numbers(file.look()) == [1]
    with path.open("a") as more:
        more.write('tion": 2}\n')
    assert numbers(file.look()) == [2]


@pytest.mark.parametrize("line", ["{", "[]", "null", "{}", '{"iteration": "x"}', "\x00", "[" * 100_000])
def test_damaged_lines_are_left_out(path, line):
    path.write_text(f'{line}\n{{"iteration": 2}}\n')
    assert numbers(HistoryFile(path).look()) == [2]


def test_a_cut_and_a_replaced_history_begin_anew(path):
    file = HistoryFile(path)
    append_history(path.parent, history_entry(1), history_entry(2))
    file.look()
    path.write_text('{"iteration": 1}\n')
    assert (file.look()[0], numbers(HistoryFile(path).look())) == (True, [1])
    other = path.with_name("other")
    other.write_text('{"iteration": 7}\n' * 1000)
    other.replace(path)
    anew, entries = file.look()
    assert anew and entries[0]["iteration"] == 7


def test_a_long_history_is_read_in_parts(path, monkeypatch):
    monkeypatch.setattr(history_file, "MOST_READ", 1000)
    append_history(path.parent, *(history_entry(i) for i in range(1, 51)))
    file, found = HistoryFile(path), []
    looks = 0
    while file.behind:
        found += numbers(file.look())
        looks += 1
    assert found == list(range(1, 51)) and looks > 5
