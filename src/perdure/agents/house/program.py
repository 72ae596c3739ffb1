"""`perdure agent` as a program: from its flags to a served connection."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

from perdure.agents.house.candidate import parse_candidates
from perdure.agents.house.loop import STEPS_MAX
from perdure.agents.house.model import Endpoint, build_model
from perdure.agents.house.permission import Mode
from perdure.agents.house.serving import Serving
from perdure.agents.house.session import Setup
from perdure.errors import UsageError
from perdure.host.processes import FRAME_BYTES_MAX, environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line says. `api_key` is the name of a variable, never a key."""

    models: Sequence[str]
    sessions: Path
    base_url: str = ""
    api_key: str = ""
    mode: Mode = "ask"
    shell_env: Sequence[str] = ()
    steps_max: int = STEPS_MAX


def set_up(flags: Flags) -> Setup:
    """What the sessions have in common. Raises UsageError."""
    candidates = parse_candidates(flags.models)
    if not candidates:
        raise UsageError("perdure agent needs --model provider/model, such as --model openai/gpt-5.2.")
    if flags.api_key and flags.api_key not in os.environ:
        raise UsageError(
            f"The variable {flags.api_key}, which should hold the API key, is not set.", variable=flags.api_key
        )
    key = os.environ[flags.api_key] if flags.api_key else ""
    endpoint = Endpoint(candidates[0].provider, flags.base_url, key)
    return Setup(
        candidates=candidates,
        build=lambda candidate: build_model(candidate, endpoint),
        folder=flags.sessions,
        mode=flags.mode,
        steps_max=flags.steps_max,
        environment=environment(flags.shell_env),
    )


async def serve(setup: Setup) -> None:
    """Speak ACP on standard input and output until the input ends or TERM comes; nothing is left running then."""
    if not (_is_channel(sys.stdin) and _is_channel(sys.stdout)):
        raise UsageError("perdure agent speaks to a program: its standard input and output must be pipes.")
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "wb", 0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not come between the frames
    reader, writer = await _streams(wire)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reader.feed_eof)
    try:
        await Serving(setup).serve(reader, writer)
    finally:
        writer.close()


def _is_channel(stream: TextIO) -> bool:
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()


async def _streams(wire: BinaryIO) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=FRAME_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), wire
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
