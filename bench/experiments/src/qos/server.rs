//! The server under test: started for the run with a folder of its own, asked over its API.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_bench::clock;
use weir_bench::control::Control;
use weir_bench::error::BenchError;
use weir_bench::machine;
use weir_bench::nfs3::{self, Handle, Stable};
use weir_bench::rpc::Credential;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest HTTP response that is read, in bytes: the metrics of ten thousand volumes
/// are some 20 MB.
const LONGEST_ANSWER: u64 = 256 << 20;
/// Path of the resources in the API.
const PLACE: &str = "/v1/projects/weir/locations/local";

/// A volume of the server with a file that loads use.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Id of the volume in the API.
    pub name: String,
    /// Handle of the volume's root directory.
    pub root: Handle,
    /// Handle of the file.
    pub file: Handle,
    /// The file's size in bytes.
    pub size: u64,
}

/// Limit of a volume, by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Whatever the machine can.
    None,
    /// So many bytes.
    Bytes(u64),
    /// So many operations.
    Ops(u64),
}

/// The pool of volumes without a limit, and that of volumes with throughput given by hand.
const FREE: &str = "free";
const MANUAL: &str = "extreme";

/// A running server. Dropping it ends it and removes its folder.
pub struct Server {
    child: Child,
    folder: PathBuf,
    /// Address of its NFS service.
    pub nfs: SocketAddr,
    api: SocketAddr,
    http: ureq::Agent,
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Returns the server's program: `named`, or else `weir` beside this program, or else `weir` in
/// PATH.
pub fn program(named: Option<&Path>) -> PathBuf {
    let beside = || {
        let path = std::env::current_exe().ok()?.with_file_name("weir");
        path.is_file().then_some(path)
    };
    let named = named.map(Path::to_owned);
    named.or_else(beside).unwrap_or_else(|| "weir".into())
}

impl Server {
    /// Starts `weir` with a new folder below `scratch`.
    pub fn start(weir: &Path, scratch: &Path, memory: &str) -> Result<Server, BenchError> {
        Server::start_with(weir, scratch, memory, &[])
    }

