"""Ports for servers that a test starts."""

import os
import socket

FIRST, LAST = 21000, 32000  # below the range of outgoing connections, which hold ports that nobody listens on
_given = {}  # by process: the port after those given last, because two calls may come before the first is in use


def free_port(count=1):
    """Return the first of `count` consecutive free ports."""
    process = os.getpid()
    start = _given.get(process, FIRST + process * 37 % (LAST - FIRST))
    for first in [*range(start, LAST - count), *range(FIRST, min(start, LAST - count))]:
        if all(_is_free(port) for port in range(first, first + count)):
            _given[process] = first + count
            return first
    raise AssertionError("no free ports")


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
