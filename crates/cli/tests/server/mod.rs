//! A server that replies from a list.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A request: method, path, query, body.
pub type Request = (String, String, String, Value);

/// The server. Its threads end with the process.
pub struct Server {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// Answer of the server, which may depend besides method and path on how often the same was asked
/// before.
pub type Answer = Box<dyn Fn(&Request, usize) -> Option<(u16, Value)> + Send + Sync>;

impl Server {
    pub fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &log, &answer));
            }
        });
        Self { address, requests }
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Request>>, answer: &Answer) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap().to_owned();
        let target = words.next().unwrap().to_owned();
        let mut length = 0;
        let mut token = None;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            let header = header.trim();
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(": ").unwrap();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => token = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let request = (method, path.to_owned(), query.to_owned(), body);
        let before = {
            let mut log = log.lock().unwrap();
            let same = |r: &&Request| r.0 == request.0 && r.1 == request.1;
            let before = log.iter().filter(same).count();
            log.push(request.clone());
            if let Some(token) = token {
                log.push(("TOKEN".into(), token, String::new(), Value::Null));
            }
            before
        };
        let missing = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": path}});
        let (status, body) = answer(&request, before).unwrap_or((404, missing));
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        writer.write_all((head + &body).as_bytes()).unwrap();
    }
}
