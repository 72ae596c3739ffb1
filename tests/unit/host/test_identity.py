"""Identities: the same while a process lives, gone with proof only."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

from perdure.host.identity import Identity, here, identity_of, is_gone


def test_a_living_process_has_one_identity_and_is_not_gone() -> None:
    assert identity_of(os.getpid()) == here()
    assert not is_gone(here())


def test_an_identity_survives_storage() -> None:
    assert Identity.from_dict(here().to_dict()) == here()


def test_an_ended_process_is_gone_even_as_a_zombie() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    assert identity is not None
    assert not is_gone(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead and not collected: a zombie
    assert identity_of(child.pid) is None
    assert is_gone(identity)
    child.communicate()


def test_a_recycled_pid_is_somebody_else() -> None:
    assert is_gone(replace(here(), start_time="1"))


def test_another_boot_or_namespace_proves_nothing() -> None:
    assert not is_gone(replace(here(), boot_id="another", start_time="1"))
    assert not is_gone(replace(here(), pid_namespace="pid:[1]", start_time="1"))


def test_another_boot_proves_it_where_only_this_machine_could_store_it() -> None:
    me = here()
    other = replace(me, boot_id="an earlier boot").to_text()
    assert me.proves_gone(other, one_machine=True)
    assert not me.proves_gone(other, one_machine=False)
    assert not me.proves_gone(me.to_text(), one_machine=True)
    assert not me.proves_gone("not an identity", one_machine=True)
    assert me.proves_gone(replace(me, start_time="0").to_text(), one_machine=True)
