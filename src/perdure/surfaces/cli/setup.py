"""init, new, trust, list, inputs: what there is to run, before anything runs."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from perdure.surfaces.cli import text
from perdure.surfaces.cli.commands import Parts, note_set_aside
from perdure.surfaces.cli.output import OK, Output


def init_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Write an example configuration and a first workflow; refuses to overwrite."""
    from perdure import templates

    return _report_written(templates.init(parts.cwd / arguments.folder), out, "next: perdure trust && perdure list")


def new_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Write a workflow with a test; refuses to overwrite."""
    from perdure import templates
    from perdure.trust import is_trusted

    folder = parts.config.project_dir or parts.cwd
    trust = "" if is_trusted(folder, parts.config.data_dir) else "perdure trust && "
    written = templates.new(arguments.name, folder)
    return _report_written(written, out, f"next: {trust}perdure inputs {written[0].stem.replace('_', '-')}")


def _report_written(paths: list[Path], out: Output, advice: str) -> int:
    def draw() -> None:
        for path in paths:
            out.say(f"wrote {path}")
        out.say(advice)

    out.result({"written": [str(path) for path in paths]}, draw)
    return OK


def trust_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """Trust a folder from now on."""
    from perdure.trust import trust

    folder = trust(parts.cwd / arguments.folder, parts.config.data_dir)
    out.result({"trusted": str(folder)}, lambda: out.say(f"Workflow files in {folder} may run code from now on."))
    return OK


def list_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """The workflows there are, and what is wrong with files that should hold some."""
    del arguments
    catalog = parts.catalog()
    entries = sorted(catalog.entries.values(), key=lambda entry: entry.name)
    data = {
        "workflows": [
            {"name": e.name, "description": e.description, "source": e.source, "origin": e.origin} for e in entries
        ],
        "diagnostics": [
            {"code": d.code, "path": d.path, "line": d.line, "message": d.message} for d in catalog.diagnostics
        ],
    }

    def draw() -> None:
        for line in text.wrapped_table([(e.name, e.origin, e.description) for e in entries]):
            out.say(line)
        if not entries:
            out.say("No workflows here yet. Write one: perdure new NAME")

    out.result(data, draw)
    note_set_aside(parts, out)
    for one in catalog.diagnostics:
        out.note(f"{one.code} {one.path}{f':{one.line}' if one.line else ''}: {one.message}")
    return OK


def inputs_command(parts: Parts, arguments: Namespace, out: Output) -> int:
    """What a workflow takes."""
    workflow = parts.catalog(arguments.workflow).find(arguments.workflow).load()
    fields = workflow.input_fields()

    def draw() -> None:
        out.say(out.paint(workflow.name, "bold") + (f"  {workflow.description}" if workflow.description else ""))
        rows = [(f"  {f.name}", f.type, _presence(f), f.description) for f in fields]
        for line in text.wrapped_table(rows):
            out.say(line)
        if not fields:
            out.say("  takes no inputs")
        needed = " ".join(f"{f.name}=..." for f in fields if f.required)
        out.say(f"next: perdure run {arguments.workflow} {needed}".rstrip())

    out.result({"name": workflow.name, "description": workflow.description, "schema": workflow.input_schema()}, draw)
    return OK


def _presence(field: Any) -> str:
    return "required" if field.required else f"= {json.dumps(field.default, ensure_ascii=False)}"
