//! Limits of the CSI driver, whose callers are the sidecars and the kubelet of one machine.

/// Maximum size of a call's message in bytes: that of gRPC's own libraries.
pub const MAX_CALL: usize = 4 << 20;

/// Maximum number of calls that are processed at a time. Further ones wait.
pub const MAX_CALLS: usize = 64;

/// Maximum length of an identifier that the driver gives to a volume or a snapshot, in bytes. An
/// id of CSI holds a location and two of them in 128 bytes.
pub const MAX_ID: usize = 50;

/// Maximum length of a location in bytes, likewise.
pub const MAX_LOCATION: usize = 26;

/// Maximum number of volumes or snapshots in a list without a limit of the caller's.
pub const MAX_LISTED: usize = 100_000;

/// Maximum size of a response of the server in bytes.
pub const MAX_ANSWER: u64 = 64 << 20;
