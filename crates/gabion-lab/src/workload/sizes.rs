//! Sizes of records by name, as papers and field studies have them.

use serde::{Deserialize, Serialize};

/// Sizes of the keys and values of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line.
    pub name: &'static str,
    /// Where it comes from.
    pub about: &'static str,
    /// Bytes of every key.
    pub key_bytes: usize,
    /// Bytes of every value, or of the mean one.
    pub value_bytes: usize,
    /// How the values' sizes are spread.
    pub value_sizes: ValueSizes,
}

/// How the sizes of values are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueSizes {
    /// All are alike.
    #[default]
    Fixed,
    /// As in Facebook's general memcached pool ETC.
    Etc,
}

/// Parts of ETC's values that have 0, 1, 2 and so on bytes (Atikoglu and others, 2012, table 5).
const ETC_SHORT: [f64; 15] = [
    0.005_36, 0.000_47, 0.178_20, 0.092_39, 0.000_18, 0.027_40, 0.000_65, 0.006_06, 0.000_23,
    0.008_37, 0.008_37, 0.089_89, 0.000_92, 0.003_26, 0.019_80,
];
/// Scale and shape of the generalized Pareto distribution that all longer ones have (the same,
/// section 5.1).
const ETC_PARETO: (f64, f64) = (214.476, 0.348_238);

impl ValueSizes {
    /// Quantiles in even steps: `count` sizes of which each is as likely as the others.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are positive, and far below the largest number"
    )]
    pub(crate) fn quantiles(self, count: usize, value_bytes: usize) -> Vec<u32> {
        let etc = |at: usize| {
            let mut above = 1.0 - (at as f64 + 0.5) / count as f64;
            let all_long = 1.0 - ETC_SHORT.iter().sum::<f64>();
            if above <= all_long {
                let (scale, shape) = ETC_PARETO;
                let beyond = scale / shape * ((above / all_long).powf(-shape) - 1.0);
                return (ETC_SHORT.len() as f64 + beyond) as u32;
            }
            let mut size = 0;
            for part in ETC_SHORT {
                above += part;
                if above > 1.0 {
                    break;
                }
                size += 1;
            }
            size
        };
        match self {
            ValueSizes::Fixed => vec![value_bytes as u32; count],
            ValueSizes::Etc => (0..count).map(etc).collect(),
        }
    }
}

const fn size(
    name: &'static str,
    about: &'static str,
    (key_bytes, value_bytes): (usize, usize),
) -> Size {
    Size {
        name,
        about,
        key_bytes,
        value_bytes,
        value_sizes: ValueSizes::Fixed,
    }
}

/// All named sizes, in the order in which they are listed. Those of Facebook are the means of
/// Atikoglu and others (2012) and Cao and others (2020), as the FlexSpace paper uses them.
pub static SIZES: &[Size] = &[
    size("16+100", "db_bench's own, and the WipDB paper's", (16, 100)),
    size("udb", "social graph at Facebook", (27, 127)),
    size("zippydb", "metadata store at Facebook", (48, 43)),
    size("sys", "system metadata in memcached at Facebook", (28, 396)),
    size(
        "8+8",
        "small fixed items of persistent-memory indexes",
        (8, 8),
    ),
    size("30", "small items of 15 and 15 bytes", (15, 15)),
    size("16+64KiB", "large values", (16, 64 << 10)),
    Size {
        value_sizes: ValueSizes::Etc,
        ..size(
            "etc",
            "general memcached pool at Facebook: mean key, values as they are spread",
            (36, 194),
        )
    },
];

impl Size {
    /// The size of that name.
    pub fn named(name: &str) -> Option<&'static Size> {
        SIZES.iter().find(|size| size.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::keys::KeyShape;

    /// The published distribution, by its own formulas.
    #[test]
    fn etc_values_have_the_published_sizes() {
        let count = 1 << 14;
        let sizes = ValueSizes::Etc.quantiles(count, 0);
        let part = |of: &dyn Fn(u32) -> bool| {
            sizes.iter().filter(|size| of(**size)).count() as f64 / count as f64
        };
        for (size, wanted) in (0..).zip(ETC_SHORT) {
            let got = part(&|drawn| drawn == size);
            assert!(
                (got - wanted).abs() <= 1.5 / count as f64,
                "{size}: {got} {wanted}"
            );
        }
        let long = 1.0 - ETC_SHORT.iter().sum::<f64>();
        for size in [100, 500, 1000, 4000] {
            let (scale, shape) = ETC_PARETO;
            let beyond = f64::from(size - 15);
            let wanted = long * (1.0 + shape * beyond / scale).powf(-1.0 / shape);
            let got = part(&|drawn| drawn >= size);
            assert!(
                (got - wanted).abs() <= 2.0 / count as f64,
                "{size}: {got} {wanted}"
            );
        }
        let mean = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / count as f64;
        let named = Size::named("etc").unwrap().value_bytes as f64;
        assert!((mean / named - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn every_size_can_number_a_billion_records() {
        for size in SIZES {
            assert!(
                KeyShape::new(size.key_bytes, 1_000_000_000).is_ok(),
                "{size:?}"
            );
            assert_eq!(Size::named(size.name), Some(size));
        }
    }
}
