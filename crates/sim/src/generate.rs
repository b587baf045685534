//! Random operations.
//!
//! Uniform randomness finds little: two operations rarely meet. So there are few names and few
//! objects (collisions, renames over each other, hard links), sizes and offsets cluster at the
//! edges where code has cases (page boundaries, the present end of a file, the largest offset), and
//! dead objects are addressed now and then (stale handles).

use std::collections::BTreeMap;

use weir_base::Time;
use weir_base::limits::{MAX_FILE_SIZE, MAX_NAME, MAX_SYMLINK};

use crate::model::{
    Body, CreateMode, Data, Guard, Kind, Model, Name, Op, PAGE, ROOT, Set, SetTo, Slot, Stable,
};
use crate::rand::Choices;

/// Preferences of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Weights in the order of [`Choice`].
    pub weights: [u32; CHOICES],
    /// Number of living objects above which more are removed than made.
    pub objects: usize,
    /// Maximum length of a write in bytes.
    pub longest: u32,
    /// True if offsets may be terabytes and beyond.
    pub huge: bool,
    /// True if names, offsets and handles occur that must be refused.
    pub invalid: bool,
    /// Number of writes out of 8 that are UNSTABLE.
    pub unstable: u64,
}

const CHOICES: usize = 21;

/// Kinds of operations, as indexes of [`Profile::weights`].
#[derive(Clone, Copy)]
enum Choice {
    Lookup,
    Getattr,
    Setattr,
    Readlink,
    Read,
    Write,
    Commit,
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Remove,
    Rmdir,
    Rename,
    Link,
    Readdir,
    Punch,
    Clone,
    SetXattr,
    Convert,
    Open,
}

const ALL: [Choice; CHOICES] = [
    Choice::Lookup,
    Choice::Getattr,
    Choice::Setattr,
    Choice::Readlink,
    Choice::Read,
    Choice::Write,
    Choice::Commit,
    Choice::Create,
    Choice::Mkdir,
    Choice::Symlink,
    Choice::Mknod,
    Choice::Remove,
    Choice::Rmdir,
    Choice::Rename,
    Choice::Link,
    Choice::Readdir,
    Choice::Punch,
    Choice::Clone,
    Choice::SetXattr,
    Choice::Convert,
    Choice::Open,
];

impl Profile {
    /// Returns a profile of all operations: names, data, links, invalid and huge operations.
    #[must_use]
    pub fn mixed() -> Profile {
        Profile {
            weights: [
                5, 4, 8, 2, 10, 22, 4, 10, 5, 3, 2, 7, 4, 8, 4, 4, 4, 4, 4, 4, 2,
            ],
            objects: 40,
            longest: 300_000,
            huge: true,
            invalid: true,
            unstable: 4,
        }
    }

    /// Names only: directories, links, renames.
    #[must_use]
    pub fn names() -> Profile {
        Profile {
            weights: [
                4, 2, 4, 1, 1, 2, 1, 14, 10, 3, 3, 12, 8, 20, 8, 6, 0, 1, 3, 6, 4,
            ],
            objects: 60,
            longest: 5000,
            huge: false,
            invalid: true,
            unstable: 4,
        }
    }

    /// Data of few files.
    #[must_use]
    pub fn data() -> Profile {
        Profile {
            weights: [
                1, 1, 10, 0, 14, 50, 8, 4, 1, 0, 0, 2, 1, 2, 1, 1, 10, 15, 1, 1, 1,
            ],
            objects: 8,
            longest: 600_000,
            huge: true,
            invalid: false,
            unstable: 4,
        }
    }

    /// Returns the profile without operations that NFSv3 lacks.
    #[must_use]
    pub fn over_nfs3(mut self) -> Profile {
        let [.., punch, clone, xattr, convert, open] = &mut self.weights;
        (*punch, *clone, *xattr, *convert, *open) = (0, 0, 0, 0, 0);
        self
    }

