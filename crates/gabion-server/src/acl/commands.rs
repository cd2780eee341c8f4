//! Sets of commands that rules such as `+get`, `-@write` and `+config|get` define.
//!
//! A set begins with all commands or with none, and its rules change it in their order. They are
//! kept, so that a set is shown as it was made; a rule that changes nothing is left out, and so
//! is one that a later rule overrules as a whole.

use crate::args::Args;
use crate::command::{Command, CommandTable};

use super::rules::AclRuleError;
use super::set::{AllowedCommands, CommandBitmap, CommandRule, CommandSet, RuleTarget};

/// The only command behind whose name a rule may have any word: with Redis, its subcommands are
/// mere arguments.
const OPEN_CONTAINER: &str = "debug";

impl CommandSet {
    /// All commands, or none.
    pub(crate) fn new(commands: &CommandTable, all: bool) -> CommandSet {
        let mut set = CommandSet {
            begins_with_all: all,
            ..CommandSet::default()
        };
        set.sum = set.add_up(commands, &[]);
        set
    }

    /// Whether a command is in it, with these arguments.
    pub(crate) fn has(&self, command: &Command, args: Args<'_>) -> bool {
        let id = command.number;
        self.sum.bits.has(id)
            || self.sum.first_arguments.iter().any(|(of, word)| {
                let first = args.get(1);
                *of == id && first.is_some_and(|first| first.eq_ignore_ascii_case(word))
            })
    }

    /// Applies a rule, as `+get`, without its sign.
    ///
    /// # Errors
    /// When there is no such command or category.
    pub(crate) fn apply(
        &mut self,
        commands: &CommandTable,
        adds: bool,
        target: &[u8],
    ) -> Result<(), AclRuleError> {
        let target = parse(commands, adds, target)?;
        let covers = commands_of(commands, &target);
        // A rule about nothing else than this one is overruled by it.
        let is_overruled = |rule: &CommandRule| match (&rule.target, &target) {
            (RuleTarget::FirstArgument(..), RuleTarget::FirstArgument(..)) => rule.target == target,
            (_, RuleTarget::FirstArgument(..)) => false,
            (RuleTarget::FirstArgument(command, _), _) => covers.has(*command),
            (other, _) => {
                let others = commands_of(commands, other);
                let mut ids = 0..commands.count();
                ids.all(|id| !others.has(id) || covers.has(id))
            }
        };
        let mut rules = std::mem::take(&mut self.rules);
        rules.retain(|rule| !is_overruled(rule));
        rules.push(CommandRule { adds, target });
        self.sum = self.add_up(commands, &[]);
        for rule in rules {
            self.rules.push(rule);
            let sum = self.add_up(commands, &self.rules);
            match sum == self.sum {
                true => drop(self.rules.pop()),
                false => self.sum = sum,
            }
        }
        Ok(())
    }

    fn add_up(&self, commands: &CommandTable, rules: &[CommandRule]) -> AllowedCommands {
        let mut sum = AllowedCommands::default();
        for id in 0..commands.count() {
            sum.bits.set(id, self.begins_with_all);
        }
        for rule in rules {
            if let RuleTarget::FirstArgument(command, word) = &rule.target {
                sum.first_arguments.push((*command, word.clone()));
                continue;
            }
            let covers = commands_of(commands, &rule.target);
            for id in 0..commands.count() {
                if covers.has(id) {
                    sum.bits.set(id, rule.adds);
                }
            }
        }
        sum
    }

    /// The rules, as they can be given again.
    pub(crate) fn describe(&self, commands: &CommandTable) -> Vec<u8> {
        let mut text = match self.begins_with_all {
            true => b"+@all".to_vec(),
            false => b"-@all".to_vec(),
        };
        for rule in &self.rules {
            text.extend_from_slice(if rule.adds { b" +" } else { b" -" });
            match &rule.target {
                RuleTarget::Category(category) => {
                    text.push(b'@');
                    text.extend_from_slice(category.as_bytes());
                }
                RuleTarget::Command(command) => {
                    text.extend_from_slice(commands.at(*command).name.as_bytes());
                }
                RuleTarget::FirstArgument(command, word) => {
                    text.extend_from_slice(commands.at(*command).name.as_bytes());
                    text.push(b'|');
                    text.extend_from_slice(word);
                }
            }
        }
        text
    }
}

