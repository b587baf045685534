"""A client of SMB 3.1.1 in few lines, for what no program at hand does: it asks for persistent opens, comes back to them on another
connection, sends again what was not answered, and sets a list on any port. Signed with HMAC-SHA256; nothing of the standard library is missing for that."""

import hashlib
import hmac
import os
import socket
import struct

NEGOTIATE, SETUP, TREE_CONNECT, CREATE, CLOSE, READ, WRITE, LOCK, QUERY_INFO, SET_INFO = 0, 1, 3, 5, 6, 8, 9, 10, 16, 17
SUCCESS, MORE, PENDING = 0, 0xC0000016, 0x103
STATUS = {0xC0000043: "SHARING_VIOLATION", 0xC0000034: "OBJECT_NAME_NOT_FOUND", 0xC0000035: "OBJECT_NAME_COLLISION",
          0xC000022A: "DUPLICATE_OBJECTID", 0xC0000055: "LOCK_NOT_GRANTED", 0xC0000054: "FILE_LOCK_CONFLICT",
          0xC0000022: "ACCESS_DENIED", 0xC000007E: "RANGE_NOT_LOCKED"}
OPEN, MAKE, OPEN_IF = 1, 2, 3
ALL, SHARE_READ, SHARE_ALL = 0x1F01FF, 1, 7
PERSISTENT = 2
REPLAY = 0x20000000


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, status):
        super().__init__(STATUS.get(status, hex(status)))
        self.status = STATUS.get(status, status)


