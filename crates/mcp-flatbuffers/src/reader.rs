//! Decodes a buffer into nodes and verifies everything it follows: offsets, sizes, alignment,
//! vtables, tags, UTF-8.
//!
//! Invariant: no byte is used before it is known to be in the buffer, and the work is proportional
//! to the size of the buffer.

use std::borrow::Cow;

use super::{
    DecodeError, IDENTIFIER, MAX_BYTES, MAX_DEPTH, MAX_TABLES,
    node::{Cell, Node},
    schema::{Choice, Field, Kind, Need, Table, Union},
};

/// The bytes read in total may be this many times the size of the buffer, because other writers
/// share equal parts.
const MAX_READ_FACTOR: usize = 4;
/// The bytes that may be read of a small buffer in addition.
const BASE_READ_BYTES: usize = 4096;

const OUT_OF_BOUNDS: &str = "an offset is out of bounds; is the buffer truncated?";
const UNALIGNED: &str = "a value is not aligned to its size";
const BAD_VTABLE: &str = "the vtable does not match its table";

/// The values of a bool. Others could be read differently elsewhere.
static BOOL: Choice = Choice {
    name: "bool",
    values: &["false", "true"],
    expected: "0 or 1",
};

/// A buffer, and how much of it may still be read.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Bytes before the buffer that count for alignment.
    lead: usize,
    budget: usize,
    tables: usize,
    path: String,
}

/// A table in the buffer, and its vtable.
#[derive(Clone, Copy)]
struct TableLocation {
    at: usize,
    size: usize,
    vtable: usize,
    vtable_size: usize,
}

/// Decodes the root table of a buffer that `lead` bytes precede.
pub(crate) fn read<'a>(
    bytes: &'a [u8],
    lead: usize,
    root: &'static Table,
) -> Result<Node<'a>, DecodeError> {
    if bytes.len() > MAX_BYTES {
        return Err(DecodeError::TooLarge { bytes: bytes.len() });
    }
    let mut reader = Reader {
        bytes,
        lead,
        budget: bytes
            .len()
            .saturating_mul(MAX_READ_FACTOR)
            .saturating_add(BASE_READ_BYTES),
        tables: 0,
        path: root.name.to_owned(),
    };
    let identifier = reader.slice(4, IDENTIFIER.len())?;
    if identifier != IDENTIFIER {
        let found = identifier.escape_ascii().to_string();
        return Err(DecodeError::Identifier { found });
    }
    let at = reader.follow(0)?;
    reader.table(at, root, MAX_DEPTH)
}

impl<'a> Reader<'a> {
    fn damaged(&self, at: usize, flaw: &'static str) -> DecodeError {
        DecodeError::Damaged {
            path: self.path.clone(),
            at,
            flaw,
        }
    }

