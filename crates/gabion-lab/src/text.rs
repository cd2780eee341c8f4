//! Figures as people read them.

/// A number of bytes for people, with three or four digits.
pub fn bytes_text(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = "B";
    while size >= 1024.0 {
        let Some(next) = units.next() else { break };
        unit = next;
        size /= 1024.0;
    }
    match size {
        size if size < 100.0 => format!("{size:.1} {unit}"),
        _ => format!("{size:.0} {unit}"),
    }
}

/// A count for people: digits in groups of three.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (150 << 20, "150 MiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
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
}
