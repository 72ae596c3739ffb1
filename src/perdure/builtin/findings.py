"""Findings: what reviewers say is wrong with a change, and what follows from it.

Models propose, this module decides: it merges what several reviewers found, drops what has no evidence, ranks the rest
and gives the verdict. All of it is pure, so the same findings always lead to the same verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

BAR: Final = 10  # the least score of a finding that counts against a change: 1 fails, 10 is borderline, 20 verified
FINDINGS_MAX: Final = 20  # of one reviewer
REJECTIONS_MAX: Final = 200
_RANK: Final = {"blocker": 0, "major": 1, "minor": 2}

Severity = Literal["blocker", "major", "minor"]
Verdict = Literal["approved", "changes_requested", "incomplete"]


class Finding(BaseModel):
    """One problem, as a reviewer states it."""

    title: Annotated[str, Field(max_length=200, description="the problem in a few words")]
    file: Annotated[str, Field(max_length=400)]
    line: Annotated[int, Field(ge=1)] | None = None
    severity: Severity
    evidence: Annotated[str, Field(max_length=2000, description="the line that shows it, and why it is wrong")]
    score: Annotated[int, Field(ge=1, le=20, description="how sure: 1 guessed, 10 likely, 20 verified")]


class Findings(BaseModel):
    """A reviewer's answer."""

    findings: Annotated[list[Finding], Field(max_length=FINDINGS_MAX)]


class MergedFinding(Finding):
    """A problem that one or more reviewers found."""

    found_by: list[str]

    @property
    def place(self) -> str:
        """File and line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def counts(self) -> bool:
        """Whether the change must not go in with it."""
        return self.severity != "minor" and self.score >= BAR


class Dropped(BaseModel):
    """A finding that is not part of the review, and why."""

    title: str
    file: str
    reason: str


class Rejection(BaseModel):
    """What the synthesis says against a finding."""

    number: Annotated[int, Field(ge=1)]
    reason: Annotated[str, Field(max_length=400)]


class Synthesis(BaseModel):
    """The synthesis' answer."""

    summary: Annotated[str, Field(max_length=2000)]
    rejected: Annotated[list[Rejection], Field(max_length=REJECTIONS_MAX)]


def merge(reviews: Mapping[str, Sequence[Finding]]) -> list[MergedFinding]:
    """All findings, each once, the gravest first: alike are those with one file and one title, in any spelling.

    Of findings that are alike the gravest severity and the best score hold, and the first evidence there is.
    """
    merged: dict[tuple[str, str], MergedFinding] = {}
    for reviewer, findings in reviews.items():
        for finding in findings:
            one = MergedFinding(**finding.model_dump(), found_by=[reviewer])
            key = (_file(one.file), _words(one.title))
            merged[key] = one if key not in merged else _together(merged[key], one)
    return sorted(merged.values(), key=lambda f: (_RANK[f.severity], -f.score, f.file, f.line or 0, f.title))


def sift(findings: Sequence[MergedFinding]) -> tuple[list[MergedFinding], list[Dropped]]:
    """Those with evidence, and the others."""
    kept = [finding for finding in findings if _words(finding.evidence)]
    return kept, [_dropped(finding, "no evidence") for finding in findings if finding not in kept]


def judge(findings: Sequence[MergedFinding], synthesis: Synthesis) -> tuple[list[MergedFinding], list[Dropped]]:
    """Those the synthesis does not reject, and the others. `number` counts from 1; one without a reason counts not."""
    reasons = {one.number: one.reason.strip() for one in reversed(synthesis.rejected) if _words(one.reason)}
    numbered = list(enumerate(findings, 1))
    kept = [finding for number, finding in numbered if number not in reasons]
    return kept, [_dropped(finding, reasons[number]) for number, finding in numbered if number in reasons]


def verdict(findings: Sequence[MergedFinding], *, silent: Sequence[str]) -> Verdict:
    """What follows from the findings that are left, and from the reviewers who gave no usable answer."""
    if any(finding.counts for finding in findings):
        return "changes_requested"
    return "incomplete" if silent else "approved"


def _together(first: MergedFinding, second: MergedFinding) -> MergedFinding:
    return first.model_copy(
        update={
            "line": first.line or second.line,
            "severity": min(first.severity, second.severity, key=_RANK.__getitem__),
            "evidence": first.evidence if _words(first.evidence) else second.evidence,
            "score": max(first.score, second.score),
            "found_by": list(dict.fromkeys([*first.found_by, *second.found_by])),
        }
    )


def _dropped(finding: MergedFinding, reason: str) -> Dropped:
    return Dropped(title=finding.title, file=finding.file, reason=reason)


def _file(path: str) -> str:
    return re.sub(r"^(?:\./|[ab]/)+", "", path.strip())


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
