"""Asks the server of a live page as its script does."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def fetched(address):
    """Return the JSON of an address."""
    with urlopen(address, timeout=60) as answer:
        return json.loads(answer.read())


def posted(address, body):
    """Send JSON; return the answer, also a refusal."""
    text = json.dumps(body).encode()
    try:
        return fetched(Request(address, data=text, headers={"Content-Type": "application/json"}, method="POST"))
    except HTTPError as error:
        with error:
            return json.loads(error.read())
