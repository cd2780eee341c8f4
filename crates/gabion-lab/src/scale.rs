//! A part of a paper's size.

use crate::Error;

/// What a paper's size is multiplied by: above 0, and at most 1.
#[derive(Clone, Copy, Debug)]
pub struct Scale(pub(crate) f64);

impl Scale {
    /// A scale of that number.
    ///
    /// # Errors
    /// [`Error::Request`] unless it is above 0 and at most 1.
    pub fn new(part: f64) -> Result<Scale, Error> {
        if part > 0.0 && part <= 1.0 {
            return Ok(Scale(part));
        }
        let sentence = format!("the scale {part} must be above 0 and at most 1");
        Err(Error::Request(sentence))
    }

    /// So much of the paper's `count`, and at least `least`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number is smaller than the number"
    )]
    pub(crate) fn of(self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.0) as u64).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_that_is_none_is_refused() {
        for part in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(matches!(Scale::new(part), Err(Error::Request(_))), "{part}");
        }
        assert_eq!(Scale::new(0.5).unwrap().of(10, 1), 5);
        assert_eq!(Scale(0.01).of(10, 3), 3);
    }
}
