//! The rules of users, in the form that `ACL SETUSER`, files and the store use.

use std::borrow::Cow;

use super::rights::{AclSelector, KeyAccess, KeyPattern, UserPermissions};
use super::set::CommandSet;
use super::users::password_hash;
use crate::command::CommandTable;

/// Why a rule cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclRuleError {
    /// It is no rule.
    Syntax,
    /// Of a command or a category that there is not.
    Unknown,
    /// A pattern of keys behind the one for all.
    AllKeys,
    /// A pattern of channels behind the one for all.
    AllChannels,
    /// A password to remove that there is not.
    NoPassword,
    /// What is no hash of a password.
    BadHash,
    /// The argument of a subcommand.
    DeepArgument,
}

impl AclRuleError {
    /// What Redis says of it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            AclRuleError::Syntax => "Syntax error",
            AclRuleError::Unknown => "Unknown command or category name in ACL",
            AclRuleError::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            AclRuleError::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            AclRuleError::NoPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            AclRuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            AclRuleError::DeepArgument => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

fn checked_hash(text: &[u8]) -> Result<String, AclRuleError> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match text.len() == 64 && text.iter().all(is_digit) {
        true => Ok(String::from_utf8_lossy(text).into_owned()),
        false => Err(AclRuleError::BadHash),
    }
}

/// Whether a name or a pattern has what separates words.
pub(crate) fn has_spaces(text: &[u8]) -> bool {
    text.iter()
        .any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

/// Rules in which a selector in parentheses is one, though it came as several words; or the
/// first of the words where a parenthesis is not closed.
///
/// # Errors
/// That word.
pub(crate) fn joined<'a>(
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Cow<'a, [u8]>>, &'a [u8]> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        match &mut open {
            None if word.starts_with(b"(") && !word.ends_with(b")") => {
                open = Some((word, word.to_vec()));
            }
            None => rules.push(Cow::Borrowed(word)),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.ends_with(b")") {
                    rules.push(Cow::Owned(std::mem::take(selector)));
                    open = None;
                }
            }
        }
    }
    match open {
        None => Ok(rules),
        Some((first, _)) => Err(first),
    }
}

/// The context in which rules are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleContext {
    /// All commands.
    pub(crate) commands: &'static CommandTable,
    /// Whether a new selector has all channels, `acl-pubsub-default`.
    pub(crate) gives_channels: bool,
}

impl UserPermissions {
    /// Those of a user that has just been made: none.
    pub(crate) fn new(ground: RuleContext) -> UserPermissions {
        UserPermissions {
            is_on: false,
            needs_no_password: false,
            skips_checks: false,
            passwords: Vec::new(),
            root: AclSelector::new(ground),
            selectors: Vec::new(),
        }
    }

    /// Applies a rule.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn apply(&mut self, ground: RuleContext, rule: &[u8]) -> Result<(), AclRuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => return Ok(()),
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"skip-sanitize-payload" => self.skips_checks = true,
            b"sanitize-payload" => self.skips_checks = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"clearselectors" => self.selectors.clear(),
            b"reset" => *self = UserPermissions::new(ground),
            _ => return self.apply_other(ground, rule),
        }
        Ok(())
    }

    fn apply_other(&mut self, ground: RuleContext, rule: &[u8]) -> Result<(), AclRuleError> {
        let (mark, rest) = rule.split_first().unwrap_or((&0, &[]));
        match mark {
            b'>' | b'#' => {
                let hash = match mark {
                    b'>' => password_hash(rest),
                    _ => checked_hash(rest)?,
                };
                if !self.passwords.contains(&hash) {
                    self.passwords.push(hash);
                }
                self.needs_no_password = false;
            }
            b'<' | b'!' => {
                let hash = match mark {
                    b'<' => password_hash(rest),
                    _ => checked_hash(rest)?,
                };
                let place = self.passwords.iter().position(|known| *known == hash);
                self.passwords
                    .remove(place.ok_or(AclRuleError::NoPassword)?);
            }
            b'(' if rest.ends_with(b")") => {
                let mut selector = AclSelector::new(ground);
                let words = rest[..rest.len() - 1].split(u8::is_ascii_whitespace);
                for word in words.filter(|word| !word.is_empty()) {
                    selector.apply(ground, word)?;
                }
                self.selectors.push(selector);
            }
            _ => return self.root.apply(ground, rule),
        }
        Ok(())
    }
}

impl AclSelector {
    /// One that allows nothing, but all channels if new ones have them.
    pub(crate) fn new(ground: RuleContext) -> AclSelector {
        AclSelector {
            commands: CommandSet::new(ground.commands, false),
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels: ground.gives_channels,
            channels: Vec::new(),
        }
    }

    fn apply(&mut self, ground: RuleContext, rule: &[u8]) -> Result<(), AclRuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            all @ (b"allkeys" | b"~*" | b"resetkeys") => {
                self.has_all_keys = all != b"resetkeys";
                self.keys.clear();
            }
            all @ (b"allchannels" | b"&*" | b"resetchannels") => {
                self.has_all_channels = all != b"resetchannels";
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.commands = CommandSet::new(ground.commands, true),
            b"nocommands" | b"-@all" => self.commands = CommandSet::new(ground.commands, false),
            _ => return self.apply_pattern(ground, rule),
        }
        Ok(())
    }

    fn apply_pattern(&mut self, ground: RuleContext, rule: &[u8]) -> Result<(), AclRuleError> {
        let (mark, rest) = rule.split_first().ok_or(AclRuleError::Syntax)?;
        match mark {
            b'+' | b'-' => self.commands.apply(ground.commands, *mark == b'+', rest),
            b'~' => self.add_keys(KeyAccess::BOTH, rest),
            b'%' => {
                let tilde = rest.iter().position(|byte| *byte == b'~');
                let (letters, pattern) = rest.split_at(tilde.ok_or(AclRuleError::Syntax)?);
                let access = match letters.to_ascii_lowercase().as_slice() {
                    letters @ (b"r" | b"w" | b"rw" | b"wr") => KeyAccess {
                        reads: letters.contains(&b'r'),
                        writes: letters.contains(&b'w'),
                    },
                    _ => return Err(AclRuleError::Syntax),
                };
                self.add_keys(access, &pattern[1..])
            }
            b'&' if self.has_all_channels => Err(AclRuleError::AllChannels),
            b'&' if has_spaces(rest) => Err(AclRuleError::Syntax),
            b'&' => {
                if !self.channels.iter().any(|known| known == rest) {
                    self.channels.push(rest.to_vec());
                }
                Ok(())
            }
            _ => Err(AclRuleError::Syntax),
        }
    }

    fn add_keys(&mut self, access: KeyAccess, pattern: &[u8]) -> Result<(), AclRuleError> {
        if self.has_all_keys {
            return Err(AclRuleError::AllKeys);
        }
        if has_spaces(pattern) {
            return Err(AclRuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.text == pattern) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern {
                text: pattern.to_vec(),
                access,
            }),
        }
        Ok(())
    }
}
