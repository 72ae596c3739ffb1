"""review-changes, rehearsed on real repositories."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import InputInvalid, Workflow
from perdure.agents.rehearsal import RehearsalAgent
from perdure.agents.script import load_script
from perdure.builtin.change import Change
from perdure.builtin.findings import Finding, merge
from perdure.builtin.review import Review, brief, one_line
from perdure.builtin.review_changes import review_changes, review_prompt, synthesis_prompt
from perdure.config import Config, load_config
from perdure.discovery import discover
from perdure.engine.engine import Engine, RunOptions
from perdure.engine.loop import LaneLoop
from perdure.projection import fold
from perdure.store import open_database
from perdure.store.journal import Journal
from perdure.testing import Rehearsal, rehearse
from tests.bed.repositories import Repository

RACE = {
    "title": "Race",
    "file": "b.py",
    "line": 1,
    "severity": "major",
    "evidence": "b = 2 is written by two",
    "score": 15,
}
TYPO = {"title": "Typo", "file": "b.py", "line": None, "severity": "minor", "evidence": "b", "score": 20}
UNSHOWN = {"title": "Slow", "file": "b.py", "line": None, "severity": "blocker", "evidence": " ", "score": 20}


def found(*findings: dict[str, Any]) -> dict[str, Any]:
    return {"value": {"findings": list(findings)}}


def summed(summary: str = "Repair it.", *rejected: tuple[int, str]) -> dict[str, Any]:
    return {"value": {"summary": summary, "rejected": [{"number": n, "reason": r} for n, r in rejected]}}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("Begin", {"a.py": "a = 1\n"})
    made.commit("Add b", {"b.py": "b = 2\n"})
    return made


@pytest.fixture
def review(repository: Repository) -> Any:
    def rehearsed(script: dict[str, Any] | None = None, **options: Any) -> Rehearsal:
        return rehearse(review_changes, cwd=repository.folder, script=script, **options)

    return rehearsed


def test_it_is_found_by_its_name(home: Path) -> None:
    found = discover(home, load_config(home, {"HOME": str(home)})).find("review-changes").load()
    assert isinstance(found, Workflow)
    assert found.name == review_changes.name
    assert [field.name for field in found.input_fields()] == ["target", "focus", "models", "confirm"]


@pytest.mark.parametrize("seed", range(4))
def test_with_any_seed_it_ends_and_says_the_same_again(review: Any, seed: int) -> None:
    first, second = review(seed=seed), review(seed=seed)
    assert first.status == "completed"
    assert (first.output, first.nodes) == (second.output, second.nodes)
    outcome = Review.model_validate(first.output)
    assert outcome.report.startswith(f"# Review of {outcome.target}\n\n**{outcome.verdict.replace('_', ' ')}**")
    assert [node.name for node in first.nodes][:3] == ["diff", "review-correctness", "review-risk"]


def test_duplicates_are_merged_what_is_not_shown_is_dropped_and_the_verdict_follows(review: Any) -> None:
    result = review({
        "review-correctness": found(RACE, UNSHOWN), "review-risk": found(RACE | {"title": "race!"}, TYPO),
        "synthesis": summed(),
    })  # fmt: skip
    outcome = Review.model_validate(result.output)
    assert [(one.title, one.found_by) for one in outcome.findings] == [
        ("Race", ["correctness", "risk"]),
        ("Typo", ["risk"]),
    ]
    assert [(one.title, one.reason) for one in outcome.dropped] == [("Slow", "no evidence")]
    assert (outcome.verdict, outcome.summary, outcome.files) == ("changes_requested", "Repair it.", ["b.py"])
    for said in ("**changes requested**", "## 1. Race", "`b.py:1`, major, score 15", "> b = 2 is", "- Slow (`b.py`)"):
        assert said in outcome.report
    assert [node.name for node in result.nodes] == ["diff", "review-correctness", "review-risk", "synthesis"]


def test_what_the_synthesis_rejects_stays_in_the_report(review: Any) -> None:
    result = review({"review-*": found(RACE), "synthesis": summed("Fine.", (1, "one writer only"))})
    outcome = Review.model_validate(result.output)
    assert (outcome.verdict, outcome.findings) == ("approved", [])
    assert "- Race (`b.py`): one writer only" in outcome.report


def test_without_findings_nobody_is_asked_to_sum_up(review: Any) -> None:
    result = review({"review-*": found()})
    assert result.output["verdict"] == "approved"
    assert "synthesis" not in [node.name for node in result.nodes]


def test_a_reviewer_without_a_usable_answer_is_named_and_nothing_is_approved(review: Any) -> None:
    result = review({"review-correctness": found(), "review-risk": {"value": {"findings": "many"}}})
    outcome = Review.model_validate(result.output)
    assert (result.status, outcome.verdict) == ("completed", "incomplete")
    assert outcome.silent[0].startswith("reviewer risk gave no usable answer: ")
    assert outcome.silent[0] in outcome.report


def test_when_no_reviewer_answers_the_run_fails_and_may_be_resumed(review: Any) -> None:
    result = review({"review-*": {"fail": {"code": "rate_limited", "message": "later"}}})
    assert (result.status, result.error) == ("blocked", "rate_limited: later")
    assert review({"review-*": {"value": 1}}, focus=["risk"]).status == "failed"


def test_without_a_synthesis_the_findings_stand_as_they_are(review: Any) -> None:
    outcome = review({"review-*": found(TYPO), "synthesis": {"fail": {"code": "refused"}}}).output
    assert [one["title"] for one in outcome["findings"]] == ["Typo"]
    assert outcome["verdict"] == "incomplete"
    assert "the synthesis gave no usable answer" in outcome["report"]


def test_a_person_may_accept(review: Any) -> None:
    result = review({"review-*": found(RACE)}, confirm=True, answers={"Accept this review? changes requested*": True})
    assert (result.status, result.output["accepted"]) == ("completed", True)
    assert result.nodes[-1].kind == "prompt"


def test_a_person_may_refuse_and_the_review_is_kept(review: Any) -> None:
    result = review({"review-*": found(RACE)}, confirm=True, answers={"Accept*": "no"})
    assert (result.status, result.reason) == ("skipped", "The review was not accepted.")
    assert (result.output["accepted"], result.output["verdict"]) == (False, "changes_requested")


def test_an_empty_range_has_nothing_to_review(review: Any) -> None:
    result = review(target="HEAD..HEAD", confirm=True)
    assert (result.status, result.output["verdict"], result.output["files"]) == ("completed", "approved", [])
    assert "Nothing to review" in result.output["report"]
    assert [node.name for node in result.nodes] == ["diff"]


def test_what_cannot_be_read_fails_the_diff_and_says_why(review: Any) -> None:
    result = review(target="HEAD~7..HEAD")
    assert result.status == "failed"
    assert "There is no commit HEAD~7" in result.error
    outside = rehearse(review_changes)
    assert outside.status == "failed"
    assert "not a git repository" in outside.error


def test_each_focus_is_one_reviewer_whose_stage_bears_its_name(review: Any) -> None:
    result = review({"review-*": found()}, focus=["API design", "api-design", "Größe"])
    assert [node.name for node in result.nodes] == ["diff", "review-api-design", "review-größe"]


def test_a_focus_that_names_nothing_is_refused(review: Any) -> None:
    assert "letter or digit" in review(focus=["!"]).error
    with pytest.raises(InputInvalid, match="focus"):
        review(focus=[])


def test_reviewers_take_turns_with_agents_and_models(review: Any, tmp_path: Path) -> None:
    focus = ["correctness", "risk", "style"]
    result = review({"review-*": found()}, focus=focus, models=["claude", "a/b"], database=tmp_path / "kept.db")

    async def asked() -> list[tuple[str, str, str]]:
        database = open_database(tmp_path / "kept.db", create=False)
        try:
            tree = fold(await Journal(database).load(result.run_id))
        finally:
            await database.close()
        return [(node.name, node.agent, node.model) for node in tree.nodes() if node.kind == "stage"]

    assert asyncio.run(asked()) == [
        ("review-correctness", "claude", ""),
        ("review-risk", "rehearsal", "a/b"),
        ("review-style", "claude", ""),
    ]


def test_a_resume_asks_every_reviewer_again_that_failed(repository: Repository, tmp_path: Path) -> None:
    failing = {"fail": {"code": "rate_limited", "message": "later"}}
    script = load_script({"review-*": [failing, found()]})
    agent = RehearsalAgent("rehearsal", 0, script)
    options = RunOptions(cwd=repository.folder, agent="rehearsal")

    async def twice() -> list[Any]:
        database = open_database(tmp_path / "runs.db")
        config = Config(config_dir=tmp_path, data_dir=tmp_path, database="")
        try:
            async with Engine(database, config, agents=lambda _: agent) as engine:
                first = await engine.start(review_changes, review_changes.validate_inputs({}), options)
                endings = [await first.wait()]
                endings.append(await (await engine.resume(first.run_id, review_changes, options)).wait())
        finally:
            await database.close()
        return endings

    with asyncio.Runner(loop_factory=LaneLoop) as runner:
        blocked, resumed = runner.run(twice())
    assert (blocked.status, resumed.status, resumed.replayed) == ("blocked", "completed", 1)  # the diff is read once
    assert (resumed.value["verdict"], resumed.value["silent"]) == ("approved", [])


def test_prompts_say_what_is_wanted_before_and_after_the_change() -> None:
    change = Change(base="b" * 40, head="h" * 40, subjects=["Add b"], files=["b.py"], stat="", diff="+b = 2\n" * 9)
    prompt = review_prompt("risk", change)
    before, rest = prompt.split("<change>", 1)
    _, after = rest.split("</change>", 1)
    assert "Review this change for risk" in before
    assert len(before) < 300  # characters: a small model sees some of the change after them
    assert "severity (blocker, major or minor)" in after
    told = synthesis_prompt(merge({"risk": [Finding.model_validate(RACE)]}), change)
    assert "1. [major, score 15] b.py:1: Race" in told
    assert "git diff bbbbbbbbbb hhhhhhhhhh" in told


def test_a_person_is_asked_in_a_few_lines() -> None:
    findings = merge({"risk": [Finding.model_validate(RACE | {"title": f"Race {n}"}) for n in range(9)]})
    outcome = Review(
        verdict="changes_requested", target="a..b", files=[], findings=findings, dropped=[], silent=["reviewer x: -"],
        summary="Much\nto do.",
    )  # fmt: skip
    lines = brief(outcome).splitlines()
    assert lines[:3] == ["changes requested, findings: 9", "Much to do.", "- major, b.py:1: Race 0"]
    assert lines[-2:] == ["- and 4 more", "reviewer x: -"]
    assert one_line("a \n b" * 3, 4) == "a ba..."
