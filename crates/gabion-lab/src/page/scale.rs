//! Axes: from figures to places between 0 and 1, with round ticks.

use crate::text::Unit;

/// Steps that an axis is divided into at most, about.
const STEPS: f64 = 4.0;

/// Nines beyond which a latency curve is not drawn: one operation in a hundred thousand.
const NINES_MAX: f64 = 5.0;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    unit: Unit,
    /// Where there is a line, and what it says.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a round figure not below any of `values`.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>, unit: Unit) -> Axis {
        let max = values
            .into_iter()
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        let max = if max > 0.0 { max } else { 1.0 };
        let base = match unit {
            Unit::Bytes => 1024f64.powf((max.ln() / 1024f64.ln()).floor().max(0.0)),
            Unit::Seconds if max >= 240.0 => 60.0,
            _ => 1.0,
        };
        let step = base * round_step(max / base / STEPS);
        let count = (max / step - 1e-9).ceil().max(1.0);
        let mut axis = Axis {
            low: 0.0,
            high: count * step,
            is_log: false,
            unit,
            ticks: Vec::new(),
        };
        let mut index = 0.0;
        while index <= count {
            let value = index * step;
            let text = match unit {
                _ if value == 0.0 => "0".to_owned(),
                Unit::Seconds if base > 1.0 => format!("{} min", value / base),
                _ => unit.tick(value),
            };
            axis.ticks.push((value, text));
            index += 1.0;
        }
        axis
    }

    /// Logarithmic around those of `values` that are positive, with ticks at 1, 10, 100, or at
    /// 1, 2, 5, 10 where these would be too few.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, unit: Unit) -> Axis {
        let positive = |value: &f64| value.is_finite() && *value > 0.0;
        let values: Vec<f64> = values.into_iter().filter(positive).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        let (low, high) = if low <= high {
            (low, high)
        } else {
            (1.0, 10.0)
        };
        let mut rounds = Vec::new();
        let mut decade = 10f64.powf(low.log10().floor());
        while decade <= high * 10.0 {
            rounds.extend([1.0, 2.0, 5.0].map(|digit| digit * decade));
            decade *= 10.0;
        }
        let below = rounds.iter().rposition(|round| *round <= low * 1.0001);
        let below = below.unwrap_or(0);
        let above = rounds.iter().position(|round| *round >= high * 0.9999);
        let above = above.unwrap_or(rounds.len() - 1).max(below + 1);
        let rounds = &rounds[below..=above];
        let is_decade = |round: &f64| {
            let exponent = round.log10();
            (exponent - exponent.round()).abs() < 1e-6
        };
        let decades: Vec<f64> = rounds.iter().copied().filter(is_decade).collect();
        let ticks: Vec<f64> = match decades.len() {
            0..3 => rounds.to_vec(),
            3..7 => decades,
            _ => decades.into_iter().step_by(2).collect(),
        };
        Axis {
            low: rounds[0],
            high: rounds[rounds.len() - 1],
            is_log: true,
            unit,
            ticks: ticks.iter().map(|tick| (*tick, unit.tick(*tick))).collect(),
        }
    }

    /// Ratios: logarithmic, with 1 on it, in steps of doubling, or of ten where that is too many.
    pub(super) fn ratio(values: impl IntoIterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for value in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
            low = low.min(value.log2());
            high = high.max(value.log2());
        }
        let octaves_of_ten = 10f64.log2();
        let step = match high - low {
            octaves if octaves <= 5.0 => 1.0,
            octaves if octaves <= 10.0 => 2.0,
            _ => octaves_of_ten,
        };
        // A ratio just beyond a tick does not need another step.
        let mut first = ((low + 0.1) / step).floor().min(0.0);
        let mut last = ((high - 0.1) / step).ceil().max(0.0);
        if last - first < 1.5 {
            (first, last) = (first.min(-1.0), last.max(1.0));
        }
        let mut ticks = Vec::new();
        let mut index = first;
        while index <= last {
            let value = (index * step).exp2();
            let text = match value {
                value if value < 0.999 => format!("{value:.4}").trim_end_matches('0').to_owned(),
                value => value.round().to_string(),
            };
            ticks.push((value, format!("{text}×")));
            index += 1.0;
        }
        Axis {
            low: low.min(first * step).exp2(),
            high: high.max(last * step).exp2(),
            is_log: true,
            unit: Unit::Times,
            ticks,
        }
    }

    /// Quantiles as [`nines`] up to the largest of `values`, which are nines as well. The ticks are
    /// percentages.
    pub(super) fn nines(values: impl IntoIterator<Item = f64>) -> Axis {
        let max = values
            .into_iter()
            .filter(|v| v.is_finite())
            .fold(2.0, f64::max);
        let mut ticks = vec![(0.0, "0".to_owned())];
        let mut nine = 1.0;
        let mut text = "90".to_owned();
        while nine <= max + 0.05 {
            // The fifth would cover the fourth, and nobody needs it to know which it is.
            let said = if nine > 4.0 {
                String::new()
            } else {
                text.clone()
            };
            ticks.push((nine, said));
            match nine {
                2.0 => text.push_str(".9"),
                1.0 => text = "99".to_owned(),
                _ => text.push('9'),
            }
            nine += 1.0;
        }
        Axis {
            low: 0.0,
            high: max,
            is_log: false,
            unit: Unit::Count,
            ticks,
        }
    }

    /// The place of `value`, from 0 to 1; values beyond an end are at that end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// `value` in the unit of the axis.
    pub(super) fn text(&self, value: f64) -> String {
        self.unit.text(value)
    }

    /// What a script needs to read figures off a chart: the ends and the form of the axis.
    pub(super) fn data(&self) -> String {
        let form = if self.is_log { "log" } else { "linear" };
        format!("{form} {:e} {:e}", self.low, self.high)
    }
}

