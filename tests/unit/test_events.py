"""The closed union of events: codec, keys, refusals (spec/journal.md 2.2)."""

import msgspec
import pytest
from msgspec import Raw

from perdure import events as ev
from perdure.errors import JournalCorrupt

START = ev.NodeStarted(position="/:1", kind="tool", name="fetch", digest="h0", parents=("/:0",), lane=None)
FAILURE = ev.Failure(code="tool_failed", message="it broke", cause=ev.Failure(code="x", message="y"))
SAMPLES = [
    ev.RunStarted(name="fix", inputs=Raw(b'{"a": [1,  2]}'), options={"budget": {"max_cost": 5.0}}),
    ev.StatusChanged(status="failed", epoch=2, number=3, failure=FAILURE, failed=("/:1",), output=Raw(b"null")),
    START,
    ev.NodeStarted(position="l:0", kind="stage", name="x", digest="h", lane=ev.LaneName("l", "/", "branch"), take=2),
    ev.NodeFinished(position="/:1", status="completed", value=Raw(b"12345678901234567890123"), start=START),
    ev.NodeFinished(position="/:1", status="failed", failure=FAILURE, take=1),
    ev.NodeAbandoned(position="/:1", status="cancelled", epoch=1, reason="timeout"),
    ev.NodeJoined(position="/:2", parents=("/:0", "/:1")),
    ev.ValueRecorded(position="/:3", kind="random", digest="h", value=Raw(b"0.1")),
    ev.TimerFired(position="/:4"),
    ev.Patched(name="new-review", new=True),
    ev.AttemptFailed(position="/:1", attempt=1, failure=FAILURE, epoch=1),
    ev.SessionBound(position="/:1", agent="opencode", session_id="s1"),
    ev.UsageRecorded(position="/:1", number=1, epoch=1, tokens_in=5),
    ev.PromptAsked(position="/:5", prompt_id="p", generation=1, kind="select", message="Which?", choices=("a", "b")),
    ev.PromptAnswered(position="/:5", prompt_id="p", generation=1, value=Raw(b'"a"'), actor="ada"),
    ev.PromptReleased(position="/:5", prompt_id="p", generation=1),
]


def plain(event):
    """Comparable: two Raw values are equal when their bytes are."""
    return msgspec.json.encode([type(event).__name__, event])


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.key)
def test_an_event_comes_back_from_its_payload(event):
    again = ev.decode(ev.NAMES[type(event)], ev.encode(event))
    assert type(again) is type(event)
    assert plain(again) == plain(event)
    assert again.key == event.key


def test_every_type_has_a_sample_and_a_name_of_its_own():
    assert {type(sample) for sample in SAMPLES} == set(ev.TYPES.values())
    assert len(ev.NAMES) == len(ev.TYPES)


def test_values_keep_their_exact_text():
    [event] = [sample for sample in SAMPLES if isinstance(sample, ev.RunStarted)]
    assert bytes(ev.decode("run_started", ev.encode(event)).inputs) == b'{"a": [1,  2]}'


def test_the_keys_of_different_samples_differ():
    keys = [sample.key for sample in SAMPLES if sample.key != "f:/:1"]
    assert len(set(keys)) == len(keys)


def test_a_rerun_step_has_a_key_of_its_own():
    first = ev.NodeFinished(position="/:1", status="completed")
    second = ev.NodeFinished(position="/:1", status="completed", take=1)
    assert (first.key, second.key) == ("f:/:1", "f:/:1~1")


def test_an_unknown_type_is_corrupt():
    with pytest.raises(JournalCorrupt, match="unknown type 'stage_teleported'"):
        ev.decode("stage_teleported", "{}")


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("node_finished", "{"),
        ("node_finished", '{"position":"/:1","status":"teleported"}'),
        ("node_started", '{"position":"/:1","kind":"tool","name":"x"}'),
        ("node_started", '{"position":1,"kind":"tool","name":"x","digest":"h"}'),
    ],
)
def test_a_bad_replay_field_is_corrupt(kind, payload):
    with pytest.raises(JournalCorrupt, match="cannot be read"):
        ev.decode(kind, payload)


def test_a_field_of_a_later_release_is_ignored():
    assert ev.decode("timer_fired", '{"position":"/:4","colour":"red"}') == ev.TimerFired(position="/:4")


def test_defaults_take_no_room():
    assert ev.encode(ev.NodeFinished(position="/:1", status="completed")) == '{"position":"/:1","status":"completed"}'
