"""The chain of digests: each row carries blake2b-16 of the digest before it and of itself.

Whoever edits, removes or reorders a row must change every later digest and the last one, which stands in `runs`. The
chain proves what a careless hand did, not what a determined one could: there is no secret in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from perdure.errors import JournalCorrupt

ChainRow = tuple[int, str, int, str, str, str, int, bytes]  # seq, run_id, epoch, key, type, payload, at, digest


def link(previous: bytes, seq: int, run_id: str, epoch: int, key: str, type_name: str, payload: str, at: int) -> bytes:
    """The digest of a row."""
    # Keys hold no line break that could blur two fields: a payload is one JSON text and comes last.
    row = f"{seq}\n{run_id}\n{epoch}\n{len(key)}\n{key}\n{type_name}\n{at}\n{payload}"
    return blake2b(previous + row.encode(), digest_size=16).digest()


def verify_chain(
    rows: Iterable[ChainRow], *, base_seq: int = 0, base: bytes = b"", last_seq: int | None = None,
    last: bytes | None = None,
) -> int:  # fmt: skip
    """How many rows there are, once their sequence has no gap and every digest is right.

    Raises JournalCorrupt that names the first wrong sequence.
    """
    seq, digest, count = base_seq, base, 0
    for found, run_id, epoch, key, type_name, payload, at, stored in rows:
        seq, count = seq + 1, count + 1
        if found != seq:
            raise JournalCorrupt(f"Event {seq} is missing: the journal goes on with {found}.", seq=seq)
        digest = link(digest, seq, run_id, epoch, key, type_name, payload, at)
        if digest != stored:
            raise JournalCorrupt(f"Event {seq} is not what was recorded.", seq=seq)
    if last_seq is not None and seq != last_seq:
        raise JournalCorrupt(f"The journal ends with event {seq}, the run counted {last_seq}.", seq=seq)
    if last is not None and digest != last:
        raise JournalCorrupt(f"Event {seq} is not the last one that was recorded.", seq=seq)
    return count
