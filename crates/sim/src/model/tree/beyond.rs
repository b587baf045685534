//! Operations of the engine that NFSv3 lacks.

use std::collections::BTreeMap;

use weir_base::Time;
use weir_base::limits::{MAX_FILE_SIZE, MAX_SYMLINK};

use super::{Body, Expect, Model};
use crate::model::content::{Content, PAGE};
use crate::model::errors::{Answer, NAME_TOO_LONG, NOT_FOUND, TOO_BIG, none_of, not_a_file};
use crate::model::op::{Data, Errno, Errors, Kind, Name, Op, Slot};

impl Model {
    /// Performs one of these operations.
    pub(super) fn beyond(&mut self, op: &Op, now: Time) -> Answer<Expect> {
        match op {
            Op::Punch {
                object,
                offset,
                len,
            } => self.punch(*object, *offset, *len, now),
            Op::Clone {
                source,
                from,
                object,
                to,
                len,
            } => self.clone_range((*source, *from), (*object, *to), *len, now),
            Op::Convert {
                object,
                dir,
                name,
                target,
            } => self.convert(*object, (*dir, name), target.as_ref(), now),
            Op::SetXattr {
                object,
                name,
                value,
            } => self.set_xattr(*object, name, *value, now),
            Op::Xattrs { object } => {
                let all = &self.live(*object)?.xattrs;
                let all = all.iter().map(|(name, value)| (&*name.0, value.bytes()));
                Ok(Expect {
                    data: Some(listed_xattrs(all)),
                    ..Expect::default()
                })
            }
            Op::Open { object } => {
                self.live(*object)?;
                self.node_mut(*object).open = true;
                Ok(Expect::default())
            }
            _ => unreachable!("NFSv3 has {op:?}"),
        }
    }

    fn convert(
        &mut self,
        object: Slot,
        (dir, name): (Slot, &Name),
        target: Option<&Name>,
        now: Time,
    ) -> Answer<Expect> {
        if target.is_some_and(|target| target.len() > MAX_SYMLINK) {
            return Err(NAME_TOO_LONG);
        }
        if self.lookup(dir, name)? != object {
            return Err(NOT_FOUND);
        }
        let invalid = Errors::from_list(&[Errno::Invalid]);
        let node = self.live(object)?;
        let other_kind = node.kind() != Kind::Symlink || target.is_none();
        let names = match node.kind() {
            Kind::Dir => 1,
            _ => node.nlink,
        };
        let of_directory = match &node.body {
            Body::File(_) if target.is_some() && node.moved.size == 0 => false,
            Body::Dir { entries, .. } if target.is_some() && entries.is_empty() => true,
            Body::Dir { .. } if target.is_some() => {
                return Err(Errors::from_list(&[Errno::NotEmpty]));
            }
            Body::Symlink(_) => node.of_directory,
            _ => return Err(invalid),
        };
        if other_kind && names != 1 {
            return Err(invalid);
        }
        let node = self.node_mut(object);
        node.touch(now);
        node.mark_logged();
        node.verifier = None;
        node.moved.size = target.map_or(0, |target| target.len() as u64);
        node.of_directory = target.is_some() && of_directory;
        node.nlink = match (target, of_directory) {
            (None, true) => 2,
            _ => names,
        };
        node.body = match (target, of_directory) {
            (Some(target), _) => Body::Symlink(target.to_vec()),
            (None, true) => Body::Dir {
                entries: BTreeMap::new(),
                parent: dir,
            },
            (None, false) => Body::File(Content::default()),
        };
        if other_kind {
            let parent = self.node_mut(dir);
            parent.touch(now);
            match (of_directory, target) {
                (true, Some(_)) => parent.nlink -= 1,
                (true, None) => parent.nlink += 1,
                _ => {}
            }
        }
        Ok(Expect {
            changed: vec![object],
            ..Expect::default()
        })
    }

    fn clone_range(
        &mut self,
        (source, from): (Slot, u64),
        (object, to): (Slot, u64),
        len: u64,
        now: Time,
    ) -> Answer<Expect> {
        let (giver, taker) = (self.live(source), self.live(object));
        none_of(&[
            giver.as_ref().err().copied(),
            taker.as_ref().err().copied(),
            giver.as_ref().ok().and_then(|node| not_a_file(node)),
            taker.as_ref().ok().and_then(|node| not_a_file(node)),
        ])?;
        let (size, target) = (giver?.moved.size, taker?.moved.size);
        let end = match len {
            0 => Some(size),
            len => from.checked_add(len),
        };
        let range = end.filter(|end| from <= *end && *end <= size);
        let len = range.map_or(0, |end| end - from);
        let to_end = to.checked_add(len).filter(|end| *end <= MAX_FILE_SIZE);
        let at_end = range == Some(size) && to_end.is_some_and(|end| end >= target);
        let aligned = [from, to].iter().all(|at| at % PAGE == 0) && (len % PAGE == 0 || at_end);
        let overlap = source == object && from.abs_diff(to) < len.next_multiple_of(PAGE);
        let bad = range.is_none() || !aligned || overlap;
        none_of(&[
            bad.then(|| Errors::from_list(&[Errno::Invalid])),
            to_end.is_none().then_some(TOO_BIG),
        ])?;
        let expect = Expect {
            changed: vec![object],
            ..Expect::default()
        };
        if len == 0 {
            return Ok(expect);
        }
        let Body::File(content) = &self.live(source)?.body else {
            unreachable!("it is a file");
        };
        let count = len.div_ceil(PAGE);
        let pages = content.range(from / PAGE, count);
        let node = self.node_mut(object);
        node.touch(now);
        node.mark_logged();
        node.moved.size = target.max(to_end.unwrap_or(0));
        if let Body::File(content) = &mut node.body {
            content.put_range(to / PAGE, count, pages);
        }
        Ok(expect)
    }

    fn punch(&mut self, slot: Slot, offset: u64, len: u64, now: Time) -> Answer<Expect> {
        let end = offset.checked_add(len).filter(|end| *end <= MAX_FILE_SIZE);
        none_of(&[
            self.live(slot).err(),
            self.live(slot).ok().and_then(not_a_file),
            end.is_none().then_some(TOO_BIG),
            (len == 0).then(|| Errors::from_list(&[Errno::Invalid])),
        ])?;
        let node = self.node_mut(slot);
        node.touch(now);
        node.mark_logged();
        let end = end.unwrap_or(0).min(node.moved.size);
        if let Body::File(content) = &mut node.body
            && offset < end
        {
            content.punch(offset, end);
        }
        Ok(Expect {
            changed: vec![slot],
            ..Expect::default()
        })
    }

    fn set_xattr(
        &mut self,
        slot: Slot,
        name: &Name,
        value: Option<Data>,
        now: Time,
    ) -> Answer<Expect> {
        let there = self.live(slot)?.xattrs.contains_key(name);
        if value.is_none() && !there {
            return Err(Errors::from_list(&[Errno::NotFound]));
        }
        let node = self.node_mut(slot);
        match value {
            Some(value) => node.xattrs.insert(name.clone(), value),
            None => node.xattrs.remove(name),
        };
        node.moved.ctime = now;
        node.mark_logged();
        Ok(Expect {
            changed: vec![slot],
            ..Expect::default()
        })
    }
}

/// Extended attributes, in the order of their names, encoded in one piece as the result of
/// [`Op::Xattrs`].
#[must_use]
pub fn listed_xattrs<'a>(all: impl Iterator<Item = (&'a [u8], Vec<u8>)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in all {
        for part in [name, &value] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
    out
}
