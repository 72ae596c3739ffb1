"""What follows from findings: merging, sifting, judging, the verdict. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.builtin.findings import Finding, Rejection, Synthesis, judge, merge, sift, verdict


def finding(title: str = "Off by one", **fields: Any) -> Finding:
    told = {"file": "a.py", "severity": "major", "evidence": "range(n + 1)", "score": 12, "title": title}
    return Finding.model_validate(told | fields)


def synthesis(*rejected: tuple[int, str]) -> Synthesis:
    return Synthesis(summary="", rejected=[Rejection(number=number, reason=reason) for number, reason in rejected])


def test_findings_of_one_file_and_title_are_one_whatever_the_spelling() -> None:
    one, *others = merge({
        "correctness": [finding(line=3), finding("Off  by one!", file="./a.py")],
        "risk": [finding("OFF-BY-ONE", file="b/a.py", severity="blocker", score=17, evidence="it reads past the end")],
    })  # fmt: skip
    assert not others
    assert (one.title, one.place, one.found_by) == ("Off by one", "a.py:3", ["correctness", "risk"])
    assert (one.severity, one.score, one.evidence) == ("blocker", 17, "range(n + 1)")


def test_findings_of_another_file_or_title_stay_apart() -> None:
    assert len(merge({"correctness": [finding(), finding(file="b.py"), finding("Race")]})) == 3


def test_the_gravest_finding_comes_first() -> None:
    ranked = merge({"correctness": [
        finding("d", severity="minor", score=20), finding("c", score=11), finding("b", score=12),
        finding("a", severity="blocker", score=1),
    ]})  # fmt: skip
    assert [one.title for one in ranked] == ["a", "b", "c", "d"]


def test_merging_takes_the_first_evidence_there_is() -> None:
    (one,) = merge({"correctness": [finding(evidence=" ")], "risk": [finding(evidence="line 3")]})
    assert one.evidence == "line 3"


@pytest.mark.parametrize("evidence", ["", "  \n", "...", "-"])
def test_a_finding_without_evidence_is_dropped_and_named(evidence: str) -> None:
    kept, dropped = sift(merge({"risk": [finding(evidence=evidence), finding("Race", evidence="two writers")]}))
    assert [one.title for one in kept] == ["Race"]
    assert [(one.title, one.reason) for one in dropped] == [("Off by one", "no evidence")]


def test_the_synthesis_rejects_by_number_and_only_with_a_reason() -> None:
    found = merge({"risk": [finding("a"), finding("b"), finding("c")]})
    kept, dropped = judge(found, synthesis((1, "guessed"), (2, " "), (9, "no such finding"), (1, "again")))
    assert [one.title for one in kept] == ["b", "c"]
    assert [(one.title, one.reason) for one in dropped] == [("a", "guessed")]


@pytest.mark.parametrize(
    ("severity", "score", "expected"),
    [
        ("blocker", 10, "changes_requested"),
        ("major", 10, "changes_requested"),
        ("blocker", 9, "approved"),
        ("minor", 20, "approved"),
    ],
)
def test_a_grave_and_likely_finding_asks_for_changes(severity: str, score: int, expected: str) -> None:
    assert verdict(merge({"risk": [finding(severity=severity, score=score)]}), silent=[]) == expected


def test_nothing_is_approved_while_a_reviewer_is_silent() -> None:
    assert verdict([], silent=["risk"]) == "incomplete"
    assert verdict(merge({"risk": [finding()]}), silent=["correctness"]) == "changes_requested"
    assert verdict([], silent=[]) == "approved"


FINDINGS = st.lists(
    st.builds(
        finding,
        st.sampled_from(["Race", "race!", "Leak"]),
        file=st.sampled_from(["a.py", "./a.py", "b.py"]),
        severity=st.sampled_from(["blocker", "major", "minor"]),
        score=st.integers(1, 20),
        evidence=st.sampled_from(["", "shown"]),
    )
)


@given(FINDINGS, FINDINGS)
def test_merging_loses_no_problem_and_keeps_each_once(first: list[Finding], second: list[Finding]) -> None:
    merged = merge({"x": first, "y": second})
    kept, dropped = sift(merged)
    places = [(one.file.removeprefix("./"), one.title.casefold().strip("!")) for one in merged]
    assert len(places) == len(set(places)) == len(kept) + len(dropped)
    assert {(f.file.removeprefix("./"), f.title.casefold().strip("!")) for f in [*first, *second]} == set(places)
    assert max((f.score for f in [*first, *second]), default=0) == max((f.score for f in merged), default=0)
