"""Who belongs to a group: by its number while the leader is ours, by the mark always, and never by accident."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.host.census import MARK, Group, mark_of, marked_with, members_of, new_mark
from perdure.host.identity import here, identity_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
MARKED = "7-7-census"


def start(env: dict[str, str], **more: object) -> subprocess.Popen[bytes]:
    """A process that is past its exec (so that its environment is its own) and waits for its input's end."""
    child = subprocess.Popen(
        ["sh", "-c", "echo up; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **env},
        **more,  # type: ignore[call-overload]
    )
    assert child.stdout.readline() == b"up\n"
    return child


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    child = start({MARK: MARKED}, start_new_session=True)
    yield child
    child.kill()
    child.communicate()


@pytest.fixture
def group(leader: subprocess.Popen[bytes]) -> Group:
    identity = identity_of(leader.pid)
    assert identity is not None
    return Group(identity, MARKED)


def test_a_group_survives_storage(group: Group) -> None:
    assert Group.from_dict(group.to_dict()) == group


def test_a_living_leader_is_ours(group: Group) -> None:
    assert members_of(group).ours == (group.leader.pid,)


def test_a_descendant_in_a_session_of_its_own_is_found_by_the_mark(group: Group) -> None:
    stray = start({MARK: MARKED}, start_new_session=True)
    try:
        assert set(members_of(group).ours) == {group.leader.pid, stray.pid}
        assert set(marked_with("7-7-")) == {group.leader.pid, stray.pid}
    finally:
        stray.kill()
        stray.communicate()


def test_a_longer_mark_is_another_group(group: Group) -> None:
    other = start({MARK: f"{MARKED}-2"}, start_new_session=True)
    try:
        assert members_of(group).ours == (group.leader.pid,)
    finally:
        other.kill()
        other.communicate()


def test_a_group_started_inside_another_belongs_to_both(group: Group) -> None:
    inner = start({MARK: f"{MARKED}/8-8-inner"}, start_new_session=True)
    try:
        assert set(members_of(group).ours) == {group.leader.pid, inner.pid}
        assert set(marked_with("7-7-")) == {group.leader.pid, inner.pid}
        assert marked_with("8-8-") == (inner.pid,)
        assert marked_with("8-") == (inner.pid,)
        assert marked_with("inner") == ()
    finally:
        inner.kill()
        inner.communicate()


def test_a_new_mark_stands_behind_that_of_the_group_we_are_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARK, raising=False)
    assert new_mark(here()).startswith(mark_of(here()))
    monkeypatch.setenv(MARK, MARKED)
    assert new_mark(here()).startswith(f"{MARKED}/{mark_of(here())}")


def test_a_stranger_who_leads_under_a_recycled_number_is_left_alone() -> None:
    stranger = start({}, start_new_session=True)
    try:
        identity = identity_of(stranger.pid)
        assert identity is not None
        was = Group(replace(identity, start_time="1"), MARKED)
        assert not members_of(was)
    finally:
        stranger.kill()
        stranger.communicate()


def test_an_unmarked_member_without_our_leader_is_unprobeable() -> None:
    unmarked = "exec 3<&0; env -u PERDURE_GROUP sh -c 'echo up; exec cat' <&3 & exec cat"
    leader = subprocess.Popen(
        ["sh", "-c", unmarked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], MARK: MARKED},
        start_new_session=True,
    )
    assert leader.stdout is not None
    assert leader.stdin is not None
    assert leader.stdout.readline() == b"up\n"
    identity = identity_of(leader.pid)
    assert identity is not None
    group = Group(identity, MARKED)
    assert len(members_of(group).ours) == 2
    leader.kill()
    leader.wait()
    try:
        found = members_of(group)
        assert (found.ours, len(found.unprobeable)) == ((), 1)
        assert members_of(group, owned=True).ours == found.unprobeable
    finally:
        leader.stdin.close()  # the member reads the end of its input and leaves
        leader.stdout.read()
        leader.stdout.close()


def test_no_prefix_marks_nobody() -> None:
    assert marked_with("") == ()


def test_the_marks_of_two_owners_differ() -> None:
    assert not mark_of(here()).startswith(mark_of(replace(here(), pid=here().pid // 10 or 1)))