/// The commands that a rule is about.
fn commands_of(commands: &CommandTable, target: &RuleTarget) -> CommandBitmap {
    let mut bits = CommandBitmap::default();
    match target {
        RuleTarget::Category(category) => {
            for entry in commands.entries() {
                bits.set(entry.command.number, entry.categories.contains(category));
            }
        }
        RuleTarget::Command(command) => {
            bits.set(*command, true);
            for below in commands.at(*command).command.subcommands {
                bits.set(below.number, true);
            }
        }
        RuleTarget::FirstArgument(..) => {}
    }
    bits
}

fn parse(commands: &CommandTable, adds: bool, text: &[u8]) -> Result<RuleTarget, AclRuleError> {
    if let Some(category) = text.strip_prefix(b"@") {
        let category = commands.category(category).ok_or(AclRuleError::Unknown)?;
        return Ok(RuleTarget::Category(category));
    }
    let mut words = text.splitn(3, |byte| *byte == b'|');
    let (name, word) = (words.next().unwrap_or_default(), words.next());
    let command = commands.find(name).ok_or(AclRuleError::Unknown)?;
    let Some(word) = word else {
        return Ok(RuleTarget::Command(command.number));
    };
    let below = command.subcommand(word);
    match (below, words.next()) {
        (Some(_), Some(_)) if adds => Err(AclRuleError::DeepArgument),
        (_, Some(_)) => Err(AclRuleError::Unknown),
        (Some(below), None) => Ok(RuleTarget::Command(below.number)),
        (None, None) if !command.subcommands.is_empty() && command.name != OPEN_CONTAINER => {
            Err(AclRuleError::Unknown)
        }
        (None, None) if !adds => Err(AclRuleError::Unknown),
        (None, None) if word.is_empty() => Err(AclRuleError::Syntax),
        (None, None) => {
            let id = command.number;
            Ok(RuleTarget::FirstArgument(id, word.to_ascii_lowercase()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::commands;

    const TARGETS: &[&str] = &[
        "@read",
        "@write",
        "@string",
        "@admin",
        "get",
        "set",
        "config",
        "config|get",
        "config|set",
        "acl",
        "acl|cat",
        "keys",
    ];

    fn members(set: &CommandSet) -> Vec<bool> {
        let nothing = Args::new(b"", &[]);
        let entries = commands().entries();
        entries
            .map(|entry| set.has(entry.command, nothing))
            .collect()
    }

    /// What a rule does to a set that knows of no rules.
    fn apply_naively(set: &mut [bool], adds: bool, target: &str) {
        for entry in commands().entries() {
            let is_below = entry
                .name
                .strip_prefix(target)
                .is_some_and(|rest| rest.starts_with('|'));
            let is_of = target
                .strip_prefix('@')
                .is_some_and(|category| entry.categories.contains(&category));
            if entry.name == target || is_below || is_of {
                set[entry.command.number] = adds;
            }
        }
    }

    proptest! {
        /// Rules that are left out change nothing, and what is shown makes the same set again.
        #[test]
        fn a_set_is_what_its_rules_make_one_by_one(
            all in any::<bool>(),
            rules in prop::collection::vec((any::<bool>(), 0..TARGETS.len()), 0..12),
        ) {
            let mut set = CommandSet::new(commands(), all);
            let mut naive = vec![all; commands().count()];
            for (adds, target) in rules {
                let target = TARGETS[target];
                set.apply(commands(), adds, target.as_bytes()).unwrap();
                apply_naively(&mut naive, adds, target);
                prop_assert_eq!(members(&set), naive.clone());
            }
            let shown = set.describe(commands());
            let shown = String::from_utf8(shown).unwrap();
            let mut words = shown.split(' ');
            let mut again = CommandSet::new(commands(), words.next() == Some("+@all"));
            for word in words {
                let (sign, target) = word.split_at(1);
                again.apply(commands(), sign == "+", target.as_bytes()).unwrap();
            }
            prop_assert_eq!(members(&again), naive);
            prop_assert_eq!(again.describe(commands()), set.describe(commands()));
        }
    }
}
