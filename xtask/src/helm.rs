//! `cargo xtask helm`: lints the chart, renders it for the value files of `tests/helm`, validates the
//! result against the schemas of Kubernetes, and compares it with the snapshots. No cluster is needed.
//!
//! Invariant: files that the chart copies from `deploy/` are identical there.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::clients;

/// The requirements file `tests/clients/helm.txt`.
const REQUIREMENTS: &str = "helm";
/// Copies in the chart, since Helm reads no file outside of it: the folder in `deploy/`, the extension of
/// its files, and the folder in the chart.
const CARRIED: [(&str, &str, &str); 2] = [
    ("deploy/prometheus/rules", "yml", "files/rules"),
    ("deploy/grafana/dashboards", "json", "files/dashboards"),
];
const CHART: &str = "helm/switchboard";
const SNAPSHOTS: &str = "tests/helm/snapshots";

/// Whether differences are reported or written.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write the renderings to the snapshots, and the files of deploy/ to the chart
    #[arg(long)]
    write: bool,
}

/// Files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Checks the chart; the error names every difference.
///
/// # Errors
/// A failed check, a rendering that differs from its snapshot, or a copy that differs from `deploy/`.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let python = clients::install_requirements(REQUIREMENTS)?;
    let mut different = Vec::new();
    for (source, extension, target) in CARRIED {
        let wanted = files(&root().join(source), extension)?;
        ensure!(!wanted.is_empty(), "{source} has no .{extension} files");
        let target = Path::new(CHART).join(target);
        different.extend(synchronise(&wanted, &target, extension, options.write)?);
    }
    let rendered = tempfile::tempdir()?;
    let status = Command::new(python)
        .arg(root().join("tests/helm/check.py"))
        .arg(rendered.path())
        .stdin(Stdio::null())
        .status()
        .context("tests/helm/check.py could not be started")?;
    ensure!(status.success(), "a check of the chart failed");
    let rendered = files(rendered.path(), "yaml")?;
    different.extend(synchronise(
        &rendered,
        Path::new(SNAPSHOTS),
        "yaml",
        options.write,
    )?);
    if let Some(version) = wrong_version()? {
        different.push(version);
    }
    if different.is_empty() {
        println!("helm: {} renderings hold", rendered.len());
        return Ok(());
    }
    bail!(
        "{}\n`cargo xtask helm --write` writes them; review the changes before you commit",
        different.join("\n")
    )
}

/// Writes the wanted files to a folder, or reports how they differ.
fn synchronise(
    wanted: &Files,
    folder: &Path,
    extension: &str,
    write: bool,
) -> anyhow::Result<Vec<String>> {
    let place = root().join(folder);
    let found = files(&place, extension)?;
    let differences = differences(&found, wanted);
    if !write {
        let report = |(name, how)| format!("{}: {how}", folder.join(name).display());
        return Ok(differences.into_iter().map(report).collect());
    }
    for (name, _) in differences {
        let path = place.join(&name);
        let done = match wanted.get(&name) {
            Some(text) => fs::write(&path, text),
            None => fs::remove_file(&path),
        };
        done.with_context(|| format!("{} could not be written", path.display()))?;
        println!("wrote {}", folder.join(name).display());
    }
    Ok(Vec::new())
}

/// The names of files that differ, with the first differing line.
fn differences(found: &Files, wanted: &Files) -> Vec<(String, String)> {
    let missing = wanted.keys().filter(|name| !found.contains_key(*name));
    let missing = missing.map(|name| (name.clone(), "is missing".to_owned()));
    let others = found.iter().filter_map(|(name, text)| {
        let how = match wanted.get(name) {
            None => "is not needed".to_owned(),
            Some(wanted) if wanted == text => return None,
            Some(wanted) => {
                let lines = wanted
                    .split(|byte| *byte == b'\n')
                    .zip(text.split(|byte| *byte == b'\n'));
                let same = lines.take_while(|(wanted, text)| wanted == text);
                format!("differs from line {}", same.count() + 1)
            }
        };
        Some((name.clone(), how))
    });
    missing.chain(others).collect()
}

/// The files of a folder with this extension; none if the folder does not exist.
fn files(folder: &Path, extension: &str) -> anyhow::Result<Files> {
    let mut found = Files::new();
    if !folder.exists() {
        return Ok(found);
    }
    for entry in
        fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let text =
                fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            found.insert(name.into_owned(), text);
        }
    }
    Ok(found)
}

/// The fault, if the chart names another version of the program.
fn wrong_version() -> anyhow::Result<Option<String>> {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml"))?;
    let ours = format!("appVersion: {}", env!("CARGO_PKG_VERSION"));
    let right = chart.lines().any(|line| line == ours);
    Ok((!right).then(|| format!("{CHART}/Chart.yaml: has no line `{ours}`")))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(names: &[(&str, &str)]) -> Files {
        let entry = |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_vec());
        names.iter().map(entry).collect()
    }

    #[test]
    fn files_that_differ_are_named() {
        let wanted = sample(&[("a", "1\n2\n3\n"), ("b", "1\n"), ("c", "1\n")]);
        let found = sample(&[("a", "1\n2\n4\n"), ("b", "1\n"), ("d", "1\n")]);
        let expected = [
            ("c", "is missing"),
            ("a", "differs from line 3"),
            ("d", "is not needed"),
        ];
        let expected = expected.map(|(name, how)| (name.to_owned(), how.to_owned()));
        assert_eq!(differences(&found, &wanted), expected);
        assert!(differences(&wanted, &wanted).is_empty());
    }

    #[test]
    fn extended_file_differs_from_its_former_end() {
        let found = sample(&[("a", "1\n")]);
        let wanted = sample(&[("a", "1\n2\n")]);
        let expected = [("a".to_owned(), "differs from line 2".to_owned())];
        assert_eq!(differences(&found, &wanted), expected);
    }
}
