//! Writes nodes as a buffer, front to back: each table follows its vtable and precedes what it
//! references. A field that the node does not have is not written.

use super::{
    EncodeError, IDENTIFIER, MAX_BYTES, MAX_DEPTH, MAX_TABLES,
    node::{Cell, Node},
};

/// The bytes so far, and how many bytes before them count for alignment.
struct Writer {
    out: Vec<u8>,
    lead: usize,
    tables: usize,
}

/// The value in one slot of a table.
struct Slot<'n> {
    slot: usize,
    value: Value<'n>,
}

enum Value<'n> {
    Byte(u8),
    Word(u32),
    Id(u64),
    /// Stored outside of the table, which holds its offset.
    Offset(&'n Cell<'n>),
}

/// Writes a buffer with this root, to be preceded by `lead` other bytes.
pub(crate) fn write(node: &Node<'_>, lead: usize) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer {
        out: vec![0; 4],
        lead,
        tables: 0,
    };
    writer.out.extend_from_slice(IDENTIFIER);
    let at = writer.table(node, MAX_DEPTH)?;
    writer.point(0, at)?;
    if writer.out.len() > MAX_BYTES {
        return Err(writer.too_large());
    }
    Ok(writer.out)
}

impl Value<'_> {
    const fn width(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Word(_) | Self::Offset(_) => 4,
            Self::Id(_) => 8,
        }
    }
}

impl Writer {
    fn too_large(&self) -> EncodeError {
        EncodeError::TooLarge {
            bytes: self.out.len(),
        }
    }

    /// Pads until the byte after `ahead` more bytes is aligned.
    fn pad(&mut self, ahead: usize, width: usize) {
        let place = self.out.len().saturating_add(ahead);
        let place = place.saturating_add(self.lead);
        let missing = place.next_multiple_of(width).saturating_sub(place);
        self.out.extend(std::iter::repeat_n(0, missing));
    }

    /// Overwrites bytes.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len());
        if let Some(place) = self.out.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
    }

    fn push_u16(&mut self, number: usize) -> Result<(), EncodeError> {
        let number = u16::try_from(number).map_err(|_| self.too_large())?;
        self.out.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn push_count(&mut self, number: usize) -> Result<(), EncodeError> {
        let number = u32::try_from(number).map_err(|_| self.too_large())?;
        self.out.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    /// Writes the offset from one position to a later one.
    fn point(&mut self, from: usize, to: usize) -> Result<(), EncodeError> {
        let offset = u32::try_from(to.saturating_sub(from)).map_err(|_| self.too_large())?;
        self.put(from, &offset.to_le_bytes());
        Ok(())
    }

    /// Writes a table with everything it references, and returns its position.
    fn table(&mut self, node: &Node<'_>, depth: usize) -> Result<usize, EncodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(EncodeError::TooDeep);
        };
        self.tables = self.tables.saturating_add(1);
        if self.tables > MAX_TABLES {
            return Err(EncodeError::TooManyTables);
        }
        let slots = slots(node);
        let slot_count = slots.iter().map(|part| part.slot.saturating_add(1)).max();
        let vtable_size = slot_count.unwrap_or(0).saturating_mul(2).saturating_add(4);
        let wide = slots.iter().any(|part| part.value.width() == 8);
        // The first field is 4 bytes into the table, and the widest come first.
        self.pad(vtable_size.saturating_add(4), if wide { 8 } else { 4 });
        let vtable = self.out.len();
        let widths = slots.iter().map(|part| part.value.width());
        let size = widths.fold(4_usize, usize::saturating_add);
        self.push_u16(vtable_size)?;
        self.push_u16(size)?;
        let entries = vtable_size.saturating_sub(4);
        self.out.extend(std::iter::repeat_n(0, entries));
        let at = self.out.len();
        self.push_count(vtable_size)?;
        let mut referenced = Vec::new();
        for Slot { slot, value } in slots {
            let place = self.out.len();
            let entry = slot.saturating_mul(2).saturating_add(4);
            let offset = u16::try_from(place.saturating_sub(at)).map_err(|_| self.too_large())?;
            self.put(vtable.saturating_add(entry), &offset.to_le_bytes());
            match value {
                Value::Byte(byte) => self.out.push(byte),
                Value::Word(word) => self.out.extend_from_slice(&word.to_le_bytes()),
                Value::Id(id) => self.out.extend_from_slice(&id.to_le_bytes()),
                Value::Offset(cell) => {
                    self.out.extend_from_slice(&[0; 4]);
                    referenced.push((place, cell));
                }
            }
        }
        for (place, cell) in referenced {
            let target = self.referenced(cell, depth)?;
            self.point(place, target)?;
        }
        Ok(at)
    }

    /// Writes a value outside of its table, and returns its position.
    fn referenced(&mut self, cell: &Cell<'_>, depth: usize) -> Result<usize, EncodeError> {
        match cell {
            Cell::Text(text) => {
                let at = self.list(text.as_bytes())?;
                self.out.push(0);
                Ok(at)
            }
            Cell::Bytes(bytes) => self.list(bytes),
            Cell::Table(node) => self.table(node, depth),
            Cell::Union(_, node) => self.table(node, depth),
            Cell::Tables(nodes) => self.tables(nodes, depth),
            // These are in the table itself.
            Cell::Byte(_) | Cell::Word(_) | Cell::Id(_) => Ok(self.out.len()),
        }
    }

    fn list(&mut self, bytes: &[u8]) -> Result<usize, EncodeError> {
        if bytes.len() > MAX_BYTES {
            return Err(EncodeError::TooLarge { bytes: bytes.len() });
        }
        self.pad(0, 4);
        let at = self.out.len();
        self.push_count(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(at)
    }

    fn tables(&mut self, nodes: &[Node<'_>], depth: usize) -> Result<usize, EncodeError> {
        self.pad(0, 4);
        let at = self.out.len();
        self.push_count(nodes.len())?;
        let mut place = self.out.len();
        let offsets = nodes.len().saturating_mul(4);
        self.out.extend(std::iter::repeat_n(0, offsets));
        for node in nodes {
            let target = self.table(node, depth)?;
            self.point(place, target)?;
            place = place.saturating_add(4);
        }
        Ok(at)
    }
}

/// The values in the node's table, widest first.
fn slots<'n>(node: &'n Node<'_>) -> Vec<Slot<'n>> {
    let mut slots = Vec::new();
    let mut slot = 0_usize;
    for (field, cell) in node.fields() {
        if let Some(cell) = cell {
            let mut value_slot = slot;
            if let Cell::Union(tag, _) = cell {
                let value = Value::Byte(*tag);
                slots.push(Slot { slot, value });
                value_slot = slot.saturating_add(1);
            }
            let value = match cell {
                Cell::Byte(byte) => Value::Byte(*byte),
                Cell::Word(word) => Value::Word(*word),
                Cell::Id(id) => Value::Id(*id),
                referenced => Value::Offset(referenced),
            };
            slots.push(Slot {
                slot: value_slot,
                value,
            });
        }
        slot = slot.saturating_add(field.kind.slots());
    }
    slots.sort_by_key(|part| std::cmp::Reverse(part.value.width()));
    slots
}
