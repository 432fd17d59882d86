"""Pod templates of which the API server has accepted pods lately: asking it again by a dry run would cost a call."""

from collections import OrderedDict
from dataclasses import dataclass, field

REMEMBERED = 4096


@dataclass
class AcceptedTemplates:
    """The namespace and hash of the latest templates; losing one costs a dry run."""

    _known: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def __contains__(self, template: object) -> bool:
        """Return whether pods of this template were accepted in this namespace."""
        return template in self._known

    def note(self, namespace: str, template: str, accepted: bool) -> None:
        """Remember that pods of a template were accepted, or forget it because one was refused."""
        self._known.pop((namespace, template), None)
        if accepted:
            self._known[namespace, template] = None
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