def md4(data):
    """MD4 (RFC 1320), which OpenSSL has no more."""
    def left(x, n):
        x &= 0xFFFFFFFF
        return (x << n | x >> 32 - n) & 0xFFFFFFFF
    padded = data + b"\x80" + b"\0" * ((55 - len(data)) % 64) + struct.pack("<Q", 8 * len(data))
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    rounds = (((lambda x, y, z: x & y | ~x & z), 0, (3, 7, 11, 19), range(16)),
              ((lambda x, y, z: x & y | x & z | y & z), 0x5A827999, (3, 5, 9, 13), [4 * (i % 4) + i // 4 for i in range(16)]),
              ((lambda x, y, z: x ^ y ^ z), 0x6ED9EBA1, (3, 9, 11, 15), [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]))
    for at in range(0, len(padded), 64):
        words = struct.unpack("<16I", padded[at:at + 64])
        a, b, c, d = state
        for f, add, turns, order in rounds:
            for n, word in enumerate(order):
                a, b, c, d = d, left(a + f(b, c, d) + words[word] + add, turns[n % 4]), b, c
        state = [(old + new) & 0xFFFFFFFF for old, new in zip(state, (a, b, c, d))]
    return struct.pack("<4I", *state)


def hmac_md5(key, data):
    return hmac.new(key, data, "md5").digest()


class Client:
    """A session of one user, on one connection."""

    def __init__(self, port, user, password, guid, source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), 60, (source, 0))
        self.guid, self.message, self.session, self.tree, self.key = guid, 0, 0, 0, None
        self.preauth = b"\0" * 64
        try:
            self.negotiate()
            self.log_on(user, password)
        except BaseException:
            self.socket.close()
            raise

    def close(self):
        self.socket.close()

    def message_of(self, command, body, flags=0):
        """A signed message, with the next number."""
        head = struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 1, 0, command, 64, flags | (8 if self.key else 0), 0, self.message, 0,
                           self.tree, self.session, b"")
        record = bytearray(head + body)
        self.message += 1
        if self.key:
            record[48:64] = hmac.new(self.key, record, "sha256").digest()[:16]
        return bytes(record)

    def send(self, command, body, flags=0):
        record = self.message_of(command, body, flags)
        self.socket.sendall(struct.pack(">I", len(record)) + record)
        return record

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has hung up")
            data += more
        return data

    def receive(self):
        """The next answer, its status and its body; of those that nobody asked for, and interim ones, none."""
        while True:
            (size,) = struct.unpack(">I", self.take(4))
            record = self.take(size)
            (status,), (message,) = struct.unpack_from("<I", record, 8), struct.unpack_from("<Q", record, 24)
            if message == 2 ** 64 - 1 or status == PENDING:
                continue
            return record, status, record[64:]

    def ask(self, command, body, flags=0):
        self.send(command, body, flags)
        record, status, body = self.receive()
        if status != SUCCESS:
            raise Refused(status)
        if self.key:
            signed = record[:48] + b"\0" * 16 + record[64:]
            if hmac.new(self.key, signed, "sha256").digest()[:16] != record[48:64]:
                raise ValueError("an answer without its signature")
        return record, body

    def hashed(self, record):
        self.preauth = hashlib.sha512(self.preauth + record).digest()

    def negotiate(self):
        contexts = struct.pack("<HHIHHH", 1, 6, 0, 1, 0, 1) + b"\0\0" + struct.pack("<HHIHH", 8, 4, 0, 1, 0)
        body = struct.pack("<HHHHI16sIHH", 36, 1, 1, 0, 0x7F, self.guid, 104, 2, 0) + struct.pack("<H", 0x311) + b"\0\0" + contexts
        self.hashed(self.send(NEGOTIATE, body))
        record, status, body = self.receive()
        if status != SUCCESS:
            raise Refused(status)
        self.hashed(record)
        (self.capabilities,) = struct.unpack_from("<I", body, 24)

    def setup(self, token):
        body = struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(token), 0) + token
        self.hashed(self.send(SETUP, body))
        record, status, body = self.receive()
        (self.session,) = struct.unpack_from("<Q", record, 40)
        return record, status, body

    def log_on(self, user, password):
        wanted = 0xE0888235 & ~0x40000000  # All of NTLM but key exchange.
        first = b"NTLMSSP\0" + struct.pack("<II", 1, wanted) + b"\0" * 16
        record, status, body = self.setup(first)
        if status != MORE:
            raise Refused(status)
        self.hashed(record)
        challenge = body[body.index(b"NTLMSSP\0"):]
        flags, nonce = struct.unpack_from("<I8s", challenge, 20)
        size, at = struct.unpack_from("<HxxI", challenge, 40)
        target = challenge[at:at + size]
        nt = hmac_md5(md4(password.encode("utf-16-le")), user.upper().encode("utf-16-le"))
        # The server's names, and that the message has an integrity code.
        pairs, stamp = target[:-4] + struct.pack("<HHI", 6, 4, 2) + b"\0" * 4, b"\0" * 8
        rest = target
        while len(rest) > 4:
            kind, length = struct.unpack_from("<HH", rest)
            if kind == 7:
                stamp = rest[4:12]
            rest = rest[4 + length:]
        blob = struct.pack("<BBHI8s8sI", 1, 1, 0, 0, stamp, os.urandom(8), 0) + pairs + b"\0" * 4
        proof = hmac_md5(nt, nonce + blob)
        base = hmac_md5(nt, proof)
        response, name = proof + blob, user.encode("utf-16-le")
        fields, payload = b"", b""
        for part in (b"\0" * 24, response, b"", name, b"", b""):
            fields += struct.pack("<HHI", len(part), len(part), 88 + len(payload))
            payload += part
        head = b"NTLMSSP\0" + struct.pack("<I", 3) + fields + struct.pack("<I", flags & ~0x40000000) + b"\0" * 8
        whole = head + b"\0" * 16 + payload
        code = hmac_md5(base, first + challenge + whole)
        _, status, _ = self.setup(head + code + payload)
        if status != SUCCESS:
            raise Refused(status)
        label = b"SMBSigningKey\0"
        data = struct.pack(">I", 1) + label + b"\0" + self.preauth + struct.pack(">I", 128)
        self.key = hmac.new(base, data, "sha256").digest()[:16]

    def connect(self, share):
        path = f"\\\\127.0.0.1\\{share}".encode("utf-16-le")
        record, body = self.ask(TREE_CONNECT, struct.pack("<HHHH", 9, 0, 72, len(path)) + path)
        (self.tree,) = struct.unpack_from("<I", record, 36)
        (self.share_capabilities,) = struct.unpack_from("<I", body, 8)

    def create(self, name, contexts, disposition=OPEN_IF, share=SHARE_ALL, access=ALL, oplock=0, flags=0):
        """The FileId, the action, and the timeout and flags of a durable open, if it is one."""
        name = name.encode("utf-16-le")
        body = struct.pack("<HBBI16sIIIIIHHII", 57, 0, oplock, 2, b"", access, 0, share, disposition, 0x40, 120, len(name), 0, 0) + name
        body += b"\0" * (-len(body) % 8)
        at, packed = 64 + len(body), b""
        for n, (tag, data) in enumerate(contexts):
            one = struct.pack("<HHHHI", 16, 4, 0, 24, len(data)) + tag + b"\0" * 4 + data
            one += b"\0" * (-(len(one) + 4) % 8)
            packed += struct.pack("<I", 0 if n + 1 == len(contexts) else len(one) + 4) + one
        body = body[:48] + struct.pack("<II", at if contexts else 0, len(packed)) + body[56:] + packed
        _, answer = self.ask(CREATE, body, flags)
        (action,) = struct.unpack_from("<I", answer, 4)
        found = answer.find(b"DH2Q", 88)
        granted = struct.unpack_from("<II", answer, found + 8) if found >= 0 else None
        return answer[64:80], action, granted

    def persistent(self, name, guid, timeout=60_000, **more):
        """A new persistent open."""
        return self.create(name, [(b"DH2Q", struct.pack("<IIQ16s", timeout, PERSISTENT, 0, guid))], **more)

    def back(self, name, file, guid, **more):
        """A persistent open of before."""
        return self.create(name, [(b"DH2C", file + guid + struct.pack("<I", PERSISTENT))], disposition=OPEN, **more)[0]

    def close_file(self, file):
        self.ask(CLOSE, struct.pack("<HHI16s", 24, 0, 0, file))

    def write(self, file, offset, data):
        self.ask(WRITE, struct.pack("<HHIQ16sIIHHI", 49, 112, len(data), offset, file, 0, 0, 0, 0, 0) + data)

    def read(self, file, offset, size):
        _, answer = self.ask(READ, struct.pack("<HBBIQ16sIIIHHB", 49, 0, 0, size, offset, file, 0, 0, 0, 0, 0, 0))
        (length,) = struct.unpack_from("<I", answer, 4)
        return answer[16:16 + length]

    def lock(self, file, offset, size, flags, sequence=0):
        self.ask(LOCK, struct.pack("<HHI16sQQII", 48, 1, sequence, file, offset, size, flags, 0))

    def set_list(self, file, *entries):
        """Gives it a list that lets UNIX users have rights, each entry a user's number and a mask (MS-DTYP 2.4.6)."""
        aces = b""
        for uid, mask in entries:
            sid = struct.pack("<BB6sII", 1, 2, b"\0\0\0\0\0\x16", 1, uid)
            aces += struct.pack("<BBHI", 0, 0, 8 + len(sid), mask) + sid
        dacl = struct.pack("<BBHHH", 2, 0, 8 + len(aces), len(entries), 0) + aces
        descriptor = struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + dacl
        self.ask(SET_INFO, struct.pack("<HBBIHHI16s", 33, 3, 0, len(descriptor), 96, 0, 4, file) + descriptor)

    def descriptor(self, file):
        """Its owner, group and list, as they come."""
        _, answer = self.ask(QUERY_INFO, struct.pack("<HBBIHHIII16sB", 41, 3, 0, 65536, 0, 0, 0, 7, 0, file, 0))
        (length,) = struct.unpack_from("<I", answer, 4)
        return answer[8:8 + length]
