"""A hostile rank 0: what it answers to the operator's polls instead of its status document."""

import copy
import json
import time
from random import Random

from chaos.faults.fault import Hit
from chaos.faults.users import OfJob, attempt_of, slot_of, uid_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LONGEST_SECONDS = 5.0  # of one answer: the operator hangs up long before


def body(document):
    """Return a whole answer with this body."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(document) + document


def deep(levels):
    return b'{"ranks":' * levels + b"1" + b"}" * levels


def many_ranks(count):
    rows = [{"rank": rank, "tpRank": rank, "device": "cpu"} for rank in range(count)]
    return json.dumps({"job": "j", "attempt": 1, "state": "running", "iteration": 1, "ranks": rows}).encode()


FIXED = {
    "garbage": lambda: bytes(range(256)) * 40,
    "nothing": lambda: b"",
    "redirect": lambda: b"HTTP/1.1 302 Found\r\nLocation: http://a..b/\r\nContent-Length: 0\r\n\r\n",
    "redirect elsewhere": lambda: b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/status\r\nContent-Length: 0\r\n\r\n",
    "not found": lambda: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "packed": lambda: HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "wrong length": lambda: HEAD + b"Content-Length: -5\r\n\r\n{}",
    "headers": lambda: HEAD + b"X: y\r\n" * 5000 + b"\r\n{}",
    "deep": lambda: body(deep(20_000)),
    "huge": lambda: body(many_ranks(100_000)),
    "long number": lambda: body(b'{"job":"j","attempt":' + b"9" * 5000 + b',"state":"running"}'),
    "no number": lambda: body(b'{"job":"j","attempt":1,"state":"running","iteration":NaN,"loss":Infinity}'),
    "half a character": lambda: body(b'{"job":"\\ud800","attempt":1,"state":"running"}'),
    "a list": lambda: body(b"[1, 2, 3]"),
}


def endless(stream):
    """Write a body without end."""
    stream.write(HEAD + b"\r\n")
    _repeat(stream, b" " * 65536, 0.0)


def drop_by_drop(stream):
    """Write so slowly that only a limit on the whole time ends it."""
    _repeat(stream, b"H", 0.1)


def silent(stream):
    """Keep the connection and write nothing."""
    _repeat(stream, b"", 0.1)


def _repeat(stream, data, pause):
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        stream.write(data)
        stream.flush()
        time.sleep(pause)


STREAMS = {"endless": endless, "drop by drop": drop_by_drop}


def fuzzed(zero, seed):
    """Return an attack that answers the true document with up to four values replaced."""
    random = Random(seed)

    def attack(stream):
        document = zero.status()
        for _ in range(random.randint(1, 4)):
            _replace(document, random)
        stream.write(body(json.dumps(document).encode()))

    return attack


def _replace(document, random):
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = random.choice(list(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or random.random() < 0.5:
            place[key] = copy.deepcopy(random.choice(ODD))
            return
        place = inner


ODD = (
    *(None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, -1e-320, "", "x" * 10_000, "\u0000\u202e", [], {}, [[]]),
    *("running", "succeeded", {"a": {"b": 1}}, [1, "2", None], "-1", "1e999", "\ud800"),
)


class HostileRank(OfJob):
    """Rank 0 answers something else for a while."""

    kind = "hostile rank 0"
    shows = "rank 0 unusable"
    zero = None

    @staticmethod
    def draw(random):
        attack = random.choice([*FIXED, *STREAMS])
        return {**OfJob.draw(random), "seconds": random.uniform(5, 40), "attack": attack}

    def hit(self, world, job):
        self.zero = world.tenant.zeros[slot_of(job)]
        self.zero.attack = self.attack()
        return Hit((uid_of(job),), attempt_of(job))

    def attack(self):
        """Return what answers."""
        name = self.arguments["attack"]
        if name in STREAMS:
            return STREAMS[name]
        answer = FIXED[name]()
        return lambda stream: stream.write(answer)

    def end(self, world):
        if self.zero is not None:
            self.zero.attack = None


class FuzzedRank(HostileRank):
    """Rank 0 answers documents that are nearly right: some the operator can use, some it cannot."""

    kind = "fuzzed rank 0"
    shows = ""

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "seconds": random.uniform(5, 40), "fuzz": random.randrange(10**6)}

    def attack(self):
        return fuzzed(self.zero, self.arguments["fuzz"])


class SilentRank(HostileRank):
    """Rank 0 takes the connection and answers nothing."""

    kind = "silent rank 0"

    @staticmethod
    def draw(random):
        return {**OfJob.draw(random), "seconds": random.uniform(5, 40)}

    def attack(self):
        return silent


KINDS = (HostileRank, FuzzedRank, SilentRank)
