"""Who decides what an agent may do, over every policy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.agents.acp import permissions
from perdure.agents.acp.peer import Refused
from perdure.agents.session import PermissionAsked, PermissionChosen

YES = {"optionId": "y", "name": "Yes", "kind": "allow_once"}
ALWAYS = {"optionId": "a", "name": "Always", "kind": "allow_always"}
NO = {"optionId": "n", "name": "No", "kind": "reject_once"}


def asked(*options: dict[str, Any], **call: Any) -> dict[str, Any]:
    return {"sessionId": "s", "toolCall": {"toolCallId": "c", **call}, "options": list(options or (ALWAYS, YES, NO))}


def decided(params: Any, policy: Any, cwd: Path, permit: Any = None) -> str:
    result, _line = asyncio.run(permissions.answer(params, policy, cwd, permit))
    return result["outcome"].get("optionId", result["outcome"]["outcome"])


async def person(question: PermissionAsked) -> PermissionChosen:
    return PermissionChosen("a")


async def nobody(question: PermissionAsked) -> PermissionChosen:
    return PermissionChosen(None)


def test_allow_allows_once_inside_the_folder(tmp_path: Path) -> None:
    inside = [{"path": str(tmp_path / "a.txt")}]
    assert decided(asked(kind="edit", locations=inside), "allow", tmp_path) == "y"
    assert decided(asked(kind="execute"), "allow", tmp_path) == "y"


def test_allow_sends_what_leads_outside_to_a_person(tmp_path: Path) -> None:
    outside = asked(kind="edit", content=[{"type": "diff", "path": "/etc/hosts", "newText": ""}])
    assert decided(outside, "allow", tmp_path) == "n"
    assert decided(outside, "allow", tmp_path, person) == "a"


def test_deny_asks_nobody(tmp_path: Path) -> None:
    assert decided(asked(kind="edit"), "deny", tmp_path, person) == "n"


def test_ask_asks_a_person_and_takes_an_answer_that_was_offered(tmp_path: Path) -> None:
    assert decided(asked(kind="edit"), "ask", tmp_path, person) == "a"
    assert decided(asked(YES, NO, kind="edit"), "ask", tmp_path, person) == "cancelled"
    assert decided(asked(kind="edit"), "ask", tmp_path, nobody) == "cancelled"
    assert decided(asked(kind="edit"), "ask", tmp_path) == "n"


@pytest.mark.parametrize(
    "title", ["perdure_result", "mcp__perdure__perdure_ask", "perdure.perdure_intercom", "perdure_result (perdure)"]
)
@pytest.mark.parametrize("policy", ["allow", "ask", "deny"])
def test_the_engines_own_tools_are_always_allowed(tmp_path: Path, title: str, policy: str) -> None:
    assert decided(asked(title=title), policy, tmp_path) == "y"


@pytest.mark.parametrize(
    "call",
    [
        {"title": "echo perdure_result", "kind": "execute"},
        {"title": "perdure_result.txt", "kind": "edit"},
        {"title": "perdure_results"},
        {"title": "my_perdure_resulting"},
    ],
)
def test_nothing_passes_by_looking_like_one_of_them(tmp_path: Path, call: dict[str, Any]) -> None:
    assert decided(asked(**call), "deny", tmp_path) == "n"


def test_a_question_without_the_fitting_option_is_called_off(tmp_path: Path) -> None:
    assert decided(asked(YES), "deny", tmp_path) == "cancelled"
    assert decided(asked(NO), "allow", tmp_path) == "cancelled"


@pytest.mark.parametrize("params", [None, {}, {"toolCall": {}, "options": []}, {"toolCall": {}, "options": [{}]}])
def test_what_is_no_question_is_refused(tmp_path: Path, params: Any) -> None:
    with pytest.raises(Refused):
        decided(params, "allow", tmp_path)
