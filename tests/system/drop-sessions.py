#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs in with random ISIDs (RFC 7143, 11.12) and closes the connection at once, without logout: what unstable clients do.

usage: drop-sessions.py HOST PORT IQN COUNT
Prints "logins=N refused=N"."""
import os
import socket
import struct
import sys

HOST, PORT, IQN, COUNT = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])


def login_pdu():
    keys = {
        "InitiatorName": "iqn.2026-11.io.pms:dropper",
        "TargetName": IQN,
        "SessionType": "Normal",
        "DefaultTime2Wait": "0",
    }
    text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
    isid = b"\x80" + os.urandom(5)  # type "random"
    flags = 0x80 | 1 << 2 | 3  # transit, from the operational stage to full feature
    bhs = struct.pack(">BBBBI6sHIHHII16x", 0x43, flags, 0, 0, len(text), isid, 0, 1, 0, 0, 1, 1)
    return bhs + text + b"\0" * (-len(text) % 4)


def receive(sock, n):
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def login_and_drop():
    with socket.create_connection((HOST, PORT), timeout=10) as sock:
        sock.sendall(login_pdu())
        return struct.unpack(">H", receive(sock, 48)[36:38])[0] == 0


accepted = sum(login_and_drop() for _ in range(COUNT))
print(f"logins={accepted} refused={COUNT - accepted}")
