//! A parser for `schema/mcp.fbs`, independent of the crate's code. Supports only keyword that file
//! uses.

/// A definition with its parts.
#[derive(Debug)]
pub(crate) struct Definition {
    /// `table`, `struct`, `union` or `enum`.
    pub(crate) keyword: String,
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
}

/// A field, a member of a union or a value of an enum.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// The type of a field, without brackets; empty for the others.
    pub(crate) kind: String,
    pub(crate) list: bool,
    pub(crate) required: bool,
}

pub(crate) fn definitions() -> Vec<Definition> {
    read(include_str!("../../schema/mcp.fbs"))
}

pub(crate) fn read(text: &str) -> Vec<Definition> {
    let mut definitions: Vec<Definition> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let words: Vec<&str> = code.split_whitespace().collect();
        if let [keyword @ ("table" | "struct" | "union" | "enum"), name, ..] = words[..] {
            open = true;
            definitions.push(Definition {
                keyword: keyword.to_owned(),
                name: name.to_owned(),
                parts: Vec::new(),
            });
        } else if code == "}" {
            open = false;
        } else if open && !code.is_empty() {
            let code = code.trim_end_matches([';', ',']);
            let required = code.contains("(required)");
            let code = code.replace("(required)", "");
            let code = code.split('=').next().unwrap_or_default();
            let (name, kind) = code.split_once(':').unwrap_or((code, ""));
            definitions.last_mut().unwrap().parts.push(Part {
                name: name.trim().to_owned(),
                kind: kind.trim().trim_matches(['[', ']']).to_owned(),
                list: kind.trim().starts_with('['),
                required,
            });
        }
    }
    assert!(
        definitions.len() > 40,
        "only {} definitions",
        definitions.len()
    );
    definitions
}
