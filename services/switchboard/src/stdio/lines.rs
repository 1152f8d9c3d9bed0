//! Lines of an input whose sender nobody trusts to end one.
//! Never: a line kept beyond its limit.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The longest line that is read; longer than any request the gateway takes.
pub(super) const LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// Longer than [`LIMIT_BYTES`]; it was passed over.
    TooLong,
}

/// An input, and what was read of its next line.
pub(super) struct Lines<I> {
    input: BufReader<I>,
    line: Vec<u8>,
    too_long: bool,
    begun: bool,
}

impl<I: AsyncRead + Unpin> Lines<I> {
    pub(super) fn of(input: I) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            too_long: false,
            begun: false,
        }
    }

    /// The next line; none at the end of the input, where a last line needs no line break. Nothing is lost when
    /// the future is dropped.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(self.begun.then(|| self.end()));
            }
            self.begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            self.too_long |= self.line.len() + part.len() > LIMIT_BYTES;
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
        self.begun = false;
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
    async fn lines_end_at_line_breaks_and_at_the_end() {
        let long = vec![b'x'; LIMIT_BYTES + 1];
        let input = [b"one\n\n".as_slice(), &long, b"\ntwo"].concat();
        let mut input = Lines::of(input.as_slice());
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
