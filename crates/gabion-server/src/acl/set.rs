//! Sets of commands, as they are kept: see [`super::commands`] for what they mean.

/// The commands that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleTarget {
    /// Those of a category.
    Category(&'static str),
    /// One, by its number, with its subcommands.
    Command(usize),
    /// One with that first argument.
    FirstArgument(usize, Vec<u8>),
}

/// Adds commands to a set, or takes them away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandRule {
    /// Whether it adds them.
    pub(super) adds: bool,
    /// Which.
    pub(super) target: RuleTarget,
}

/// Commands by their numbers: a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandBitmap(Vec<u64>);

impl CommandBitmap {
    /// Whether a number is in it.
    pub(super) fn has(&self, id: usize) -> bool {
        let word = self.0.get(id / 64);
        word.is_some_and(|word| word & (1 << (id % 64)) != 0)
    }

    /// Puts a number in, or takes it out.
    pub(super) fn set(&mut self, id: usize, value: bool) {
        if self.0.len() <= id / 64 {
            self.0.resize(id / 64 + 1, 0);
        }
        match value {
            true => self.0[id / 64] |= 1 << (id % 64),
            false => self.0[id / 64] &= !(1 << (id % 64)),
        }
    }
}

/// The result of the rules of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedCommands {
    /// Commands that are in the set.
    pub(super) bits: CommandBitmap,
    /// Commands that are not in the set, but are with these first arguments.
    pub(super) first_arguments: Vec<(usize, Vec<u8>)>,
}

/// A set of commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandSet {
    /// Whether it begins with all commands.
    pub(super) begins_with_all: bool,
    /// What changes it, in that order.
    pub(super) rules: Vec<CommandRule>,
    /// What that makes.
    pub(super) sum: AllowedCommands,
}

impl CommandSet {
    /// Whether all commands are in it.
    pub(crate) fn is_all(&self) -> bool {
        self.begins_with_all && self.rules.is_empty()
    }
}
