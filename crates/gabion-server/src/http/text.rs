//! Prometheus' text form of metrics, version 0.0.4.

use std::fmt::{Display, Write};

/// The type of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricType {
    /// It only grows, or begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts below bounds.
    Histogram,
    /// Percentiles.
    Summary,
}

/// Metrics as text. A family begins with [`MetricsText::family`], and its samples follow.
#[derive(Debug, Default)]
pub(super) struct MetricsText {
    text: String,
    family: &'static str,
}

impl MetricsText {
    /// Begins a family, which no other has the name of.
    pub(super) fn family(
        &mut self,
        name: &'static str,
        kind: MetricType,
        help: &str,
    ) -> &mut MetricsText {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Summary => "summary",
        };
        self.family = name;
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// A sample of the family, with labels.
    pub(super) fn sample(
        &mut self,
        labels: &[(&str, &str)],
        value: impl Display,
    ) -> &mut MetricsText {
        self.part("", labels, value)
    }

    /// A sample whose name ends in another way, as those of histograms do.
    pub(super) fn part(
        &mut self,
        ending: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) -> &mut MetricsText {
        let _ = write!(self.text, "{}{ending}", self.family);
        for (index, (name, label)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(label));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    /// A family of one number.
    pub(super) fn one(
        &mut self,
        name: &'static str,
        kind: MetricType,
        help: &str,
        value: impl Display,
    ) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// All of it.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

fn escaped(label: &str) -> String {
    let mut text = String::with_capacity(label.len());
    for letter in label.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = MetricsText::default();
        text.family("a_total", MetricType::Counter, "How many.")
            .sample(&[("name", "x\"\\\ny"), ("other", "z")], 1)
            .part("_sum", &[], 0.5);
        let expected = "# HELP a_total How many.\n# TYPE a_total counter\n\
                        a_total{name=\"x\\\"\\\\\\ny\",other=\"z\"} 1\na_total_sum 0.5\n";
        assert_eq!(text.finish(), expected);
    }
}
