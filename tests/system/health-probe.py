#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Connects and goes away, COUNT times, in the ways of load balancers and monitoring: closed at once, reset at once, after a
few bytes, and (where IQN is given) after a first login request, with and without waiting for its answer.

usage: health-probe.py HOST PORT COUNT [IQN]
Prints "probes=N connected=N"."""
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

HOST, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
IQN = sys.argv[4] if len(sys.argv) > 4 else None


def first_login():
    keys = {"InitiatorName": "iqn.2026-11.io.pms:probe", "TargetName": IQN, "SessionType": "Normal", "AuthMethod": "None"}
    text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
    flags = 0  # security stage, no transit: more is to come
    bhs = struct.pack(">BBBBI6sHIHHII16x", 0x43, flags, 0, 0, len(text), b"\x80" + os.urandom(5), 0, 1, 0, 0, 1, 0)
    return bhs + text + b"\0" * (-len(text) % 4)


def probe(i):
    ways = 5 if IQN else 3
    with socket.create_connection((HOST, PORT), timeout=10) as sock:
        way = i % ways
        if way == 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way == 2:
            sock.sendall(b"\x43\0\0" if IQN else b"PM")
        elif way >= 3:
            sock.sendall(first_login())
            if way == 4:
                sock.settimeout(10)
                sock.recv(48)
        return True


with ThreadPoolExecutor(8) as pool:
    connected = sum(pool.map(probe, range(COUNT)))
print(f"probes={COUNT} connected={connected}")
