"""Attacks on NFSv4.1: clients, sessions and opens that are made up, requests out of order, stateids of others."""

import random
import re
import struct
import time
import unittest

import attacker
from attacker import LONG, NFS, auth_sys, opaque

OK, DELAY = 0, 10008
CLID_INUSE, CONN_NOT_BOUND, CLIENTID_BUSY = 10017, 10055, 10074
BAD_STATEID, STALE_CLIENTID, BADSESSION, BADSLOT, MISORDERED = 10025, 10022, 10052, 10053, 10063
PUTFH, OPEN, CLOSE, LOCKU, READ, WRITE, GETATTR, PUTROOTFH, LOOKUP, GETFH = 22, 18, 4, 14, 25, 38, 9, 24, 15, 10
DELEGRETURN, FREE_STATEID, TEST_STATEID, RECLAIM_COMPLETE = 8, 45, 55, 58
EXCHANGE_ID, CREATE_SESSION, SEQUENCE, DESTROY_SESSION, DESTROY_CLIENTID = 42, 43, 53, 44, 57
# What a bystander is ready to wait, in seconds.
PATIENCE = 5


def op(number, arguments=b""):
    return struct.pack(">I", number) + arguments


def compound(*ops):
    return opaque(b"") + struct.pack(">II", 1, len(ops)) + b"".join(ops)


def exchange(owner, verifier=bytes(8)):
    return op(EXCHANGE_ID, verifier + opaque(owner) + struct.pack(">III", 0, 0, 0))


def creation(client, slots, sequence=1):
    fore = struct.pack(">IIIIIII", 0, 1 << 20, 1 << 20, 8192, 64, slots, 0)
    back = struct.pack(">IIIIIII", 0, 4096, 4096, 0, 2, 1, 0)
    return op(CREATE_SESSION, struct.pack(">QII", client, sequence, 0) + fore + back + struct.pack(">III", 0x40000000, 1, 0))


def open_by_name(name, owner, access=3, deny=0):
    head = struct.pack(">IIIQ", 0, access, deny, 0) + opaque(owner)
    attributes = struct.pack(">III", 2, 0, 2) + opaque(struct.pack(">I", 0o666))
    return op(OPEN, head + struct.pack(">II", 1, 0) + attributes + struct.pack(">I", 0) + opaque(name))


class Client(attacker.Client):
    """A client with sessions. Replies are matched by transaction id, so that many may be under way."""

    def compounds(self, requests):
        """Statuses and results of COMPOUNDs that are sent without waiting."""
        uses = range(len(requests))
        self.send(b"".join(attacker.record(attacker.call(NFS, 4, 1, requests[n], n, auth_sys())) for n in uses))
        replies = {}
        for _ in uses:
            reply = self.receive()
            xid, _, denied = struct.unpack(">III", reply[:12])
            assert denied == 0, reply
            replies[xid] = (struct.unpack(">I", reply[24:28])[0], reply[28:])
        return [replies[n] for n in uses]

    def compound(self, *ops):
        return self.compounds([compound(*ops)])[0]

    def introduce(self, owner):
        """The client id; a status if there is none."""
        status, body = self.compound(exchange(owner))
        return status, status == OK and struct.unpack(">Q", body[16:24])[0]

    def session(self, client, slots, sequence=1):
        status, body = self.compound(creation(client, slots, sequence))
        if status == OK:
            (self.granted,) = struct.unpack(">I", body[60:64])
        return status, status == OK and body[16:32]

    def begin(self, owner, slots=64):
        """A client with a session, and nothing to reclaim."""
        status, self.id = self.introduce(owner)
        assert status == OK, status
        status, self.session_id = self.session(self.id, slots)
        assert status == OK, status
        self.numbers = [0] * slots
        status, _ = self.run(op(RECLAIM_COMPLETE, bytes(4)))
        assert status == OK, status
        return self

    def next(self, slot, *ops, cache=False):
        self.numbers[slot] += 1
        arguments = struct.pack(">IIII", self.numbers[slot], slot, len(self.numbers) - 1, cache)
        return compound(op(SEQUENCE, self.session_id + arguments), *ops)

    def run(self, *ops):
        """The status, and the results behind SEQUENCE's."""
        status, body = self.compounds([self.next(0, *ops)])[0]
        return status, body[52:]


