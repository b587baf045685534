"""What the kernel client can see of an NFSv3 volume, call by call. Prints "ok NAME" or "FAIL NAME why".

Run as root in a folder of the mounted volume; attribute caching is defeated where it matters by
looking again through a fresh descriptor or after a change made by the same client.
"""
import errno
import os
import socket
import stat
import subprocess
import sys
import time

TOP = sys.argv[1]
CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


def path(*names):
    return os.path.join(TOP, *names)


def refuses(code, call, *args, **named):
    """The call must fail with exactly this errno."""
    try:
        call(*args, **named)
    except OSError as e:
        assert e.errno == code, f"{errno.errorcode[e.errno]} instead of {errno.errorcode[code]}"
    else:
        raise AssertionError(f"succeeded, {errno.errorcode[code]} was due")


def put(name, data=b"x"):
    with open(path(name), "wb") as f:
        f.write(data)
    return path(name)


def as_user(uid, gid, groups, code):
    """Run a piece of Python as somebody else; its exit status is returned."""
    def drop():
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    return subprocess.run([sys.executable, "-c", "import os,sys,errno\n" + code, TOP], preexec_fn=drop, check=False).returncode


@check
def hole_reads_as_zeros():
    p = path("sparse")
    with open(p, "wb") as f:
        f.seek(1 << 40)
        f.write(b"end")
    assert os.stat(p).st_size == (1 << 40) + 3
    with open(p, "rb") as f:
        assert f.read(70000) == bytes(70000)
        f.seek((1 << 40) - 5)
        assert f.read() == bytes(5) + b"end"
    os.sync()
    used = os.stat(p).st_blocks * 512
    assert used < 1 << 20, f"{used} bytes used by a file with three"
    os.unlink(p)


@check
def truncate_grows_with_zeros_and_cuts():
    p = put("cut", b"A" * 10000)
    os.truncate(p, 5000)
    os.truncate(p, 9000)
    with open(p, "rb") as f:
        assert f.read() == b"A" * 5000 + bytes(4000)
    os.truncate(p, 0)
    assert os.stat(p).st_size == 0


@check
def greatest_file_size():
    p = put("huge", b"")
    top = 1 << 62
    os.truncate(p, top)
    assert os.stat(p).st_size == top
    with open(p, "r+b") as f:
        f.seek(top - 4)
        f.write(b"last")
        f.flush()
        os.fsync(f.fileno())
    with open(p, "rb") as f:
        f.seek(top - 8)
        assert f.read() == bytes(4) + b"last"
    os.unlink(p)


@check
def hard_links():
    p = put("one", b"same")
    os.link(p, path("two"))
    a, b = os.stat(p), os.stat(path("two"))
    assert a.st_ino == b.st_ino and b.st_nlink == 2
    os.unlink(p)
    assert os.stat(path("two")).st_nlink == 1
    with open(path("two"), "rb") as f:
        assert f.read() == b"same"
    refuses(errno.EEXIST, os.link, path("two"), put("three"))
    os.mkdir(path("ld"))
    refuses(errno.EPERM, os.link, path("ld"), path("ld2"))
    refuses(errno.ENOENT, os.link, path("none"), path("ld2"))


@check
def symbolic_links():
    for target in ["two", "/absolute/elsewhere", "é/" * 300, "x" * 1023, "y/" * 2040]:
        os.symlink(target, path("sl"))
        assert os.readlink(path("sl")) == target
        assert os.lstat(path("sl")).st_size == len(target.encode())
        assert stat.S_ISLNK(os.lstat(path("sl")).st_mode)
        os.unlink(path("sl"))
    refuses(errno.EEXIST, os.symlink, "a", put("there"))


