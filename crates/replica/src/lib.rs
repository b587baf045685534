//! Transfers of snapshots between volumes, under throttles.
