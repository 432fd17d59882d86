"""Whose a checkpoint directory is: one job's at a time, and of that job its newest attempt's.

.claim-000000003/claim.json   uid of the job, attempt, nonce, uids of earlier owners; the highest number is the owner
.claim-000000003/...          what the owner writes now, or is about to remove
job-UID/                      a job's own directory, where the one above belongs to another job
owner.json                    the newest claim once more, for people and for trainers of earlier versions

Every change of the directory is a rename out of the owner's claim or into it. Who takes the directory over removes the
older claims first, before it looks at the checkpoints: from then on no rename of an earlier owner succeeds, however
late it is. The file system must rename directories atomically, and fail where the source or the target's parent is
gone and where the target is a directory with content. POSIX file systems do so, also over NFS, where the server
decides, whatever clients have cached; most buckets that are mounted as files do not.
"""

import json
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from errno import EEXIST, ENOENT, ENOTEMPTY
from pathlib import Path
from typing import Literal

from heterotp_api.names import Env
from pydantic import TypeAdapter, ValidationError

from heterotp_trainer.checkpoint.disk import sync, write_synced
from heterotp_trainer.checkpoint.errors import CheckpointError, OwnerError, storage_error

CLAIM, CLAIMING, CLAIM_FILE, OWNER, OWN = ".claim-", ".claiming-", "claim.json", "owner.json", "job-"
LEFT = (f"{CLAIMING}*", ".writing-*")  # by killed claimers, and by killed writers of earlier versions
TRIES = 100  # of a claim, while others claim the directory too
Verdict = Literal["take", "adopt", "aside", "foreign", "older", "lost"]


@dataclass(frozen=True)
class Claim:
    """Who owns a directory. uid: of the job, empty: not known. earlier: uids of jobs whose checkpoints it adopted."""

    uid: str = ""
    attempt: int = 0
    nonce: str = ""
    earlier: tuple[str, ...] = ()

    @classmethod
    def of(cls, uid: str, attempt: int) -> "Claim":
        """Return a new claim, unlike any other."""
        return cls(uid, attempt, secrets.token_hex(8))


def verdict(held: Claim | None, new: Claim, adopt: bool) -> Verdict:
    """Return what `new` may do with a directory that `held` owns (None: nobody).

    take: own it. adopt: own it with another job's checkpoints. aside: use a directory of its own. foreign: nothing, and
    it has no uid to name one by. older: nothing, a newer attempt owns it. lost: nothing, another job adopted it.

    A claim without a uid is of an earlier version or of ranks started by hand: a higher attempt continues it.
    """
    if held is None:
        return "take"
    if held.uid == new.uid:
        return "take" if new.attempt >= held.attempt else "older"
    if new.uid and new.uid in held.earlier:
        return "lost"
    if not held.uid and new.attempt > held.attempt:
        return "take"
    if adopt:
        return "adopt"
    return "aside" if new.uid else "foreign"


class OwnedDirectory:
    """A checkpoint directory that this attempt owns until another one claims it."""

    def __init__(self, root: Path, claim: Claim, number: int) -> None:
        self.root, self.claim, self._number = root, claim, number

    @property
    def private(self) -> Path:
        """The directory that only this owner writes to; it is gone once another one owns the checkpoints."""
        return self.root / f"{CLAIM}{self._number:09d}"

    def check(self) -> None:
        """Raise OwnerError where this attempt owns the directory no longer."""
        found = _newest(self.root)
        if found is None:  # somebody has removed all files, and nobody else owns it
            self.root.mkdir(parents=True, exist_ok=True)
            self._number += _make(self.root, self.claim, self._number + 1)
            found = _newest(self.root)
        if found is None or found[1].nonce == self.claim.nonce:
            return
        held, own = found[1], self.claim
        who = f"attempt {held.attempt}" if held.uid == own.uid else _named(held)
        raise OwnerError(f"{who} owns the checkpoints in {self.root}; attempt {own.attempt} must not write")

    def publish(self, name: str, target: Path) -> None:
        """Make a directory of the private one visible at once; a directory at the target is removed.

        Raises OwnerError where another attempt or job owns the checkpoints by now: then nothing becomes visible.
        """
        self.check()
        try:
            if target.exists():  # the same iteration once more, after a restart
                self.remove(target)
            (self.private / name).rename(target)
        except OSError:
            self.check()  # whose rename came first is decided; the reason is the owner, not the file system's
            raise
        sync(self.root)

    def remove(self, path: Path) -> None:
        """Remove a checkpoint: it disappears at once, then its files are deleted."""
        shutil.rmtree(self._hide(path), ignore_errors=True)

    def set_aside(self, path: Path, target: Path) -> None:
        """Rename a checkpoint; a directory at the target is removed."""
        hidden = self._hide(path)
        if target.exists():
            self.remove(target)
        hidden.rename(target)

    def _hide(self, path: Path) -> Path:
        return path.rename(self.private / f"hidden-{secrets.token_hex(4)}")

    def lock_out_earlier_owners(self) -> None:
        """Remove older claims, after which their owners can rename nothing, and what killed writers left."""
        for claim in sorted(self.root.glob(f"{CLAIM}*")):
            if claim.name < self.private.name:
                self._empty_and_remove(claim)
        for pattern in LEFT:
            for left in self.root.glob(pattern):
                with suppress(FileNotFoundError):  # a claimer made its claim of it at this moment
                    self.remove(left)  # renamed first: else that claim would lose its file while it is made
        write_synced(self.private / OWNER, json.dumps(asdict(self.claim)))
        (self.private / OWNER).rename(self.root / OWNER)
        sync(self.root)
        for hidden in self.private.glob("hidden-*"):
            if hidden.is_dir():
                shutil.rmtree(hidden, ignore_errors=True)
            else:
                hidden.unlink(missing_ok=True)

    def _empty_and_remove(self, claim: Path) -> None:
        """Remove another's claim. Its entries are renamed first: none is published while it is being deleted."""
        while True:
            with suppress(FileNotFoundError):
                for entry in list(claim.iterdir()):
                    self._hide(entry)
            try:
                claim.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (EEXIST, ENOTEMPTY):  # its owner wrote once more
                    raise


