"""May the agent? The answer to its requests for permission, by policy.

    allow   inside the stage's folder; what names a path outside goes to a person if one can be asked, else no
    ask     a person, through the run's own questions; no if nobody can be asked
    deny    no

The engine's own tools are always allowed. An agent's permission system is a courtesy, not a boundary: many agents never
ask, and a command may do anything once it runs. The boundary is a worktree, or a sandbox around the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.agents.acp.peer import INVALID_PARAMS, Refused
from perdure.agents.acp.places import is_inside
from perdure.agents.acp.profiles import Policy
from perdure.agents.session import PermissionAsked, PermissionChosen, PermissionOption, Permit

OPTIONS_MAX: Final = 20
_KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")
_OURS: Final = re.compile(r"(?:^|[\W_])perdure_(?:result|ask|intercom)(?:$|\W)")
_ACTS: Final = frozenset({"edit", "delete", "move", "execute"})  # kinds that no tool of ours has

CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


async def answer(params: Any, policy: Policy, cwd: Path, permit: Permit | None) -> tuple[dict[str, Any], str]:
    """The result of a permission request, and a line that says what came of it. Raises Refused."""
    asked = read(params)
    verdict = _verdict(asked, policy, cwd, can_ask=permit is not None)
    if verdict != "ask":
        chosen = _first(
            asked, ("allow_once", "allow_always") if verdict == "allow" else ("reject_once", "reject_always")
        )
        result = CANCELLED if chosen is None else _selected(chosen.option_id)
        return result, f"{'Allowed' if verdict == 'allow' and chosen else 'Denied'}: {asked.title}"
    assert permit is not None
    picked: PermissionChosen = await permit(asked)
    option = next((one for one in asked.options if one.option_id == picked.option_id), None)
    if option is None:
        return CANCELLED, f"Not decided: {asked.title}"
    return _selected(option.option_id), f"A person chose {option.name!r}: {asked.title}"


def read(params: Any) -> PermissionAsked:
    """The question in a permission request. Raises Refused if it is none."""
    call = params.get("toolCall") if isinstance(params, Mapping) else None
    given = params.get("options") if isinstance(params, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(given, list):
        raise Refused(INVALID_PARAMS, "A permission request has toolCall and options.")
    options = tuple(
        PermissionOption(str(one["optionId"]), str(one.get("name") or one["optionId"]), one["kind"])
        for one in given[:OPTIONS_MAX]
        if isinstance(one, Mapping) and one.get("kind") in _KINDS and one.get("optionId")
    )
    if not options:
        raise Refused(INVALID_PARAMS, "A permission request offers options with optionId, name and kind.")
    places = call.get("locations")
    named = [place.get("path") for place in places if isinstance(place, Mapping)] if isinstance(places, list) else []
    content = call.get("content")
    blocks = content if isinstance(content, list) else []
    named += [block.get("path") for block in blocks if isinstance(block, Mapping) and block.get("type") == "diff"]
    return PermissionAsked(
        title=str(call.get("title") or call.get("toolCallId") or "a tool call"),
        kind=str(call.get("kind") or "other"),
        paths=tuple(dict.fromkeys(path for path in named if isinstance(path, str))),
        options=options,
        detail=call.get("rawInput"),
    )


def _verdict(asked: PermissionAsked, policy: Policy, cwd: Path, *, can_ask: bool) -> Policy:
    if asked.kind not in _ACTS and _OURS.search(asked.title):
        return "allow"
    if policy == "allow":
        policy = "allow" if all(is_inside(path, cwd) for path in asked.paths) else "ask"
    return "deny" if policy == "ask" and not can_ask else policy


def _first(asked: PermissionAsked, kinds: tuple[str, ...]) -> PermissionOption | None:
    return next((one for kind in kinds for one in asked.options if one.kind == kind), None)


def _selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}
