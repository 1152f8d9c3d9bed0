//! Demo services: those of section 3.3 of the supplement, and `echo`.
//!
//! Invariant: files are written in the scratch folder only.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use chrono::{DateTime, Local};
use nix::fcntl::OFlag;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json, value::RawValue};

/// Maximum length of texts, in characters.
const MAX_TEXT_CHARS: usize = 64 * 1024;
/// Maximum length of a file name on common file systems.
const MAX_NAME_BYTES: usize = 255;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    Simple,
    Detailed,
}

#[derive(Deserialize)]
struct TimeParams {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct FileParams {
    filename: String,
    content: String,
}

#[derive(Deserialize)]
struct EchoParams {
    text: String,
}

/// Returns the service definitions.
pub(super) fn definitions() -> Map<String, Value> {
    let services = json!({
        "get_current_time": {
            "description": "Retrieve current date and time",
            "parameters": {"type": "object", "properties": {"format": {
                "type": "string",
                "enum": ["simple", "detailed"],
                "description": "simple = short, detailed = full info"
            }}}
        },
        "create_file": {
            "description": "Create a local file and write content",
            "parameters": {"type": "object", "properties": {
                "filename": {
                    "type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES,
                    "description": "Name of the file to create, without a folder"
                },
                "content": {
                    "type": "string", "maxLength": MAX_TEXT_CHARS,
                    "description": "Text to write into the file"
                }
            }, "required": ["filename", "content"]}
        },
        "echo": {
            "description": "Repeat a text",
            "parameters": {"type": "object", "properties": {"text": {
                "type": "string", "maxLength": MAX_TEXT_CHARS, "description": "What to repeat"
            }}, "required": ["text"]}
        }
    });
    match services {
        Value::Object(services) => services,
        _ => Map::new(),
    }
}

/// Runs a demo service; `None` if there is none of this name.
pub(super) async fn call(
    service: &str,
    params: &RawValue,
    scratch: &Path,
) -> Option<Result<Box<RawValue>, String>> {
    let data = match service {
        "get_current_time" => {
            read(params).map(|params: TimeParams| time(params.format, Local::now()))
        }
        "echo" => read(params).map(|params: EchoParams| Value::String(params.text)),
        "create_file" => match read::<FileParams>(params) {
            Ok(params) => create_file(params, scratch).await,
            Err(error) => Err(error),
        },
        _ => return None,
    };
    Some(
        data.and_then(|data| {
            serde_json::value::to_raw_value(&data).map_err(|error| error.to_string())
        }),
    )
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, String> {
    serde_json::from_str(params.get()).map_err(|error| format!("invalid parameters: {error}"))
}

fn time(format: Option<Format>, now: DateTime<Local>) -> Value {
    match format.unwrap_or(Format::Simple) {
        Format::Simple => Value::String(now.format("%Y-%m-%d %H:%M:%S").to_string()),
        Format::Detailed => json!({
            "local": now.to_rfc3339(),
            "utc": now.to_utc().to_rfc3339(),
            "unix_ms": now.timestamp_millis(),
            "weekday": now.format("%A").to_string(),
            "utc_offset": now.format("%:z").to_string(),
        }),
    }
}

async fn create_file(params: FileParams, scratch: &Path) -> Result<Value, String> {
    let scratch = scratch.to_owned();
    let written = tokio::task::spawn_blocking(move || write_file(&params, &scratch));
    written.await.map_err(|error| error.to_string())?
}

fn write_file(params: &FileParams, scratch: &Path) -> Result<Value, String> {
    let name = params.filename.as_str();
    let plain = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !matches!(name, "." | "..")
        && !name.contains(['/', '\\', '\0']);
    if !plain {
        return Err(format!(
            "a file name has 1 to {MAX_NAME_BYTES} bytes and no folder"
        ));
    }
    if params.content.chars().count() > MAX_TEXT_CHARS {
        return Err(format!("a file has at most {MAX_TEXT_CHARS} characters"));
    }
    let path = scratch.join(name);
    let failed = |error: std::io::Error| format!("cannot write {name}: {error}");
    fs::create_dir_all(scratch).map_err(failed)?;
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        // Symbolic links must not lead out of the folder.
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&path)
        .and_then(|mut file| file.write_all(params.content.as_bytes()))
        .map_err(failed)?;
    Ok(json!({"path": path.to_string_lossy(), "bytes": params.content.len()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn demo_services_return_results() {
        let scratch = tempfile::tempdir().unwrap();
        let check = async |service: &str, params: &str, expect: &str| {
            let params = RawValue::from_string(params.to_owned()).unwrap();
            let got = match call(service, &params, scratch.path()).await {
                Some(Ok(data)) => data.get().to_owned(),
                Some(Err(error)) => error,
                None => "none".to_owned(),
            };
            assert!(got.contains(expect), "{service} {}: {got}", params.get());
        };
        check("echo", r#"{"text":"你好 ##END"}"#, r###""你好 ##END""###).await;
        check("get_current_time", "{}", "-").await;
        check("get_current_time", r#"{"format":"detailed"}"#, "unix_ms").await;
        check(
            "get_current_time",
            r#"{"format":"x"}"#,
            "invalid parameters",
        )
        .await;
        check(
            "create_file",
            r#"{"filename":"a.txt","content":"坏"}"#,
            r#""bytes":3"#,
        )
        .await;
        check("absent", "{}", "none").await;
        assert_eq!(
            fs::read_to_string(scratch.path().join("a.txt")).unwrap(),
            "坏"
        );
    }

    #[test]
    fn create_file_rejects_paths_outside_scratch() {
        let scratch = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("target");
        std::os::unix::fs::symlink(&target, scratch.path().join("link")).unwrap();
        let long = "x".repeat(256);
        for name in [
            "../a", "/tmp/a", "a/b", "..", ".", "", "a\0", "..\\a", "link", &long,
        ] {
            let params = FileParams {
                filename: name.to_owned(),
                content: "x".to_owned(),
            };
            assert!(write_file(&params, scratch.path()).is_err(), "{name:?}");
        }
        assert!(!target.exists());
    }
}
