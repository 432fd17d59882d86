"""Rank 0 of a job as the operator polls it: a server that answers with whatever bytes a test sets."""

import asyncio
import json
from contextlib import closing, suppress

from heterotp_api import names

KEY = ("ns", "j")
FIELDS = {"schemaVersion": 1, "job": "j", "attempt": 2, "state": "running", "iteration": 7, "startedAt": 1.5}
DOCUMENT = json.dumps(FIELDS)


def job(**spec):
    return {"metadata": {"namespace": "ns", "name": "j", "uid": "u"}, "spec": spec, "status": {"attempt": 2}}


def pod(rank="0", attempt="2", phase="Running", address="10.0.0.1", uid="p", owner="u"):
    labels = {names.LABEL_JOB: "j", names.LABEL_FIRST_RANK: rank, names.LABEL_ATTEMPT: attempt}
    metadata = {"namespace": "ns", "name": f"j-{rank}-{attempt}-{uid}", "uid": uid, "labels": labels}
    if owner:
        metadata["ownerReferences"] = [{"kind": "HeteroTPJob", "name": "j", "uid": owner, "controller": True}]
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "podIP": address}}


def answer_of(text=DOCUMENT, status="200 OK", headers=()):
    """Return the bytes of an HTTP answer."""
    body = text if isinstance(text, bytes) else text.encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def changed_document(**fields):
    return json.dumps({**FIELDS, **fields})


class Rank0:
    """A server that sends whatever bytes a test sets, and keeps what it was asked."""

    def __init__(self):
        self.answer = answer_of()
        self.requests = []
        self.open = set()

    @property
    def leases(self):
        lines = [line for request in self.requests for line in request.split("\r\n")]
        return [line.partition(": ")[2] for line in lines if line.startswith(names.LEASE_HEADER)]

    async def handle(self, reader, writer):
        self.open.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer.transport):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if callable(self.answer):
                await self.answer(writer)
            else:
                writer.write(self.answer)
            await writer.drain()


async def forever(writer):
    await asyncio.get_running_loop().create_future()


async def close_at_once(writer):
    writer.transport.abort()
