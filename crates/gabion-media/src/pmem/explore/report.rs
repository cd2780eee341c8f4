//! The report of an exploration, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Counts of crashes during one kind of step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Moments at which the power may fail.
    pub points: u64,
    /// Of these, moments with too many images to try them all.
    pub sampled: u64,
    /// Images that were opened and checked.
    pub images: u64,
    /// Of these, images of crashes during recovery.
    pub nested: u64,
    /// Images that broke a demand.
    pub violations: u64,
}

/// What an exploration tried and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// By kind of step.
    pub kinds: BTreeMap<&'static str, KindCounts>,
    /// Images that had been checked before under the same demand.
    pub repeated: u64,
    /// The first violations, each once.
    pub violations: Vec<Violation>,
    /// Time spent.
    pub elapsed: Duration,
    /// Where random choices began.
    pub seed: u64,
}

/// An image that breaks a demand, and how to understand it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong.
    pub message: String,
    /// When the power fails.
    pub moment: String,
    /// The steps before it, with what became of each store; a crash during recovery has those of
    /// the recovery first.
    pub context: String,
}

impl Report {
    /// The sum over all kinds of steps.
    pub fn total(&self) -> KindCounts {
        let mut total = KindCounts::default();
        for counts in self.kinds.values() {
            total.points += counts.points;
            total.sampled += counts.sampled;
            total.images += counts.images;
            total.nested += counts.nested;
            total.violations += counts.violations;
        }
        total
    }

    /// Images opened and checked.
    pub fn images(&self) -> u64 {
        self.total().images
    }

    /// Whether no image broke a demand.
    pub fn is_clean(&self) -> bool {
        self.total().violations == 0
    }

    /// Images opened and checked per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn images_per_s(&self) -> f64 {
        self.images() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Adds what another exploration found.
    pub fn add(&mut self, other: Report) {
        for (kind, more) in other.kinds {
            let counts = self.kinds.entry(kind).or_default();
            counts.points += more.points;
            counts.sampled += more.sampled;
            counts.images += more.images;
            counts.nested += more.nested;
            counts.violations += more.violations;
        }
        self.repeated += other.repeated;
        self.violations.extend(other.violations);
        self.elapsed += other.elapsed;
        self.seed = other.seed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>8} {:>8} {:>10} {:>10} {:>10}",
            "crash during", "points", "sampled", "images", "nested", "violations"
        )?;
        let total = self.total();
        for (kind, counts) in self.kinds.iter().chain([(&"total", &total)]) {
            writeln!(
                f,
                "{:<16} {:>8} {:>8} {:>10} {:>10} {:>10}",
                kind,
                counts.points,
                counts.sampled,
                counts.images,
                counts.nested,
                counts.violations
            )?;
        }
        writeln!(
            f,
            "{} repeated, {:.0} images/s, seed {:#x}",
            self.repeated,
            self.images_per_s(),
            self.seed
        )?;
        for violation in &self.violations {
            write!(f, "\n{violation}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION: {}", self.message)?;
        writeln!(f, "power fails {}", self.moment)?;
        f.write_str(&self.context)
    }
}
