"""All kinds of faults, by where they can be injected."""

from chaos.faults import api_server, hoards, kind, operators, pods, ranks, users

ALL = (*operators.KINDS, *api_server.KINDS, *users.KINDS, *pods.KINDS, *ranks.KINDS, *hoards.KINDS, *kind.KINDS)
BY_KIND = {each.kind: each for each in ALL}


def kinds(where):
    """Return the kinds of faults of a place (api, kind), and how each draws its arguments."""
    return {name: each.draw for name, each in BY_KIND.items() if where in each.where}
