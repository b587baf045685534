//! What the engine does and NFSv3 has no operation for.

use weir_base::Time;
use weir_base::limits::MAX_FILE_SIZE;

use super::{Body, Expect, Model};
use crate::model::errors::{Answer, TOO_BIG, none_of, not_a_file};
use crate::model::op::{Data, Errno, Errors, Name, Slot};

impl Model {
    pub(super) fn punch(&mut self, slot: Slot, offset: u64, len: u64, now: Time) -> Answer<Expect> {
        let end = offset.checked_add(len).filter(|end| *end <= MAX_FILE_SIZE);
        none_of(&[
            self.live(slot).err(),
            self.live(slot).ok().and_then(not_a_file),
            end.is_none().then_some(TOO_BIG),
            (len == 0).then(|| Errors::of(&[Errno::Invalid])),
        ])?;
        let node = self.node_mut(slot);
        node.touch(now);
        node.settle();
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

    pub(super) fn set_xattr(
        &mut self,
        slot: Slot,
        name: &Name,
        value: Option<Data>,
        now: Time,
    ) -> Answer<Expect> {
        let there = self.live(slot)?.xattrs.contains_key(name);
        if value.is_none() && !there {
            return Err(Errors::of(&[Errno::NotFound]));
        }
        let node = self.node_mut(slot);
        match value {
            Some(value) => node.xattrs.insert(name.clone(), value),
            None => node.xattrs.remove(name),
        };
        node.moved.ctime = now;
        node.settle();
        Ok(Expect {
            changed: vec![slot],
            ..Expect::default()
        })
    }
}

/// Extended attributes, in the order of their names, as the answer to [`Op::Xattrs`] has them in one piece.
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