    /// Returns the profile without opens, so that removing an object frees its space.
    #[must_use]
    pub fn without_opens(mut self) -> Profile {
        let [.., open] = &mut self.weights;
        *open = 0;
        self
    }

    /// Returns a profile of changes only, as a crash can lose them: no reads, nothing invalid.
    #[must_use]
    pub fn mutations() -> Profile {
        Profile {
            weights: [
                0, 0, 8, 0, 1, 30, 8, 12, 6, 3, 2, 8, 4, 12, 5, 0, 6, 8, 4, 4, 2,
            ],
            objects: 30,
            longest: 200_000,
            huge: true,
            invalid: false,
            unstable: 4,
        }
    }
}

/// Makes operations that fit the present state of a model.
pub struct Generator {
    choices: Choices,
    profile: Profile,
    names: Vec<Name>,
    pattern: u32,
}

impl Generator {
    /// A generator that takes its operations from `choices`.
    #[must_use]
    pub fn new(choices: Choices, profile: Profile) -> Generator {
        let mut names: Vec<Name> = [
            "a",
            "b",
            "c",
            "d",
            "file",
            "File",
            "x.tar.gz",
            ".hidden",
            "with space",
            "grüße",
            "日本語",
        ]
        .iter()
        .map(|name| Name::from(*name))
        .collect();
        names.push(Name(vec![b'n'; MAX_NAME]));
        names.push(Name(vec![0xff, 0xfe, 0x80, b'\n', b'\\']));
        names.push("...".into());
        Generator {
            choices,
            profile,
            names,
            pattern: 0,
        }
    }

