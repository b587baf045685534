//! The working set: what the share holds before the load begins, and what becomes of it.

use super::args::{SmbArgs, SmbLoad};
use super::link::Link;
use super::load::{CREATED, FILE, Letter, MADE, Work};
use super::wire::{FileId, Open, Request, SAME, status};
use super::{NullObserver, drive};
use crate::error::BenchError;
use std::sync::atomic::AtomicU64;

/// A session with its connections, and what it has open.
#[derive(Default)]
pub struct Client {
    /// Its connections.
    pub links: Vec<Link>,
    /// The files of data loads, by number.
    pub files: Vec<FileId>,
    /// Directories to list, several times over: one for each operation that may be in flight.
    pub listings: Vec<FileId>,
}

/// The working set.
pub struct Set {
    /// Files of the set.
    pub file_count: u64,
    /// Bytes of each, in data loads.
    pub file_size: u64,
}

/// The directory of this number, by its path.
pub fn dir_path(args: &SmbArgs, number: u32) -> String {
    format!("{}\\d{number:05}", args.dir)
}

/// The file of this number in data loads, by its path.
fn data_path(args: &SmbArgs, number: u64) -> String {
    format!("{}\\f{number:010}", args.dir)
}

impl Client {
    /// The connection for what is not measured.
    fn control(&mut self) -> Result<&mut Link, BenchError> {
        let first = self.links.first_mut();
        first.ok_or_else(|| BenchError::Usage("a client without a connection".into()))
    }

    fn open(&mut self, path: &str, how: Open) -> Result<(FileId, u64), BenchError> {
        let mut opened = None;
        self.control()?
            .call("CREATE", &[Request::Create(path, how)], |_, response| {
                opened = Some(response.created()?);
                Ok(())
            })?;
        opened.ok_or_else(|| BenchError::Protocol("CREATE without a file".into()))
    }

    fn open_and_close(&mut self, path: &str, how: Open) -> Result<(), BenchError> {
        let requests = [Request::Create(path, how), Request::Close(SAME)];
        self.control()?.call("CREATE", &requests, |_, _| Ok(()))
    }

    /// Removes a directory that is empty; others stay.
    fn remove_dir(&mut self, path: &str) -> Result<(), BenchError> {
        match self.open_and_close(path, Open::DELETE) {
            Err(BenchError::Refused(
                _,
                _,
                status::DIRECTORY_NOT_EMPTY | status::OBJECT_NAME_NOT_FOUND,
            )) => Ok(()),
            other => other,
        }
    }
}

/// Carries out what is not measured.
fn fill(args: &SmbArgs, clients: &mut [Client], set: &Set, work: Work) -> Result<(), BenchError> {
    drive(args, clients, set, work, &AtomicU64::new(0), &NullObserver).map(|_| ())
}

impl Set {
    /// One that was made before, of which nothing is open.
    pub fn open(args: &SmbArgs) -> Self {
        Self {
            file_count: args.file_count(),
            file_size: 0,
        }
    }

    /// Makes what `args` asks for, and opens what the load has open.
    pub fn prepare(args: &SmbArgs, clients: &mut [Client]) -> Result<Self, BenchError> {
        let mut set = Self::open(args);
        let Some(first) = clients.first_mut() else {
            return Err(BenchError::Usage("no client".into()));
        };
        first.open_and_close(&args.dir, Open::DIRECTORY_IF)?;
        if args.load.is_data() {
            return set.prepare_data(args, clients);
        }
        for number in 0..args.dirs {
            first.open_and_close(&dir_path(args, number), Open::DIRECTORY_IF)?;
        }
        if args.load.needs_files() {
            fill(args, clients, &set, Work::Make)?;
        }
        if args.load == SmbLoad::List {
            let each = args.connections * args.depth;
            for client in clients.iter_mut() {
                for n in 0..each {
                    let path = dir_path(args, n % args.dirs);
                    let opened = client.open(&path, Open::LISTING)?;
                    client.listings.push(opened.0);
                }
            }
        }
        set.file_size = 0;
        Ok(set)
    }

    fn prepare_data(mut self, args: &SmbArgs, clients: &mut [Client]) -> Result<Self, BenchError> {
        self.file_size = args.size / self.file_count / args.block_size * args.block_size;
        if self.file_size == 0 {
            return Err(BenchError::Usage(format!(
                "a working set of {} bytes has no block of {} for each of {} files",
                args.size, args.block_size, self.file_count
            )));
        }
        let mut whole = true;
        for client in clients.iter_mut() {
            for number in 0..self.file_count {
                let (file, size) = client.open(&data_path(args, number), Open::DATA)?;
                client.files.push(file);
                whole &= size == self.file_size;
            }
        }
        if !(args.run.reuse && whole) {
            fill(args, clients, &self, Work::Fill)?;
        }
        let reads = match args.load {
            SmbLoad::Mix => args.read_percent > 0,
            load => load == SmbLoad::Read,
        };
        if reads && !args.run.no_preread {
            fill(args, clients, &self, Work::Preread)?;
        }
        Ok(self)
    }

    /// Closes what is open, and removes what is not to be kept; `made`: how much the load made.
    pub fn leave(
        &self,
        args: &SmbArgs,
        clients: &mut [Client],
        made: u64,
    ) -> Result<(), BenchError> {
        for client in clients.iter_mut() {
            let open = [&mut client.files, &mut client.listings].map(std::mem::take);
            for file in open.concat() {
                let close = [Request::Close(file)];
                client.control()?.call("CLOSE", &close, |_, _| Ok(()))?;
            }
        }
        if args.run.keep {
            return Ok(());
        }
        let family: Option<(Letter, u64)> = match args.load {
            SmbLoad::Create | SmbLoad::CreateWrite => Some((CREATED, made)),
            SmbLoad::Mkdir => Some((MADE, made)),
            load if load.needs_files() => Some((FILE, self.file_count)),
            _ => None,
        };
        if let Some((letter, count)) = family {
            let work = Work::Remove { letter, count };
            fill(args, clients, self, work)?;
        }
        let Some(first) = clients.first_mut() else {
            return Ok(());
        };
        match args.load.is_data() {
            true => {
                for number in 0..self.file_count {
                    first.open_and_close(&data_path(args, number), Open::DELETE)?;
                }
            }
            false => {
                for number in 0..args.dirs {
                    first.remove_dir(&dir_path(args, number))?;
                }
            }
        }
        first.remove_dir(&args.dir)
    }
}
