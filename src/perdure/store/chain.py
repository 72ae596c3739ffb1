"""The chain of digests: each row carries blake2b-16 of the digest before it and of itself.

Whoever edits, removes or reorders a row must change every later digest and the last one, which stands in `runs`. The
chain proves what a careless hand did, not what a determined one could: there is no secret in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from perdure.errors import JournalCorrupt

LinkedRow = tuple[int, str, int, str, str, str, int]  # seq, run_id, epoch, key, type, payload, at
ChainRow = tuple[int, str, int, str, str, str, int, bytes]  # and its digest


def link(previous: bytes, row: LinkedRow) -> bytes:
    """The digest of a row that follows `previous`."""
    seq, run_id, epoch, key, type_name, payload, at = row
    # The key's length keeps two fields from blurring; a payload is one JSON text and comes last.
    text = f"{seq}\n{run_id}\n{epoch}\n{len(key)}\n{key}\n{type_name}\n{at}\n{payload}"
    return blake2b(previous + text.encode(), digest_size=16).digest()


def verify_chain(
    rows: Iterable[ChainRow], *, base_seq: int = 0, base: bytes = b"", last_seq: int | None = None,
    last: bytes | None = None,
) -> int:  # fmt: skip
    """How many rows there are, once their sequence has no gap and every digest is right.

    Raises JournalCorrupt that names the first wrong sequence.
    """
    seq, digest, count = base_seq, base, 0
    for row in rows:
        found, stored = row[0], row[7]
        seq, count = seq + 1, count + 1
        if found != seq:
            raise JournalCorrupt(f"Event {seq} is missing: the journal goes on with {found}.", seq=seq)
        digest = link(digest, row[:7])
        if digest != stored:
            raise JournalCorrupt(f"Event {seq} is not what was recorded.", seq=seq)
    if last_seq is not None and seq != last_seq:
        raise JournalCorrupt(f"The journal ends with event {seq}, the run counted {last_seq}.", seq=seq)
    if last is not None and digest != last:
        raise JournalCorrupt(f"Event {seq} is not the last one that was recorded.", seq=seq)
    return count