    /// The next operation for the present state of `model`.
    pub fn next(&mut self, model: &Model) -> Op {
        let crowded = model.len() > self.profile.objects;
        let mut weights = self.profile.weights;
        if crowded {
            for choice in [
                Choice::Create,
                Choice::Mkdir,
                Choice::Symlink,
                Choice::Mknod,
            ] {
                weights[choice as usize] /= 8;
            }
            weights[Choice::Remove as usize] *= 3;
            weights[Choice::Rmdir as usize] *= 3;
        }
        let mut choice = ALL[self.choices.weighted(&weights)];
        let on_file = matches!(
            choice,
            Choice::Read | Choice::Write | Choice::Commit | Choice::Setattr
        );
        if on_file && !model.nodes().any(|(_, node)| node.kind() == Kind::File) {
            choice = Choice::Create;
        }
        match choice {
            Choice::Lookup => Op::Lookup {
                dir: self.dir(model),
                name: self.name(),
            },
            Choice::Getattr => Op::Getattr {
                object: self.any(model),
            },
            Choice::Setattr => {
                let object = if self.choices.chance(2, 3) {
                    self.file(model)
                } else {
                    self.any(model)
                };
                Op::Setattr {
                    object,
                    set: self.set(model, object),
                    guard: *self.choices.pick(&[
                        Guard::None,
                        Guard::None,
                        Guard::None,
                        Guard::Right,
                        Guard::Wrong,
                    ]),
                }
            }
            Choice::Readlink => Op::Readlink {
                object: self.of_kind(model, |kind| kind == Kind::Symlink),
            },
            Choice::Read => {
                let object = self.file(model);
                Op::Read {
                    object,
                    offset: self.offset(model, object),
                    len: self.length(1 << 20),
                }
            }
            Choice::Write => {
                let object = self.file(model);
                self.pattern += 1;
                let stable = if self.choices.chance(self.profile.unstable, 8) {
                    Stable::Unstable
                } else {
                    *self.choices.pick(&[Stable::File, Stable::Data])
                };
                Op::Write {
                    object,
                    offset: self.offset(model, object),
                    data: Data {
                        pattern: if self.choices.chance(1, 12) {
                            0
                        } else {
                            self.pattern
                        },
                        len: self.length(self.profile.longest),
                    },
                    stable,
                }
            }
            Choice::Commit => {
                let object = self.file(model);
                let whole = self.choices.chance(3, 4);
                Op::Commit {
                    object,
                    offset: if whole { 0 } else { self.offset(model, object) },
                    len: if whole { 0 } else { self.length(1 << 20) },
                }
            }
            Choice::Create => Op::Create {
                dir: self.dir(model),
                name: self.new_name(),
                how: match self.choices.below(6) {
                    0..=2 => CreateMode::Unchecked,
                    3 | 4 => CreateMode::Guarded,
                    _ => CreateMode::Exclusive([self.choices.below(3) as u8; 8]),
                },
                set: self.creation_set(true),
            },
            Choice::Mkdir => Op::Mkdir {
                dir: self.dir(model),
                name: self.new_name(),
                set: self.creation_set(false),
            },
            Choice::Symlink => Op::Symlink {
                dir: self.dir(model),
                name: self.new_name(),
                target: Name(self.target()),
                set: self.creation_set(false),
            },
            Choice::Mknod => {
                let kind = *self
                    .choices
                    .pick(&[Kind::Block, Kind::Char, Kind::Fifo, Kind::Socket]);
                let rdev = match kind {
                    Kind::Block | Kind::Char => {
                        (self.choices.below(300) as u32, self.choices.bits() as u32)
                    }
                    _ => (0, 0),
                };
                Op::Mknod {
                    dir: self.dir(model),
                    name: self.new_name(),
                    kind,
                    rdev,
                    set: self.creation_set(false),
                }
            }
            Choice::Remove => {
                let (dir, name) = self.entry(model, |kind| kind != Kind::Dir);
                Op::Remove { dir, name }
            }
            Choice::Rmdir => {
                let (dir, name) = self.entry(model, |kind| kind == Kind::Dir);
                Op::Rmdir { dir, name }
            }
            Choice::Rename => {
                let (from_dir, from) = self.entry(model, |_| true);
                let (to_dir, to) = if self.choices.chance(1, 3) {
                    self.entry(model, |_| true)
                } else {
                    (self.dir(model), self.new_name())
                };
                Op::Rename {
                    from_dir,
                    from,
                    to_dir,
                    to,
                }
            }
            Choice::Link => Op::Link {
                object: self.of_kind(model, |kind| kind != Kind::Dir),
                dir: self.dir(model),
                name: self.new_name(),
            },
            Choice::Readdir => Op::Readdir {
                dir: self.dir(model),
                entries: *self.choices.pick(&[1, 2, 3, 7, 100]),
            },
            Choice::Punch => {
                let object = self.file(model);
                let long = self.choices.chance(1, 4);
                Op::Punch {
                    object,
                    offset: self.offset(model, object),
                    len: match long {
                        true => self.choices.below(1 << 40),
                        false => u64::from(self.length(self.profile.longest)),
                    },
                }
            }
            Choice::Clone => self.clone_range(model),
            Choice::SetXattr => {
                self.pattern += 1;
                let data = Data {
                    pattern: self.pattern,
                    len: match self.choices.below(4) {
                        0 => self.choices.below(20_000) as u32,
                        _ => self.choices.below(100) as u32,
                    },
                };
                Op::SetXattr {
                    object: self.any(model),
                    name: Name::from(*self.choices.pick(&["user.a", "user.A", "user.b", "x"])),
                    value: self.choices.chance(2, 3).then_some(data),
                }
            }
            Choice::Convert => self.convert(model),
            Choice::Open => Op::Open {
                object: self.file(model),
            },
        }
    }

