//! A private nginx that forwards requests to another server.

use std::{fs, net::SocketAddr, path::Path};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};

use super::server::{Program, Server, user_name};

const NGINX: Program = Program {
    name: "nginx",
    install: "apt-get install nginx-light",
};

/// Requests on one connection: no connection is opened during a window.
const UNLIMITED: u32 = 1_000_000_000;

/// nginx with its workers. They outlive a master process that is killed, so it is asked to end them.
pub(crate) struct Nginx {
    pub(crate) server: Server,
}

impl Nginx {
    /// A worker per core, connections kept alive on both sides, no access log.
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        let start = NGINX.start(folder, |port| {
            let home = folder.join(format!("nginx-{port}"));
            fs::create_dir(&home)?;
            let file = home.join("nginx.conf");
            fs::write(&file, settings(&home, port, upstream)?)?;
            Ok(vec!["-c".to_owned(), file.display().to_string()])
        });
        let server = start.await?;
        Ok(Self { server })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = i32::try_from(self.server.process.pid()).map(Pid::from_raw);
        // Fails only if it has already ended.
        if let Ok(pid) = pid
            && kill(pid, Signal::SIGTERM).is_ok()
        {
            let _ = waitpid(pid, None);
        }
    }
}

fn settings(home: &Path, port: u16, upstream: SocketAddr) -> anyhow::Result<String> {
    let (home, user) = (home.display(), user_name()?);
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = kinds.map(|kind| format!("{kind}_temp_path {home}/{kind};\n"));
    let folders = folders.concat();
    Ok(format!(
        "daemon off;
worker_processes auto;
user {user};
pid {home}/pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    {folders}
    access_log off;
    keepalive_requests {UNLIMITED};
    upstream echo {{
        server {upstream};
        keepalive 512;
        keepalive_requests {UNLIMITED};
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://echo;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
"
    ))
}
