//! A machine that runs jobs: a folder, a web server on loopback, and a program in the place of the agent.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};

use super::super::{Site, generated, script_of, settings};
use crate::devfile::Devfile;
use crate::pipeline::{AgentFile, Architecture, Editor, PipelineSettings};

/// What the agent's stand-in notes of what it was given.
pub(super) const NOTES: &str = "printf '%s\\n' \"$@\" >\"$notes/arguments\"\nenv -0 >\"$notes/environment\"\n\
                                while [ \"$1\" != --token-file ]; do shift; done\ncat \"$2\" >\"$notes/token\"\n\
                                cat \"$GW_FILES_DIR\"/* >\"$notes/key\" 2>/dev/null\n";

pub(super) struct Host {
    folder: tempfile::TempDir,
    address: SocketAddr,
    agent: Vec<u8>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Host {
    /// Makes one whose agent is a script of these lines.
    pub(super) fn new(agent: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["www", "notes", "tmp", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let agent = format!("#!/bin/sh\nnotes='{}'\n{agent}", folder.path().join("notes").display()).into_bytes();
        fs::write(folder.path().join("www/agent"), &agent).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, root) = (Arc::<Mutex<Vec<String>>>::default(), folder.path().join("www"));
        let heads = seen.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &root, &heads);
            }
        });
        Self { folder, address, agent, seen }
    }

    /// Runs a job to its end; returns its status and its log. What it leaves behind does not hold this up.
    pub(super) fn run(&self, job: &mut Command) -> (Option<i32>, String) {
        let log = fs::File::create(self.path("log")).unwrap();
        let status = job.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap();
        (status.code(), String::from_utf8_lossy(&fs::read(self.path("log")).unwrap()).into_owned())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn url(&self, path: &str) -> String {
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        format!("http://{}{path}", self.address)
    }

    /// Returns what the agent noted.
    pub(super) fn noted(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("notes/{name}")));
        text.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the heads of the requests so far.
    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns what is left in the folder for temporary files.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Makes a pipe with a name, through which a job tells the test how far it is.
    pub(super) fn fifo(&self, name: &str) {
        assert!(Command::new("mkfifo").arg(self.path(name)).status().unwrap().success());
    }

    pub(super) fn settings(&self) -> PipelineSettings {
        let sha256: [u8; 32] = digest(&SHA256, &self.agent).as_ref().try_into().unwrap();
        let agent = |architecture| AgentFile { architecture, url: self.url("agent"), sha256 };
        let agents = vec![agent(Architecture::Amd64), agent(Architecture::Arm64)];
        PipelineSettings { agents, editor: Editor::None, ..settings() }
    }

    /// Makes the job of a workspace, as a runner has it: in the folder of a project, with the variables of CI.
    pub(super) fn job(&self, devfile: &Devfile, settings: PipelineSettings, site: &Site) -> Command {
        // A test that waits for what does not come has to end too.
        self.job_of(&["timeout", "-k", "5", "100", "sh"], devfile, settings, site)
    }

    /// Makes a job with its shell.
    pub(super) fn job_of(&self, words: &[&str], devfile: &Devfile, settings: PipelineSettings, site: &Site) -> Command {
        let script = self.path("script");
        fs::write(&script, script_of(&generated(devfile, &settings, site))).unwrap();
        let mut job = Command::new(words[0]);
        job.args(&words[1..]).arg(&script).current_dir(self.folder.path());
        job.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        job.env("TMPDIR", self.path("tmp")).env("HOME", self.path("home")).env("CI_PROJECT_DIR", "/nowhere");
        for number in 1..=5 {
            job.env(format!("GW_ID_TOKEN_{number}"), format!("id token {number}"));
        }
        job
    }

    /// Makes a repository that is served as files, below `private/` only to who has the job's token.
    pub(super) fn repository(&self, path: &str) {
        let line = "git init -q work && cd work && echo hello >README && git add README \
                    && git -c user.name=a -c user.email=a@example.com commit -qm one \
                    && git clone -q --bare . \"$1\" && git -C \"$1\" update-server-info";
        let to = self.path("www/private").join(path);
        let mut command = Command::new("sh");
        command.args(["-c", line, "sh"]).arg(&to).current_dir(self.folder.path()).env("HOME", self.path("home"));
        assert!(command.status().unwrap().success());
    }
}

/// Answers one request with a file.
fn serve(stream: TcpStream, root: &Path, heads: &Mutex<Vec<String>>) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
    let path = path.split('?').next().unwrap().trim_start_matches('/').to_owned();
    // gitlab-ci-token:job-token
    let proves = head.iter().any(|line| line.ends_with("Basic Z2l0bGFiLWNpLXRva2VuOmpvYi10b2tlbg=="));
    heads.lock().unwrap().push(head.join("\n"));
    let (status, body) = match fs::read(root.join(&path)) {
        _ if path.starts_with("private/") && !proves => ("401 No\r\nwww-authenticate: Basic realm=\"a\"", Vec::new()),
        Ok(body) => ("200 Yes", body),
        Err(_) => ("404 None", Vec::new()),
    };
    let mut stream = stream;
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    // Who asks may be gone.
    stream.write_all(&[head.into_bytes(), body].concat()).unwrap_or_default();
}
