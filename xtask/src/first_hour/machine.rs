//! Where the commands run: in a bare Debian below a temporary folder, or on this machine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use tempfile::TempDir;

use crate::packages::succeed;

/// The release of Debian.
const SUITE: &str = "bookworm";
const NAME_SERVERS: &str = "/etc/resolv.conf";
/// With those of a proxy that this machine trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The user's environment in the bare system.
const ENVIRONMENT: [&str; 5] = [
    "PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "TERM=xterm",
    "LANG=C.UTF-8",
    "SHELL=/bin/sh",
];

/// A machine of a new user. Its files are deleted with the value.
pub(super) struct Machine {
    folder: TempDir,
    is_bare: bool,
}

impl Machine {
    /// A folder in which `./up` and `target/quick/switchboard` start `program`, on free ports.
    pub(super) fn here(program: &Path) -> anyhow::Result<Self> {
        let program = fs::canonicalize(program).with_context(|| program.display().to_string())?;
        let folder = temporary()?;
        // Postgres, which does not run as root, gets there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let built = folder.path().join("target/quick");
        fs::create_dir_all(&built)?;
        symlink(program, built.join("switchboard"))?;
        let up = folder.path().join("up");
        fs::write(&up, "#!/bin/sh\nexec target/quick/switchboard up \"$@\"\n")?;
        fs::set_permissions(&up, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            folder,
            is_bare: false,
        })
    }

    /// Installs Debian's smallest system, git, certificates and the Rust toolchain of this machine.
    /// Needs root and `debootstrap`.
    pub(super) fn bare() -> anyhow::Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a bare system needs root: use `--here`"
        );
        let folder = temporary()?;
        let machine = Self {
            folder,
            is_bare: true,
        };
        let root = machine.folder.path();
        succeed(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--include=ca-certificates,git", SUITE])
                .arg(root),
        )?;
        copy(&toolchain()?, &root.join("opt/rust"))?;
        for file in [NAME_SERVERS, AUTHORITIES] {
            copy(Path::new(file), &root.join(file.trim_start_matches('/')))?;
        }
        // A copy of what is committed; nothing else of the working copy is seen.
        succeed(
            Command::new("git")
                .args(["clone", "--quiet", "--bare", SOURCE])
                .arg(root.join("source")),
        )?;
        // Mounts of this process and its children only; they end with it.
        unshare(CloneFlags::CLONE_NEWNS).context("no namespace for mounts")?;
        let nothing = None::<&str>;
        mount(
            nothing,
            "/",
            nothing,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            nothing,
        )?;
        mount(
            Some("proc"),
            &root.join("proc"),
            Some("proc"),
            MsFlags::empty(),
            nothing,
        )?;
        let shared = root.join("dev/shm");
        fs::create_dir_all(&shared)?;
        mount(
            Some("tmpfs"),
            &shared,
            Some("tmpfs"),
            MsFlags::empty(),
            nothing,
        )?;
        Ok(machine)
    }

    pub(super) const fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// A command line of a user's shell: in the clone, once there is one.
    pub(super) fn command(&self, line: &str) -> Command {
        let folder = self.folder.path();
        if self.is_bare {
            let is_cloned = folder.join("root/switchboard").exists();
            let place = if is_cloned {
                "/root/switchboard"
            } else {
                "/root"
            };
            let mut command = Command::new("chroot");
            command
                .arg(folder)
                .args(["/usr/bin/env", "-i"])
                .args(ENVIRONMENT);
            command.args(["/bin/sh", "-c", &format!("cd {place} && exec {line}")]);
            return command;
        }
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("exec {line}")])
            .current_dir(folder);
        for listener in ["DEVICE", "HTTP", "ADMIN"] {
            command.env(format!("SWITCHBOARD_{listener}_LISTEN"), "127.0.0.1:0");
        }
        command.env("SWITCHBOARD_DATA_DIR", folder.join("data"));
        // A new user has a private database.
        command.env_remove("DATABASE_URL").env_remove("REDIS_URL");
        command
    }

    /// The name of the system.
    pub(super) fn system(&self) -> anyhow::Result<String> {
        let release = fs::read_to_string(self.folder.path().join("etc/os-release"))?;
        let name = release
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Ok(name
            .context("a system without a name")?
            .trim_matches('"')
            .to_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.is_bare {
            // The folder is deleted next; what is mounted is not a part of it.
            for place in ["proc", "dev/shm"] {
                let _ = umount2(&self.folder.path().join(place), MntFlags::MNT_DETACH);
            }
        }
    }
}

fn temporary() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("switchboard-").tempdir()?)
}

/// The folder of the toolchain that compiled this program.
fn toolchain() -> anyhow::Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    succeed(
        Command::new("cp")
            .args(["--recursive", "--dereference", "--no-target-directory"])
            .args([from, to]),
    )
}
