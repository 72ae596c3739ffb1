"""The outcome of a review, and the report that people read of it.

The report is made from the outcome's other fields alone, so it never says anything that a program could not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel

from perdure.builtin.findings import Dropped, MergedFinding, Verdict

FINDINGS_IN_BRIEF_MAX: Final = 5


class Review(BaseModel):
    """The outcome. `accepted` is None when nobody was asked; `report` is markdown and says all of the rest."""

    verdict: Verdict
    target: str
    files: list[str]
    findings: list[MergedFinding]
    dropped: list[Dropped]
    silent: list[str]  # who gave no usable answer, and why
    summary: str
    report: str = ""
    accepted: bool | None = None


def reported(stat: str, review: Review) -> Review:
    """The review with its report; `stat` is git's count of what changed."""
    return review.model_copy(update={"report": "\n".join(_lines(stat, review)).rstrip() + "\n"})


def brief(review: Review) -> str:
    """The review in a few lines, for a person who is asked about it: verdict, summary, the gravest findings."""
    listed = [f"- {one.severity}, {one_line(one.place)}: {one_line(one.title)}" for one in review.findings]
    more = len(listed) - FINDINGS_IN_BRIEF_MAX
    end = [f"- and {more} more"] if more > 0 else []
    first = f"{review.verdict.replace('_', ' ')}, findings: {len(listed)}"
    return "\n".join([first, one_line(review.summary, 400), *listed[:FINDINGS_IN_BRIEF_MAX], *end, *review.silent])


def one_line(text: str, chars_max: int = 200) -> str:
    """`text` without line breaks, cut if it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else f"{line[:chars_max]}..."


def _lines(stat: str, review: Review) -> Iterable[str]:
    counting = sum(finding.counts for finding in review.findings)
    yield f"# Review of {review.target}\n"
    yield f"**{review.verdict.replace('_', ' ')}**: findings {len(review.findings)}, that count {counting}. {stat}\n"
    yield f"{review.summary}\n"
    for number, finding in enumerate(review.findings, 1):
        yield f"## {number}. {one_line(finding.title)}\n"
        by = ", ".join(finding.found_by)
        yield f"`{one_line(finding.place)}`, {finding.severity}, score {finding.score}, found by {by}\n"
        yield "".join(f"> {line}\n" for line in finding.evidence.strip().splitlines())
    if review.dropped:
        yield "## Dropped\n"
        yield from (
            f"- {one_line(one.title)} (`{one_line(one.file)}`): {one_line(one.reason)}" for one in review.dropped
        )
        yield ""
    if review.silent:
        yield "## Without a usable answer\n"
        yield from (f"- {one}" for one in review.silent)
