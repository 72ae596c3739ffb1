"""From the start of a process to its first durable step, and to the end of `perdure --help`."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from bench.command import Command
from bench.folders import scratch
from bench.row import Row, median_ratio


def measure(*, full: bool) -> list[Row]:
    """Milliseconds, interleaved with a bare Python."""
    bare, first, argparse, usage = [], [], [], []
    with scratch() as folder:
        perdure = Command(folder)
        for words in (("run", "tiny.py"), ("--help",)):
            perdure.run(*words)  # compiles what is imported
        for _ in range(15 if full else 7):
            bare.append(_python("pass", perdure))
            began = time.monotonic()
            perdure.run("run", "tiny.py")
            first.append(1000 * (float(perdure.stamp.read_text()) - began))
            argparse.append(_python("import argparse", perdure))
            began = time.monotonic()
            perdure.run("--help")
            usage.append(1000 * (time.monotonic() - began))
    ratio = median_ratio(usage, argparse)
    return [
        Row(
            name="cold start to the first durable step", value=median(first), unit="ms", goal=250, floor=400,
            baseline=median(bare), ratio=median_ratio(first, bare), note="against python -c pass",
        ),
        Row(
            name="perdure --help / import argparse", value=ratio, unit="x", goal=5, baseline=median(argparse),
            ratio=ratio, is_more_better=False, note=f"{median(usage):.0f} ms",
        ),
    ]  # fmt: skip


def _python(code: str, perdure: Command) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], env=perdure.environment, check=True)
    return 1000 * (time.monotonic() - began)
