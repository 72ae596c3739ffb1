"""The words of the command line. It imports argparse and nothing else, so `--help` costs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

_DESCRIPTION: Final = "Durable workflows of coding agents, in plain Python."
_EPILOG: Final = """\
A run survives everything: Ctrl-C, a kill, a reboot. `perdure resume RUN` goes on where it stopped.
RUN is a full run id or its first 8 or more hex digits. `perdure COMMAND --help` says more.
"""
_RUN_EPILOG: Final = """\
inputs: key=text   key:=JSON   key=@file   (perdure inputs WORKFLOW lists them)
exit codes: 0 done, 1 failed, 2 wrong use, 3 not found, 4 refused, 5 owned elsewhere, 6 storage, 7 blocked,
            8 a person must answer, 124 wait timed out, 130 interrupted (the run has quit durably)
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The parsed command line. Exits with 0 after --help, with 2 on a wrong one."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "run":  # argparse takes positionals in one piece; inputs may stand between options
        arguments.assignments += [word for word in rest if not word.startswith("-")]
        rest = [word for word in rest if word.startswith("-")]
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.command is None and not arguments.version:
        parser.print_help()
        parser.exit()
    return arguments


def build_parser() -> argparse.ArgumentParser:
    """The whole grammar; `command` names the chosen verb."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON envelope on stdout")
    common.add_argument("--database", metavar="FILE", help="the database file (default: in your data folder)")
    common.add_argument("--debug", action="store_true", help="print the traceback of an unexpected error")
    parser = argparse.ArgumentParser(
        prog="perdure",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _add_setup(verbs, common)
    _add_execution(verbs, common)
    _add_inspection(verbs, common)
    _add_control(verbs, common)
    verbs.add_parser("bridge", parents=[common], description="For agents: the engine's tools by stdio.")  # not listed
    _add_agent(verbs, common)
    return parser


_Verbs = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it


def _add_setup(verbs: _Verbs[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    init = verbs.add_parser("init", parents=[common], help="write a commented perdure.toml and a first workflow")
    init.add_argument("folder", nargs="?", default=".")
    new = verbs.add_parser("new", parents=[common], help="write a workflow with a test")
    new.add_argument("name")
    trust = verbs.add_parser("trust", parents=[common], help="trust a folder: its workflow files may run code")
    trust.add_argument("folder", nargs="?", default=".")
    verbs.add_parser("list", parents=[common], help="list workflows")
    inputs = verbs.add_parser("inputs", parents=[common], help="show what a workflow takes")
    inputs.add_argument("workflow", metavar="WORKFLOW", help="a name, or file.py[:name]")
    doctor = verbs.add_parser("doctor", parents=[common], help="which agents are ready, and what the others need")
    doctor.add_argument("agents", metavar="AGENT", nargs="*", help="only these (default: all there are)")
    doctor.add_argument("--ask", action="store_true", help="ask each a short question, which costs a few tokens")


def _add_agent(verbs: _Verbs[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    agent = verbs.add_parser(  # not listed
        "agent", parents=[common], description="perdure's own coding agent, over the Agent Client Protocol by stdio."
    )
    agent.add_argument(
        "--model", action="append", default=[], metavar="PROVIDER/ID[:EFFORT]", help="again for each fallback"
    )
    agent.add_argument("--base-url", default="", metavar="URL", help="where the first model's provider is")
    agent.add_argument("--api-key", default="", metavar="NAME", help="the variable with that provider's key")
    agent.add_argument("--sessions", metavar="FOLDER", help="where sessions are kept (default: in your data folder)")
    agent.add_argument("--mode", choices=("ask", "auto"), default="ask", help="whether to ask before acting")
    agent.add_argument("--env", action="append", default=[], metavar="NAME", help="a variable for shell commands")
    agent.add_argument("--steps-max", type=int, default=200, metavar="N", help="requests to models in one turn")


def _add_execution(verbs: _Verbs[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    run = verbs.add_parser(
        "run",
        parents=[common],
        help="start a run",
        epilog=_RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("workflow", metavar="WORKFLOW", help="a name, or file.py[:name]")
    run.add_argument("assignments", metavar="KEY=VALUE", nargs="*")
    run.add_argument("--inputs", metavar="FILE", help="inputs from a JSON file")
    resume = verbs.add_parser("resume", parents=[common], help="go on with a run that stopped")
    resume.add_argument("run", metavar="RUN")
    resume.add_argument("--owner", action="store_true", help=argparse.SUPPRESS)  # the background half of --detach
    for verb in (run, resume):
        verb.add_argument("--detach", action="store_true", help="own the run in the background and return")
        verb.add_argument("--agent", metavar="NAME", help="the agent of stages that name none")
        verb.add_argument("--no-input", action="store_true", help="fail at a question instead of waiting for a person")
        verb.add_argument("--budget", action="append", default=[], help=argparse.SUPPRESS)  # refused in words, for now
        verb.add_argument("--on-drift", choices=("stop", "rerun"), default="stop", help="when the code changed")
        verb.add_argument("--seed", type=int, default=0, help="of the rehearsal agent")


def _add_inspection(verbs: _Verbs[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    status = verbs.add_parser("status", parents=[common], help="runs and what they wait for")
    status.add_argument("run", metavar="RUN", nargs="?")
    status.add_argument("--limit", type=int, default=20, metavar="N", help="the newest N runs (default 20)")
    show = verbs.add_parser("show", parents=[common], help="one run: its graph, output and failure")
    show.add_argument("run", metavar="RUN")
    stages = verbs.add_parser("stages", parents=[common], help="the steps of a run")
    stages.add_argument("run", metavar="RUN")
    for name, text in (
        ("stage", "one step: its value or failure"),
        ("transcript", "what a stage's agent said and did"),
    ):
        verb = verbs.add_parser(name, parents=[common], help=text)
        verb.add_argument("run", metavar="RUN")
        verb.add_argument("stage", metavar="STAGE", help="a step's name or id")
    wait = verbs.add_parser("wait", parents=[common], help="wait until a run ends, is blocked, quits or asks")
    wait.add_argument("run", metavar="RUN")
    wait.add_argument("--timeout", type=float, metavar="SECONDS")


def _add_control(verbs: _Verbs[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    answer = verbs.add_parser("answer", parents=[common], help="answer a question of a run")
    answer.add_argument("run", metavar="RUN")
    answer.add_argument("prompt", metavar="QUESTION", nargs="?", help="its id; may be left out when one is open")
    answer.add_argument("value", metavar="ANSWER")
    quit_ = verbs.add_parser("quit", parents=[common], help="stop a live run durably; resume goes on")
    quit_.add_argument("run", metavar="RUN")
    delete = verbs.add_parser("delete", parents=[common], help="forget a run that nobody owns")
    delete.add_argument("run", metavar="RUN")
