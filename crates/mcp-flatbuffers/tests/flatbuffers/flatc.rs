//! Runs `flatc`, the schema compiler. Fails when it is not installed.

use std::{fs, path::PathBuf, process::Command};

use switchboard_mcp_flatbuffers::Framing;
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

    /// Generates code from the schema, and returns the output.
    pub(crate) fn generate(&self) -> String {
        self.run(&["--cpp"], None)
    }

    /// Checks that our schema extends this one, so that its readers can read our buffers.
    pub(crate) fn conforms(&self, published: &str) -> Result<String, String> {
        let path = self.0.path().join("published.fbs");
        fs::write(&path, published).unwrap();
        let path = path.to_str().unwrap();
        self.try_run(&["--cpp", "--conform", path], None)
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
        // Otherwise a written `false` and a missing one would be the same.
        let mut arguments = vec!["--binary", "--force-defaults", "--root-type", &root];
        arguments.extend(prefix(framing));
        assert_eq!(self.run(&arguments, Some(&input)), "");
        fs::read(self.0.path().join("case.mcp")).unwrap()
    }

    fn run(&self, arguments: &[&str], input: Option<&PathBuf>) -> String {
        self.try_run(arguments, input)
            .unwrap_or_else(|output_text| panic!("flatc {arguments:?}: {output_text}"))
    }

    /// Runs `flatc` and returns its output, as an error if it failed.
    fn try_run(&self, arguments: &[&str], input: Option<&PathBuf>) -> Result<String, String> {
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/mcp.fbs");
        let mut command = Command::new("flatc");
        command.args(arguments).arg("-o").arg(self.0.path());
        command.arg(schema);
        // After `--` comes a buffer; JSON comes before it.
        if arguments.contains(&"--json") {
            command.arg("--");
        }
        let output = command.args(input).output().unwrap();
        let output_text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&output_text).trim().to_owned();
        if output.status.success() {
            Ok(output_text)
        } else {
            Err(output_text)
        }
    }
}

fn prefix(framing: Framing) -> Option<&'static str> {
    (framing == Framing::SizePrefixed).then_some("--size-prefixed")
}
