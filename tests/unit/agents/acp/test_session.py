"""One session with the bed's agent: what it may do in the stage's folder, what is heard of it, how it is reopened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from perdure.agents.acp.session import AcpSession
from perdure.agents.session import PermissionAsked, PermissionChosen, Turn, TurnUsage
from perdure.errors import AgentError, AgentProtocolError, AgentUnavailable
from perdure.failures import classify
from tests.bed.acp import Bed


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


class Tools:
    """Engine tools that nobody serves."""

    result: Any = UNSET
    answered = False

    def __init__(self, by_http: bool = True) -> None:
        self.by_http = by_http

    def stdio(self) -> tuple[list[str], dict[str, str]]:
        return ["perdure", "bridge"], {"TOKEN": "of-the-command"}

    def http(self) -> tuple[str, dict[str, str]] | None:
        return ("http://127.0.0.1:1/mcp", {"Authorization": "of-the-server"}) if self.by_http else None

    def begin_turn(self) -> None:
        pass


def test_the_agent_reads_and_writes_files_inside_the_folder(bed: Bed) -> None:
    assert bed.say("WRITE deep/er/a.txt some text") == "Written."
    assert (bed.cwd / "deep/er/a.txt").read_text() == "some text"
    bed.scratch = bed.scratch / "two"
    assert bed.say(f"READ {bed.cwd}/deep/er/a.txt") == "some text"


def test_the_agent_writes_nothing_outside_the_folder(bed: Bed) -> None:
    assert "is outside the stage's folder" in bed.say("WRITE ../b.txt no")
    assert not (bed.cwd.parent / "b.txt").exists()


def test_the_agent_runs_commands_in_the_folder(bed: Bed) -> None:
    assert bed.say("RUN pwd; echo complaint >&2; exit 3") == f"3: {bed.cwd}\ncomplaint"


def test_plan_thoughts_tool_calls_diffs_usage_and_the_unknown_are_all_heard(bed: Bed) -> None:
    async def scenario(session: AcpSession) -> Turn:
        return await session.prompt("PLAN")

    turn = bed.play(scenario)
    assert bed.kinds() == [
        "plan", "thought", "text", "tool_call", "tool_call", "tool_result", "usage", "note", "text",
    ]  # fmt: skip
    assert turn.text == "Done in mode auto with small."
    assert turn.usage == TurnUsage(tokens_in=25, tokens_out=5, cost_nanos=500_000_000)


def test_a_message_after_the_end_of_its_turn_is_waited_for(bed: Bed) -> None:
    assert bed.say("LATE") == "better late"


def test_a_turn_without_a_message_has_no_text(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.agents.acp.session.LATE_SECONDS", 0.01)
    assert bed.say("SILENT") == ""


def test_an_error_of_the_agent_is_told_with_its_reason(bed: Bed) -> None:
    with pytest.raises(AgentError, match="Internal error: the model is overloaded") as caught:
        bed.say("REFUSE the model is overloaded")
    assert classify(caught.value, "provider").code == "provider_unavailable"


@pytest.mark.parametrize(
    ("policy", "path", "chosen", "note"),
    [
        ("allow", "a.txt", "yes", "Allowed: edit a.txt"),
        ("allow", "/etc/passwd", "no", "Denied: edit /etc/passwd"),
        ("deny", "a.txt", "no", "Denied: edit a.txt"),
        ("ask", "a.txt", "no", "Denied: edit a.txt"),
    ],
)
def test_permission_follows_the_policy_where_nobody_can_be_asked(
    bed: Bed, policy: str, path: str, chosen: str, note: str
) -> None:
    assert bed.say(f"MAY {path}", permissions=policy) == f"Chosen: {chosen}"
    assert bed.notes() == [note]


def test_a_question_that_only_names_a_tool_call_is_about_what_was_told_of_it(bed: Bed) -> None:
    assert bed.say("MAY TERSE /etc/passwd") == "Chosen: no"
    assert bed.notes() == ["Denied: edit it"]


def test_a_person_is_asked_and_decides(bed: Bed) -> None:
    asked: list[PermissionAsked] = []

    async def permit(question: PermissionAsked) -> PermissionChosen:
        asked.append(question)
        return PermissionChosen("yes")

    assert bed.say("MAY a.txt", permissions="ask", spec={"permit": permit}) == "Chosen: yes"
    assert (asked[0].title, asked[0].kind, asked[0].paths) == ("edit a.txt", "edit", ("a.txt",))
    assert bed.notes() == ["A person chose 'Yes': edit a.txt"]


def test_a_question_to_a_person_is_off_when_the_turn_is_cancelled(bed: Bed) -> None:
    async def scenario(session: AcpSession) -> str:
        prompt = asyncio.create_task(session.prompt("MAY a.txt"))
        await asked.wait()
        await session.cancel()
        return (await prompt).stop

    async def permit(_question: PermissionAsked) -> PermissionChosen:
        asked.set()
        return await asyncio.get_running_loop().create_future()

    asked = asyncio.Event()
    assert bed.play(scenario, permissions="ask", spec={"permit": permit}) == "cancelled"
    (answer,) = [frame for frame in bed.frames("out") if "outcome" in str(frame.get("result"))]
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_a_session_is_reopened_by_its_id_without_telling_its_past_again(bed: Bed, more: tuple[str, ...]) -> None:
    state = str(bed.scratch / "state")

    async def first(session: AcpSession) -> str:
        await session.prompt("Remember the blue door.")
        return session.session_id

    session_id = bed.play(first, "--state", state)
    bed.heard.clear()
    bed.scratch = bed.scratch / "again"

    async def second(session: AcpSession) -> str:
        assert session.session_id == session_id
        assert bed.heard == []
        return (await session.prompt("Go on.")).text

    assert bed.play(second, "--state", state, *more, spec={"reopen_id": session_id}) == "You said: Go on."
    called = [frame["method"] for frame in bed.frames("out")]
    assert called[1] == ("session/resume" if more else "session/load")


def test_a_session_that_nobody_knows_is_not_silently_a_new_one(bed: Bed) -> None:
    with pytest.raises(AgentError, match="Resource not found"):
        bed.say("Go on.", "--state", str(bed.scratch), spec={"reopen_id": "bed-0-0"})


def test_an_agent_that_keeps_no_sessions_says_so(bed: Bed) -> None:
    with pytest.raises(AgentUnavailable, match="cannot go on with a session"):
        bed.say("Go on.", spec={"reopen_id": "bed-0-0"})


def test_the_mode_is_pinned_and_the_model_chosen(bed: Bed) -> None:
    assert "mode default with maker/large" in bed.say("PLAN", "--modes", "--models", mode="default", model="large")


def test_a_mode_and_a_model_that_cannot_be_set_are_told(bed: Bed) -> None:
    bed.say("PLAN", mode="default", spec={"model": "maker/large"})
    assert bed.notes()[:2] == [
        "The agent offers no mode default (it offers none); it stays as it is.",
        "The agent takes no model over the protocol; maker/large is not passed on.",
    ]


def test_a_model_that_is_not_on_offer_is_refused_with_those_that_are(bed: Bed) -> None:
    with pytest.raises(AgentError, match="It offers: maker/small, maker/large") as caught:
        bed.say("Hello.", "--models", spec={"model": "maker/huge"})
    assert classify(caught.value, "provider").code == "unknown_model"


def test_an_agent_that_wants_a_login_is_told_apart(bed: Bed) -> None:
    with pytest.raises(AgentError, match="Authentication required") as caught:
        bed.say("Hello.", "--login")
    assert classify(caught.value, "provider").code == "login_required"


def test_the_way_to_authenticate_in_the_settings_is_used(bed: Bed) -> None:
    assert bed.say("Hello.", "--login", auth="key") == "You said: Hello."


def test_another_version_of_the_protocol_is_refused(bed: Bed) -> None:
    with pytest.raises(AgentProtocolError, match=r"speaks version 2 .* perdure speaks 1"):
        bed.say("Hello.", "--version", "2")


@pytest.mark.parametrize(
    ("more", "by_http", "expected"),
    [
        ((), True, {"command": "perdure", "args": ["bridge"]}),
        (("--http",), True, {"type": "http", "url": "http://127.0.0.1:1/mcp"}),
        (("--http",), False, {"command": "perdure", "args": ["bridge"]}),
    ],
)
def test_the_engines_tools_are_given_as_the_agent_takes_them_and_their_token_is_not_kept(
    bed: Bed, more: tuple[str, ...], by_http: bool, expected: dict[str, Any]
) -> None:
    bed.say("Hello.", *more, spec={"tools": Tools(by_http)})
    (opened,) = [frame for frame in bed.frames("out") if frame["method"] == "session/new"]
    (server,) = opened["params"]["mcpServers"]
    secret = "headers" if "type" in expected else "env"
    assert server == {"name": "perdure", **expected, secret: "[redacted]"}
    assert b"of-the-" not in b"".join(path.read_bytes() for path in bed.scratch.glob("acp-*"))


def test_the_agent_sees_only_the_variables_it_is_given(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEN", "1")
    monkeypatch.setenv("UNSEEN", "2")
    answer = bed.say("RUN env", env=["SEEN"], set={"GIVEN": "{folder}/x"})
    assert "SEEN=1" in answer
    assert f"GIVEN={bed.scratch}/agent/x" in answer
    assert "UNSEEN" not in answer
