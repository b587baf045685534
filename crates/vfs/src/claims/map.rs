//! Maps and sets of the table.

use foldhash::fast::RandomState;

/// Map with a hash by a random number of the process. An open goes through a dozen look-ups, which
/// with the standard library's hash are most of its cost.
pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// Set with the same hash.
pub(super) type HashSet<K> = std::collections::HashSet<K, RandomState>;
