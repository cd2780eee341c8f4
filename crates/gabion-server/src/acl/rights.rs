//! The permissions of a user.
//!
//! Rights are *selectors*: sets of commands, each with patterns of keys and of channels. A command
//! may run if one of the selectors allows all of it; what two of them allow together does not
//! count.

use super::set::CommandSet;
use crate::glob;

/// How a command accesses a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyAccess {
    /// Its value, or a part of it, is told or copied.
    pub(crate) reads: bool,
    /// It is changed.
    pub(crate) writes: bool,
}

impl KeyAccess {
    /// Only whether it is there, of which type and how large, is told.
    pub(crate) const NONE: KeyAccess = KeyAccess {
        reads: false,
        writes: false,
    };
    /// Its value is told.
    pub(crate) const READ: KeyAccess = KeyAccess {
        reads: true,
        writes: false,
    };
    /// It is changed.
    pub(crate) const WRITE: KeyAccess = KeyAccess {
        reads: false,
        writes: true,
    };
    /// Both.
    pub(crate) const BOTH: KeyAccess = KeyAccess {
        reads: true,
        writes: true,
    };

    /// Whether who may do this may do `other`.
    pub(crate) fn covers(self, other: KeyAccess) -> bool {
        (self.reads || !other.reads) && (self.writes || !other.writes)
    }
}

/// A pattern of keys, and the access that it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    /// The pattern.
    pub(crate) text: Vec<u8>,
    /// What may be done with them.
    pub(crate) access: KeyAccess,
}

/// Allowed commands, on some keys and channels.
#[derive(Clone, Debug)]
pub(crate) struct AclSelector {
    pub(super) commands: CommandSet,
    pub(super) has_all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) has_all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
}

/// The permissions of a user, and how a client authenticates as this user.
#[derive(Clone, Debug)]
pub(crate) struct UserPermissions {
    /// Whether clients may become this user.
    pub(crate) is_on: bool,
    /// Whether any password will do.
    pub(crate) needs_no_password: bool,
    /// `skip-sanitize-payload`, which is kept and shown: `RESTORE` checks what it is given anyway.
    pub(super) skips_checks: bool,
    /// Hashes of passwords.
    pub(crate) passwords: Vec<String>,
    /// The selector that every user has.
    pub(crate) root: AclSelector,
    /// All others.
    pub(crate) selectors: Vec<AclSelector>,
}

impl AclSelector {
    fn all(&self) -> bool {
        self.commands.is_all() && self.has_all_keys && self.has_all_channels
    }

    /// Whether something may be done with a key.
    pub(super) fn has_key(&self, key: &[u8], access: KeyAccess) -> bool {
        let mut keys = self.keys.iter();
        keys.any(|known| known.access.covers(access) && glob::matches(&known.text, key))
    }

    /// Whether any key may be read.
    pub(super) fn reads_all_keys(&self) -> bool {
        let mut keys = self.keys.iter();
        self.has_all_keys || keys.any(|known| known.access.reads && known.text == b"*")
    }

    /// A pattern of channels is allowed as it stands only: what it matches is not known.
    pub(super) fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels
            || self.channels.iter().any(|known| match is_pattern {
                true => known == channel,
                false => glob::matches(known, channel),
            })
    }

    /// The patterns of keys.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let shown = |known: &KeyPattern| {
            let mark = match (known.access.reads, known.access.writes) {
                (true, true) => &b"~"[..],
                (true, false) => b"%R~",
                (false, _) => b"%W~",
            };
            [mark, &known.text].concat()
        };
        let shown: Vec<_> = self.keys.iter().map(shown).collect();
        shown.join(&b' ')
    }

    /// The patterns of channels.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        let shown = |known: &Vec<u8>| [b"&", known.as_slice()].concat();
        let shown: Vec<_> = self.channels.iter().map(shown).collect();
        shown.join(&b' ')
    }
}

impl UserPermissions {
    /// The selector that every user has, and all others.
    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &AclSelector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether everything is allowed, so that no command need be checked.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.all_selectors().any(AclSelector::all)
    }

    /// Whether clients are this user without a word: any password will do, and it is on.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether a channel, or a pattern of channels, may be listened to.
    pub(crate) fn has_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let mut selectors = self.all_selectors();
        selectors.any(|selector| selector.has_channel(channel, is_pattern))
    }

    /// Whether a password is one of the user's. All are compared, in a time that tells nothing.
    pub(crate) fn has_password(&self, hash: &str) -> bool {
        let equals = |known: &String| {
            let pairs = known.bytes().zip(hash.bytes());
            pairs.fold(0, |all, (one, other)| all | (one ^ other)) == 0
        };
        let passwords = self.passwords.iter();
        self.needs_no_password | passwords.fold(false, |found, known| found | equals(known))
    }

    /// Names of what `ACL GETUSER` calls flags.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        if self.skips_checks {
            flags.push("skip-sanitize-payload");
        }
        flags
    }
}
