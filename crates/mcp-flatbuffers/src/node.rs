//! A table between JSON and bytes: the values of its fields in the types of FlatBuffers.

use std::borrow::Cow;

use super::schema::{Field, Table};

/// The values of one table, in the order of its fields.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) table: &'static Table,
    cells: Vec<Option<Cell<'a>>>,
}

/// One value.
#[derive(Debug)]
pub(crate) enum Cell<'a> {
    /// A bool or an enum over `byte`.
    Byte(u8),
    /// The bits of an `int`, a `uint32` or a `float`.
    Word(u32),
    /// A `RequestId`.
    Id(u64),
    Text(Cow<'a, str>),
    /// A list of bytes or of enum values.
    Bytes(Cow<'a, [u8]>),
    Table(Node<'a>),
    Tables(Vec<Node<'a>>),
    /// The tag of the variant, from one, and its table.
    Union(u8, Box<Node<'a>>),
}

impl<'a> Node<'a> {
    pub(crate) fn new(table: &'static Table) -> Self {
        let cells = table.fields.iter().map(|_| None).collect();
        Self { table, cells }
    }

    /// Sets a field. Does nothing when the table has no field of this name.
    pub(crate) fn set(&mut self, name: &str, cell: Cell<'a>) {
        let named = |(field, _): &(&Field, _)| field.name == name;
        if let Some((_, place)) = self.table.fields.iter().zip(&mut self.cells).find(named) {
            *place = Some(cell);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Cell<'a>> {
        let (_, cell) = self.fields().find(|(field, _)| field.name == name)?;
        cell
    }

    /// The value of a text field.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    /// All fields with their values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static Field, Option<&Cell<'a>>)> {
        self.table
            .fields
            .iter()
            .zip(self.cells.iter().map(Option::as_ref))
    }
}
