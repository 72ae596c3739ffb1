"""What events do to the catalog's row, in their own transaction (spec/journal.md, Override 3).

A closed list: a type that is not named here only counts as an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.events import Event, NodeFinished, StatusChanged, UsageRecorded
from perdure.states import TERMINAL
from perdure.store.database import Row, Tx

MESSAGE_CHARS_MAX = 2000


def has_any(event: Event) -> bool:
    """Whether the event changes more than counters and the journal's end."""
    return isinstance(event, (StatusChanged, UsageRecorded))


def apply(tx: Tx, written: Sequence[tuple[int, Event]], ends: Mapping[int, tuple[int, bytes]]) -> None:
    """Count (run row, event) into the rows of their runs, and set where each root's journal now ends.

    One statement for each kind of change, however many runs there are.
    """
    now = tx.now_ms
    counts: dict[int, list[int]] = {root: [0, 0] for root in ends}
    statuses: dict[int, Row] = {}
    for run, event in written:
        count = counts.get(run)
        if count is None:
            count = counts[run] = [0, 0]
        count[0] += 1
        if isinstance(event, NodeFinished):
            count[1] += 1
        elif isinstance(event, StatusChanged):
            row = _status_row(run, event, now)
            # The last change of a batch stands, but a run that began and ended in one batch did begin.
            statuses[run] = (*row, row[1] == "running" or (run in statuses and statuses[run][-1]))
        elif isinstance(event, UsageRecorded):
            _use(tx, run, event)
    rows: list[Row] = [(run, *ends.get(run, (None, None)), *count, now) for run, count in counts.items()]
    tx.run_rows("runs.advance" if len(rows) > 1 else "runs.advance_one", rows)
    if statuses:
        tx.run_rows("runs.set_status", list(statuses.values()))


def _status_row(run: int, event: StatusChanged, now: int) -> Row:
    failure = event.failure
    return (
        run, event.status, event.epoch, event.resumable, event.code, event.reason[:MESSAGE_CHARS_MAX],
        "" if failure is None else failure.code,
        "" if failure is None else failure.message[:MESSAGE_CHARS_MAX],
        event.status in TERMINAL, now,
    )  # fmt: skip


def _use(tx: Tx, run: int, event: UsageRecorded) -> None:
    """Counts of a stage are absolute; the sums of its run and of those above grow by the difference."""
    before = tx.one("events.usage", run=run, position=event.position) or (0, 0, 0)
    tx.run("events.set_usage", run=run, position=event.position, tokens_in=event.tokens_in,
           tokens_out=event.tokens_out, cost_nanos=event.cost_nanos)  # fmt: skip
    tx.run("runs.add_spend", run=run, tokens_in=event.tokens_in - before[0], tokens_out=event.tokens_out - before[1],
           cost_nanos=(event.cost_nanos or 0) - before[2])  # fmt: skip
