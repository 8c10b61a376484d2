//! The storm: what is no request, what is too much, what is in use, more at once than there is room
//! for, and clients that never read. Until its input ends; then it says what was answered.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

/// Threads that ask one thing after another.
const ASKING: usize = 8;
/// Requests at once.
const AT_ONCE: usize = 1000;
/// Clients that never read.
const DEAF: usize = 8;
/// How long an answer is waited for.
const BOUND: Duration = Duration::from_secs(5);

/// What a thread does again and again.
type Blow = fn(&Path, &Answers);

/// What was answered.
#[derive(Debug, Default)]
struct Answers {
    good: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Connections that ended without an answer, or that could not be made.
    none: AtomicU64,
}

/// Blows until the input ends.
///
/// # Errors
/// The input cannot be read.
pub(super) fn blow(socket: &Path) -> Result<()> {
    let answers = Arc::<Answers>::default();
    let ends = Arc::new(AtomicBool::new(false));
    let since = Instant::now();
    let mut threads = Vec::new();
    let all: [(usize, Blow); 3] = [(ASKING, ask_all), (1, flood), (DEAF, be_deaf)];
    for (count, does) in all {
        for _ in 0..count {
            let (answers, ends) = (answers.clone(), ends.clone());
            let socket = socket.to_owned();
            threads.push(thread::spawn(move || {
                while !ends.load(Relaxed) {
                    does(&socket, &answers);
                }
            }));
        }
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    ends.store(true, Relaxed);
    let elapsed = since.elapsed().as_secs_f64();
    for thread in threads {
        // a thread that panicked has asked no more
        let _ = thread.join();
    }
    let count = |of: &AtomicU64| of.load(Relaxed);
    let (good, refused, failed) = (
        count(&answers.good),
        count(&answers.refused),
        count(&answers.failed),
    );
    println!(
        "{}",
        json!({
            "good": good, "refused": refused, "failed": failed, "unanswered": count(&answers.none),
            "per_second": (good + refused + failed) as f64 / elapsed,
        })
    );
    Ok(())
}

/// What is asked one after another: malformed, wrong, huge, unknown, in use.
fn requests() -> Vec<Vec<u8>> {
    let request = |line: &str, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let deep = "[".repeat(100_000);
    let large = format!(
        "{{\"name\": \"{}\", \"kind\": \"ram\", \"size\": \"1GiB\"}}",
        "x".repeat(900_000)
    );
    vec![
        request("POST /v1/media", "{"),
        request("POST /v1/media", &deep),
        request("POST /v1/media", &large),
        request("POST /v1/media", "{\"name\": 7, \"kind\": \"ram\"}"),
        request(
            "POST /v1/media",
            "{\"name\": \"m\", \"kind\": \"ram\", \"sise\": \"1GiB\"}",
        ),
        request("DELETE /v1/media/m0", ""),
        request("DELETE /v1/namespaces/n0", ""),
        request("PATCH /v1/media/m0", "{\"timing\": {\"read\": \"0s\"}}"),
        request("GET /v1/media/none", ""),
        request("GET /v1", ""),
        request("GET /metrics", ""),
        b"nvme\0\xff\r\n\r\n".to_vec(),
        // more than a body may have, of which little comes
        b"POST /v1/media HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n{"
            .to_vec(),
    ]
}

fn ask_all(socket: &Path, answers: &Answers) {
    for request in requests() {
        let answered = UnixStream::connect(socket).and_then(|mut stream| {
            stream.set_read_timeout(Some(BOUND))?;
            stream.set_write_timeout(Some(BOUND))?;
            // the server may close the connection before it has read the whole request
            let _ = stream.write_all(&request);
            read(&mut stream)
        });
        answers.count(answered.ok());
    }
}

/// A thousand at once.
fn flood(socket: &Path, answers: &Answers) {
    let mut open = Vec::with_capacity(AT_ONCE);
    for _ in 0..AT_ONCE {
        let Ok(mut stream) = UnixStream::connect(socket) else {
            answers.count(None);
            continue;
        };
        let _ = stream.set_read_timeout(Some(BOUND));
        let _ = stream.set_write_timeout(Some(BOUND));
        let sent = stream
            .write_all(b"GET /v1/media HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        if sent.is_ok() {
            open.push(stream);
        }
    }
    for mut stream in open {
        answers.count(read(&mut stream).ok());
    }
}

/// Asks for much, again and again, and never reads.
fn be_deaf(socket: &Path, answers: &Answers) {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        answers.count(None);
        return thread::sleep(Duration::from_millis(10));
    };
    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..100 {
        if stream.write_all(request).is_err() {
            break;
        }
    }
    thread::sleep(Duration::from_secs(1));
}

/// The status of an answer, all of which is read.
fn read(stream: &mut UnixStream) -> std::io::Result<u16> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let status = answer.get(9..12).unwrap_or_default();
    let status = std::str::from_utf8(status).unwrap_or_default();
    Ok(status.parse().unwrap_or_default())
}

impl Answers {
    fn count(&self, status: Option<u16>) {
        let counted = match status {
            Some(200..=399) => &self.good,
            Some(400..=499) => &self.refused,
            Some(500..=599) => &self.failed,
            _ => &self.none,
        };
        counted.fetch_add(1, Relaxed);
    }
}
