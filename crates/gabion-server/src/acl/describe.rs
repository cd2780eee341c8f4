//! Rights as the rules that make them.

use super::rights::{AclSelector, UserPermissions};
use crate::command::CommandTable;

impl AclSelector {
    /// The rules about commands.
    pub(crate) fn describe_commands(&self, commands: &CommandTable) -> Vec<u8> {
        self.commands.describe(commands)
    }

    fn describe(&self, commands: &CommandTable) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if !self.has_all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.push(self.describe_channels());
        parts.push(self.describe_commands(commands));
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

impl UserPermissions {
    /// The rules that make these rights of those of a new user.
    pub(crate) fn describe(&self, commands: &CommandTable) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for password in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(password.as_bytes());
        }
        text.push(b' ');
        text.extend_from_slice(&self.root.describe(commands));
        for selector in &self.selectors {
            text.extend_from_slice(b" (");
            text.extend_from_slice(&selector.describe(commands));
            text.push(b')');
        }
        text
    }
}
