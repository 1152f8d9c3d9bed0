//! What NPCs know: memories of their devices and users, skills books, and the embeddings of both.

pub(crate) mod embeddings;
pub(crate) mod memories;
pub(crate) mod skills_books;
