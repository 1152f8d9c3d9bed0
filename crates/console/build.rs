//! Compresses the files of `console/`, and lists them for `include_bytes!`. Their addresses contain
//! a hash of all of them, so that browsers may keep them without asking again.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};

/// The page, whose places for the address of the files and for the list of modules are filled in.
const PAGE: &str = "index.html";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("../../console");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    let mut hasher = Sha256::new();
    for path in paths {
        let name = path
            .strip_prefix(root)?
            .to_string_lossy()
            .replace('\\', "/");
        let content = fs::read(&path)?;
        hasher.update((name.len() as u64).to_be_bytes());
        hasher.update(&name);
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(&content);
        files.push((name, content));
    }
    let hash = hasher
        .finalize()
        .iter()
        .take(8)
        .fold(String::new(), |mut hash, byte| {
            let _ = write!(hash, "{byte:02x}");
            hash
        });
    let (folder, tag) = (format!("/console/{hash}"), format!("\"{hash}\""));
    let modules = files.iter().map(|(name, _)| name.as_str());
    let preload: Vec<_> = modules
        .filter(|name| is_module(name))
        .map(|name| format!("<link rel=\"modulepreload\" href=\"{folder}/{name}\">"))
        .collect();
    let mut list = format!(
        "const HASH: &str = {hash:?};\nconst TAG: &str = {tag:?};\nconst FILES: &[File] = &[\n"
    );
    for (index, (name, mut content)) in files.into_iter().enumerate() {
        if name == PAGE {
            let page = String::from_utf8(content)?;
            let page = page.replace("{assets}", &folder);
            content = page.replace("{preload}", &preload.join("\n")).into_bytes();
        }
        let plain = output(&format!("{index}"), &content)?;
        let compressed = output(&format!("{index}.gz"), &gzip(&content)?)?;
        writeln!(
            list,
            "File {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({compressed:?}) }},"
        )?;
    }
    list.push_str("];\n");
    output("files.rs", list.as_bytes())?;
    Ok(())
}

/// Modules that the browser loads at once. The theme is a classic script.
fn is_module(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    matches!(extension, Some("js" | "mjs")) && name != "theme.js"
}

/// Adds what browsers load, and the licences, of a folder. Types are for the editor only.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if matches!(
            path.extension().and_then(|extension| extension.to_str()),
            Some("html" | "js" | "mjs" | "css" | "svg" | "LICENSE")
        ) {
            paths.push(path);
        }
    }
    Ok(())
}

fn gzip(content: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// Writes a file into the build's folder; returns its path.
fn output(name: &str, content: &[u8]) -> Result<String, Box<dyn Error>> {
    let path = Path::new(&env::var("OUT_DIR")?).join(name);
    fs::write(&path, content)?;
    Ok(path.to_string_lossy().into_owned())
}
