#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs in with random ISIDs (RFC 7143, 11.12) and closes the connection at once, without logout: what unstable clients do.

One third waits for the answer and closes, one resets the connection after it, one closes before the last answer.

usage: drop-sessions.py HOST PORT IQN COUNT
Prints "logins=N refused=N", of those that waited for the answer."""
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

HOST, PORT, IQN, COUNT = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])


def login_pdu(isid, keys, exp_stat_sn):
    text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
    flags = 0x80 | 1 << 2 | 3  # transit, from the operational stage to full feature
    bhs = struct.pack(">BBBBI6sHIHHII16x", 0x43, flags, 0, 0, len(text), isid, 0, 1, 0, 0, 1, exp_stat_sn)
    return bhs + text + b"\0" * (-len(text) % 4)


def receive(sock, n):
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def receive_answer(sock):
    """(status, transit, StatSN) of a login answer."""
    bhs = receive(sock, 48)
    receive(sock, (int.from_bytes(bhs[5:8], "big") + 3) // 4 * 4)
    return struct.unpack(">H", bhs[36:38])[0], bool(bhs[1] & 0x80), int.from_bytes(bhs[24:28], "big")


def login_and_drop(i):
    """True: logged in, False: refused, None: not known."""
    isid = b"\x80" + os.urandom(5)  # type "random"
    keys = {"InitiatorName": "iqn.2026-11.io.pms:dropper", "TargetName": IQN, "SessionType": "Normal"}
    with socket.create_connection((HOST, PORT), timeout=10) as sock:
        sock.sendall(login_pdu(isid, keys, 0))
        status, transit, stat_sn = receive_answer(sock)
        if status == 0 and not transit:  # the target declared its keys first
            sock.sendall(login_pdu(isid, {}, stat_sn + 1))
            if i % 3 == 2:
                return None
            status, transit, stat_sn = receive_answer(sock)
        if i % 3 == 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return status == 0 and transit


with ThreadPoolExecutor(16) as pool:
    results = list(pool.map(login_and_drop, range(COUNT)))
print(f"logins={results.count(True)} refused={results.count(False)}")