@check
def special_files():
    os.mkfifo(path("fifo"), 0o640)
    os.mknod(path("chr"), 0o600 | stat.S_IFCHR, os.makedev(5, 70000))
    os.mknod(path("blk"), 0o660 | stat.S_IFBLK, os.makedev(259, 3))
    s = socket.socket(socket.AF_UNIX)
    s.bind(path("sock"))
    s.close()
    assert stat.S_ISFIFO(os.stat(path("fifo")).st_mode)
    assert stat.S_ISSOCK(os.stat(path("sock")).st_mode)
    c, b = os.stat(path("chr")), os.stat(path("blk"))
    assert stat.S_ISCHR(c.st_mode) and (os.major(c.st_rdev), os.minor(c.st_rdev)) == (5, 70000)
    assert stat.S_ISBLK(b.st_mode) and (os.major(b.st_rdev), os.minor(b.st_rdev)) == (259, 3)
    if os.fork() == 0:
        with open(path("fifo"), "wb") as f:
            f.write(b"through the pipe")
        os._exit(0)
    with open(path("fifo"), "rb") as f:
        assert f.read() == b"through the pipe"
    os.wait()


@check
def names():
    for n in [b"a" * 255, b"\xff\xfe" * 127, "ü".encode() * 127, b" lead", b"trail ", b"new\nline", b"-rf", b"...", b"~", b"a:b", b"*?"]:
        p = os.path.join(os.fsencode(TOP), n)
        with open(p, "wb") as f:
            f.write(n)
        assert n in os.listdir(os.fsencode(TOP))
        with open(p, "rb") as f:
            assert f.read() == n
        os.unlink(p)
    refuses(errno.ENAMETOOLONG, put, "b" * 256)
    refuses(errno.ENAMETOOLONG, os.stat, path("b" * 256))
    refuses(errno.ENAMETOOLONG, os.mkdir, path("b" * 256))


@check
def case_is_kept_apart():
    put("Case", b"1")
    put("case", b"2")
    with open(path("Case"), "rb") as f:
        assert f.read() == b"1"


@check
def modes():
    p = put("mode")
    for m in [0, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o644]:
        os.chmod(p, m)
        assert stat.S_IMODE(os.stat(p).st_mode) == m, oct(m)
    old = os.umask(0o027)
    try:
        os.mkdir(path("masked"), 0o777)
        assert stat.S_IMODE(os.stat(path("masked")).st_mode) == 0o750
    finally:
        os.umask(old)


@check
def owners():
    p = put("owner")
    for u, g in [(1000, 1000), (65534, 65534), (4294967294, 4294967294), (2147483648, 3000000000)]:
        os.chown(p, u, g)
        s = os.stat(p)
        assert (s.st_uid, s.st_gid) == (u, g)
    os.chown(p, 1000, 1000)
    os.chmod(p, 0o6755)
    os.chown(p, -1, 7)
    assert os.stat(p).st_uid == 1000 and os.stat(p).st_gid == 7
    assert as_user(1000, 1000, [], "try: os.chown(sys.argv[1] + '/owner', 0, 0)\nexcept PermissionError: sys.exit(0)\nsys.exit(1)") == 0


@check
def write_clears_set_id_bits():
    p = put("suid", b"#")
    os.chown(p, 1000, 1000)
    os.chmod(p, 0o6777)
    assert as_user(2000, 2000, [], "f = open(sys.argv[1] + '/suid', 'ab'); f.write(b'x'); f.close()") == 0
    assert stat.S_IMODE(os.stat(p).st_mode) == 0o777, oct(os.stat(p).st_mode)


@check
def set_gid_directory_hands_down_its_group():
    os.mkdir(path("gd"))
    os.chown(path("gd"), 0, 4242)
    os.chmod(path("gd"), 0o2777)
    put("gd/f")
    os.mkdir(path("gd/d"))
    assert os.stat(path("gd/f")).st_gid == 4242
    assert os.stat(path("gd/d")).st_gid == 4242
    assert os.stat(path("gd/d")).st_mode & stat.S_ISGID


@check
def supplementary_groups_open_doors():
    p = put("grp", b"secret")
    os.chown(p, 0, 5005)
    os.chmod(p, 0o640)
    read = "try: open(sys.argv[1] + '/grp', 'rb').read()\nexcept PermissionError: sys.exit(1)"
    assert as_user(1000, 1000, [], read) == 1
    assert as_user(1000, 1000, [5000, 5005], read) == 0
    assert as_user(1000, 1000, list(range(5001, 5016)), read) == 0