def take(root: Path, new: Claim, *, adopt: bool = False) -> tuple["OwnedDirectory", str]:
    """Own a directory, or this job's own one below it; return it, and a line for people, empty where all is usual.

    adopt: also a directory of another job. Raises OwnerError where this attempt must not write, CheckpointError where
    it cannot, of the kind WriteError where it may be able to later (a full disk).
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        own = root / f"{OWN}{new.uid}"
        held = None
        if not (new.uid and own.is_dir()):
            owned, held = _take(root, new, adopt)
            if owned is not None:
                adopted = held is not None and held.uid and held.uid != new.uid
                return owned, f"{root}: this job adopts the checkpoints of {_named(held)}" if held and adopted else ""
            own.mkdir(exist_ok=True)
        owned, _ = _take(own, new, adopt=False)
        assert owned is not None  # nobody else has this uid
        return owned, _words(root, own, held)
    except OSError as error:
        raise storage_error(f"checkpoint directory {root} cannot be written", error) from None


def _words(root: Path, own: Path, held: Claim | None) -> str:
    if held is None:
        return f"the checkpoints of this job are in {own}"
    advice = "a new job with checkpoint.adopt: true continues from them"
    return f"the checkpoints in {root} are of {_named(held)}: this job starts anew in {own}; {advice}"


def _named(held: Claim) -> str:
    return f"job uid {held.uid}" if held.uid else f"a job without a uid (attempt {held.attempt})"


def _take(root: Path, new: Claim, adopt: bool) -> tuple["OwnedDirectory | None", Claim | None]:
    """Return the directory, None where it stays another job's, and who owned it before."""
    for _ in range(TRIES):
        number, held = _newest(root) or (0, _copy(root))
        what = verdict(held, new, adopt)
        if what == "aside":
            return None, held
        _raise_for(what, root, held, new)
        earlier = held.earlier if held is not None else ()
        claim = replace(new, earlier=(*earlier, held.uid) if held is not None and what == "adopt" else earlier)
        if not _make(root, claim, number + 1):
            continue
        newest = _newest(root)
        if newest is not None and newest[1].nonce == claim.nonce:
            owned = OwnedDirectory(root, claim, number + 1)
            with suppress(FileNotFoundError):  # a newer owner has locked this one out: it decides again
                owned.lock_out_earlier_owners()
                return owned, held
    raise CheckpointError(f"checkpoint directory {root}: others claim it again and again")


def _raise_for(what: Verdict, root: Path, held: Claim | None, new: Claim) -> None:
    if what == "older":
        assert held is not None
        raise OwnerError(f"attempt {held.attempt} owns the checkpoints in {root}; attempt {new.attempt} must not write")
    if what == "lost":
        assert held is not None
        raise OwnerError(f"{_named(held)} has adopted the checkpoints of this job in {root}")
    if what == "foreign":
        assert held is not None
        advice = f"name another directory, set checkpoint.adopt: true, or set {Env.JOB_UID}"
        raise CheckpointError(f"the checkpoints in {root} are of {_named(held)}: {advice}")


def _newest(root: Path) -> tuple[int, Claim] | None:
    """Return the number and the contents of the newest claim; None where there is none."""
    for _ in range(TRIES):
        names = [path.name.removeprefix(CLAIM) for path in root.glob(f"{CLAIM}*")]
        number = max((int(name) for name in names if name.isdigit()), default=None)
        if number is None:
            return None
        path = root / f"{CLAIM}{number:09d}" / CLAIM_FILE
        with suppress(FileNotFoundError):  # a newer owner has removed it meanwhile
            return number, _parsed(path)
    raise CheckpointError(f"{path} is missing; remove its directory when no other attempt runs")


def _copy(root: Path) -> Claim | None:
    """Return what owner.json says, of an earlier version or copied without hidden files; None where there is none."""
    with suppress(FileNotFoundError):
        return _parsed(root / OWNER)
    return None


def _parsed(path: Path) -> Claim:
    try:
        return TypeAdapter(Claim).validate_json(path.read_bytes())
    except ValidationError:
        raise CheckpointError(f"{path} is corrupt; remove it when no other attempt runs") from None


def _make(root: Path, claim: Claim, number: int) -> bool:
    """Make the claim of this number; return whether this one did."""
    aside = root / f"{CLAIMING}{claim.nonce}"
    try:
        aside.mkdir()
        write_synced(aside / CLAIM_FILE, json.dumps(asdict(claim)))
        aside.rename(root / f"{CLAIM}{number:09d}")
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if error.errno not in (EEXIST, ENOTEMPTY, ENOENT):  # ENOENT: another claimer has cleared it away
            raise
        return False
    sync(root)
    return True
