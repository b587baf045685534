"""A client of NFSv3: libnfs's calls, each of which waits for its end."""

import ctypes
import errno
import os

STAT_FIELDS = ("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks", "atime", "mtime", "ctime",
               "atime_nsec", "mtime_nsec", "ctime_nsec", "used")


class Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in STAT_FIELDS]


class Entry(ctypes.Structure):
    # What follows differs by version.
    _fields_ = [("next", ctypes.c_void_p), ("name", ctypes.c_char_p), ("inode", ctypes.c_uint64)]


class Space(ctypes.Structure):
    _fields_ = [("bsize", ctypes.c_ulong), ("frsize", ctypes.c_ulong), ("blocks", ctypes.c_uint64), ("bfree", ctypes.c_uint64),
                ("bavail", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 16)]


LIB = ctypes.CDLL("libnfs.so.13")
LIB.nfs_init_context.restype = ctypes.c_void_p
LIB.nfs_parse_url_dir.restype = ctypes.POINTER(Url)
LIB.nfs_readdir.restype = ctypes.POINTER(Entry)
LIB.nfs_get_error.restype = ctypes.c_char_p


class Client:
    """A mount."""

    def __init__(self, url):
        self.context = ctypes.c_void_p(LIB.nfs_init_context())
        parsed = LIB.nfs_parse_url_dir(self.context, url.encode())
        if not parsed:
            raise ValueError(f"{url}: {self.error()}")
        self.call("mount", parsed.contents.server, parsed.contents.path)
        LIB.nfs_destroy_url(parsed)

    def close(self):
        LIB.nfs_destroy_context(self.context)

    def error(self):
        return (LIB.nfs_get_error(self.context) or b"").decode(errors="replace")

    def call(self, name, *words):
        words = [word.encode() if isinstance(word, str) else word for word in words]
        result = getattr(LIB, f"nfs_{name}")(self.context, *words)
        if result < 0:
            raise OSError(-result, f"{name} {words}: {self.error()} ({errno.errorcode.get(-result)})")
        return result

    def mkdir(self, path):
        self.call("mkdir", path)

    def rmdir(self, path):
        self.call("rmdir", path)

    def unlink(self, path):
        self.call("unlink", path)

    def rename(self, old, new):
        self.call("rename", old, new)

    def link(self, old, new):
        self.call("link", old, new)

    def chmod(self, path, mode):
        self.call("chmod", path, mode)

    def write(self, path, data):
        """Makes a file, or writes over the beginning of one."""
        handle = ctypes.c_void_p()
        self.call("open2", path, os.O_CREAT | os.O_WRONLY, 0o644, ctypes.byref(handle))
        try:
            self.call("write", handle, ctypes.c_uint64(len(data)), data)
        finally:
            self.call("close", handle)

    def read(self, path):
        handle = ctypes.c_void_p()
        self.call("open", path, os.O_RDONLY, ctypes.byref(handle))
        try:
            buffer = ctypes.create_string_buffer(1 << 16)
            count = self.call("read", handle, ctypes.c_uint64(1 << 16), buffer)
            return buffer.raw[:count]
        finally:
            self.call("close", handle)

    def reads(self, path, size, until):
        """Reads the beginning of a file again and again, until `until()`."""
        handle = ctypes.c_void_p()
        self.call("open", path, os.O_RDONLY, ctypes.byref(handle))
        try:
            buffer = ctypes.create_string_buffer(size)
            while not until():
                self.call("pread", handle, ctypes.c_uint64(0), ctypes.c_uint64(size), buffer)
        finally:
            self.call("close", handle)

    def stat(self, path):
        found = Stat()
        self.call("stat64", path, ctypes.byref(found))
        return found

    def space(self):
        found = Space()
        self.call("statvfs", "/", ctypes.byref(found))
        return found

    def names(self, path):
        """Names and inode numbers of a directory's entries."""
        directory = ctypes.c_void_p()
        self.call("opendir", path, ctypes.byref(directory))
        found = {}
        while entry := LIB.nfs_readdir(self.context, directory):
            found[entry.contents.name.decode()] = entry.contents.inode
        LIB.nfs_closedir(self.context, directory)
        del found["."], found[".."]
        return found