    /// Returns a conversion of an object that has a name and mostly can become a link or is one.
    fn convert(&self, model: &Model) -> Op {
        let named = model.nodes().flat_map(|(dir, node)| {
            let entries = node.entries().into_iter().flatten();
            entries.map(move |(name, object)| (dir, name, *object))
        });
        let may = |slot| {
            model.node(slot).is_some_and(|node| match node.kind() {
                Kind::File => node.moved.size == 0,
                Kind::Dir => node.entries().is_some_and(BTreeMap::is_empty),
                kind => kind == Kind::Symlink,
            })
        };
        let wild = self.choices.chance(1, 8);
        let all: Vec<_> = named
            .filter(|(_, _, object)| wild || may(*object))
            .collect();
        if all.is_empty() {
            return Op::Mkdir {
                dir: self.dir(model),
                name: self.new_name(),
                set: self.creation_set(false),
            };
        }
        let (dir, name, object) = *self.choices.pick(&all);
        Op::Convert {
            object,
            dir,
            name: name.clone(),
            target: self.choices.chance(2, 3).then(|| Name(self.target())),
        }
    }

    /// A clone of whole pages, mostly, that both files have room for.
    fn clone_range(&self, model: &Model) -> Op {
        let (source, object) = (self.file(model), self.file(model));
        let size = |slot| model.node(slot).map_or(0, |node| node.moved.size);
        let to_end = self.choices.chance(1, 3);
        let exact = self.choices.chance(19, 20);
        let page = |at: u64| if exact { at / PAGE * PAGE } else { at };
        let from = page(self.choices.below(size(source) + 1));
        let rest = size(source) - from;
        Op::Clone {
            source,
            from,
            object,
            to: match to_end && self.choices.chance(3, 4) {
                // What ends within a page goes to the end.
                // Saturates: it may be shorter than what it gets.
                true => size(object).saturating_sub(rest).next_multiple_of(PAGE),
                false => page(self.offset(model, object)),
            },
            len: match to_end {
                true => 0,
                false => page(rest.min(u64::from(self.length(self.profile.longest)))),
            },
        }
    }

    /// Any object, now and then one that is gone or never was.
    fn any(&self, model: &Model) -> Slot {
        self.of_kind(model, |_| true)
    }

    fn of_kind(&self, model: &Model, fits: impl Fn(Kind) -> bool) -> Slot {
        let newest = model.nodes().map(|(slot, _)| slot.0).max().unwrap_or(0);
        if self.profile.invalid && self.choices.chance(1, 25) {
            // Often dead, sometimes of another kind.
            return Slot(self.choices.below(u64::from(newest) + 1) as u32);
        }
        let fitting: Vec<Slot> = model
            .nodes()
            .filter(|(_, node)| fits(node.kind()))
            .map(|(slot, _)| slot)
            .collect();
        if fitting.is_empty() {
            ROOT
        } else {
            *self.choices.pick(&fitting)
        }
    }

    fn dir(&self, model: &Model) -> Slot {
        if self.choices.chance(1, 3) {
            return ROOT;
        }
        self.of_kind(model, |kind| kind == Kind::Dir)
    }

    fn file(&self, model: &Model) -> Slot {
        self.of_kind(model, |kind| kind == Kind::File)
    }

    /// A name that exists, mostly, of an object that `fits`, mostly.
    fn entry(&self, model: &Model, fits: impl Fn(Kind) -> bool) -> (Slot, Name) {
        let dir = self.dir(model);
        if let Some(Body::Dir { entries, .. }) = model.node(dir).map(|node| &node.body) {
            let wanted: Vec<&Name> = entries
                .iter()
                .filter(|(_, slot)| {
                    self.choices.chance(1, 20)
                        || model.node(**slot).is_some_and(|node| fits(node.kind()))
                })
                .map(|(name, _)| name)
                .collect();
            if !wanted.is_empty() && self.choices.chance(9, 10) {
                return (dir, (*self.choices.pick(&wanted)).clone());
            }
        }
        (dir, self.name())
    }

    fn name(&self) -> Name {
        if self.profile.invalid && self.choices.chance(1, 20) {
            let bad = [
                &b"."[..],
                b"..",
                b"",
                b"a/b",
                b"nul\0",
                &[b'l'; MAX_NAME + 1],
            ];
            return Name::from(*self.choices.pick(&bad));
        }
        self.choices.pick(&self.names).clone()
    }

