//! The kinds of documents that can be read.
//! Never: a kind guessed from the bytes; the sender says it, and a wrong one fails.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SkillsBookFormat, example = "text/markdown")]
pub enum Format {
    /// Text without any marks.
    #[serde(rename = "text/plain")]
    Plain,
    /// `CommonMark`.
    #[serde(rename = "text/markdown")]
    Markdown,
    /// A page of the web.
    #[serde(rename = "text/html")]
    Html,
    /// What is printed.
    #[serde(rename = "application/pdf")]
    Pdf,
}

impl Format {
    const ALL: [Self; 4] = [Self::Plain, Self::Markdown, Self::Html, Self::Pdf];

    /// As a media type.
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
        found.ok_or("it is one of text/plain, text/markdown, text/html, application/pdf")
    }
}
