#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Stops one thread of a process, as a loop that hangs (ptrace(2)), until the process or this program ends.

usage: stop-thread.py PID NAME
Prints "stopped" then."""
import ctypes
import os
import sys
import time

PID, NAME = sys.argv[1], sys.argv[2]
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207

tids = [t for t in os.listdir(f"/proc/{PID}/task") if open(f"/proc/{PID}/task/{t}/comm").read().strip() == NAME]
if len(tids) != 1:
    sys.exit(f"{len(tids)} threads are named {NAME}")
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_ulong, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
    if ptrace(request, int(tids[0]), None, None) != 0:
        sys.exit(f"ptrace: {os.strerror(ctypes.get_errno())}")
print("stopped", flush=True)
while os.path.exists(f"/proc/{PID}"):
    try:
        os.waitpid(int(tids[0]), os.WNOHANG | 0x40000000)  # __WALL: what it died of must be taken note of
    except ChildProcessError:
        break
    time.sleep(0.05)
