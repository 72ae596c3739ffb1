"""The JSON-RPC peer over a pair of streams in memory: order, requests both ways, and the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.agents.acp.peer import NOISE_LINES_MAX, REQUESTS_MAX, Peer, PeerLost, Refused


class Writer:
    """The half of a stream that the peer writes to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.transport = self

    def write(self, line: bytes) -> None:
        self.sent.append(json.loads(line))

    def get_write_buffer_size(self) -> int:
        return 0


class Listener:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.gate = asyncio.Event()

    def notified(self, method: str, params: Any) -> None:
        if method == "break":
            raise ZeroDivisionError("by zero")
        self.told.append(method)

    async def requested(self, method: str, params: Any) -> Any:
        if method == "wait":
            await self.gate.wait()
        if method == "refuse":
            raise Refused(-32601, "no such thing")
        if method == "break":
            raise ZeroDivisionError("by zero")
        return {"did": method}


class Bed:
    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=1024 * 1024)
        self.writer, self.listener = Writer(), Listener()
        self.seen: list[tuple[str, bytes]] = []
        self.peer = Peer(self.writer, lambda way, line: self.seen.append((way, line)), self.listener)  # type: ignore[arg-type]
        self.reading = asyncio.create_task(self.peer.read(self.reader))

    def arrive(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.reader.feed_data(line + b"\n")

    async def quiet(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        self.reader.feed_eof()
        await self.reading
        await self.peer.settle()


def play(scenario: Callable[[Bed], Awaitable[None]]) -> None:
    async def main() -> None:
        bed = Bed()
        await scenario(bed)
        await bed.end()

    asyncio.run(main())


def test_an_answer_reaches_its_request_and_an_error_too() -> None:
    async def scenario(bed: Bed) -> None:
        one, two = bed.peer.request("one", {}), bed.peer.request("two", {})
        bed.arrive({"id": 2, "error": {"code": 5, "message": "no", "data": 7}}, {"id": 1, "result": 3})
        assert await one == 3
        with pytest.raises(Refused) as caught:
            await two
        assert (caught.value.rpc_code, caught.value.message, caught.value.data) == (5, "no", 7)

    play(scenario)


def test_every_notification_before_an_answer_is_taken_in_before_the_answer() -> None:
    async def scenario(bed: Bed) -> None:
        answer = bed.peer.request("one", {})
        bed.arrive(*({"method": f"n{i}"} for i in range(100)), {"id": 1, "result": None}, {"method": "after"})
        answer.add_done_callback(lambda _: seen.append(list(bed.listener.told)))
        await answer
        assert bed.listener.told[:100] == [f"n{i}" for i in range(100)]

    seen: list[Any] = []
    play(scenario)


def test_what_passes_is_shown_in_its_order_before_it_is_acted_on() -> None:
    async def scenario(bed: Bed) -> None:
        bed.arrive(b'{"method": "a"}', b"noise", b'{"id": 9, "method": "b"}')
        await bed.quiet()
        assert [way for way, _line in bed.seen] == ["in", "noise", "in", "out"]
        assert bed.seen[0][1] == b'{"method": "a"}\n'

    play(scenario)


def test_requests_are_answered_side_by_side_and_refusals_carry_their_code() -> None:
    async def scenario(bed: Bed) -> None:
        bed.arrive({"id": "x", "method": "wait"}, {"id": 2, "method": "go"}, {"id": 3, "method": "refuse"})
        await bed.quiet()
        assert bed.writer.sent == [
            {"jsonrpc": "2.0", "id": 2, "result": {"did": "go"}},
            {"jsonrpc": "2.0", "id": 3, "error": {"code": -32601, "message": "no such thing"}},
        ]
        bed.listener.gate.set()
        await bed.quiet()
        assert bed.writer.sent[-1]["id"] == "x"

    play(scenario)


def test_requests_at_once_are_bounded() -> None:
    async def scenario(bed: Bed) -> None:
        bed.arrive(*({"id": i, "method": "wait"} for i in range(REQUESTS_MAX + 1)))
        await bed.quiet()
        (refused,) = bed.writer.sent
        assert refused["id"] == REQUESTS_MAX
        assert "at once" in refused["error"]["message"]
        bed.listener.gate.set()

    play(scenario)


def test_dropped_requests_are_answered_with_an_error() -> None:
    async def scenario(bed: Bed) -> None:
        bed.arrive({"id": 1, "method": "wait"})
        await bed.quiet()
        bed.peer.drop_requests()
        await bed.quiet()
        assert bed.writer.sent[0]["error"]["message"] == "The turn was cancelled."

    play(scenario)


def test_the_end_of_the_stream_fails_whatever_waits_and_whatever_comes_later() -> None:
    async def scenario(bed: Bed) -> None:
        waiting = bed.peer.request("one", {})
        await bed.end()
        for future in (waiting, bed.peer.request("two", {})):
            with pytest.raises(PeerLost, match="closed its output"):
                await future

    play(scenario)


def test_a_line_that_is_too_long_ends_the_connection() -> None:
    async def scenario(bed: Bed) -> None:
        waiting = bed.peer.request("one", {})
        bed.reader.feed_data(b"x" * (3 * 1024 * 1024))
        with pytest.raises(PeerLost, match="too long"):
            await waiting

    play(scenario)


def test_some_noise_is_passed_over_and_too_much_ends_the_connection() -> None:
    async def scenario(bed: Bed) -> None:
        waiting = bed.peer.request("one", {})
        bed.arrive(*([b"noise"] * NOISE_LINES_MAX))
        await bed.quiet()
        assert bed.peer.lost is None
        bed.arrive(b"[1, 2]")
        with pytest.raises(PeerLost, match="not of the protocol"):
            await waiting

    play(scenario)


@pytest.mark.parametrize(
    "line",
    [b"null", b"1", b'"x"', b"{}", b"{", b"\xff\xfe", b"", b'{"id": 77, "result": 1}', b'{"id": null, "result": 1}',
     b'{"id": true, "result": 1}', b'{"method": 3}', b'{"id": [1], "method": null}', b"[" * 100_000],
)  # fmt: skip
def test_no_line_breaks_the_peer(line: bytes) -> None:
    async def scenario(bed: Bed) -> None:
        answer = bed.peer.request("one", {})
        bed.arrive(line, {"id": 1, "result": "still here"})
        assert await answer == "still here"

    play(scenario)


def test_half_a_surrogate_pair_in_an_answer_is_replaced() -> None:
    async def scenario(bed: Bed) -> None:
        answer = bed.peer.request("one", {})
        bed.arrive(b'{"id": 1, "result": "a\\ud800b"}')
        assert await answer == "a?b"

    play(scenario)


def test_an_answer_that_comes_after_its_caller_left_is_dropped() -> None:
    async def scenario(bed: Bed) -> None:
        bed.peer.request("one", {}).cancel()
        bed.arrive({"id": 1, "result": 1}, {"method": "after"})
        await bed.quiet()
        assert bed.listener.told == ["after"]

    play(scenario)


def test_a_failure_of_ours_never_leaves_the_other_side_or_a_caller_waiting() -> None:
    async def scenario(bed: Bed) -> None:
        waiting = bed.peer.request("one", {})
        bed.arrive({"id": 1, "method": "break"})
        await bed.quiet()
        assert bed.writer.sent[-1]["error"]["message"] == "ZeroDivisionError: by zero"
        bed.arrive({"method": "break"})
        with pytest.raises(PeerLost, match="ZeroDivisionError"):
            await waiting

    play(scenario)
