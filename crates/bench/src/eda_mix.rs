//! Blends of operations like those of chip design (EDA).
//!
//! The industry's benchmark of this kind is licensed and its traces are not ours to repeat, so
//! these blends are *EDA-like*. [`EDA_LIKE`] has the ratio of operations to bytes that the
//! published figures imply (about 450 operations and 7.26 MB a second for one job set, that is
//! 16 KB an operation), reached by a quarter of the operations moving 64 KiB and three quarters
//! moving none. [`FRONT_END`] has the shares of operations that are published of the benchmark's
//! front end; its back end is reads and writes, half each, and needs no blend.

use crate::pattern::Rand;

/// One kind of operation of a blend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// GETATTR of a file.
    Getattr,
    /// ACCESS of a file.
    Access,
    /// LOOKUP of a file.
    Lookup,
    /// READDIRPLUS of a part of a directory.
    Readdirplus,
    /// SETATTR of a file's mode.
    Chmod,
    /// CREATE of an empty file.
    Create,
    /// REMOVE of a file that the load made.
    Remove,
    /// MKDIR.
    Mkdir,
    /// READ of the next block in sequence.
    Read,
    /// WRITE of the next block in sequence.
    Write,
    /// READ of a whole file.
    ReadFile,
    /// WRITE of a whole file.
    WriteFile,
    /// READ of a random part of a file.
    ReadPart,
    /// WRITE of a random part of a file.
    WritePart,
}

/// Kinds of operations with their shares in percent; the sum is asserted to be 100.
pub type Blend = [(Kind, u64)];

/// A blend of both phases.
pub const EDA_LIKE: &Blend = &[
    (Kind::Getattr, 40),
    (Kind::Access, 15),
    (Kind::Lookup, 10),
    (Kind::Readdirplus, 2),
    (Kind::Create, 4),
    (Kind::Remove, 4),
    (Kind::Read, 13),
    (Kind::Write, 12),
];

/// The front end: small files in many directories.
///
/// Source: Microsoft, "Benefits of using Azure NetApp Files for Electronic Design Automation",
/// which lists the shares of the benchmark's front end: stat 39, access 15, random write 15, write
/// of a file 10, random read 8, read of a file 7, create 2, chmod 1, mkdir 1, two kinds of unlink
/// 1 each. A client answers stat by GETATTR, LOOKUP or READDIRPLUS; how often by which is ours.
pub const FRONT_END: &Blend = &[
    (Kind::Getattr, 26),
    (Kind::Lookup, 11),
    (Kind::Readdirplus, 2),
    (Kind::Access, 15),
    (Kind::WritePart, 15),
    (Kind::WriteFile, 10),
    (Kind::ReadPart, 8),
    (Kind::ReadFile, 7),
    (Kind::Create, 2),
    (Kind::Chmod, 1),
    (Kind::Mkdir, 1),
    (Kind::Remove, 2),
];

/// Parts of a file that [`Kind::ReadPart`] and [`Kind::WritePart`] choose from.
pub const PARTS: u64 = 4;

const fn sum(blend: &Blend) -> u64 {
    let mut sum = 0;
    let mut i = 0;
    while i < blend.len() {
        sum += blend[i].1;
        i += 1;
    }
    sum
}

const _: () = assert!(sum(EDA_LIKE) == 100 && sum(FRONT_END) == 100);

/// Operations a second of one job set of the published EDA figure.
pub const JOB_SET_OPS: f64 = 450.0;

/// Draws the next operation's kind.
pub fn draw(blend: &Blend, rand: &mut Rand) -> Kind {
    let mut at = rand.below(100);
    for (kind, share) in blend {
        if at < *share {
            return *kind;
        }
        at -= share;
    }
    Kind::Getattr
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of the shares of the kinds that `which` chooses, in percent.
    fn share(blend: &Blend, which: impl Fn(Kind) -> bool) -> u64 {
        let chosen = blend.iter().filter(|(kind, _)| which(*kind));
        chosen.map(|(_, share)| share).sum()
    }

    #[test]
    fn the_shares_are_met() {
        for blend in [EDA_LIKE, FRONT_END] {
            let mut rand = Rand::new(3);
            let n = 100_000;
            let drawn: Vec<Kind> = (0..n).map(|_| draw(blend, &mut rand)).collect();
            for (kind, share) in blend {
                let got = drawn.iter().filter(|k| *k == kind).count() as f64 / n as f64 * 100.0;
                assert!((got - *share as f64).abs() < 0.5, "{kind:?}: {got} %");
            }
        }
    }

    #[test]
    fn the_blend_of_both_phases_moves_the_published_bytes() {
        let data = share(EDA_LIKE, |k| matches!(k, Kind::Read | Kind::Write));
        let mb_per_s = JOB_SET_OPS * data as f64 / 100.0 * 65536.0 / 1e6;
        assert!(
            (7.26 / mb_per_s - 1.0).abs() < 0.03,
            "{mb_per_s} MB/s a job set"
        );
    }

    #[test]
    fn the_front_end_has_the_published_shares() {
        type Chosen = fn(Kind) -> bool;
        let stat: Chosen = |k| matches!(k, Kind::Getattr | Kind::Lookup | Kind::Readdirplus);
        let published: [(&str, Chosen, u64); 10] = [
            ("stat", stat, 39),
            ("access", |k| k == Kind::Access, 15),
            ("random write", |k| k == Kind::WritePart, 15),
            ("write of a file", |k| k == Kind::WriteFile, 10),
            ("random read", |k| k == Kind::ReadPart, 8),
            ("read of a file", |k| k == Kind::ReadFile, 7),
            ("create", |k| k == Kind::Create, 2),
            ("chmod", |k| k == Kind::Chmod, 1),
            ("mkdir", |k| k == Kind::Mkdir, 1),
            ("unlink", |k| k == Kind::Remove, 2),
        ];
        for (name, which, percent) in published {
            assert_eq!(share(FRONT_END, which), percent, "{name}");
        }
    }
}
