//! The API, spoken by hand: one request a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::PATIENCE;

/// Parent of the tests' volumes.
pub const PLACE: &str = "/v1/projects/weir/locations/local";

/// The API of a server.
#[derive(Clone, Copy)]
pub struct Api(pub SocketAddr);

/// Why there is no answer: the server is gone.
#[derive(Debug)]
pub struct ServerGone;

impl Api {
    /// Sends a request; the status and the body.
    pub fn send(self, method: &str, path: &str, body: &Value) -> Result<(u16, Value), ServerGone> {
        let (status, body) = self.raw(method, path, body)?;
        let body = serde_json::from_str(&body).unwrap_or(Value::Null);
        Ok((status, body))
    }

    /// A page that is no JSON.
    pub fn text(self, path: &str) -> String {
        self.raw("GET", path, &Value::Null).unwrap().1
    }

    fn raw(self, method: &str, path: &str, body: &Value) -> Result<(u16, String), ServerGone> {
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.0)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let body = if body.is_null() {
                String::new()
            } else {
                body.to_string()
            };
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(|_| ServerGone)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(ServerGone)?;
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        Ok((status.ok_or(ServerGone)?, body.to_owned()))
    }

    /// GET of `path`: the status and the body.
    pub fn get(self, path: &str) -> (u16, Value) {
        self.send("GET", path, &Value::Null).unwrap()
    }

    /// Makes a change and waits until its operation has ended.
    pub fn change(
        self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Result<(), Value>, ServerGone> {
        let (status, mut answer) = self.send(method, path, body)?;
        if status != 200 {
            return Ok(Err(answer));
        }
        while answer["done"] != json!(true) {
            std::thread::sleep(Duration::from_millis(5));
            let name = answer["name"].as_str().unwrap().to_owned();
            answer = self.send("GET", &format!("/v1/{name}"), &Value::Null)?.1;
        }
        Ok(match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        })
    }

    /// Makes a change, and panics if it fails.
    pub fn must(self, method: &str, path: &str, body: &Value) {
        let outcome = self.change(method, path, body).unwrap();
        outcome.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    }

    /// Makes a pool that is large enough for all tests.
    pub fn pool(self, id: &str) {
        self.must(
            "POST",
            &format!("{PLACE}/storagePools?storagePoolId={id}"),
            &json!({"capacityGib": "204800", "serviceLevel": "PREMIUM", "network": "default"}),
        );
    }

    /// Path of a volume.
    pub fn volume(id: &str) -> String {
        format!("{PLACE}/volumes/{id}")
    }

    /// Returns the body of a request that creates a volume, exported under its id.
    pub fn volume_body(pool: &str, id: &str) -> Value {
        json!({"storagePool": pool, "capacityGib": "100", "shareName": id, "protocols": ["NFSV3"],
               "unixPermissions": "0777"})
    }

    /// Makes the volume `id` in `pool`; anything but success is a panic.
    pub fn make_volume(self, pool: &str, id: &str) {
        let path = format!("{PLACE}/volumes?volumeId={id}");
        self.must("POST", &path, &Api::volume_body(pool, id));
    }

    /// Sets the export policy of a volume.
    pub fn set_policy(self, id: &str, rules: &Value) {
        let path = format!("{}?updateMask=exportPolicy", Api::volume(id));
        self.must("PATCH", &path, &json!({"exportPolicy": {"rules": rules}}));
    }
}
