//! Progress bars. They are drawn on stderr, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a bar.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

/// Creates a bar for bytes that are sent.
pub(crate) fn sending(bytes: u64) -> ProgressBar {
    bar(bytes, "sending  {bar:40} {bytes}/{total_bytes} {eta}")
}
