"""Persistent opens of a continuously available share: the real binary is killed with -9 under a client, which comes back to all it had."""

import os
import random
import signal
import unittest

import smbwire
from smbwire import MAKE, REPLAY, SHARE_READ, Client, Refused
from test_shares import Api
from test_smbtorture import RESULT, expected
from weirsmb import PASSWORD, Server

EXCLUSIVE, UNLOCK = 0x12, 4


class Persistent(unittest.TestCase, Api):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api", "127.0.0.1:0")
        cls.addClassCleanup(cls.server.close)
        cls.server.start_with_user()
        volume = {"storagePool": "default", "shareName": "ca", "capacityGib": "1", "protocols": ["SMB", "NFSV3"],
                  "smbSettings": ["CONTINUOUSLY_AVAILABLE"], "unixPermissions": "0777"}
        code, made = cls.api(cls, "POST", "/volumes?volumeId=ca", volume)
        assert code == 200, made

    def client(self, guid=b"c" * 16, share="ca"):
        client = Client(int(self.server.port), "mouse", PASSWORD, guid)
        self.addCleanup(client.close)
        client.connect(share)
        return client

    def crash(self):
        self.server.stop(signal.SIGKILL)
        self.server.start()

    def refused(self, status, call, *args, **more):
        with self.assertRaises(Refused) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.status, status)

    def test_what_a_share_says_of_itself(self):
        self.assertEqual((self.client().share_capabilities, self.client(share="vol1").share_capabilities), (0x10, 0))
        self.assertTrue(self.client().capabilities & 0x10)
        _, _, granted = self.client(share="vol1").persistent("plain", os.urandom(16))
        self.assertIsNone(granted, "without an oplock it is not durable even, on a share that is not continuously available")

    def test_a_killed_server_has_every_open_lock_and_byte(self):
        seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        print("SEED", seed)
        choice = random.Random(seed)
        ours, other = self.client(), self.client(b"o" * 16)
        held = {}
        for n in range(6):
            guid = os.urandom(16)
            file, action, granted = ours.persistent(f"f{n}", guid, share=SHARE_READ)
            self.assertEqual((action, granted), (2, (60_000, smbwire.PERSISTENT)))
            held[f"f{n}"] = {"file": file, "guid": guid, "data": bytearray(), "locks": set()}
        for turn in range(8):
            for name, open_ in held.items():
                for _ in range(choice.randrange(1, 4)):
                    data = choice.randbytes(choice.randrange(1, 60_000))
                    at = choice.randrange(0, len(open_["data"]) + 1)
                    ours.write(open_["file"], at, data)
                    open_["data"][at:at + len(data)] = data
                if open_["locks"] and choice.random() < 0.4:
                    at = choice.choice(sorted(open_["locks"]))
                    ours.lock(open_["file"], at, 5, UNLOCK)
                    open_["locks"].discard(at)
                at = 100 * turn
                if choice.random() < 0.7:
                    ours.lock(open_["file"], at, 5, EXCLUSIVE)
                    open_["locks"].add(at)
            self.crash()
            other = self.client(b"o" * 16)
            for name in held:
                self.refused("SHARING_VIOLATION", other.create, name, [])
            ours = self.client()
            for name, open_ in held.items():
                self.assertEqual(ours.back(name, open_["file"], open_["guid"]), open_["file"])
                read = b"".join(ours.read(open_["file"], at, 1 << 16) for at in range(0, len(open_["data"]), 1 << 16))
                self.assertEqual(read, bytes(open_["data"]), name)
                for at in range(0, 100 * turn + 1, 100):
                    if at in open_["locks"]:
                        self.refused("LOCK_NOT_GRANTED", ours.lock, open_["file"], at, 5, EXCLUSIVE)
                    else:
                        self.refused("RANGE_NOT_LOCKED", ours.lock, open_["file"], at, 5, UNLOCK)
        for name, open_ in held.items():
            ours.close_file(open_["file"])
            file, _, _ = other.create(name, [])
            other.close_file(file)
        self.crash()
        other = self.client(b"o" * 16)
        for name in held:
            file, _, _ = other.create(name, [])
            other.close_file(file)

    def test_a_create_that_was_not_answered_is_carried_out_once(self):
        """The server dies somewhere in a CREATE that may exist once only; sent again, it succeeds."""
        made = 0
        for n in range(12):
            ours, guid = self.client(), os.urandom(16)
            request = [(b"DH2Q", smbwire.struct.pack("<IIQ16s", 60_000, smbwire.PERSISTENT, 0, guid))]
            ask, ours.ask = ours.ask, lambda command, body, flags=0: (_ for _ in ()).throw(Sent(ours.send(command, body, flags)))
            with self.assertRaises(Sent):
                ours.create(f"once{n}", request, disposition=MAKE)
            ours.ask = ask
            self.crash()
            again = self.client()
            file, action, granted = again.create(f"once{n}", request, disposition=MAKE, flags=REPLAY)
            self.assertEqual((action, granted), (2, (60_000, smbwire.PERSISTENT)), n)
            again.write(file, 0, b"x")
            again.close_file(file)
            self.refused("OBJECT_NAME_COLLISION", again.create, f"once{n}", [], disposition=MAKE)
            made += 1
        self.assertEqual(made, 12)

    def test_smbtorture_comes_to_the_same_on_such_a_share(self):
        group = "smb2.durable-v2-open"
        out = self.server.smbtorture(group, share="ca")
        came = {name.strip(): "pass" if result == "success" else "fail" for result, name in RESULT.findall(out)}
        self.assertEqual(came, expected()[group], out[-3000:])


class Sent(Exception):
    """A request was sent, and its answer is not waited for."""
