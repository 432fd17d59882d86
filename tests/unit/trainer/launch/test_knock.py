"""How a rank that comes back knocks: who is believed, and who is turned away."""

import json
import socket
import threading
import time

import pytest
from heterotp_trainer.launch.door import Key
from heterotp_trainer.launch.facts import Facts
from heterotp_trainer.launch.knock import (
    ClosedError,
    Door,
    Newcomer,
    door_file,
    knock,
    receive_line,
    send_line,
    where_to_knock,
)
from heterotp_trainer.session_parts.admission import problem_of

KEY = Key("a secret of thirty-two characters", "job", 1)
FACTS = Facts("cpu", "some arithmetic", "cpu", "")


def newcomer(origin=1, **facts):
    return Newcomer(origin, "127.0.0.1", 4000, "node", Facts(**{**vars(FACTS), **facts}))


@pytest.fixture
def door(tmp_path):
    made = Door(KEY, tmp_path, 1, "127.0.0.1", lambda each: "rank 2 lives" if each.origin == 2 else "")
    yield made
    made.close()


@pytest.fixture
def comes(tmp_path):
    """A function that knocks; what it returns is closed after the test."""
    made = []

    def come(who):
        place, connection = knock(KEY, tmp_path, 1, who, 5.0)
        made.append(connection)
        return place, connection

    yield come
    for each in made:
        each.close()


def test_who_has_the_secret_waits_and_is_heard(door, comes, tmp_path):
    assert not door.waiting
    place, connection = comes(newcomer())
    assert place == where_to_knock(tmp_path, 1)
    assert door.waiting
    found, there = door.next()
    assert found == newcomer()
    with there:
        send_line(there, "come in")
        assert receive_line(connection, str, 5.0) == "come in"
    assert not door.waiting


def test_who_lacks_the_secret_does_not_wait(door, tmp_path):
    other = Key("another secret of thirty-two letters", "job", 1)
    with pytest.raises(ClosedError):
        knock(other, tmp_path, 1, newcomer(), 0.0)
    assert not door.waiting


def test_a_proof_of_other_words_does_not_count(door, tmp_path):
    place = where_to_knock(tmp_path, 1)
    with socket.create_connection((place.host, place.port), 5.0) as connection:
        nonce = receive_line(connection, str, 5.0)
        said = {"newcomer": {**vars(newcomer()), "facts": vars(FACTS)}, "nonce": "mine"}
        send_line(connection, {**said, "proof": KEY.proof("knock", nonce)})
        with pytest.raises(OSError, match="closed"):
            receive_line(connection, dict, 5.0)
    assert not door.waiting


def test_what_is_no_knock_is_turned_away_and_the_door_stays_open(door, comes, tmp_path):
    place = where_to_knock(tmp_path, 1)
    for said in (b"no JSON\n", b"[1]\n", b"{}\n"):
        with socket.create_connection((place.host, place.port), 5.0) as connection:
            receive_line(connection, str, 5.0)
            connection.sendall(said)
            assert connection.recv(1) == b""
    comes(newcomer())
    assert door.waiting


def test_a_refused_rank_hears_why(door, tmp_path):
    with pytest.raises(ClosedError, match="rank 2 lives"):
        knock(KEY, tmp_path, 1, newcomer(2), 0.0)


def test_who_goes_away_waits_no_more(door, comes):
    _, connection = comes(newcomer())
    connection.close()
    deadline = time.monotonic() + 10.0
    while door.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not door.waiting


def test_a_false_door_is_not_believed(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        door_file(tmp_path, 1).write_text(json.dumps({"host": "127.0.0.1", "port": port}))

        def answer():
            connection, _ = listener.accept()
            with connection:
                send_line(connection, "nonce")
                receive_line(connection, dict, 5.0)
                send_line(connection, {"proof": "0" * 64})

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ClosedError, match="cannot prove"):
            knock(KEY, tmp_path, 1, newcomer(), 0.0)
        thread.join()


def test_a_gang_that_has_ended_is_not_waited_for(door, tmp_path):
    door.close(ended=True)
    with pytest.raises(ClosedError, match="ended"):
        knock(KEY, tmp_path, 1, newcomer(), 60.0)


def test_a_rank_that_leads_no_more_does_not_end_the_gang_of_the_others(door, comes, tmp_path):
    other = Door(KEY, tmp_path, 1, "127.0.0.1", lambda each: "")
    door.close(ended=True)
    comes(newcomer())
    assert other.waiting
    other.close()


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (newcomer(1), ""),
        (newcomer(3), "does not exist"),
        (newcomer(-1), "does not exist"),
        (newcomer(0), "lives"),
        (newcomer(1, torch_device="cuda"), "not supported"),
        (newcomer(1, arithmetic="other"), "rounds otherwise"),
    ],
)
def test_who_may_come_back(who, words):
    found = problem_of(who, 3, [0, 2], "some arithmetic")
    assert words in found if words else not found
    assert not problem_of(newcomer(1, arithmetic="other"), 3, [0, 2], None)
