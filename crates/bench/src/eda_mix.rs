//! A blend of operations like that of chip design (EDA): many small files, mostly looked up and
//! read for attributes, some made and removed, and data in large sequential pieces.
//!
//! The industry's benchmark of this kind is licensed and its traces are not ours to
//! repeat, so this is *EDA-like*: it has the ratio of operations to bytes that the
//! published figures imply (about 450 operations and 7.26 MB a second for one job set,
//! that is 16 KB an operation), reached by a quarter of the operations moving 64 KiB and
//! three quarters moving none.

use crate::pattern::Rand;

/// One kind of operation of the blend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Getattr,
    Access,
    Lookup,
    Readdirplus,
    Create,
    Remove,
    Read,
    Write,
}

/// The blend, in percent of the operations; the sum is asserted to be 100.
pub const EDA_LIKE: [(Kind, u64); 8] = [
    (Kind::Getattr, 40),
    (Kind::Access, 15),
    (Kind::Lookup, 10),
    (Kind::Readdirplus, 2),
    (Kind::Create, 4),
    (Kind::Remove, 4),
    (Kind::Read, 13),
    (Kind::Write, 12),
];

const _: () = {
    let mut sum = 0;
    let mut i = 0;
    while i < EDA_LIKE.len() {
        sum += EDA_LIKE[i].1;
        i += 1;
    }
    assert!(sum == 100);
};

/// Operations a second of one job set of the published EDA figure.
pub const JOB_SET_OPS: f64 = 450.0;

/// Draws the next operation's kind.
pub fn draw(rand: &mut Rand) -> Kind {
    let mut at = rand.below(100);
    for (kind, share) in EDA_LIKE {
        if at < share {
            return kind;
        }
        at -= share;
    }
    Kind::Getattr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_and_the_bytes_an_operation_are_met() {
        let mut rand = Rand::new(3);
        let n = 100_000;
        let drawn: Vec<Kind> = (0..n).map(|_| draw(&mut rand)).collect();
        for (kind, share) in EDA_LIKE {
            let got = drawn.iter().filter(|k| **k == kind).count() as f64 / n as f64 * 100.0;
            assert!((got - share as f64).abs() < 0.5, "{kind:?}: {got} %");
        }
        let data = EDA_LIKE
            .iter()
            .filter(|(k, _)| matches!(k, Kind::Read | Kind::Write))
            .map(|(_, share)| *share)
            .sum::<u64>();
        let mb_per_s = JOB_SET_OPS * data as f64 / 100.0 * 65536.0 / 1e6;
        assert!(
            (7.26 / mb_per_s - 1.0).abs() < 0.03,
            "{mb_per_s} MB/s a job set"
        );
    }
}
