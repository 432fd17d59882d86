"""Logs of ranks: bounded, with their beginning and their newest lines; the last lines are found across a rotation."""

import io
import shutil
from pathlib import Path

from heterotp_cli import logs as module
from heterotp_cli.blame import own_lines
from heterotp_cli.follow import TAIL_BYTES, tail
from heterotp_cli.logs import FIRST, PREVIOUS, BoundedLog, LogSorter, rank_log

LIMIT = 100


def write(path, first, after):
    log = BoundedLog(path, LIMIT)
    for number in range(first, after):
        log.write(f"line {number:03d}\n".encode())  # 9 bytes: 11 lines a file
    log.close()


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_small_log_is_one_file(tmp_path):
    write(tmp_path / "rank-0.log", 0, 11)
    assert sizes(tmp_path) == {"rank-0.log": 99}
    assert tail(tmp_path / "rank-0.log", 2) == ["line 009", "line 010"]


def test_a_long_log_keeps_its_beginning_and_its_newest_lines(tmp_path):
    log = tmp_path / "rank-0.log"
    write(log, 0, 400)
    write(log, 400, 1000)  # the next attempt goes on
    assert set(sizes(tmp_path)) == {log.name, log.name + FIRST, log.name + PREVIOUS}
    assert sum(sizes(tmp_path).values()) <= 3 * LIMIT
    assert (tmp_path / (log.name + FIRST)).read_text().splitlines()[0] == "line 000"
    newest = (tmp_path / (log.name + PREVIOUS)).read_text() + log.read_text()
    assert newest.splitlines() == [f"line {number:03d}" for number in range(1000 - newest.count("\n"), 1000)]


def test_the_last_lines_are_found_across_a_rotation(tmp_path):
    log = tmp_path / "rank-0.log"
    for rotations in (1, 2, 3):
        write(log, 0, 0)  # an absent log is empty
        for path in tmp_path.iterdir():
            path.unlink()
        write(log, 0, 11 * rotations + 1)
        last = 11 * rotations
        assert tail(log, 3) == [f"line {number:03d}" for number in range(last - 2, last + 1)]
        assert own_lines(log)[-1] == f"line {last:03d}"


def test_the_end_of_a_huge_log_is_read_without_the_rest(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"a line\n" * (TAIL_BYTES // 3) + b"the last\n")
    assert tail(log, 2) == ["a line", "the last"]
    log.write_bytes(b"x" * 2 * TAIL_BYTES)
    assert tail(log, 2) == ["x" * TAIL_BYTES]


def test_an_absent_log_has_no_lines(tmp_path):
    assert tail(tmp_path / "absent.log", 3) == []


def test_the_output_of_a_launcher_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROTATE_BYTES", 1000)
    lines = b"".join(b"[rank %d] number %d\n" % (number % 2, number) for number in range(2000))
    sorter = LogSorter(io.BytesIO(lines), tmp_path, "a-0", [0, 1], 1)
    sorter.close()
    for rank in (0, 1):
        assert tail(rank_log(tmp_path, rank), 2) == [f"number {1996 + rank}", f"number {1998 + rank}"]
        kept = list(tmp_path.glob(f"rank-{rank}.log*"))
        assert len(kept) == 3 and sum(path.stat().st_size for path in kept) <= 3000
        assert rank_log(tmp_path, rank).with_name(f"rank-{rank}.log.first").read_text().startswith("--- attempt 1\n")


class RemovesLogs(io.BytesIO):
    """Output that removes the folder of the logs before its first line."""

    folder = None

    def __next__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        return super().__next__()


def test_output_is_read_to_its_end_where_logs_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROTATE_BYTES", 10)
    (tmp_path / "logs").mkdir()
    stream = RemovesLogs(b"[rank 0] some output\n" * 100)
    stream.folder = tmp_path / "logs"
    LogSorter(stream, stream.folder, "a-0", [0], 1).close()
    assert stream.closed and not stream.folder.exists()


def test_lines_go_on_where_a_new_file_cannot_be_opened_for_a_while(tmp_path, monkeypatch):
    log, opens = tmp_path / "rank-0.log", Path.open
    bounded = BoundedLog(log, LIMIT)

    def full(path, mode="r", *arguments, **settings):
        if "a" in mode:
            raise OSError(28, "No space left on device")
        return opens(path, mode, *arguments, **settings)

    for number in range(40):
        if number in (11, 22):
            monkeypatch.setattr(Path, "open", full if number == 11 else opens)
        bounded.write(f"line {number:03d}\n".encode())
    bounded.close()
    files = [log.with_name(log.name + FIRST), log.with_name(log.name + PREVIOUS), log]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    assert lines == [f"line {number:03d}" for number in range(40)]
    assert set(tmp_path.iterdir()) == set(files)


def test_a_log_that_fails_ends_no_thread(tmp_path):
    sorter = LogSorter(io.BytesIO(b""), tmp_path, "a-0", [0, 1], 1)
    sorter.close()
    output = io.BytesIO(b"[rank 0] lost\n[rank 1] kept\n")
    sorter._stream, sorter._logs[1] = output, BoundedLog(tmp_path / "other.log", LIMIT)
    sorter._copy()  # rank 0's log is closed
    assert output.closed and (tmp_path / "other.log").read_text() == "kept\n"
    sorter.close()
