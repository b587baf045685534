//! A client of the volume, one call at a time, over the load generator's codec.

use weir_bench::control::Control;
use weir_bench::error::BenchError;
use weir_bench::nfs3::{self, Handle, Proc, Stable, WriteReply};

use super::{Server, root};

/// A mounted `/vol1`. Failed calls return their nfsstat3.
pub struct Client {
    calls: Control,
    pub root: Handle,
}

/// Takes apart what the protocol refused from what did not work at all.
fn status<T>(result: Result<T, BenchError>) -> Result<T, u32> {
    match result {
        Ok(value) => Ok(value),
        Err(BenchError::Status(_, status)) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

impl Client {
    pub fn mount(server: &Server) -> Client {
        Client::mount_at(server, "/vol1")
    }

    /// Mounts the volume that is exported at `path`.
    pub fn mount_at(server: &Server, path: &str) -> Client {
        let mut calls = server.client();
        let root = calls.mount(path, Some(&root())).unwrap();
        Client { calls, root }
    }

    pub fn create(&mut self, name: &str) -> Result<Handle, u32> {
        let dir = self.root;
        let made = self.calls.one(
            "CREATE",
            |c, out, xid| c.create(out, xid, &dir, name.as_bytes()),
            nfs3::created,
        );
        status(made).map(|handle| handle.unwrap())
    }

    pub fn try_lookup(&mut self, name: &str) -> Option<Handle> {
        self.calls.lookup(&self.root, name.as_bytes()).unwrap()
    }

    pub fn lookup(&mut self, name: &str) -> Handle {
        self.calls
            .lookup(&self.root, name.as_bytes())
            .unwrap()
            .unwrap()
    }

    pub fn remove(&mut self, name: &str) -> Result<(), u32> {
        let dir = self.root;
        status(self.calls.one(
            "REMOVE",
            |c, out, xid| c.of_name(out, xid, Proc::Remove, &dir, name.as_bytes()),
            nfs3::removed,
        ))
    }

    /// Writes `data` (a multiple of four bytes).
    pub fn write(
        &mut self,
        file: &Handle,
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Result<WriteReply, u32> {
        status(self.calls.one(
            "WRITE",
            |c, out, xid| {
                c.write_head(out, xid, file, offset, data.len() as u32, stable);
                out.extend_from_slice(data);
            },
            nfs3::written,
        ))
    }

    pub fn commit(&mut self, file: &Handle) -> Result<[u8; 8], u32> {
        status(self.calls.one(
            "COMMIT",
            |c, out, xid| c.commit(out, xid, file),
            nfs3::committed,
        ))
    }

    pub fn read(&mut self, file: &Handle, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        status(self.calls.one(
            "READ",
            |c, out, xid| c.read(out, xid, file, offset, count),
            |r| {
                let head = nfs3::read_head(r)?;
                let data = r.fixed(head.data_len as usize)?.to_vec();
                r.fixed(weir_bench::xdr::padding(data.len()))?;
                Ok(data)
            },
        ))
    }

    /// A new file with `data`, durable.
    pub fn file(&mut self, name: &str, data: &[u8]) -> Handle {
        let file = self.create(name).unwrap();
        let written = self.write(&file, 0, data, Stable::FileSync).unwrap();
        assert_eq!(
            (written.count as usize, written.committed),
            (data.len(), Some(Stable::FileSync))
        );
        file
    }
}
