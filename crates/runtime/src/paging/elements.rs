//! The elements of a page as JSON.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::PageBytes;

/// The elements of a page as JSON, each of which was serialised once: to measure it, and for the
/// response.
#[derive(Debug, Default)]
pub struct JsonElements {
    elements: Vec<Box<RawValue>>,
    bytes: PageBytes,
}

impl JsonElements {
    /// Adds an element. Returns false if it belongs to the next page, because this one has 4 MiB.
    pub fn push(&mut self, view: &impl Serialize) -> bool {
        // Views have no maps with other keys than strings, so this does not fail.
        let json = to_raw_value(view).unwrap_or_else(|_| RawValue::NULL.to_owned());
        let fits = self.bytes.add(json.get().len());
        if fits {
            self.elements.push(json);
        }
        fits
    }

    /// Returns the size of all elements in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.total()
    }
}

impl Serialize for JsonElements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.elements.serialize(serializer)
    }
}
