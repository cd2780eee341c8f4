//! Figures for people: three digits, a unit, a thin gap between. Pages, tables and notes all write
//! their figures with these.

/// How far, in percent, the system's count of bytes written may be from the store's own before a
/// result says so.
const COUNTS_APART_PERCENT_MAX: f64 = 2.0;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Things per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Micros,
    /// Bytes per byte, or one throughput over another.
    Times,
}

impl Unit {
    /// `value` in this unit with three digits.
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        if value < 0.0 {
            return format!("−{}", self.text(-value));
        }
        match self {
            Unit::Count => scaled(value, 1000.0, &["", " k", " M", " G", " T"]),
            Unit::PerSecond => scaled(value, 1000.0, &["/s", " k/s", " M/s", " G/s"]),
            Unit::Bytes => {
                let units = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
                scaled(value, 1024.0, &units)
            }
            Unit::Seconds if value >= 5999.5 => format!("{} min", digits(value / 60.0)),
            Unit::Seconds => Unit::Micros.text(value * 1e6),
            Unit::Micros if value == 0.0 => "0".to_owned(),
            Unit::Micros if value < 0.9995 => format!("{} ns", digits(value * 1e3)),
            Unit::Micros if value < 999.5e3 => scaled(value, 1000.0, &[" µs", " ms"]),
            Unit::Micros => format!("{} s", digits(value / 1e6)),
            Unit::Times => format!("{}×", digits(value)),
        }
    }

    /// `value` on an axis: as [`Unit::text`], but without zeros at its end.
    pub fn tick(self, value: f64) -> String {
        let text = self.text(value);
        let Some(point) = text.find('.') else {
            return text;
        };
        let is_part = |c: char| c.is_ascii_digit();
        let end = text[point + 1..].find(|c| !is_part(c));
        let end = end.map_or(text.len(), |end| point + 1 + end);
        let number = text[..end].trim_end_matches('0').trim_end_matches('.');
        format!("{number}{}", &text[end..])
    }
}

/// `value` divided by `base` until it has at most three digits, with the unit reached.
fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut index = 0;
    while value >= base - 0.5 && index + 1 < units.len() {
        value /= base;
        index += 1;
    }
    let is_whole = index == 0 && value.fract() == 0.0;
    let number = if is_whole {
        format!("{value}")
    } else {
        digits(value)
    };
    number + units[index]
}

/// Three digits, more before the point when there are more.
pub fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.0995 => format!("{value:.3}"),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A part of 1 as a percentage.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A number of bytes.
pub fn bytes_text(bytes: u64) -> String {
    Unit::Bytes.text(bytes as f64)
}

/// A count to its last digit: digits in groups of three.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure that is not negative, as a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are not negative and far below the largest number"
)]
pub fn rounded_text(figure: f64) -> String {
    count_text(figure.round() as u64)
}

/// A count and what it counts: `one` of them, or `many`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{} {word}", count_text(count))
}

/// What must be said about two counts of the same bytes that do not agree.
pub fn counts_note(own: u64, process: Option<u64>) -> Option<String> {
    let Some(process) = process else {
        return Some("the system does not report how many bytes the process wrote".to_owned());
    };
    if process == 0 && own > 0 {
        return Some(
            "the system counts no writes here; the store is on a file system in memory, or the \
             system does not count writes of processes"
                .to_owned(),
        );
    }
    let apart = (process as f64 - own as f64).abs() * 100.0 / (own.max(1) as f64);
    (process != own && apart > COUNTS_APART_PERCENT_MAX).then(|| {
        format!(
            "the system counts {} written, the store {}: {apart:.1} % apart",
            bytes_text(process),
            bytes_text(own)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_told_as_many() {
        let entries = |count| counted(count, "entry", "entries");
        let told = [0, 1, 2, 1001].map(entries);
        assert_eq!(told, ["0 entries", "1 entry", "2 entries", "1,001 entries"]);
    }

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (unit, value, text, tick) in [
            (Unit::Count, 0.0, "0", "0"),
            (Unit::Count, 7.0, "7", "7"),
            (Unit::Count, 999.6, "1.00 k", "1 k"),
            (Unit::Count, 1_234_567.0, "1.23 M", "1.23 M"),
            (Unit::Count, 2e15, "2000 T", "2000 T"),
            (Unit::PerSecond, 1.2e6, "1.20 M/s", "1.2 M/s"),
            (Unit::PerSecond, 0.05, "0.050/s", "0.05/s"),
            (Unit::Bytes, 0.0, "0 B", "0 B"),
            (Unit::Bytes, 1000.0, "1000 B", "1000 B"),
            (Unit::Bytes, 150.0 * 1048576.0, "150 MiB", "150 MiB"),
            (Unit::Bytes, 3.4 * 1073741824.0, "3.40 GiB", "3.4 GiB"),
            (Unit::Bytes, 1048575.9, "1.00 MiB", "1 MiB"),
            (Unit::Micros, 0.25, "250 ns", "250 ns"),
            (Unit::Micros, 999.7, "1.00 ms", "1 ms"),
            (Unit::Micros, 2.5e6, "2.50 s", "2.5 s"),
            (Unit::Seconds, 0.5, "500 ms", "500 ms"),
            (Unit::Seconds, 90.0, "90.0 s", "90 s"),
            (Unit::Seconds, 7200.0, "120 min", "120 min"),
            (Unit::Times, 1.0, "1.00×", "1×"),
            (Unit::Times, 0.123, "0.12×", "0.12×"),
            (Unit::Times, -2.0, "−2.00×", "−2×"),
            (Unit::Times, f64::NAN, "–", "–"),
        ] {
            assert_eq!(unit.text(value), text);
            assert_eq!(unit.tick(value), tick);
        }
        assert_eq!(
            (percent(0.0123), percent(0.5)),
            ("1.2 %".into(), "50 %".into())
        );
    }

    #[test]
    fn counts_are_grouped() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (20_000_000, "20,000,000"),
        ] {
            assert_eq!(count_text(count), text);
        }
    }

    #[test]
    fn counts_that_agree_to_two_percent_need_no_note() {
        assert_eq!(counts_note(1000, Some(1019)), None);
        assert_eq!(counts_note(0, Some(0)), None);
        assert!(
            counts_note(1000, Some(1021))
                .unwrap()
                .contains("2.1 % apart")
        );
        assert!(counts_note(1000, Some(979)).is_some());
        assert!(
            counts_note(1000, Some(0))
                .unwrap()
                .contains("counts no writes")
        );
        assert!(counts_note(1000, None).is_some());
    }
}
