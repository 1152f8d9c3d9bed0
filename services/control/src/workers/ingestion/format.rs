//! The supported document formats. The client declares the format; it is not detected.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SkillsBookFormat, example = "text/markdown")]
pub enum Format {
    /// Plain text.
    #[serde(rename = "text/plain")]
    Plain,
    /// `CommonMark`.
    #[serde(rename = "text/markdown")]
    Markdown,
    /// HTML.
    #[serde(rename = "text/html")]
    Html,
    /// PDF.
    #[serde(rename = "application/pdf")]
    Pdf,
}

impl Format {
    const ALL: [Self; 4] = [Self::Plain, Self::Markdown, Self::Html, Self::Pdf];

    /// The media type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "text/plain",
            Self::Markdown => "text/markdown",
            Self::Html => "text/html",
            Self::Pdf => "application/pdf",
        }
    }
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == text);
        found.ok_or("it must be one of text/plain, text/markdown, text/html, application/pdf")
    }
}
