"""The text a stage's agent is given: the author's prompt and what the engine puts around it (spec/authoring.md 4).

    files to read, one line
    the author's prompt, with the results before it where `{previous}` stands, else after it
    the contract about people who speak up while the stage runs
    how to hand in the value, if the agent does not know schemas by itself

Pure text: nothing here looks at a file or a clock, so the same call gives the same prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from perdure.operations.stage_options import Previous, StageOptions
from perdure.operations.structured import RESULT_TOOL, How

EARLIER_BYTES_MAX: Final = 32 * 1024  # of an earlier exchange, told to a session that did not see it
PLACE: Final = "{previous}"
AMENDMENTS: Final = "Amendments during the run"

CONTRACT: Final = (
    "While you work a person may speak up. What they say is a requirement, as binding as this task. End your report "
    f'with the heading "{AMENDMENTS}" and repeat there what they asked; leave the heading out if nobody did.'
)
CONTINUE: Final = (
    "You were interrupted while you worked on your task, and the same session goes on now. Look at what is already "
    "done, do not do it again, finish the rest, and end with the final message you were asked for."
)


def keep_context(text: str) -> str:
    """`text` marked so that an agent's compaction keeps its lines."""
    return f"<keep-context>\n{text}\n</keep-context>"


def stage_prompt(options: StageOptions, prompt: str, how: How) -> str:
    """The first prompt of a stage. `how` says how this agent gives a value."""
    parts = []
    if options.reads:
        parts.append(f"Read these files first: {', '.join(options.reads)}")
    parts.append(_with_previous(prompt, options.previous))
    if options.steering_contract:
        parts.append(CONTRACT)
    if options.schema is not None and how != "given":
        parts.append(wanted_form(options.schema, how))
    return "\n\n".join(parts)


def continuation(options: StageOptions, how: How) -> str:
    """What a reopened session is told: never the old prompt a second time."""
    if options.schema is None or how == "given":
        return CONTINUE
    return f"{CONTINUE}\n\n{wanted_form(options.schema, how)}"


def wanted_form(schema: dict[str, Any], how: How) -> str:
    """How an agent that does not know schemas is to give its value."""
    text = json.dumps(schema, ensure_ascii=False, sort_keys=True)
    if how == "tool":
        return (
            f"When the work is done, hand in its result with the tool {RESULT_TOOL} of the MCP server perdure (it may "
            "have a prefix here), once; then end your turn. Only if you have no such tool, end with exactly one "
            f"fenced JSON block (```json ... ```) instead. The result must fit this JSON Schema:\n{text}"
        )
    return (
        "End with exactly one fenced JSON block (```json ... ```), and no other JSON block before it. "
        f"Its content must fit this JSON Schema:\n{text}"
    )


def earlier(exchanges: Sequence[tuple[str, str]]) -> str:
    """Prompts and answers of this conversation, for a session that did not see them."""
    blocks = [f"<prompt>\n{_short(asked)}\n</prompt>\n<answer>\n{_short(said)}\n</answer>" for asked, said in exchanges]
    return "What was said in this conversation so far:\n\n" + "\n".join(blocks)


def _with_previous(prompt: str, previous: Previous) -> str:
    if not previous:
        return prompt
    block = "\n".join(_block(name, text) for name, text in previous)
    return prompt.replace(PLACE, block) if PLACE in prompt else f"{prompt}\n\n{block}"


def _block(name: str, text: str) -> str:
    of = f' of="{name}"' if name else ""
    return f"<result{of}>\n{text}\n</result>"


def _short(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= EARLIER_BYTES_MAX:
        return text
    return data[:EARLIER_BYTES_MAX].decode("utf-8", "ignore") + "\n[... cut]"