@check
def permissions_are_enforced():
    put("priv", b"p")
    os.chmod(path("priv"), 0o600)
    os.mkdir(path("shut"), 0o700)
    put("shut/in")
    for code in ["open(sys.argv[1] + '/priv')", "os.listdir(sys.argv[1] + '/shut')", "os.stat(sys.argv[1] + '/shut/in')",
                 "os.chmod(sys.argv[1] + '/priv', 0o777)", "os.utime(sys.argv[1] + '/priv', (1, 1))", "os.truncate(sys.argv[1] + '/priv', 0)"]:
        assert as_user(1000, 1000, [], f"try: {code}\nexcept PermissionError: sys.exit(7)") == 7, code


@check
def sticky_directory():
    os.mkdir(path("sticky"))
    os.chmod(path("sticky"), 0o1777)
    put("sticky/root")
    try_remove = "try: os.unlink(sys.argv[1] + '/sticky/root')\nexcept PermissionError: sys.exit(7)"
    try_rename = "try: os.rename(sys.argv[1] + '/sticky/root', sys.argv[1] + '/sticky/r2')\nexcept PermissionError: sys.exit(7)"
    assert as_user(1000, 1000, [], try_remove) == 7
    assert as_user(1000, 1000, [], try_rename) == 7
    assert as_user(1000, 1000, [], "open(sys.argv[1] + '/sticky/mine', 'w').close(); os.unlink(sys.argv[1] + '/sticky/mine')") == 0


@check
def owner_writes_a_file_created_read_only():
    code = "fd = os.open(sys.argv[1] + '/ro', os.O_CREAT | os.O_WRONLY, 0o444); os.write(fd, b'data'); os.fsync(fd); os.close(fd)"
    assert as_user(1000, 1000, [], code) == 0
    with open(path("ro"), "rb") as f:
        assert f.read() == b"data"


@check
def times():
    p = put("times")
    want = (1234567890123456789, 987654321987654321)
    os.utime(p, ns=want)
    s = os.stat(p)
    assert (s.st_atime_ns, s.st_mtime_ns) == want, (s.st_atime_ns, s.st_mtime_ns)
    assert abs(s.st_ctime - time.time()) < 300
    os.utime(p)
    assert abs(os.stat(p).st_mtime - time.time()) < 300
    d0 = os.stat(TOP).st_mtime_ns
    time.sleep(0.02)
    put("newname")
    assert os.stat(TOP).st_mtime_ns > d0
    c0 = os.stat(p).st_ctime_ns
    time.sleep(0.02)
    os.chmod(p, 0o600)
    assert os.stat(p).st_ctime_ns > c0


