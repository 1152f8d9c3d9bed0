//! `flatc`, the schema compiler, as a second opinion.
//! Never: a test that passes because it is not there.

use std::{fs, path::PathBuf, process::Command};

use switchboard_protocol::mcp::flat::Framing;
use tempfile::TempDir;

pub(crate) struct Flatc(TempDir);

impl Flatc {
    pub(crate) fn new() -> Self {
        if let Err(error) = Command::new("flatc").arg("--version").output() {
            panic!(
                "`flatc` is needed to test the FlatBuffers encoding, and cannot be run ({error}): \
                 install flatbuffers-compiler (Debian, Ubuntu, Fedora) or flatbuffers (others), or \
                 run ./check, which does"
            );
        }
        Self(tempfile::tempdir().unwrap())
    }

    /// Makes code of the schema, and gives what was said about it.
    pub(crate) fn generate(&self) -> String {
        self.run(&["--cpp"], None)
    }

    /// Whether our schema continues this one, so that readers of it can read our buffers.
    pub(crate) fn conforms(&self, published: &str) -> Result<String, String> {
        let path = self.0.path().join("published.fbs");
        fs::write(&path, published).unwrap();
        let path = path.to_str().unwrap();
        self.say(&["--cpp", "--conform", path], None)
    }

    pub(crate) fn to_json(&self, table: &str, framing: Framing, bytes: &[u8]) -> String {
        let input = self.0.path().join("case.mcp");
        fs::write(&input, bytes).unwrap();
        let root = format!("mcp.fb.{table}");
        let mut arguments = vec!["--json", "--strict-json", "--root-type", &root];
        arguments.extend(prefix(framing));
        assert_eq!(self.run(&arguments, Some(&input)), "");
        fs::read_to_string(self.0.path().join("case.json")).unwrap()
    }

    pub(crate) fn to_binary(&self, table: &str, framing: Framing, json: &str) -> Vec<u8> {
        let input = self.0.path().join("case.json");
        fs::write(&input, json).unwrap();
        let root = format!("mcp.fb.{table}");
        // Without it a `false` that is written and one that is missing would be the same.
        let mut arguments = vec!["--binary", "--force-defaults", "--root-type", &root];
        arguments.extend(prefix(framing));
        assert_eq!(self.run(&arguments, Some(&input)), "");
        fs::read(self.0.path().join("case.mcp")).unwrap()
    }

    fn run(&self, arguments: &[&str], input: Option<&PathBuf>) -> String {
        self.say(arguments, input)
            .unwrap_or_else(|said| panic!("flatc {arguments:?}: {said}"))
    }

    /// What it said, as an error if it failed.
    fn say(&self, arguments: &[&str], input: Option<&PathBuf>) -> Result<String, String> {
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/mcp.fbs");
        let mut command = Command::new("flatc");
        command.args(arguments).arg("-o").arg(self.0.path());
        command.arg(schema);
        // What stands behind `--` is a buffer; JSON stands before it.
        if arguments.contains(&"--json") {
            command.arg("--");
        }
        let output = command.args(input).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(said)
        }
    }
}

fn prefix(framing: Framing) -> Option<&'static str> {
    (framing == Framing::SizePrefixed).then_some("--size-prefixed")
}
