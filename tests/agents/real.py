"""The real agents under test: how each is pointed at the stand-in model, and what each can do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.agents.installed import NotInstalled, path_of
from tests.bed.model_server import ModelServer

KEY = "STAND_IN_KEY"  # the variable with the key, whose value the stand-in does not look at


@dataclass(frozen=True)
class Real:
    """One agent. `asks`: whether its profile leaves it in a mode in which it asks for permission."""

    name: str
    api: str = "openai"
    asks: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def path(self) -> str:
        """A PATH that has it. Raises NotInstalled."""
        if self.name != "house":
            return path_of(self.name)
        if missing := [name for name in ("pydantic_ai", "openai") if find_spec(name) is None]:
            raise NotInstalled(f"the extra [house] is not installed: {', '.join(missing)} missing")
        return os.environ["PATH"]

    def pointed_at(self, model: ModelServer, **more: Any) -> dict[str, Any]:
        """Its settings, as in a configuration."""
        if self.name == "house":
            return {"kind": "house", "model": "openai/stand-in", "base_url": model.base_url, "api_key": KEY, **more}
        url = model.url if self.api == "anthropic" else model.base_url
        endpoint = {"base_url": url, "api": self.api, "key": KEY}
        return {"kind": "acp", "endpoint": endpoint, **self.settings, **more}


REAL = {
    "opencode": Real("opencode", settings={"set": {"OPENCODE_DISABLE_MODELS_FETCH": "1"}}),
    "claude": Real("claude", api="anthropic"),
    "codex": Real("codex", asks=False),
    "house": Real("house"),
}


def keep_offline(home: Path) -> None:
    """What an agent would fetch by itself, plugins for instance, it does not get."""
    (home / ".npmrc").write_text("offline=true\nregistry=http://127.0.0.1:9/\nfetch-retries=0\n")


def processes_of(home: Path) -> list[int]:
    """Processes that were given this home folder; an agent that was, and all it started, is among them."""
    wanted = f"HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # gone, or not ours
            continue
    return found
