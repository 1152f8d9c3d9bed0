//! What a user at a terminal sees of `up`: the steps of its start, and what to do next.

use std::{
    fmt::Write as _,
    io::{IsTerminal as _, stderr, stdout},
    path::Path,
    time::Instant,
};

use crate::{exit::print_stderr, process::Ready, shell};

/// The steps of the start, with their durations. Programs read the ready line instead.
pub(super) struct Steps {
    /// A user reads stdout.
    is_shown: bool,
    began: Instant,
    last: Instant,
}

impl Steps {
    pub(super) fn begin(is_json: bool) -> Self {
        let now = Instant::now();
        Self {
            is_shown: !is_json && stdout().is_terminal(),
            began: now,
            last: now,
        }
    }

    /// A step has ended, and the next one begins.
    pub(super) fn done(&mut self, step: &str) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        if self.is_shown && stderr().is_terminal() {
            print_stderr(&format!("switchboard: {step}: {seconds:.1} s"));
        }
    }

    /// What a user reads instead of the ready line: no secret that lasts is in it.
    pub(super) fn summary(&self, ready: &Ready, folder: &Path, is_default: bool) -> Option<String> {
        self.is_shown.then(|| {
            let seconds = self.began.elapsed().as_secs_f64();
            summary(ready, folder, is_default, seconds)
        })
    }
}

fn summary(ready: &Ready, folder: &Path, is_default: bool, seconds: f64) -> String {
    let text = |address: &Option<String>| address.clone().unwrap_or_default();
    let http = text(&ready.http_url);
    let program = std::env::args().next();
    let program = program.unwrap_or_else(|| "switchboard".to_owned());
    let program = shell::quote(&program);
    let place = match is_default {
        true => String::new(),
        false => format!(" --data-dir {}", shell::quote_path(folder)),
    };
    let mut lines = format!("Switchboard is ready after {seconds:.1} s. Ctrl-C stops it.\n\n");
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "  {name:<9}{value}");
    };
    row("devices", &text(&ready.device_addr));
    if let Some(address) = &ready.tls_addr {
        row("", &format!("{address} (TLS)"));
    }
    row("HTTP", &http);
    if let Some(url) = &ready.https_url {
        row("", &format!("{url} (TLS)"));
    }
    if cfg!(feature = "api-page") {
        row("API", &format!("{http}/docs"));
    } else {
        row("API", &format!("{http}/openapi.json"));
    }
    row(
        "console",
        &format!("{} (once, within 10 minutes)", text(&ready.console_url)),
    );
    row("admin", &format!("{}/readyz", ready.admin_url));
    row(
        "data",
        &format!("{}; the API key is in its file up.json", folder.display()),
    );
    let _ = write!(
        lines,
        "\nConnect a demo device in a second terminal, and call it from a third:\n\n  \
         {program} device --id toy-1{place}\n  \
         {program} call toy-1 get_current_time{place}\n\n\
         `{program} doctor{place}` checks this installation. README.md has the next steps."
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_addresses_and_no_key() {
        let ready = Ready {
            device_addr: Some("127.0.0.1:7700".to_owned()),
            http_url: Some("http://127.0.0.1:8080".to_owned()),
            https_url: Some("https://127.0.0.1:8443".to_owned()),
            api_key: Some("sb_secret".to_owned()),
            console_url: Some("http://127.0.0.1:8080/console/#code=c".to_owned()),
            ..Ready::default()
        };
        let text = summary(&ready, Path::new("/data"), false, 1.26);
        for part in [
            "after 1.3 s",
            "127.0.0.1:7700",
            "http://127.0.0.1:8080\n",
            "https://127.0.0.1:8443 (TLS)\n",
            "http://127.0.0.1:8080/console/#code=c (once",
            "device --id toy-1 --data-dir /data\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("sb_secret"), "{text}");
        let spaced = summary(&ready, Path::new("/my data"), false, 1.0);
        assert!(spaced.contains("toy-1 --data-dir '/my data'\n"), "{spaced}");
        assert!(spaced.contains("doctor --data-dir '/my data'`"), "{spaced}");
        assert!(!summary(&ready, Path::new("/data"), true, 1.0).contains("--data-dir"));
    }
}
