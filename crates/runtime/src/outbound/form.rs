//! Bodies of the media type `multipart/form-data`. (RFC 7578)

/// A form that is being written.
#[derive(Debug)]
pub struct Form {
    boundary: String,
    body: Vec<u8>,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            boundary: format!("switchboard-{:032x}", rand::random::<u128>()),
            body: Vec::new(),
        }
    }
}

impl Form {
    /// Adds a text field. Its name has no quotation mark and no line break.
    #[must_use]
    pub fn field(self, name: &str, value: &str) -> Self {
        self.part(&format!("name=\"{name}\"\r\n"), value.as_bytes())
    }

    /// Adds a file. Both names have no quotation mark and no line break.
    #[must_use]
    pub fn file(self, name: &str, file_name: &str, media_type: &str, bytes: &[u8]) -> Self {
        let head =
            format!("name=\"{name}\"; filename=\"{file_name}\"\r\nContent-Type: {media_type}\r\n");
        self.part(&head, bytes)
    }

    /// Returns the content type and the body.
    #[must_use]
    pub fn finish(mut self) -> (String, Vec<u8>) {
        let boundary = &self.boundary;
        self.body
            .extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let content_type = format!("multipart/form-data; boundary={boundary}");
        (content_type, self.body)
    }

    fn part(mut self, head: &str, content: &[u8]) -> Self {
        let boundary = &self.boundary;
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n");
        for piece in [head.as_bytes(), content, b"\r\n"] {
            self.body.extend_from_slice(piece);
        }
        self
    }
}