    /// Starts it with more arguments of `weir serve`.
    pub fn start_with(
        weir: &Path,
        scratch: &Path,
        memory: &str,
        more: &[&str],
    ) -> Result<Server, BenchError> {
        let folder = scratch.join(format!("weir-bench-qos-{}", clock::now_ns()));
        std::fs::create_dir_all(&folder).map_err(BenchError::io("make a folder"))?;
        let log = folder.join("log");
        let output = std::fs::File::create(&log).map_err(BenchError::io("make a file"))?;
        let errors = output.try_clone().map_err(BenchError::io("make a file"))?;
        let child = Command::new(weir)
            .args([
                "serve",
                "--nfs",
                "127.0.0.1:0",
                "--api",
                "127.0.0.1:0",
                "--no-rpcbind",
                "--memory",
                memory,
                "--data",
            ])
            .arg(folder.join("data"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(BenchError::io(format!("start {}", weir.display())))?;
        let mut server = Server {
            child,
            folder,
            nfs: SocketAddr::from(([127, 0, 0, 1], 0)),
            api: SocketAddr::from(([127, 0, 0, 1], 0)),
            http: ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(PATIENCE))
                .build()
                .into(),
        };
        let end = clock::now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let api = said.lines().find_map(|line| {
                line.split("API on http://")
                    .nth(1)?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            });
            let nfs = said
                .lines()
                .filter(|line| !line.contains("API on"))
                .find_map(|line| {
                    line.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
                        .find_map(|word| {
                            word.trim_end_matches(['.', ':']).parse::<SocketAddr>().ok()
                        })
                });
            if let (Some(api), Some(nfs)) = (api, nfs) {
                (server.api, server.nfs) = (api, nfs);
                return Ok(server);
            }
            let ended = server.child.try_wait().ok().flatten().is_some();
            if ended || clock::now_ns() > end {
                return Err(BenchError::Usage(format!(
                    "the server did not start:\n{said}"
                )));
            }
            sleep(20);
        }
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One HTTP request to the API.
    pub fn http(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, String), BenchError> {
        let url = format!("http://{}{path}", self.api);
        let outcome = match (method, body) {
            ("POST", Some(body)) => self.http.post(url).send_json(body),
            ("PATCH", Some(body)) => self.http.patch(url).send_json(body),
            ("DELETE", _) => self.http.delete(url).call(),
            _ => self.http.get(url).call(),
        };
        let failed = |e| BenchError::Io(format!("{method} {path}"), std::io::Error::other(e));
        let mut answer = outcome.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(LONGEST_ANSWER);
        Ok((status, body.read_to_string().map_err(failed)?))
    }

    /// A change by the API, waited for.
    pub fn change(&self, method: &str, path: &str, body: &Value) -> Result<(), BenchError> {
        let (status, text) = self.http(method, &format!("{PLACE}/{path}"), Some(body))?;
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let refused = |why: &str| BenchError::Usage(format!("{method} {path}: {why}"));
        if status != 200 {
            return Err(refused(&format!("{status} {text}")));
        }
        let end = clock::now_ns() + PATIENCE.as_nanos() as u64;
        loop {
            if let Some(error) = answer.get("error") {
                return Err(refused(&error.to_string()));
            }
            if answer.get("done").and_then(Value::as_bool) != Some(false)
                && answer.get("done").is_some()
            {
                return Ok(());
            }
            let Some(name) = answer
                .get("name")
                .and_then(Value::as_str)
                .map(str::to_owned)
            else {
                return Err(refused("no operation came back"));
            };
            if clock::now_ns() > end {
                return Err(refused("not done in time"));
            }
            sleep(2);
            let (_, text) = self.http("GET", &format!("/v1/{name}"), None)?;
            answer = serde_json::from_str(&text).unwrap_or_default();
        }
    }

    /// Makes a pool of `gib` GiB.
    pub fn pool(&self, id: &str, level: &str, gib: u64, more: Value) -> Result<(), BenchError> {
        let mut body = json!({"serviceLevel": level, "capacityGib": gib.to_string()});
        merge(&mut body, more);
        self.change("POST", &format!("storagePools?storagePoolId={id}"), &body)
    }

    /// Makes a volume, without a file.
    pub fn make_volume(
        &self,
        id: &str,
        pool: &str,
        gib: u64,
        more: Value,
    ) -> Result<(), BenchError> {
        let mut body = json!({
            "storagePool": pool, "capacityGib": gib.to_string(), "shareName": id, "protocols": ["NFSV3"],
        });
        merge(&mut body, more);
        self.change("POST", &format!("volumes?volumeId={id}"), &body)
    }

    /// The volume with a file of `size` bytes.
    pub fn volume(&self, id: &str, size: u64) -> Result<Volume, BenchError> {
        let root = Credential { uid: 0, gid: 0 };
        let mut control =
            Control::connect(self.nfs, Some(&root), clock::now_ns() as u32, PATIENCE)?;
        let dir = control.mount(&format!("/{id}"), Some(&root))?;
        let file = match control.lookup(&dir, b"load")? {
            Some(file) => file,
            None => control
                .one(
                    "CREATE",
                    |c, out, xid| c.create(out, xid, &dir, b"load"),
                    nfs3::created,
                )?
                .ok_or_else(|| BenchError::Protocol("CREATE gave no handle".into()))?,
        };
        let block = (1u64 << 20).min(size) as u32;
        let mut data = vec![0u8; block as usize];
        for at in 0..size / u64::from(block) {
            for (n, word) in data.chunks_mut(8).enumerate() {
                let value = (at << 20 | n as u64)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .to_le_bytes();
                word.copy_from_slice(value.get(..word.len()).unwrap_or_default());
            }
            let offset = at * u64::from(block);
            control.one(
                "WRITE",
                |c, out, xid| {
                    c.write_head(out, xid, &file, offset, block, Stable::Unstable);
                    out.extend_from_slice(&data);
                },
                nfs3::written,
            )?;
        }
        control.one(
            "COMMIT",
            |c, out, xid| c.commit(out, xid, &file),
            nfs3::committed,
        )?;
        Ok(Volume {
            name: id.to_owned(),
            root: dir,
            file,
            size,
        })
    }

    /// Makes the pools between which [`Server::limit`] moves volumes. The manual one gives up to
    /// 12,800 MiB/s; both are thinly provisioned.
    pub fn pools(&self) -> Result<(), BenchError> {
        self.pool(FREE, "UNLIMITED", 1 << 20, json!({}))?;
        self.pool(MANUAL, "EXTREME", 102_400, json!({"qosType": "MANUAL"}))
    }

    /// Limits a volume, online: by its pool's kind and, of bytes, by throughput given to it.
    /// Operations are limited by a pool with custom performance, which the volume has to itself.
    pub fn limit(&self, volume: &str, limit: Limit) -> Result<(), BenchError> {
        let (pool, given) = match limit {
            Limit::None => (FREE.to_owned(), json!({})),
            Limit::Bytes(bytes) => {
                let mibps = bytes as f64 / f64::from(1u32 << 20);
                (MANUAL.to_owned(), json!({"throughputMibps": mibps}))
            }
            Limit::Ops(ops) => {
                let pool = format!("ops-{ops}-{volume}");
                let path = format!("{PLACE}/storagePools/{pool}");
                if self.http("GET", &path, None)?.0 != 200 {
                    let performance = json!({
                        "customPerformanceEnabled": true, "totalThroughputMibps": 5120, "totalIops": ops.to_string(),
                    });
                    self.pool(&pool, "FLEX", 2048, performance)?;
                }
                (pool, json!({}))
            }
        };
        let mask = match limit {
            Limit::Bytes(_) => "storagePool,throughputMibps",
            _ => "storagePool",
        };
        let mut body = json!({"storagePool": pool});
        merge(&mut body, given);
        self.change(
            "PATCH",
            &format!("volumes/{volume}?updateMask={mask}"),
            &body,
        )
    }

    /// Makes a volume that nothing limits, without a file.
    pub fn make_free(&self, id: &str, gib: u64) -> Result<(), BenchError> {
        self.make_volume(id, FREE, gib, json!({}))
    }

    /// The sum of the samples of a metric.
    pub fn metric(&self, family: &str) -> Result<f64, BenchError> {
        let (status, page) = self.http("GET", "/metrics", None)?;
        if status != 200 {
            return Err(BenchError::Protocol(format!("/metrics answered {status}")));
        }
        let of = |line: &str| {
            let rest = line.strip_prefix(family)?;
            let value = rest.rsplit_once(' ')?.1;
            (rest.starts_with(['{', ' '])).then(|| value.parse::<f64>().ok())?
        };
        Ok(page.lines().filter_map(of).sum())
    }

    /// Processor time of the server so far, in nanoseconds, to the kernel's own accuracy; 0 if it
    /// is gone.
    pub fn processor_ns(&self) -> u64 {
        let mut clock = libc::CLOCK_MONOTONIC;
        // SAFETY: the call writes the clock's number and nothing else.
        match unsafe { libc::clock_getcpuclockid(self.pid() as libc::pid_t, &raw mut clock) } {
            0 => {
                let mut now = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                // SAFETY: `now` may be written; the call does not read it.
                unsafe { libc::clock_gettime(clock, &raw mut now) };
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
            }
            _ => 0,
        }
    }

    /// Processor seconds and resident bytes of the server.
    pub fn usage(&self) -> (f64, u64) {
        let resident = machine::process(self.pid()).map_or(0, |now| now.rss);
        (self.processor_ns() as f64 / 1e9, resident)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A signal that it may clean up after; it need not, the folder goes.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
