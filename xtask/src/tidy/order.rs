//! The rule for atomic orderings: a comment names the partner of each.
//!
//! An ordering is half of an agreement, and the other half is elsewhere in the code. A comment
//! `// ORDER:` next to it names that half, or says why none is needed. A comment speaks for the
//! next [`ORDER_WINDOW`] lines of code, and for an unbroken run of lines with orderings that begins
//! within them, so that one comment serves a table of counters. A comment above an item that says
//! `// ORDER: Relaxed throughout` speaks for that ordering in the whole item.

use super::source::{Line, Source, find_word};
use super::tree::Tree;
use super::{Finding, Rule};

/// Lines of code after a comment `ORDER:` for which it speaks.
const ORDER_WINDOW: usize = 6;

/// The orderings of atomic operations.
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

pub(super) const RULES: &[Rule] = &[Rule {
    name: "order",
    says: "every atomic ordering has a comment ORDER: that names its partner",
    check: order,
}];

/// The ordering of an atomic operation that a line names.
fn ordering_of(line: &Line) -> Option<&'static str> {
    ORDERINGS.into_iter().find(|ordering| {
        let named = format!("Ordering::{ordering}");
        find_word(&line.code, &named).is_some()
    })
}

/// Whether a line imports orderings so that their uses cannot be found by their full name.
fn hides_orderings(line: &Line) -> bool {
    let code = line.code.trim_start();
    let is_use = code.starts_with("use ") || code.starts_with("pub use ");
    ["Ordering::{", "Ordering::*", "Ordering as "]
        .iter()
        .any(|pattern| code.contains(pattern))
        || (is_use && ordering_of(line).is_some())
}

fn order(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        order_in(&file.path, source, &mut found);
    }
    found
}

fn order_in(path: &str, source: &Source, found: &mut Vec<Finding>) {
    // Lines of code since the last comment, and whether the line before was spoken for.
    let mut distance = usize::MAX;
    let mut in_run = false;
    // The ordering that a comment speaks for up to a line, once the item below it is known.
    let mut announced = None;
    let mut throughout = ("", 0);
    for (index, line) in source.lines.iter().enumerate() {
        if line.comment.contains("ORDER:") {
            distance = 0;
            announced = ORDERINGS
                .into_iter()
                .find(|name| line.comment.contains(&format!("ORDER: {name} throughout")));
        }
        if line.code.trim().is_empty() {
            continue;
        }
        if let Some(ordering) = announced.take() {
            throughout = (ordering, source.item_end(index));
        }
        distance = distance.saturating_add(1);
        if line.is_test {
            continue;
        }
        if hides_orderings(line) {
            let message = "orderings under short names: import Ordering and write Ordering::X";
            found.push(Finding::new(path, index + 1, message));
            continue;
        }
        let Some(ordering) = ordering_of(line) else {
            in_run = false;
            continue;
        };
        in_run |= distance <= ORDER_WINDOW;
        if !in_run && (throughout.0 != ordering || index > throughout.1) {
            let message = format!(
                "Ordering::{ordering} without a comment `// ORDER:` on the line or in the \
                 {ORDER_WINDOW} lines of code above that names its partner"
            );
            found.push(Finding::new(path, index + 1, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    fn check(rule: fn(&Tree) -> Vec<Finding>, text: &str) -> Vec<usize> {
        lines_found(rule, "crates/gabion/src/a.rs", text)
    }

    #[test]
    fn an_ordering_needs_its_comment() {
        let load = "x.load(Ordering::Acquire);\n";
        assert_eq!(check(order, load), [1]);
        assert!(check(order, &format!("// ORDER: pairs with b.\n{load}")).is_empty());
        assert!(check(order, "x.load(Ordering::Acquire); // ORDER: b\n").is_empty());
        assert!(check(order, &format!("#[cfg(test)]\nmod tests {{\n{load}}}\n")).is_empty());
        assert!(check(order, "match a.cmp(b) { Ordering::Less => 1, }").is_empty());
    }

    #[test]
    fn a_comment_speaks_for_a_few_lines_and_an_unbroken_run() {
        let load = "x.load(Ordering::Acquire);\n";
        let after = |gap: &str, count| format!("// ORDER: b\n{}{load}", gap.repeat(count));
        assert!(check(order, &after("y();\n", ORDER_WINDOW - 1)).is_empty());
        assert_eq!(
            check(order, &after("y();\n", ORDER_WINDOW)),
            [ORDER_WINDOW + 2]
        );
        assert!(check(order, &after("// more\n", 20)).is_empty());
        assert!(check(order, &format!("// ORDER: b\n{}", load.repeat(20))).is_empty());
        let broken = format!("// ORDER: b\n{}y();\n{load}", load.repeat(20));
        assert_eq!(check(order, &broken), [23]);
    }

    #[test]
    fn a_comment_speaks_for_one_ordering_throughout_an_item() {
        let body = format!("{{\n{}", "y();\n".repeat(20));
        let text = |ordering: &str| {
            format!("// ORDER: Relaxed throughout.\nimpl A {body}x({ordering});\n}}\nfn b() {{}}\n")
        };
        assert!(check(order, &text("Ordering::Relaxed")).is_empty());
        assert_eq!(check(order, &text("Ordering::Acquire")), [23]);
        let after = format!("{}fn c() {body}x(Ordering::Relaxed);\n}}\n", text("z"));
        assert_eq!(check(order, &after), [47]);
    }

    #[test]
    fn orderings_under_short_names_are_found() {
        for import in [
            "use std::sync::atomic::Ordering::{Acquire, Release};",
            "use std::sync::atomic::Ordering::*;",
            "use std::sync::atomic::Ordering::SeqCst;",
            "use std::sync::atomic::{AtomicU64, Ordering as O};",
        ] {
            assert_eq!(check(order, import), [1], "{import}");
        }
        assert!(check(order, "use std::sync::atomic::{AtomicU64, Ordering};").is_empty());
    }
}
