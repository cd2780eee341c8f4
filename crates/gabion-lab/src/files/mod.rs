//! Figures about what lies in files, without a store: each writes below a directory, which says
//! which file system is measured, and computes a few lines, as figures about structures do.
//!
//! Source: the FlexSpace paper, section 6.2.

mod flexspace;

use std::fs;
use std::path::Path;

use crate::Error;
use crate::figure::check_scale;
use crate::structure::Scale;

/// A figure about what lies in files.
#[derive(Clone, Copy, Debug)]
pub struct FileFigure {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    lines: fn(Scale, &Path) -> Result<Vec<String>, Error>,
}

/// All of them.
pub static FILE_FIGURES: &[FileFigure] = &[FileFigure {
    name: "flexspace",
    about: "FlexSpace beside plain files: inserts, writes and reads (FlexSpace's table 2)",
    lines: flexspace::operations,
}];

impl FileFigure {
    /// The figure of that name, if it is one of these.
    pub fn named(name: &str) -> Option<&'static FileFigure> {
        FILE_FIGURES.iter().find(|figure| figure.name == name)
    }

    /// What it shows at `scale` times the paper's size, as lines to print. Its files lie in a
    /// directory of their own below `dir`, which is made if it is not there, and are removed in the
    /// end, however that comes.
    ///
    /// # Errors
    /// [`Error::Request`] unless `scale` is above 0 and at most 1, [`Error::File`] and
    /// [`Error::Space`] if the system refuses something.
    pub fn lines(&self, scale: f64, dir: &Path) -> Result<Vec<String>, Error> {
        check_scale(scale)?;
        let own = dir.join(format!("{}-{}", self.name, std::process::id()));
        fs::create_dir_all(&own).map_err(|source| Error::file("make", &own, source))?;
        let lines = (self.lines)(Scale(scale), &own);
        let removed = fs::remove_dir_all(&own);
        let lines = lines?;
        removed.map_err(|source| Error::file("remove", &own, source))?;
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_lines_at_a_small_scale_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        for figure in FILE_FIGURES {
            let lines = figure.lines(0.000_1, &below).unwrap();
            assert!(lines.len() > 2, "{} {lines:?}", figure.name);
            assert_eq!(fs::read_dir(&below).unwrap().count(), 0, "{}", figure.name);
            let named = FileFigure::named(figure.name).unwrap();
            assert_eq!(named.name, figure.name);
        }
        assert!(FileFigure::named("2.3").is_none());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for scale in [0.0, 1.5, f64::NAN] {
            let refused = FILE_FIGURES[0].lines(scale, dir.path());
            assert!(matches!(refused, Err(Error::Request(_))), "{scale}");
        }
        let file = dir.path().join("file");
        fs::File::create(&file).unwrap();
        let sentence = FILE_FIGURES[0].lines(0.1, &file).unwrap_err().to_string();
        assert!(sentence.contains("cannot make"), "{sentence}");
    }
}