/// How often the first digits of `quantile` are nine, with parts: 0.9 is 1, 0.999 is 3. `None`
/// where it is more often than a curve is drawn for.
pub(super) fn nines(quantile: f64) -> Option<f64> {
    let nines = -(1.0 - quantile.max(0.0)).log10();
    (nines <= NINES_MAX + 1e-9).then_some(nines.max(0.0))
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0].map(|digit| digit * decade);
    let fits = |round: &&f64| **round >= step * (1.0 - 1e-9);
    rounds.iter().find(fits).copied().unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_reach_the_largest_value() {
        let axis = Axis::linear([3.1e6, 8e5, f64::NAN], Unit::PerSecond);
        assert_eq!(texts(&axis), ["0", "1 M/s", "2 M/s", "3 M/s", "4 M/s"]);
        assert!((axis.place(3e6) - 0.75).abs() < 1e-12);
        let axis = Axis::linear([3.1 * 1073741824.0], Unit::Bytes);
        assert_eq!(texts(&axis), ["0", "1 GiB", "2 GiB", "3 GiB", "4 GiB"]);
        let axis = Axis::linear([900.0], Unit::Seconds);
        assert_eq!(texts(&axis), ["0", "5 min", "10 min", "15 min"]);
    }

    #[test]
    fn an_axis_without_values_is_still_an_axis() {
        for axis in [
            Axis::linear([], Unit::Bytes),
            Axis::linear([0.0], Unit::Seconds),
            Axis::linear([f64::NAN, f64::INFINITY], Unit::Times),
            Axis::log([], Unit::Micros),
            Axis::log([0.0, -1.0], Unit::Micros),
            Axis::ratio([]),
            Axis::nines([]),
        ] {
            assert!(axis.ticks.len() >= 2, "{axis:?}");
            for value in [0.0, 1.0, -5.0, 1e300, f64::NAN, f64::INFINITY] {
                let place = axis.place(value);
                assert!(
                    (0.0..=1.0).contains(&place),
                    "{axis:?} puts {value} at {place}"
                );
            }
        }
    }

    #[test]
    fn every_value_lies_between_the_ends() {
        for exponent in -9..15 {
            for digit in 1..100 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                let linear = Axis::linear([value], Unit::Count);
                assert!(linear.high >= value * (1.0 - 1e-6), "{value}");
                assert!((2..=7).contains(&linear.ticks.len()), "{value}: {linear:?}");
                let log = Axis::log([value], Unit::Micros);
                assert!(
                    log.low <= value * 1.001 && log.high >= value * 0.999,
                    "{value}"
                );
                assert!(log.low < log.high, "{value}");
            }
        }
    }

    #[test]
    fn log_ticks_are_decades_or_finer() {
        let axis = Axis::log([3.0, 40_000.0], Unit::Micros);
        assert_eq!(texts(&axis), ["10 µs", "100 µs", "1 ms", "10 ms"]);
        assert!(axis.place(2.0) < 1e-12);
        let axis = Axis::log([3.0, 40.0], Unit::Micros);
        assert_eq!(texts(&axis), ["2 µs", "5 µs", "10 µs", "20 µs", "50 µs"]);
    }

    #[test]
    fn ratios_have_one_between_their_ends() {
        assert_eq!(texts(&Axis::ratio([1.0, 1.3])), ["0.5×", "1×", "2×"]);
        assert_eq!(
            texts(&Axis::ratio([1.0, 0.12])),
            ["0.125×", "0.25×", "0.5×", "1×"]
        );
        let axis = Axis::ratio([0.3, 3.5]);
        assert_eq!(texts(&axis), ["0.25×", "0.5×", "1×", "2×", "4×"]);
        let axis = Axis::ratio([0.001, 20.0]);
        assert_eq!(
            texts(&axis),
            ["0.001×", "0.01×", "0.1×", "1×", "10×", "100×"]
        );
    }

    #[test]
    fn nines_count_nines() {
        assert!((nines(0.999).unwrap() - 3.0).abs() < 1e-9);
        assert!(nines(0.0).unwrap().abs() < 1e-9);
        assert_eq!(nines(1.0), None);
        let axis = Axis::nines([4.0]);
        assert_eq!(texts(&axis), ["0", "90", "99", "99.9", "99.99"]);
        assert_eq!(texts(&Axis::nines([5.0]))[4..], ["99.99", ""]);
    }
}