    /// As [`Self::name`], with a few more that do not collide.
    fn new_name(&self) -> Name {
        if self.choices.chance(1, 3) {
            let mut name = format!("n{}", self.choices.below(200)).into_bytes();
            if self.choices.chance(1, 4) {
                name.resize(self.choices.between(10, MAX_NAME as u64) as usize, b'_');
            }
            return Name(name);
        }
        self.name()
    }

    fn target(&self) -> Vec<u8> {
        if self.profile.invalid && self.choices.chance(1, 30) {
            return vec![b't'; MAX_SYMLINK + 1];
        }
        let len = match self.choices.below(6) {
            0 => 1,
            1 => MAX_SYMLINK as u64,
            2 => self.choices.between(1000, 1100),
            _ => self.choices.between(1, 80),
        };
        (0..len).map(|i| b'a' + (i % 23) as u8).collect()
    }

    fn time(&self) -> SetTo {
        match self.choices.below(6) {
            0 => SetTo::Server,
            1 => SetTo::Client(Time {
                secs: self.choices.below(1 << 32) as i64,
                nanos: self.choices.below(1_000_000_000) as u32,
            }),
            _ => SetTo::Keep,
        }
    }

    fn set(&self, model: &Model, object: Slot) -> Set {
        let mut set = self.creation_set(false);
        set.atime = self.time();
        set.mtime = self.time();
        let is_file = model
            .node(object)
            .is_some_and(|node| node.kind() == Kind::File);
        if (is_file && self.choices.chance(1, 2))
            || (self.profile.invalid && self.choices.chance(1, 20))
        {
            set.size = Some(match self.choices.below(4) {
                0 => 0,
                _ => self.offset(model, object),
            });
        }
        set
    }

    fn creation_set(&self, with_size: bool) -> Set {
        let mut set = Set::default();
        if self.choices.chance(1, 2) {
            set.mode = Some(self.choices.below(0o10000) as u32);
        }
        if self.choices.chance(1, 4) {
            set.uid = Some(*self.choices.pick(&[0, 1000, u32::MAX - 1]));
            set.gid = Some(*self.choices.pick(&[0, 100, 1000]));
        }
        if with_size && self.choices.chance(1, 6) {
            set.size = Some(*self.choices.pick(&[0, 0, 1, 5000]));
        }
        set
    }

    fn length(&self, longest: u32) -> u32 {
        let len = match self.choices.below(12) {
            0 => *self.choices.pick(&[0, 1, 511, 512, 513]),
            1 | 2 => *self.choices.pick(&[4095, 4096, 4097, 8191, 8192, 8193]),
            3 => 4096 * self.choices.between(1, 40) as u32,
            4 => self.choices.between(1, u64::from(longest)) as u32,
            5 => *self.choices.pick(&[131_071, 131_072, 131_073, 262_144]),
            6 | 7 => self.choices.between(1, 40_000) as u32,
            _ => self.choices.between(1, 3000) as u32,
        };
        len.min(longest)
    }

    fn offset(&self, model: &Model, object: Slot) -> u64 {
        let size = model.node(object).map_or(0, |node| node.moved.size);
        match self.choices.below(16) {
            0..=2 => 0,
            3..=5 => self.choices.below(100_000),
            6 | 7 => 4096 * self.choices.below(64),
            8 | 9 => size,
            10 => size.saturating_add(self.choices.below(10_000)),
            11 => size.saturating_sub(self.choices.below(5000)),
            12 => size / 2,
            13 if self.profile.huge => *self.choices.pick(&[
                1 << 20,
                (1 << 32) - 1,
                1 << 32,
                (1 << 44) + 17,
                1 << 62,
                MAX_FILE_SIZE - 4096,
                MAX_FILE_SIZE - 100,
            ]),
            14 if self.profile.huge && self.profile.invalid && self.choices.chance(1, 3) => *self
                .choices
                .pick(&[MAX_FILE_SIZE, MAX_FILE_SIZE + 1, u64::MAX, u64::MAX - 4096]),
            _ => self.choices.below(400_000),
        }
    }
}
