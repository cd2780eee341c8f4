//! Chooses which of the possible images to try.
//!
//! Two ways. [`ChoiceSearch`] goes through all of them: it varies a line only once a check has read
//! it, so that images which no check can tell apart are tried once. [`samples`] picks some when
//! there are too many: the extremes, moments of the run as it happened, and others drawn from a
//! seed.

use super::uncertain::UncertainLine;
use crate::seeded::SeededRng;

/// A choice for some of the lines; the others are without any of their stores.
pub(super) type LineChoices = Vec<(usize, usize)>;

/// A walk through all combinations of choices that matter, depth first.
#[derive(Default)]
pub(super) struct ChoiceSearch {
    decided: LineChoices,
    is_decided: Vec<bool>,
}

impl ChoiceSearch {
    /// For so many lines.
    pub(super) fn new(lines: usize) -> ChoiceSearch {
        ChoiceSearch {
            decided: Vec::new(),
            is_decided: vec![false; lines],
        }
    }

    /// The image to try now.
    pub(super) fn picks(&self) -> &LineChoices {
        &self.decided
    }

    /// Notes that the last check depends on a line.
    pub(super) fn depends_on(&mut self, line: usize) {
        if !self.is_decided[line] {
            self.is_decided[line] = true;
            self.decided.push((line, 0));
        }
    }

    /// Moves on to the next image, where line `n` has `choices(n)` choices. `false`: there is none.
    pub(super) fn advance(&mut self, choices: impl Fn(usize) -> usize) -> bool {
        while let Some((line, choice)) = self.decided.pop() {
            if choice + 1 < choices(line) {
                self.decided.push((line, choice + 1));
                return true;
            }
            self.is_decided[line] = false;
        }
        false
    }
}

/// About `count` images among too many.
pub(super) fn samples(
    lines: &[&UncertainLine],
    count: usize,
    random: &mut SeededRng,
) -> Vec<LineChoices> {
    let none = LineChoices::new;
    let all = || -> LineChoices { lines.iter().map(|line| line.all()).enumerate().collect() };
    let mut images = vec![none(), all()];
    if lines.is_empty() {
        return images;
    }
    // Everything up to a moment, as the run happened.
    let mut events: Vec<usize> = lines.iter().flat_map(|line| line.events()).collect();
    events.sort_unstable();
    events.dedup();
    for event in strided(events.len(), count / 4, random) {
        let upto = |line: &&UncertainLine| line.upto(events[event]);
        images.push(lines.iter().map(upto).enumerate().collect());
    }
    // One line alone, and all but one.
    for line in strided(lines.len(), count / 8, random) {
        images.push(vec![(line, lines[line].all())]);
        let mut but = all();
        but[line].1 = 0;
        images.push(but);
    }
    while images.len() < count {
        // How many lines in eight are without their stores, and how many with all of them.
        let without = random.index(9);
        let with = random.index(9 - without);
        let pick = |(at, line): (usize, &&UncertainLine)| {
            let choice = match random.index(8) {
                eighth if eighth < without => 0,
                eighth if eighth < without + with => line.all(),
                _ => random.index(line.choices().len()),
            };
            (at, choice)
        };
        images.push(lines.iter().enumerate().map(pick).collect());
    }
    images
}

/// At most `count` numbers below `of`, evenly apart, from a start that is drawn.
fn strided(of: usize, count: usize, random: &mut SeededRng) -> Vec<usize> {
    if of == 0 || count == 0 {
        return Vec::new();
    }
    let stride = of.div_ceil(count);
    let start = random.index(stride.min(of));
    (start..of).step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_tries_each_combination_of_what_is_read_once() {
        // Line 1 is read only while line 0 has its choice 2; line 2 never.
        let choices = [3, 4, 5];
        let mut search = ChoiceSearch::new(3);
        let mut tried = Vec::new();
        loop {
            search.depends_on(0);
            if search.picks().contains(&(0, 2)) {
                search.depends_on(1);
            }
            tried.push(search.picks().clone());
            if !search.advance(|line| choices[line]) {
                break;
            }
        }
        assert_eq!(tried.len(), 2 + 4);
        assert_eq!(tried[1], [(0, 1)]);
        assert_eq!(tried[5], [(0, 2), (1, 3)]);

        let mut search = ChoiceSearch::new(3);
        let mut count = 0;
        loop {
            (0..3).for_each(|line| search.depends_on(line));
            count += 1;
            if !search.advance(|line| choices[line]) {
                break;
            }
        }
        assert_eq!(count, 3 * 4 * 5);
    }

    #[test]
    fn strides_keep_to_their_bounds() {
        let mut random = SeededRng::new(1);
        for of in 0..40 {
            for count in 0..50 {
                let numbers = strided(of, count, &mut random);
                assert!(numbers.len() <= count);
                assert!(numbers.iter().all(|number| *number < of));
                assert_eq!(numbers.is_empty(), of == 0 || count == 0);
            }
        }
    }
}