@check
def append_and_exclusive():
    p = put("log", b"1")
    for _ in range(10):
        with open(p, "ab") as f:
            f.write(b"2")
    assert os.stat(p).st_size == 11
    fd = os.open(path("excl"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o604)
    os.close(fd)
    assert stat.S_IMODE(os.stat(path("excl")).st_mode) == 0o604
    assert os.stat(path("excl")).st_size == 0
    assert abs(os.stat(path("excl")).st_mtime - time.time()) < 300, "the verifier is still in the times"
    refuses(errno.EEXIST, os.open, path("excl"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(path("excl"), "wb") as f:
        f.write(b"kept")
    os.close(os.open(path("excl"), os.O_CREAT | os.O_WRONLY, 0o600))
    assert os.stat(path("excl")).st_size == 4


@check
def unlinked_while_open():
    p = put("gone", b"still here")
    with open(p, "r+b") as f:
        os.unlink(p)
        assert not os.path.exists(p)
        assert f.read() == b"still here"
        f.write(b"!")
        f.flush()
        os.fsync(f.fileno())


@check
def renames():
    put("r1", b"1")
    put("r2", b"2")
    os.rename(path("r1"), path("r2"))
    with open(path("r2"), "rb") as f:
        assert f.read() == b"1"
    refuses(errno.ENOENT, os.rename, path("r1"), path("r3"))
    for d in ["da", "db", "dc"]:
        os.mkdir(path(d))
    put("db/full")
    refuses(errno.ENOTEMPTY, os.rename, path("da"), path("db"))
    refuses(errno.EISDIR, os.rename, path("r2"), path("da"))
    refuses(errno.ENOTDIR, os.rename, path("da"), path("r2"))
    refuses(errno.EINVAL, os.rename, path("db"), path("db/sub"))
    os.rename(path("db"), path("dc"))
    assert os.listdir(path("dc")) == ["full"]
    os.rename(path("dc/full"), path("da/moved"))
    assert os.listdir(path("dc")) == [] and os.listdir(path("da")) == ["moved"]
    os.link(path("da/moved"), path("twin"))
    os.rename(path("twin"), path("da/moved"))
    assert os.path.exists(path("twin")), "a rename between two names of one file removes neither"
    n = os.stat(TOP).st_nlink
    os.rename(path("dc"), path("da/dc"))
    assert os.stat(TOP).st_nlink == n - 1
    assert os.stat(path("da/dc/..")).st_ino == os.stat(path("da")).st_ino


@check
def directories():
    os.mkdir(path("d"))
    refuses(errno.EEXIST, os.mkdir, path("d"))
    refuses(errno.ENOENT, os.mkdir, path("none/d"))
    refuses(errno.ENOTDIR, os.mkdir, put("file") + "/d")
    refuses(errno.ENOTDIR, os.rmdir, path("file"))
    refuses(errno.EISDIR, os.unlink, path("d"))
    put("d/f")
    refuses(errno.ENOTEMPTY, os.rmdir, path("d"))
    assert os.stat(path("d")).st_nlink == 2
    os.mkdir(path("d/e"))
    assert os.stat(path("d")).st_nlink == 3
    os.rmdir(path("d/e"))
    os.unlink(path("d/f"))
    os.rmdir(path("d"))
    refuses(errno.ENOENT, os.stat, path("d"))


@check
def large_directory_listed_while_it_shrinks():
    os.mkdir(path("many"))
    want = {f"entry-{i:05}" for i in range(3000)}
    for n in want:
        os.close(os.open(path("many", n), os.O_CREAT | os.O_WRONLY))
    got = os.listdir(path("many"))
    assert len(got) == 3000 and set(got) == want
    seen = []
    with os.scandir(path("many")) as it:
        for e in it:
            seen.append(e.name)
            os.unlink(path("many", e.name))
    assert len(seen) == len(set(seen)) == 3000, f"{len(seen)} seen, {len(set(seen))} distinct"
    assert os.listdir(path("many")) == []
    os.rmdir(path("many"))


@check
def inode_numbers_agree():
    put("ino")
    e = next(e for e in os.scandir(TOP) if e.name == "ino")
    assert e.inode() == os.stat(path("ino")).st_ino
    assert os.stat(path("..")).st_dev == os.stat(TOP).st_dev


@check
def statvfs_limits():
    v = os.statvfs(TOP)
    assert v.f_namemax == 255, v.f_namemax
    assert v.f_blocks > 0 and v.f_bavail <= v.f_bfree <= v.f_blocks
    assert os.pathconf(TOP, "PC_LINK_MAX") >= 127


@check
def direct_io():
    import mmap
    buf = mmap.mmap(-1, 1 << 20)
    buf.write(os.urandom(1 << 20))
    fd = os.open(path("direct"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    for off in [0, 4096 * 3, 1 << 20]:
        assert os.pwritev(fd, [buf], off) == 1 << 20
    back = mmap.mmap(-1, 1 << 20)
    assert os.preadv(fd, [back], 1 << 20) == 1 << 20
    assert bytes(back) == bytes(buf)
    os.close(fd)


@check
def memory_mapped():
    import mmap
    p = put("mapped", bytes(100000))
    with open(p, "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
        m[50000:50005] = b"12345"
        m.flush()
        m.close()
    with open(p, "rb") as f:
        f.seek(50000)
        assert f.read(5) == b"12345"


if os.geteuid() != 0:
    sys.exit("files.py must run as root")
failed = 0
for f in CHECKS:
    try:
        f()
        print("ok", f.__name__, flush=True)
    except (AssertionError, OSError) as e:
        failed += 1
        tb = e.__traceback__
        while tb.tb_next and tb.tb_next.tb_frame.f_code.co_filename == __file__:
            tb = tb.tb_next
        print("FAIL", f.__name__, f"line {tb.tb_lineno}: {e!r}".replace("\n", " "), flush=True)
sys.exit(failed != 0)
