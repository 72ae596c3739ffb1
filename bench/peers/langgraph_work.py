"""LangGraph with its SQLite saver. Run by bench/peers/versus.py in LangGraph's environment.

Steps and workflows are graphs with durability="sync": a checkpoint is written before the next node starts. Replay is
the functional API, the one that runs a body again and skips finished tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

FOLDER, IS_FULL = Path(sys.argv[1]), sys.argv[2] == "full"
STEPS, WORKFLOWS = (1000, 400) if IS_FULL else (300, 100)
IN_FLIGHT = 50


class State(TypedDict):
    x: int


async def echo(state: State) -> State:
    return {"x": state["x"] + 1}


def loop_graph(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("echo", echo)
    graph.add_edge(START, "echo")
    graph.add_conditional_edges("echo", lambda state: END if state["x"] >= STEPS else "echo")
    return graph.compile(checkpointer=saver)


def three_graph(saver: Any) -> Any:
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, echo)
    for source, target in ((START, "a"), ("a", "b"), ("b", "c"), ("c", END)):
        graph.add_edge(source, target)
    return graph.compile(checkpointer=saver)


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}, "recursion_limit": STEPS + 10}


async def sequential(saver: Any) -> float:
    graph = loop_graph(saver)
    began = time.perf_counter()
    await graph.ainvoke({"x": 0}, thread("sequential"), durability="sync")
    return STEPS / (time.perf_counter() - began)


async def workflows(saver: Any) -> float:
    graph, names = three_graph(saver), iter(range(WORKFLOWS))

    async def caller() -> None:
        for name in names:
            await graph.ainvoke({"x": 0}, thread(f"three-{name}"), durability="sync")

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return WORKFLOWS / (time.perf_counter() - began)


async def replay_us(saver: Any) -> float:
    reached = 0.0

    @task
    async def work(x: int) -> int:
        return x

    @entrypoint(checkpointer=saver)
    async def body(steps: int) -> int:
        nonlocal reached
        for n in range(steps):
            await work(n)
        reached = time.perf_counter()
        interrupt("stop")
        return steps

    await body.ainvoke(STEPS, thread("replay"), durability="sync")
    began = time.perf_counter()
    await body.ainvoke(Command(resume=True), thread("replay"), durability="sync")
    return (reached - began) / STEPS * 1e6


async def main() -> None:
    async with AsyncSqliteSaver.from_conn_string(str(FOLDER / "langgraph.db")) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous = FULL")
        figures = {
            "sequential steps": await sequential(saver),
            "three-step workflows, 50 in flight": await workflows(saver),
            "replay of a step": await replay_us(saver),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
