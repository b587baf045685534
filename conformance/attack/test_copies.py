"""Copies, clones, holes, writes and cuts over NFSv3, NFSv4.2 and SMB at the same files, compared with a model, as fsx does it.

`test_copies.py SECONDS [SEED]` runs longer. A seed that was printed repeats its operations."""

import os
import random
import re
import struct
import subprocess
import sys
import time
import unittest

import attacker
import wires
from attacker import LONG, opaque
from test_nfs4 import LOOKUP, OK, op
from wires import ANONYMOUS, CLONE, COPY, clone_args, copy_args

SECONDS = int(os.environ.get("ATTACK_SECONDS", 600 if LONG else 15))
# Operations between comparisons of all files; 1 finds the operation at fault.
CHECK_EVERY = int(os.environ.get("ATTACK_CHECK_EVERY", 50))
PASSWORD = "Cheese-4-Mice"
BLOCK, MIB = 4096, 1 << 20
# Files grow up to this.
MOST = 5 * MIB + BLOCK
INVAL, XDEV, FBIG, NXIO = 22, 18, 27, 6
INVALID_PARAMETER, NOT_SUPPORTED, INVALID_VIEW_SIZE = 0xC000000D, 0xC00000BB, 0xC000001F
# What is known of a block: it was never written or was freed; it was written; either.
HOLE, DATA, EITHER = "hole", "data", "either"