class Nfs4(unittest.TestCase):
    def setUp(self):
        self.server = attacker.Server()
        self.addCleanup(self.server.close)
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])

    def client(self, source="127.0.0.2", timeout=60):
        client = Client(self.port, source, timeout)
        self.addCleanup(client.close)
        return client

    def bystander(self, owner=b"bystander"):
        """A client that comes now, and opens a file."""
        client = self.client("127.0.0.1", PATIENCE).begin(owner)
        self.root = self.volume(client)
        status, body = client.run(op(PUTFH, opaque(self.root)), open_by_name(b"file", b"b"), op(GETFH))
        self.assertEqual(status, OK)
        client.state = body[16:32]
        return client

    def volume(self, client):
        status, body = client.run(op(PUTROOTFH), op(LOOKUP, opaque(b"vol1")), op(GETFH))
        self.assertEqual(status, OK)
        (length,) = struct.unpack(">I", body[24:28])
        return body[28:28 + length]

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10

    def test_made_up_clients_keep_nobody_out(self):
        attacking = self.client()
        count, made = 18_000, 0
        for at in range(0, count, 500):
            introduced = attacking.compounds([compound(exchange(b"made up %d" % n)) for n in range(at, at + 500)])
            ids = [struct.unpack(">Q", body[16:24])[0] for status, body in introduced if status == OK]
            self.assertTrue({status for status, _ in introduced} <= {OK, DELAY})
            made += [status for status, _ in attacking.compounds([compound(creation(n, 1)) for n in ids])].count(OK)
        self.assertGreater(made, 1000)
        self.assertLess(made, count // 3)
        self.bystander()

    def test_sessions_and_kept_replies_take_a_bounded_part_of_the_memory(self):
        before = self.resident()
        attacking = self.client().begin(b"attacker", 1024)
        look = op(PUTROOTFH) + b"".join(op(GETATTR, struct.pack(">III", 2, 0x18, 0xB0803A)) for _ in range(40))
        sessions, statuses = [attacking.session_id], set()
        for n in range(2, 2000 if LONG else 600):
            status, session = attacking.session(attacking.id, 1024, n)
            if status != OK:
                self.assertEqual(status, DELAY)
                break
            if attacking.granted == 1024:
                sessions.append(session)
        self.assertGreater(len(sessions), 32)
        for session in sessions[:64]:
            head = lambda slot: op(SEQUENCE, session + struct.pack(">IIII", 1, slot, 1023, 1))
            requests = [opaque(b"") + struct.pack(">II", 1, 42) + head(slot) + look for slot in range(1, 1024)]
            statuses |= {status for status, _ in attacking.compounds(requests)}
        # Slots take memory when they are first used.
        self.assertTrue(OK in statuses and statuses <= {OK, DELAY}, statuses)
        self.assertLess(self.resident() - before, 192 << 20)
        # Another gets its session with all slots, and its replies are kept.
        other = self.client("127.0.0.3", PATIENCE).begin(b"other", 1024)
        request = other.next(5, op(PUTROOTFH), op(GETFH), cache=True)
        (first,), (second,) = other.compounds([request]), other.compounds([request])
        self.assertEqual((first[0], second), (OK, first))
        self.bystander()

    def test_four_addresses_leave_sessions_to_a_fifth(self):
        self.server.stop()
        self.server.memory = "256M"
        self.server.start()
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        taking = [self.client(f"127.0.0.{n}").begin(b"taker %d" % n, 1024) for n in range(2, 6)]
        for attacking in taking:
            for at in range(2, 4000, 100):
                results = attacking.compounds([compound(creation(attacking.id, 1024, n)) for n in range(at, at + 100)])
                if results[-1][0] != OK:
                    break
            self.assertNotEqual(results[-1][0], OK)
            # Whatever is left goes to slots that are used.
            attacking.compounds([attacking.next(slot, op(PUTROOTFH)) for slot in range(1, 1024)])
        # They renew; the first has given way to the last.
        renewed = [attacking.run(op(PUTROOTFH))[0] for attacking in taking]
        self.assertTrue(renewed.count(OK) >= 3 and set(renewed) <= {OK, BADSESSION}, renewed)
        self.bystander()
        self.assertEqual([attacking.run(op(PUTROOTFH))[0] for attacking in taking], renewed, "nobody gave way to it")

    def test_thousands_of_opens_and_locks_harm_their_client_alone(self):
        before = self.resident()
        other = self.bystander()
        attacking = self.client().begin(b"attacker", 1024)
        opened, statuses = [], set()
        for at in range(0, 200_000 if LONG else 40_000, 1000):
            requests = [attacking.next(slot, op(PUTFH, opaque(self.root)), open_by_name(b"file", b"%d" % (at + slot)))
                        for slot in range(1000)]
            results = attacking.compounds(requests)
            statuses |= {status for status, _ in results}
            opened += [status for status, _ in results if status == OK]
            if not any(status == OK for status, _ in results):
                break
        self.assertTrue(statuses <= {OK, DELAY}, statuses)
        self.assertGreater(len(opened), 1000)
        self.assertLess(self.resident() - before, 128 << 20)
        status, _ = other.run(op(PUTFH, opaque(self.root)), open_by_name(b"another", b"b", 3, 2))
        self.assertEqual(status, OK)
        self.bystander(b"one that comes later")

    def test_others_states_are_of_no_use(self):
        other = self.bystander()
        attacking = self.client().begin(b"attacker")
        here = op(PUTFH, opaque(self.root)), op(LOOKUP, opaque(b"file"))
        rng = random.Random(7)
        states = [other.state]
        for _ in range(300):
            guess = bytearray(other.state)
            guess[rng.randrange(16)] = rng.randrange(256)
            states += [bytes(guess), rng.randbytes(16)]
        special = {bytes(16), b"\xff" * 16, struct.pack(">I", 1) + bytes(12)}
        for state in states:
            if state in special:
                continue
            uses = [
                op(READ, state + struct.pack(">QI", 0, 1)), op(WRITE, state + struct.pack(">QI", 0, 2) + opaque(b"x")),
                op(CLOSE, bytes(4) + state), op(DELEGRETURN, state), op(FREE_STATEID, state),
                op(LOCKU, struct.pack(">II", 2, 0) + state + struct.pack(">QQ", 0, 1)),
            ]
            results = attacking.compounds([attacking.next(n, *here, use) for n, use in enumerate(uses)])
            self.assertEqual({status for status, _ in results}, {BAD_STATEID}, state)
            status, body = attacking.run(op(TEST_STATEID, struct.pack(">I", 1) + state))
            self.assertEqual((status, struct.unpack(">III", body[4:16])), (OK, (0, 1, BAD_STATEID)))
        status, _ = other.run(*here, op(WRITE, other.state + struct.pack(">QI", 0, 2) + opaque(b"mine")))
        self.assertEqual(status, OK)

    def test_the_name_of_a_client_that_is_alive_is_of_no_use_elsewhere(self):
        other = self.bystander()
        attacking = self.client("127.0.0.9")
        for verifier in b"restarts", bytes(8):
            status, body = attacking.compound(exchange(b"bystander", verifier))
            if status == OK:
                client, number = struct.unpack(">QI", body[16:28])
                self.assertEqual(client, other.id)
                # The next session, and the result of the first one again, which names that session.
                for sequence in number, number - 1:
                    self.assertEqual(attacking.session(client, 1, sequence)[0], CLID_INUSE)
            else:
                self.assertEqual(status, CLID_INUSE)
        self.assertEqual(attacking.compound(op(DESTROY_SESSION, other.session_id))[0], CONN_NOT_BOUND)
        self.assertEqual(attacking.compound(op(DESTROY_CLIENTID, struct.pack(">Q", other.id)))[0], CLIENTID_BUSY)
        here = op(PUTFH, opaque(self.root)), op(LOOKUP, opaque(b"file"))
        status, _ = other.run(*here, op(WRITE, other.state + struct.pack(">QI", 0, 2) + opaque(b"mine")))
        self.assertEqual(status, OK)
        # It may have moved when its connections have ended.
        other.close()
        end = time.monotonic() + PATIENCE
        while attacking.compound(exchange(b"bystander", b"restarts"))[0] != OK:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_others_sessions_and_slots_out_of_order_are_refused(self):
        other = self.bystander()
        attacking = self.client().begin(b"attacker", 8)
        rng = random.Random(8)
        for _ in range(300):
            guess = bytearray(other.session_id)
            guess[rng.randrange(16)] ^= rng.randrange(1, 256)
            sequence = op(SEQUENCE, bytes(guess) + struct.pack(">IIII", rng.randrange(9), 0, 0, 0))
            self.assertEqual(attacking.compound(sequence, op(PUTROOTFH))[0], BADSESSION)
            self.assertEqual(attacking.compound(op(DESTROY_SESSION, bytes(guess)))[0], BADSESSION)
            status, _ = attacking.session(rng.randrange(1 << 64), 1)
            self.assertEqual(status, STALE_CLIENTID)
        for _ in range(2000):
            slot, number = rng.randrange(16), rng.choice([0, 1, 2, 3, 0xFFFFFFFF, rng.randrange(1 << 32)])
            if slot < 8 and number in (attacking.numbers[slot], attacking.numbers[slot] + 1):
                continue
            sequence = op(SEQUENCE, attacking.session_id + struct.pack(">IIII", number, slot, 7, 0))
            self.assertEqual(attacking.compound(sequence)[0], MISORDERED if slot < 8 else BADSLOT)
        # The slots are where they were.
        for slot in range(8):
            self.assertEqual(attacking.compounds([attacking.next(slot, op(PUTROOTFH))])[0][0], OK)
        self.assertEqual(other.run(op(PUTROOTFH))[0], OK)


if __name__ == "__main__":
    unittest.main()
