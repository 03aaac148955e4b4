#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs a command while the kernel starts each program for arm64 by an emulator, so that such programs can
start others. Where the system is not set up for that (binfmt_misc), the command runs in a user namespace
that is; this takes Linux 6.7. The system itself stays as it is.

usage: emulated.py COMMAND...
Exit status: that of the command, or 77 if the kernel can start no program for arm64.
"""

import ctypes
import os
import subprocess
import sys

EMULATOR = b"/usr/bin/qemu-aarch64"
PROGRAM = ["/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", "--version"]
NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
BINFMT = "/proc/sys/fs/binfmt_misc"
# The first bytes of an executable file for arm64, and which bits of them count. P: the program gets the argv[0]
# of its caller. F: the emulator is opened now, so it is also found where a program changes its root folder.
MAGIC = rb"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
RULE = b":colls-arm64:M::" + MAGIC + b":" + MASK + b":" + EMULATOR + b":PF"

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def starts():
    """Whether the kernel starts a program for arm64."""
    try:
        return subprocess.run(PROGRAM, stdout=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def write(path, text):
    with open(path, "wb", buffering=0) as file:
        file.write(text)


def enter_users(maps):
    """Moves this process to a new user namespace; `maps` are the texts of its uid_map and its gid_map."""
    here, (end, other_end) = os.getpid(), os.pipe()
    child = os.fork()  # it stays in the old namespace, in which root may map all ids
    if child == 0:
        os.read(end, 1)
        if maps[0].split()[2:] == [b"1"]:
            write(f"/proc/{here}/setgroups", b"deny")
        for name, text in zip(["uid_map", "gid_map"], maps):
            write(f"/proc/{here}/{name}", text)
        os._exit(0)
    checked(libc.unshare(NEW_USERS))
    os.write(other_end, b"x")
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("the user ids of a namespace cannot be set")
    os.close(end)
    os.close(other_end)


def identity(name):
    """A map by which all ids keep their numbers."""
    with open(f"/proc/self/{name}", "rb") as file:
        lines = [line.split() for line in file]
    return b"".join(b"%s %s %s\n" % (first, first, count) for first, _, count in lines)


def enter_namespace():
    ids = os.geteuid(), os.getegid()
    as_root = ids[0] == 0
    enter_users([identity("uid_map"), identity("gid_map")] if as_root else [b"0 %d 1" % id for id in ids])
    checked(libc.unshare(NEW_MOUNTS))
    checked(libc.mount(b"binfmt_misc", BINFMT.encode(), b"binfmt_misc", 0, None))
    write(f"{BINFMT}/register", RULE)
    if not as_root:
        enter_users([b"%d 0 1" % id for id in ids])


def main():
    command = sys.argv[1:]
    if not starts():
        try:
            enter_namespace()
        except OSError as error:
            print(f"skipped: no binfmt_misc for arm64, and none in a user namespace ({error})")
            return 77
        if not starts():
            print("skipped: the kernel does not start programs for arm64, although it was told how")
            return 77
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
