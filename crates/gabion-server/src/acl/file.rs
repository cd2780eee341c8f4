//! Users in a file, `aclfile`: a line for each, as `ACL LIST` shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::rights::UserPermissions;
use super::rules::{RuleContext, has_spaces, joined};
use super::users::{DEFAULT, UserTable};
use crate::whole_file;

/// The users of a file.
///
/// # Errors
/// All that is wrong with it, in a line.
pub(crate) fn load(path: &Path, ground: RuleContext) -> Result<UserTable, String> {
    let text = std::fs::read(path).map_err(|error| {
        let path = path.display();
        format!("Error loading ACLs, opening file '{path}': {error}")
    })?;
    parse(&text, &path.display().to_string(), ground)
}

fn parse(text: &[u8], path: &str, ground: RuleContext) -> Result<UserTable, String> {
    let mut users: UserTable = BTreeMap::new();
    let mut errors = String::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let words = line.split(u8::is_ascii_whitespace);
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
        let (name, rules) = match words.as_slice() {
            [] => continue,
            [b"user", name, rules @ ..] if !has_spaces(name) => (*name, rules),
            _ => {
                let _ = write!(
                    errors,
                    "{path}:{number} should start with user keyword followed by the username. "
                );
                continue;
            }
        };
        let shown = String::from_utf8_lossy(name);
        if users.contains_key(name) {
            let _ = write!(
                errors,
                "WARNING: Duplicate user '{shown}' found on line {number}. "
            );
            continue;
        }
        match rights_of(rules.iter().copied(), ground) {
            Ok(rights) => {
                users.insert(name.to_vec(), rights);
            }
            Err(why) => {
                let _ = write!(errors, "{path}:{number}: {why}. ");
            }
        }
    }
    match errors.is_empty() {
        true => {
            let default = || UserPermissions::of_default(ground);
            users.entry(DEFAULT.to_vec()).or_insert_with(default);
            Ok(users)
        }
        false => Err(errors),
    }
}

/// The rights that rules make of those of a new user.
///
/// # Errors
/// What is wrong with them, without passwords.
pub(crate) fn rights_of<'a>(
    rules: impl Iterator<Item = &'a [u8]>,
    ground: RuleContext,
) -> Result<UserPermissions, String> {
    let rules =
        joined(rules).map_err(|_| "Unmatched parenthesis in selector definition".to_owned())?;
    let mut rights = UserPermissions::new(ground);
    for rule in rules {
        rights.apply(ground, &rule).map_err(|unfit| match unfit {
            super::rules::AclRuleError::Unknown => {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in applying operation '{rule}': {}", unfit.text())
            }
            _ => unfit.text().to_owned(),
        })?;
    }
    Ok(rights)
}

/// Replaces a file by lines.
///
/// # Errors
/// As [`whole_file::replace`].
pub(crate) fn save(path: &Path, lines: &[Vec<u8>]) -> std::io::Result<()> {
    let mut bytes = lines.join(&b'\n');
    if !lines.is_empty() {
        bytes.push(b'\n');
    }
    whole_file::replace(path, &bytes)
}
