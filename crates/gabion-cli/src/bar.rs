//! The progress bar, on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often it is drawn anew.
const REDRAWS_PER_SECOND: u8 = 5;

/// A bar of so many bytes, or of an unknown number, on standard error; nothing where that is no
/// terminal.
pub(crate) fn new(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg} ETA {eta}",
        ),
        None => (
            ProgressBar::no_length(),
            "{spinner} {bytes} {bytes_per_sec} {msg}",
        ),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