class Model:
    """What a file has to hold, and what is known of its blocks."""

    def __init__(self, data=b"", blocks=()):
        self.data, self.blocks = bytearray(data), list(blocks)

    def snapshot(self):
        return Model(self.data, self.blocks)

    def __len__(self):
        return len(self.data)

    def resize(self, length):
        if length < len(self):
            del self.data[length:]
        else:
            self.data += bytes(length - len(self))
        count = -(-length // BLOCK)
        del self.blocks[count:]
        self.blocks += [HOLE] * (count - len(self.blocks))

    def touched(self, offset, length):
        """The blocks of a range, each with whether all of it that the file has is in the range."""
        for block in range(offset // BLOCK, -(-(offset + length) // BLOCK)):
            begin, end = block * BLOCK, min((block + 1) * BLOCK, len(self))
            yield block, offset <= begin and end <= offset + length

    def write(self, offset, data):
        if not data:
            return
        self.resize(max(len(self), offset + len(data)))
        self.data[offset:offset + len(data)] = data
        for block, _ in self.touched(offset, len(data)):
            self.blocks[block] = DATA

    def punch(self, offset, length):
        """Makes a hole as far as the file goes."""
        length = min(length, len(self) - offset)
        if length <= 0:
            return
        self.data[offset:offset + length] = bytes(length)
        for block, _ in self.touched(offset, length):
            whole = offset <= block * BLOCK and (block + 1) * BLOCK <= offset + length
            if whole:
                self.blocks[block] = HOLE
            elif self.blocks[block] != HOLE:
                self.blocks[block] = EITHER

    def copy(self, source, from_, to, length, shared):
        """What a copy leaves; the source may be this file. A hole whose blocks are shared counts as data until a checkpoint."""
        if not length:
            return
        data, blocks = bytes(source.data[from_:from_ + length]), list(source.blocks)
        assert len(data) == length
        self.resize(max(len(self), to + length))
        self.data[to:to + length] = data
        for block, whole in self.touched(to, length):
            if whole and (from_ - to) % BLOCK == 0:
                state = blocks[block + (from_ - to) // BLOCK]
                self.blocks[block] = EITHER if shared and state == HOLE else state
            elif self.blocks[block] != DATA or whole:
                self.blocks[block] = EITHER


class File:
    """A file as all protocols have it, with its model."""

    def __init__(self, name, volume, handle, state, opened, tree):
        self.name, self.volume, self.handle, self.state, self.opened, self.tree = name, volume, handle, state, opened, tree
        self.model = Model()


class Frozen:
    """A file as a snapshot has it."""

    def __init__(self, file, snapshot, handle):
        self.name, self.volume, self.handle = f"{snapshot}:{file.name}", (file.volume, snapshot), handle
        self.state, self.model = ANONYMOUS, file.model.snapshot()


class Fuzz:
    def __init__(self, server, seed):
        self.server, self.rng, self.looks, self.history, self.counts = server, random.Random(seed), random.Random(seed), [], {}
        said = server.output()
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", said)[1])
        self.old = wires.Nfs3(port, timeout=60)
        self.new = wires.Nfs4(port, "127.0.0.1", 60).begin(b"fuzz", 8)
        self.smb = wires.Smb(int(re.search(r"SMB on 127\.0\.0\.1:(\d+)", said)[1]), "mouse", PASSWORD, os.urandom(16))
        self.files, self.frozen, self.snapshots = [], [], 0
        for share, names in ("vol1", "ab"), ("second", "c"):
            self.smb.connect(share)
            for name in names:
                self.files.append(self.make(share, name))
        self.operations = [
            (self.write, 8), (self.read, 8), (self.cut, 3), (self.allocate, 2), (self.deallocate, 4), (self.zero, 4),
            (self.copy, 8), (self.clone, 5), (self.duplicate, 5), (self.copy_chunks, 8), (self.seek, 4), (self.commit, 1),
            (self.allocation, 1),
        ]

    def close(self):
        for client in (self.old, self.new, self.smb):
            client.close()

    def make(self, share, name):
        folder = self.new.handle(op(24), op(LOOKUP, opaque(share.encode())))
        handle, state = self.new.make(folder, name.encode(), 0o666)
        status, opened = self.smb.opened(name, wires.smbwire.ALL)
        assert status == 0, hex(status)
        assert self.smb.control(opened, wires.SET_SPARSE) == (0, b"")
        return File(name, share, handle, state, opened, self.smb.tree)

    # Choices.

    def place(self, *sizes):
        """An offset near a place where something may change."""
        near = self.rng.choice([0, BLOCK, 17 * BLOCK, 64 << 10, MIB, 2 * MIB, 3 * MIB, *sizes])
        off = self.rng.choice([0, 0, 0, -1, 1, 100, -BLOCK, BLOCK, 3 * BLOCK, self.rng.randrange(2 * BLOCK), self.rng.randrange(MIB)])
        return min(max(0, near + off), MOST - 1)

    def length(self, offset, most=2 * MIB):
        length = self.rng.choice([1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 64 << 10, MIB - BLOCK, MIB, MIB + BLOCK, 2 * MIB,
                                  self.rng.randrange(1, 64 << 10), self.rng.randrange(1, 2 * MIB)])
        return max(1, min(length, most, MOST - offset))

    def aligned(self, number):
        """Whole blocks, most of the time."""
        return number if self.rng.randrange(5) == 0 else number // BLOCK * BLOCK

    def sources(self):
        return self.files + self.frozen

    def over_smb(self, file):
        self.smb.tree = file.tree
        return file.opened

    def said(self, text):
        self.history.append(text)
        del self.history[:-60]

    # Operations.

    def write(self):
        file = self.rng.choice(self.files)
        offset = self.place(len(file.model))
        data = self.rng.randbytes(self.length(offset, 256 << 10))
        if self.rng.randrange(8) == 0:
            data = bytes(len(data))
        how = self.rng.choice(["3", "4", "smb"])
        self.said(f"WRITE {how} {file.name} {offset}+{len(data)}")
        if how == "smb":
            opened, data = self.over_smb(file), data[:64 << 10]
            status = self.smb.put(opened, offset, data)
            self.same(status, 0)
        else:
            stable = self.rng.choice([0, 0, 1, 2])
            done = self.old.write(file.handle, offset, data, stable) if how == "3" else \
                self.new.write(file.handle, file.state, offset, data, stable)
            self.same(done, (OK, len(data)))
        file.model.write(offset, data)

    def read(self):
        file = self.rng.choice(self.sources())
        offset = self.place(len(file.model))
        self.compare(file, offset, self.length(offset, MIB), self.rng.choice(["3", "4", "plus", "smb"]))

    def compare(self, file, offset, length, how):
        want = bytes(file.model.data[offset:offset + length])
        self.said(f"READ {how} {file.name} {offset}+{length}")
        if how == "smb" and isinstance(file, File):
            length = min(length, 64 << 10)
            status, got = self.smb.get(self.over_smb(file), offset, length)
            want = want[:length]
            self.same(status, 0 if want else self.smb.END_OF_FILE)
        elif how == "3":
            status, got = self.old.read(file.handle, offset, length)
            self.same(status, OK)
        else:
            read = self.new.read_plus if how == "plus" else self.new.read
            status, got = read(file.handle, file.state, offset, length)
            self.same(status, OK)
        # A server may return less than is asked for, and nothing only at the end.
        if got != want[:len(got)] or bool(got) != bool(want):
            self.same_bytes(file, offset, got, want)

    def cut(self):
        file = self.rng.choice(self.files)
        length = self.place(len(file.model))
        how = self.rng.choice(["3", "4", "smb"])
        self.said(f"SIZE {how} {file.name} {length}")
        if how == "3":
            self.same(self.old.set(file.handle, length=length), OK)
        elif how == "4":
            state = self.rng.choice([file.state, ANONYMOUS])
            self.same(self.new.at(file.handle, wires.SETATTR, state + wires.size(length))[0], OK)
        else:
            self.same(self.smb.set_info(self.over_smb(file), 20, struct.pack("<Q", length)), 0)
        file.model.resize(length)

    def allocation(self):
        """FileAllocationInformation cuts to whole blocks (MS-FSA §2.1.5.15.1)."""
        file = self.rng.choice(self.files)
        length = self.place(len(file.model))
        self.said(f"ALLOCATION {file.name} {length}")
        self.same(self.smb.set_info(self.over_smb(file), 19, struct.pack("<Q", length)), 0)
        file.model.resize(min(len(file.model), -(-length // BLOCK) * BLOCK))

    def allocate(self):
        file = self.rng.choice(self.files)
        offset = self.place(len(file.model))
        length = self.length(offset)
        self.said(f"ALLOCATE {file.name} {offset}+{length}")
        self.same(self.new.at(file.handle, wires.ALLOCATE, file.state + struct.pack(">QQ", offset, length))[0], OK)
        file.model.resize(max(len(file.model), offset + length))

    def deallocate(self):
        file = self.rng.choice(self.files)
        offset = self.place(len(file.model))
        length = self.length(offset)
        self.said(f"DEALLOCATE {file.name} {offset}+{length}")
        self.same(self.new.at(file.handle, wires.DEALLOCATE, file.state + struct.pack(">QQ", offset, length))[0], OK)
        file.model.punch(offset, length)

    def zero(self):
        file = self.rng.choice(self.files)
        offset = self.place(len(file.model))
        length = self.length(offset)
        self.said(f"SET_ZERO_DATA {file.name} {offset}+{length}")
        opened = self.over_smb(file)
        self.same(self.smb.control(opened, wires.SET_ZERO_DATA, struct.pack("<QQ", offset, offset + length)), (0, b""))
        file.model.punch(offset, length)

    def ranges(self, shape=lambda n: n):
        """A source, a target and a range of both; often one file, and often overlapping."""
        source, target = self.rng.choice(self.sources()), self.rng.choice(self.files)
        from_ = shape(self.place(len(source.model)))
        if source is target and self.rng.randrange(2):
            to = shape(max(0, from_ + self.rng.choice([-1, 1]) * self.rng.choice([1, 100, BLOCK, MIB, MIB - 1, self.rng.randrange(2 * MIB)])))
        else:
            to = shape(self.place(len(target.model)))
        length = self.length(max(from_, to))
        if self.rng.randrange(3):
            length = min(length, max(1, len(source.model) - from_))
        return source, target, from_, to, min(length, MOST - min(to, MOST - 1))

    def copy(self):
        source, target, from_, to, length = self.ranges()
        count = self.rng.choice([length, length, length, 0])
        meant = count or len(source.model) - from_
        synchronous = self.rng.randrange(2)
        self.said(f"COPY {source.name} {from_}+{count} {target.name} {to} synchronous {synchronous}")
        if to + meant > MOST:
            return
        bad = from_ + count > len(source.model) or from_ > len(source.model)
        # RFC 7862 §15.2.3: what the source does not have, and ranges of one file that overlap.
        bad = bad or source is target and abs(from_ - to) < meant
        status, body = self.new.between(source.handle, target.handle, COPY,
                                        copy_args((source.state, target.state), from_, to, count, synchronous))
        self.same(status, INVAL if bad else OK)
        if bad:
            return
        (ids,) = struct.unpack(">I", body[:4])
        if ids:
            (done,) = struct.unpack(">Q", body[20:28])
            self.same((synchronous, done), (0, 0))
            done = self.offloaded(target, body[4:20])
        else:
            (done,) = struct.unpack(">Q", body[4:12])
        self.true(done <= meant and (done or not meant), f"{done} of {meant} bytes")
        target.model.copy(source.model, from_, to, done, source.volume == target.volume)

    def offloaded(self, target, identity):
        """Waits for a copy in the background (RFC 7862 §15.9)."""
        while True:
            status, body = self.new.at(target.handle, wires.OFFLOAD_STATUS, identity)
            self.same(status, OK)
            done, ended = struct.unpack(">QI", body[:12])
            if ended:
                self.same(struct.unpack(">I", body[12:16])[0], OK)
                return done

    def clone(self):
        source, target, from_, to, length = self.ranges(self.aligned)
        count = self.rng.choice([self.aligned(length), length, 0])
        there = len(source.model)
        meant = count or there - from_
        self.said(f"CLONE {source.name} {from_}+{count} {target.name} {to}")
        if to + meant > MOST:
            return
        # RFC 7862 §15.13.3.
        whole = from_ % BLOCK == to % BLOCK == 0 and (count % BLOCK == 0 or from_ + count == there)
        bad = not whole or from_ + meant > there or from_ > there or source is target and abs(from_ - to) < meant
        before = len(target.model)
        status, _ = self.new.between(source.handle, target.handle, CLONE, clone_args((source.state, target.state), from_, to, count))
        if source.volume != target.volume:
            self.true(status in ((XDEV, INVAL) if bad or source in self.files else (XDEV, INVAL, OK)), f"status {status}")
        elif bad:
            self.same(status, INVAL)
        elif meant % BLOCK and to + meant < before:
            # A part of a block in the middle of a file cannot be shared.
            self.true(status in (OK, INVAL), f"status {status}")
        else:
            self.same(status, OK)
        if status == OK:
            target.model.copy(source.model, from_, to, meant, True)

    def duplicate(self):
        source, target, from_, to, length = self.ranges(self.aligned)
        if source in self.frozen:
            return
        length = self.aligned(length)
        there = len(source.model)
        self.said(f"DUPLICATE_EXTENTS {source.name} {from_}+{length} {target.name} {to}")
        if to + length > MOST:
            return
        self.over_smb(source)
        data = source.opened + struct.pack("<QQQ", from_, to, length)
        status, _ = self.smb.control(self.over_smb(target), wires.DUPLICATE_EXTENTS, data)
        # MS-FSCC §2.3.8, MS-FSA §2.1.5.10.4.
        whole = from_ % BLOCK == to % BLOCK == 0 and length % BLOCK == 0
        bad = source is target and abs(from_ - to) < length or from_ + length > -(-there // BLOCK) * BLOCK
        bad = bad or source.volume != target.volume or not whole
        meant = min(length, there - from_)
        if not length:
            self.true(status in (0, INVALID_PARAMETER, NOT_SUPPORTED), hex(status))
            return
        if bad and not (not whole and from_ + length == there and source.volume == target.volume and status == 0):
            self.true(status in (INVALID_PARAMETER, NOT_SUPPORTED), hex(status))
            return
        if meant % BLOCK and to + meant < len(target.model):
            self.true(status in (0, INVALID_PARAMETER, NOT_SUPPORTED), hex(status))
        else:
            self.same(status, 0)
        if status == 0:
            target.model.copy(source.model, from_, to, meant, True)

    def copy_chunks(self):
        """Chunks are copied in turn, each as it was when its turn came (MS-SMB2 §3.3.5.15.6)."""
        source, target = self.rng.choice(self.files), self.rng.choice(self.files)
        shape = self.aligned if self.rng.randrange(2) else int
        wanted = []
        for _ in range(self.rng.choice([1, 1, 2, 4])):
            from_ = shape(self.place(len(source.model)))
            to = shape(self.place(len(target.model)))
            if source is target and self.rng.randrange(2):
                to = max(0, from_ + self.rng.choice([-1, 1]) * self.rng.choice([1, 100, BLOCK, self.rng.randrange(MIB)]))
            length = max(1, shape(self.length(max(from_, to), MIB)))
            if self.rng.randrange(4):
                length = max(1, min(length, len(source.model) - from_))
            wanted.append((from_, to, min(length, MOST - min(to, MOST - 1))))
        code = self.rng.choice([wires.COPYCHUNK, wires.COPYCHUNK_WRITE])
        self.said(f"COPYCHUNK {source.name} {wanted} {target.name}")
        status, key = self.smb.control(self.over_smb(source), wires.RESUME_KEY)
        self.same(status, 0)
        status, output = self.smb.control(self.over_smb(target), code, wires.chunks(key, *wanted))
        expected, whole, total = 0, 0, 0
        for from_, to, length in wanted:
            if from_ + length > len(source.model):
                expected = INVALID_VIEW_SIZE
                break
            target.model.copy(source.model, from_, to, length, source.volume == target.volume)
            whole, total = whole + 1, total + length
        self.same(status, expected)
        self.same(struct.unpack("<III", output), (whole, 0, total))

    def seek(self):
        file = self.rng.choice(self.sources())
        offset, what = self.place(len(file.model)), self.rng.randrange(2)
        self.said(f"SEEK {file.name} {offset} {'hole' if what else 'data'}")
        status, found = self.new.seek(file.handle, file.state, offset, what)
        if offset >= len(file.model):
            self.same(status, NXIO)
            return
        self.same(status, OK)
        self.true(offset <= found <= len(file.model), f"at {found}")
        other, own = (HOLE, DATA) if what else (DATA, HOLE)
        between = file.model.blocks[offset // BLOCK:-(-found // BLOCK)]
        self.true(other not in between or found == offset, f"{between.count(other)} blocks passed over to {found}")
        self.true(found == len(file.model) or file.model.blocks[found // BLOCK] != own, f"{own} at {found}")

    def commit(self):
        file = self.rng.choice(self.files)
        self.said(f"COMMIT {file.name}")
        if self.rng.randrange(2):
            self.same(self.old.ask(21, opaque(file.handle) + bytes(12))[0], OK)
        else:
            self.same(self.smb.flushed(self.over_smb(file)), 0)

    def snapshot(self):
        """Another snapshot of the first volume; the oldest goes."""
        self.snapshots += 1
        volume, name = "/v1/projects/weir/locations/local/volumes/vol1/snapshots", f"s{self.snapshots}"
        self.said(f"SNAPSHOT {name}")
        self.same(self.server.ask("POST", volume, {}, {"snapshotId": name})[0], 200)
        if self.snapshots > 2:
            gone = f"s{self.snapshots - 2}"
            self.frozen = [one for one in self.frozen if one.volume[1] != gone]
            self.same(self.server.ask("DELETE", f"{volume}/{gone}")[0], 200)
        for file in self.files:
            if file.volume == "vol1":
                path = [op(LOOKUP, opaque(part.encode())) for part in ("vol1", ".snapshot", name, file.name)]
                self.frozen.append(Frozen(file, name, self.new.handle(op(24), *path)))

    # Comparing.

    def whole(self):
        """All of every file, and its holes as both protocols have them."""
        for file in self.sources():
            how = self.looks.choice(["3", "4", "plus", "smb"])
            step = 64 << 10 if how == "smb" else MIB
            before = list(self.history)
            for offset in [*range(0, len(file.model), step), len(file.model)]:
                self.compare(file, offset, step, how)
            self.history = before
            self.same(self.length_of(file), len(file.model))
            holes = self.map_by_seek(file)
            for block, state in enumerate(file.model.blocks):
                self.true(state != HOLE or block in holes, f"{file.name}: block {block} is data and was freed")
                self.true(state != DATA or block not in holes, f"{file.name}: block {block} is a hole and was written")
            if file in self.files:
                self.same(self.map_by_ranges(file), holes)

    def length_of(self, file):
        status, results = self.old.ask(1, opaque(file.handle))
        self.same(status, OK)
        return struct.unpack(">Q", results[20:28])[0]

    def map_by_seek(self, file):
        """The blocks that are holes."""
        holes, at, length = set(), 0, len(file.model)
        while at < length:
            status, data = self.new.seek(file.handle, file.state, at, 0)
            self.same(status, OK)
            holes.update(range(at // BLOCK, -(-data // BLOCK)))
            if data >= length:
                break
            status, at = self.new.seek(file.handle, file.state, data, 1)
            self.same(status, OK)
            self.true(at > data, f"no data at {data}")
        return holes

    def map_by_ranges(self, file):
        """The same by FSCTL_QUERY_ALLOCATED_RANGES."""
        length = len(file.model)
        data = struct.pack("<QQ", 0, length)
        status, output = self.smb.control(self.over_smb(file), wires.QUERY_ALLOCATED_RANGES, data)
        self.same(status, 0)
        holes = set(range(-(-length // BLOCK)))
        for at in range(0, len(output), 16):
            offset, count = struct.unpack_from("<QQ", output, at)
            holes -= set(range(offset // BLOCK, -(-(offset + count) // BLOCK)))
        return holes

    def true(self, condition, why):
        if not condition:
            self.same(why, "")

    def same(self, got, want):
        if got != want:
            raise AssertionError(f"{got!r}, not {want!r}, after\n" + "\n".join(self.history))

    def same_bytes(self, file, offset, got, want):
        at = next((n for n, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"{file.name} differs at {offset + at} of {len(file.model)} ({len(got)} bytes), after\n" + "\n".join(self.history))

    def run(self, seconds):
        works, weights = zip(*self.operations)
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            work = self.rng.choices(works, weights)[0]
            work()
            self.counts[work.__name__] = self.counts.get(work.__name__, 0) + 1
            count += 1
            if count % CHECK_EVERY == 0:
                self.whole()
            if count % 150 == 0:
                self.snapshot()
        self.whole()
        return count


class Copies(unittest.TestCase):
    def fuzz(self, seed):
        server = attacker.Server("--smb", "127.0.0.1:0", memory="256M")
        self.addCleanup(server.close)
        made = subprocess.run([attacker.weirtest.WEIR, "users", "create", "mouse", "--uid", "0", "--data", server.data],
                              input=PASSWORD + "\n", text=True, capture_output=True, timeout=30)
        self.assertEqual(made.returncode, 0, made.stderr)
        second = {"storagePool": "default", "capacityGib": "1", "shareName": "second", "unixPermissions": "0777",
                  "protocols": ["NFSV3", "NFSV4", "SMB"], "securityStyle": "UNIX"}
        status, answer = server.ask("POST", "/v1/projects/weir/locations/local/volumes", second, {"volumeId": "second"})
        self.assertEqual(status, 200, answer)
        fuzz = Fuzz(server, seed)
        self.addCleanup(fuzz.close)
        return fuzz

    def test_files_are_what_a_model_of_them_is(self):
        seed = int(os.environ.get("ATTACK_SEED", random.randrange(1 << 32)))
        print(f"seed {seed}", flush=True)
        fuzz = self.fuzz(seed)
        try:
            count = fuzz.run(SECONDS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        print(f"{count} operations: {fuzz.counts}", flush=True)

    def test_the_last_block_of_a_file(self):
        fuzz = self.fuzz(0)
        file, smb = fuzz.files[0], fuzz.smb
        data = bytes(range(1, 251)) * 20
        self.assertEqual(smb.put(fuzz.over_smb(file), 0, data), 0)
        # Behind the end, within its block: nothing that the source has (MS-FSCC §2.3.8).
        extents = file.opened + struct.pack("<QQQ", len(data) + 10, 8 * BLOCK, 100)
        self.assertEqual(smb.control(file.opened, wires.DUPLICATE_EXTENTS, extents)[0], NOT_SUPPORTED)
        # A part of the last block that is longer than the file has it (MS-FSA §2.1.5.10.4).
        extents = file.opened + struct.pack("<QQQ", BLOCK, 8 * BLOCK, len(data) - BLOCK + 10)
        self.assertEqual(smb.control(file.opened, wires.DUPLICATE_EXTENTS, extents)[0], INVALID_PARAMETER)
        # An allocation is of whole blocks, and so is what it cuts (MS-FSA §2.1.5.15.1).
        self.assertEqual(smb.set_info(file.opened, 19, struct.pack("<Q", len(data) - 10)), 0)
        self.assertEqual(fuzz.length_of(file), len(data))
        self.assertEqual(smb.set_info(file.opened, 19, struct.pack("<Q", 10)), 0)
        self.assertEqual(fuzz.length_of(file), BLOCK)

    def test_a_hole_that_two_reads_of_a_copy_share_stays_one(self):
        fuzz = self.fuzz(0)
        source, target = fuzz.files[0], fuzz.files[2]
        self.assertEqual(fuzz.old.write(source.handle, 0, b"d" * BLOCK), (OK, BLOCK))
        for at in range(BLOCK, MIB + 8 * BLOCK, 64 << 10):
            fuzz.old.write(target.handle, at, b"t" * (64 << 10))
        self.assertEqual(fuzz.old.set(source.handle, length=MIB + 8 * BLOCK), OK)
        args = copy_args((source.state, target.state), 100, 100, MIB + 8 * BLOCK - 100)
        status, body = fuzz.new.between(source.handle, target.handle, COPY, args)
        self.assertEqual((status, struct.unpack(">Q", body[4:12])[0]), (OK, MIB + 8 * BLOCK - 100))
        status, found = fuzz.new.seek(target.handle, target.state, BLOCK, 0)
        self.assertEqual(status, OK)
        self.assertGreaterEqual(found, MIB + 8 * BLOCK)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        SECONDS = int(sys.argv[1])
        os.environ["ATTACK_SEED"] = sys.argv[2] if len(sys.argv) > 2 else str(random.randrange(1 << 32))
    unittest.main(argv=sys.argv[:1])
