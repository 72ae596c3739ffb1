"""`perdure agent`: our own coding agent, for whoever speaks the Agent Client Protocol by standard input and output.

The engine starts it for agents of kind "house"; an editor may start it too.
"""

from __future__ import annotations

import os
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perdure.errors import ExtraMissing


async def agent_command(_parts: Any, arguments: Namespace, _out: Any) -> int:
    """Serve until the input ends; the exit code."""
    if find_spec("pydantic_ai") is None:
        raise ExtraMissing("perdure agent needs the library that talks to models: pip install 'perdure[house]'")
    from perdure.agents.house.program import Flags, serve, set_up
    from perdure.config import data_folder

    flags = Flags(
        models=arguments.model,
        sessions=Path(arguments.sessions) if arguments.sessions else data_folder(os.environ) / "house",
        base_url=arguments.base_url,
        api_key=arguments.api_key,
        mode=arguments.mode,
        shell_env=arguments.env,
        steps_max=arguments.steps_max,
    )
    await serve(set_up(flags))
    return 0
