//! An aggregate in miniature on objects: a superblock, two data objects for each of its versions, a
//! ring of log batches, and data objects that batches refer to.

/// Set of numbers of writes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WriteSet(Vec<u64>);

impl WriteSet {
    pub fn insert(&mut self, write: u64) {
        let word = (write / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (write % 64);
    }

    /// Returns the first write of `all` that is missing.
    pub fn lacks(&self, all: &WriteSet) -> Option<u64> {
        let own = self.0.iter().copied().chain(std::iter::repeat(0));
        let mut words = all.0.iter().zip(own).enumerate();
        words.find_map(|(at, (wanted, own))| {
            let missing = wanted & !own;
            (missing != 0).then(|| at as u64 * 64 + u64::from(missing.trailing_zeros()))
        })
    }

    /// Returns the words at even or odd places.
    fn half(&self, odd: usize) -> impl Iterator<Item = u64> {
        self.0.iter().copied().skip(odd).step_by(2)
    }
}

/// Guarded objects: segments of the log, and the superblock's.
pub const GUARDED: [&str; 5] = ["l.0", "l.1", "l.2", "l.3", SUPERBLOCK];
pub const SUPERBLOCK: &str = "d.0";
/// Segments of the log.
pub const SEGMENTS: u64 = 4;
/// Batches in a segment.
const BATCHES: u64 = 4;
/// Batches in the log.
pub const RING: u64 = SEGMENTS * BATCHES;
/// Bytes of a batch.
const BATCH_BYTES: usize = 64;
/// Maximum number of entries in a batch.
pub const ENTRIES: usize = 4;
/// Versions of the data that have a place.
pub const PLACES: u64 = 3;
/// Places for data that a batch refers to.
pub const DIRECT: u64 = 4;

/// Returns the object of one half of a version's data.
pub fn data(place: u64, half: u64) -> String {
    format!("d.{}", 10 + 2 * place + half)
}

/// Returns the object of data that a batch refers to.
pub fn direct(place: u64) -> String {
    format!("d.{}", 100 + place)
}

fn encode(words: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = (words.len() as u64).to_le_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<u64>> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*head)).ok()?;
    let words = rest.get(..length.checked_mul(8)?)?;
    let sum = rest.get(words.len()..words.len() + 4)?;
    let good = crc32c::crc32c(&bytes[..8 + words.len()]).to_le_bytes() == sum;
    let words = words.chunks_exact(8);
    good.then(|| {
        words
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    })
}

/// The root: which version of the data counts, and where the log begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    pub generation: u64,
    pub place: u64,
    /// First batch that counts.
    pub start: u64,
}

impl Superblock {
    pub fn bytes(self) -> Vec<u8> {
        encode(&[self.generation, self.place, self.start])
    }
}

/// Returns one half of a version's data.
pub fn half(generation: u64, writes: &WriteSet, half: u64) -> Vec<u8> {
    let mut words = vec![generation];
    words.extend(writes.half(half as usize));
    encode(&words)
}

/// Returns data that a batch refers to.
pub fn direct_bytes(write: u64) -> Vec<u8> {
    encode(&[write])
}

/// A write in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub write: u64,
    /// Place of its data, if that is not in the batch.
    pub direct: Option<u64>,
}

/// Returns segment, offset and bytes of a batch.
pub fn batch(number: u64, entries: &[Entry]) -> (String, u64, Vec<u8>) {
    let mut words = vec![number];
    words.extend(entries.iter().map(|entry| {
        let place = entry.direct.map_or(0, |place| place + 1);
        entry.write | place << 48
    }));
    let bytes = encode(&words);
    assert!(bytes.len() <= BATCH_BYTES);
    let segment = format!("l.{}", number / BATCHES % SEGMENTS);
    (segment, number % BATCHES * BATCH_BYTES as u64, bytes)
}

/// Bytes that an owner reads: the superblock, then everything else.
#[derive(Clone, Debug, Default)]
pub struct RawImage {
    pub superblock: Vec<u8>,
    pub halves: [Vec<u8>; 2],
    pub segments: [Vec<u8>; SEGMENTS as usize],
    pub direct: [Vec<u8>; DIRECT as usize],
}

/// State of the aggregate.
#[derive(Clone, Debug)]
pub struct Image {
    pub superblock: Option<Superblock>,
    pub writes: WriteSet,
    /// Number of the next batch.
    pub next: u64,
    /// Places of data that batches refer to.
    pub direct: Vec<u64>,
}

impl RawImage {
    /// Returns the superblock; the inner `None` is an aggregate without one.
    pub fn superblock(&self) -> Result<Option<Superblock>, String> {
        if self.superblock.is_empty() {
            return Ok(None);
        }
        match decode(&self.superblock).as_deref() {
            Some(&[generation, place, start]) => Ok(Some(Superblock {
                generation,
                place,
                start,
            })),
            _ => Err("the superblock is damaged".to_owned()),
        }
    }

    /// Replays the log.
    pub fn image(&self) -> Result<Image, String> {
        let superblock = self.superblock()?;
        let mut writes = WriteSet::default();
        if let Some(root) = superblock {
            let mut halves = [0, 1].map(|half: usize| decode(&self.halves[half]));
            for half in &mut halves {
                let words = half.as_mut().ok_or("data is damaged")?;
                if words.is_empty() || words.remove(0) != root.generation {
                    return Err("data is of another version".to_owned());
                }
            }
            let [Some(even), Some(odd)] = halves else {
                return Err("data is damaged".to_owned());
            };
            let mut odd = odd.into_iter();
            for word in even {
                writes.0.push(word);
                writes.0.extend(odd.next());
            }
        }
        let mut next = superblock.map_or(0, |root| root.start);
        let mut direct = Vec::new();
        while let Some(entries) = self.batch(next) {
            for entry in entries {
                if let Some(place) = entry.direct {
                    let found = decode(&self.direct[place as usize]);
                    if found != Some(vec![entry.write]) {
                        return Err(format!("data of write {} is gone", entry.write));
                    }
                    direct.push(place);
                }
                writes.insert(entry.write);
            }
            next += 1;
        }
        Ok(Image {
            superblock,
            writes,
            next,
            direct,
        })
    }

    fn batch(&self, number: u64) -> Option<Vec<Entry>> {
        let segment = &self.segments[(number / BATCHES % SEGMENTS) as usize];
        let from = (number % BATCHES) as usize * BATCH_BYTES;
        let words = decode(segment.get(from..)?)?;
        let (found, entries) = words.split_first()?;
        let entry = |word: &u64| Entry {
            write: word & ((1 << 48) - 1),
            direct: (word >> 48).checked_sub(1),
        };
        (*found == number).then(|| entries.iter().map(entry).collect())
    }
}