    fn slice(&self, at: usize, size: usize) -> Result<&'a [u8], DecodeError> {
        at.checked_add(size)
            .and_then(|end| self.bytes.get(at..end))
            .ok_or_else(|| self.damaged(at, OUT_OF_BOUNDS))
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], DecodeError> {
        let slice = self.slice(at, N)?;
        slice
            .try_into()
            .map_err(|_| self.damaged(at, OUT_OF_BOUNDS))
    }

    /// Reads `N` bytes at a position that is a multiple of `N`.
    fn aligned<const N: usize>(&self, at: usize) -> Result<[u8; N], DecodeError> {
        if at.saturating_add(self.lead).checked_rem(N) == Some(0) {
            self.array(at)
        } else {
            Err(self.damaged(at, UNALIGNED))
        }
    }

    fn u16(&self, at: usize) -> Result<usize, DecodeError> {
        self.aligned(at).map(|raw| u16::from_le_bytes(raw).into())
    }

    fn u32(&self, at: usize) -> Result<usize, DecodeError> {
        let number = u32::from_le_bytes(self.aligned(at)?);
        usize::try_from(number).map_err(|_| self.damaged(at, OUT_OF_BOUNDS))
    }

    /// The target of the offset at this position.
    fn follow(&self, at: usize) -> Result<usize, DecodeError> {
        let offset = self.u32(at)?;
        match at.checked_add(offset) {
            Some(target) if offset > 0 && target < self.bytes.len() => Ok(target),
            _ => Err(self.damaged(at, OUT_OF_BOUNDS)),
        }
    }

    /// Deducts bytes from the read budget.
    fn spend(&mut self, bytes: usize) -> Result<(), DecodeError> {
        match self.budget.checked_sub(bytes) {
            Some(rest) => self.budget = rest,
            None => {
                return Err(DecodeError::Inflated {
                    path: self.path.clone(),
                });
            }
        }
        Ok(())
    }

    /// Reads one step further down the path.
    fn at_path<T>(
        &mut self,
        step: std::fmt::Arguments<'_>,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let length = self.path.len();
        self.path.push_str(&step.to_string());
        let outcome = read(self);
        self.path.truncate(length);
        outcome
    }

    fn location(&mut self, at: usize) -> Result<TableLocation, DecodeError> {
        let back = i64::from(i32::from_le_bytes(self.aligned(at)?));
        let vtable = i64::try_from(at)
            .ok()
            .and_then(|at| at.checked_sub(back))
            .and_then(|vtable| usize::try_from(vtable).ok())
            .ok_or_else(|| self.damaged(at, BAD_VTABLE))?;
        let (vtable_size, size) = (self.u16(vtable)?, self.u16(vtable.saturating_add(2))?);
        if vtable_size < 4 || vtable_size.checked_rem(2) != Some(0) || size < 4 {
            return Err(self.damaged(vtable, BAD_VTABLE));
        }
        self.slice(vtable, vtable_size)?;
        self.slice(at, size)?;
        self.spend(vtable_size.saturating_add(size))?;
        self.tables = self.tables.saturating_add(1);
        if self.tables > MAX_TABLES {
            return Err(DecodeError::Inflated {
                path: self.path.clone(),
            });
        }
        Ok(TableLocation {
            at,
            size,
            vtable,
            vtable_size,
        })
    }

    /// The position of a field of this width, if the table has it.
    fn slot(
        &self,
        location: TableLocation,
        slot: usize,
        width: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let entry = slot.saturating_mul(2).saturating_add(4);
        if entry.saturating_add(2) > location.vtable_size {
            return Ok(None);
        }
        let entry = location.vtable.saturating_add(entry);
        match self.u16(entry)? {
            0 => Ok(None),
            offset if offset < 4 || offset.saturating_add(width) > location.size => {
                Err(self.damaged(entry, BAD_VTABLE))
            }
            offset => Ok(Some(location.at.saturating_add(offset))),
        }
    }

    /// No table of the schema contains itself, so `depth` would only run out if that changed.
    fn table(
        &mut self,
        at: usize,
        table: &'static Table,
        depth: usize,
    ) -> Result<Node<'a>, DecodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(DecodeError::TooDeep);
        };
        let location = self.location(at)?;
        let mut node = Node::new(table);
        let mut slot = 0_usize;
        for field in table.fields {
            let cell = self.at_path(format_args!(".{}", field.name), |reader| {
                let cell = reader.cell(location, slot, field, depth)?;
                if cell.is_none() && field.need == Need::Required {
                    let path = reader.path.clone();
                    return Err(DecodeError::Missing { path });
                }
                Ok(cell)
            })?;
            if let Some(cell) = cell {
                node.set(field.name, cell);
            }
            slot = slot.saturating_add(field.kind.slots());
        }
        Ok(node)
    }

    fn cell(
        &mut self,
        location: TableLocation,
        slot: usize,
        field: &'static Field,
        depth: usize,
    ) -> Result<Option<Cell<'a>>, DecodeError> {
        let width = match field.kind {
            Kind::Bool | Kind::Presence | Kind::Choice(_) | Kind::Union(_) | Kind::Flat(_) => 1,
            Kind::Id => 8,
            _ => 4,
        };
        let Some(at) = self.slot(location, slot, width)? else {
            return Ok(None);
        };
        Ok(Some(match field.kind {
            Kind::Bool | Kind::Presence => Cell::Byte(self.choice(at, &BOOL)?),
            Kind::Choice(choice) => Cell::Byte(self.choice(at, choice)?),
            Kind::Int | Kind::Count | Kind::Float => {
                Cell::Word(u32::from_le_bytes(self.aligned(at)?))
            }
            Kind::Id => Cell::Id(u64::from_le_bytes(self.aligned(at)?)),
            Kind::Text | Kind::Fixed(_) | Kind::Json | Kind::Extra => {
                Cell::Text(Cow::Borrowed(self.text(at)?))
            }
            Kind::Bytes => Cell::Bytes(Cow::Borrowed(self.list(at, 1)?.1)),
            Kind::Choices(choice) => {
                let (start, values) = self.list(at, 1)?;
                for index in 0..values.len() {
                    let at = start.saturating_add(index);
                    self.choice(at, choice)?;
                }
                Cell::Bytes(Cow::Borrowed(values))
            }
            Kind::Table(table) => Cell::Table(self.table(self.follow(at)?, table, depth)?),
            Kind::Tables(table) | Kind::Named(table) => self.tables(at, table, depth)?,
            Kind::Union(union) | Kind::Flat(union) => {
                let value = self.slot(location, slot.saturating_add(1), 4)?;
                return self.union((at, value), union, depth);
            }
        }))
    }

    /// Reads a value of an enum.
    fn choice(&self, at: usize, choice: &Choice) -> Result<u8, DecodeError> {
        let [byte] = self.array(at)?;
        if usize::from(byte) < choice.values.len() {
            return Ok(byte);
        }
        Err(DecodeError::Unexpected {
            path: self.path.clone(),
            found: format!("{byte} as a {}", choice.name),
            expected: choice.expected,
        })
    }

    /// A list of items of this size: the position of the first one, and the bytes of all.
    fn list(&mut self, at: usize, size: usize) -> Result<(usize, &'a [u8]), DecodeError> {
        let at = self.follow(at)?;
        let count = self.u32(at)?;
        let start = at.saturating_add(4);
        let bytes = count
            .checked_mul(size)
            .ok_or_else(|| self.damaged(at, OUT_OF_BOUNDS))?;
        let slice = self.slice(start, bytes)?;
        self.spend(bytes.saturating_add(4))?;
        Ok((start, slice))
    }

    fn text(&mut self, at: usize) -> Result<&'a str, DecodeError> {
        let (start, bytes) = self.list(at, 1)?;
        let end = start.saturating_add(bytes.len());
        if self.array(end)? != [0] {
            return Err(self.damaged(end, "a string does not end with a zero"));
        }
        std::str::from_utf8(bytes).map_err(|error| {
            let at = start.saturating_add(error.valid_up_to());
            self.damaged(at, "a string is not UTF-8")
        })
    }

    fn tables(
        &mut self,
        at: usize,
        table: &'static Table,
        depth: usize,
    ) -> Result<Cell<'a>, DecodeError> {
        let (start, offsets) = self.list(at, 4)?;
        let mut nodes = Vec::new();
        for (index, step) in (0..offsets.len()).step_by(4).enumerate() {
            nodes.push(self.at_path(format_args!("[{index}]"), |reader| {
                let at = reader.follow(start.saturating_add(step))?;
                reader.table(at, table, depth)
            })?);
        }
        Ok(Cell::Tables(nodes))
    }

    fn union(
        &mut self,
        (tag, value): (usize, Option<usize>),
        union: &'static Union,
        depth: usize,
    ) -> Result<Option<Cell<'a>>, DecodeError> {
        let [tag] = self.array(tag)?;
        let Some(index) = tag.checked_sub(1) else {
            return Ok(None);
        };
        let Some((_, table)) = union.members.get(usize::from(index)) else {
            return Err(DecodeError::Unexpected {
                path: self.path.clone(),
                found: format!("member {tag} of {}", union.name),
                expected: "a member that the schema has",
            });
        };
        let Some(at) = value else {
            let path = self.path.clone();
            return Err(DecodeError::Missing { path });
        };
        let at = self.follow(at)?;
        let node = self.at_path(format_args!("<{}>", table.name), |reader| {
            reader.table(at, table, depth)
        })?;
        Ok(Some(Cell::Union(tag, Box::new(node))))
    }
}
