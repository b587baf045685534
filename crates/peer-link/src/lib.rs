//! Connections between nodes: a pair's, SnapMirror's, and those to a witness.
//!
//! - [`identity`]: the certificate of this node, and TLS to nodes whose certificates it knows;
//! - [`door`]: admission of connections that have not shown a certificate yet;
//! - [`stream`]: outgoing connections, and the settings of sockets;
//! - [`pairing`]: the exchange by which two nodes learn each other's certificates from a
//!   passphrase.
//!
//! What travels within a connection is not known here. A pair's messages (`weir_mirror::wire`) and
//! a transfer's frames (`weir_transfer::wire`) have different headers, so each keeps its own
//! decoder. A pair is made by hand, with fingerprints (`weir pair create`, `join`, `accept`),
//! before either node runs; peers are paired by nodes that run.

pub mod door;
pub mod identity;
pub mod pairing;
pub mod stream;
