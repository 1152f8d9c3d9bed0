//! Reader of lines with a maximum length.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Maximum length of a line; longer than any request that the gateway accepts.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The line without its line break.
    Whole(Vec<u8>),
    /// Longer than [`MAX_LINE_BYTES`]; skipped.
    TooLong,
}

/// An input and the line being read.
pub(super) struct Lines<I> {
    input: BufReader<I>,
    line: Vec<u8>,
    too_long: bool,
    started: bool,
}

impl<I: AsyncRead + Unpin> Lines<I> {
    pub(super) fn new(input: I) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            too_long: false,
            started: false,
        }
    }

    /// Reads the next line, `None` at the end of input. The last line needs no line break.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(self.started.then(|| self.end()));
            }
            self.started = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            self.too_long |= self.line.len() + part.len() > MAX_LINE_BYTES;
            if self.too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(end.is_some());
            self.input.consume(taken);
            if end.is_some() {
                return Ok(Some(self.end()));
            }
        }
    }

    fn end(&mut self) -> Line {
        self.started = false;
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            Line::TooLong
        } else {
            Line::Whole(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_at_line_breaks_and_end_of_input() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let input = [b"one\n\n".as_slice(), &long, b"\ntwo"].concat();
        let mut input = Lines::new(input.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = input.next().await.unwrap() {
            lines.push(line);
        }
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(
            lines,
            [whole("one"), whole(""), Line::TooLong, whole("two")]
        );
    }
}
