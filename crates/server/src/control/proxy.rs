//! A proxy to the dashboard of a server that listens on its control socket only. It binds a
//! loopback address while the command runs, and forwards requests to the socket.
//!
//! Clients need a token that is created for the run, and an IP address in `Host`, as for a server's
//! own TCP address. Requests and connections have the server's limits. The proxy does not interpret
//! what it forwards.
//!
//! If the server does not begin a response, the client gets 502 with the reason. If a response
//! breaks off, the proxy's response breaks off too: its length is not reached, or its last chunk is
//! missing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::token::Token;
use super::{Refused, guard, limits, server};
use crate::interrupt::Signals;

/// Hop-by-hop headers, beside those that `Connection` names (RFC 9110, 7.6.1). `Trailer` is one of
/// them, because trailers are not forwarded.
const OF_ONE_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers of a request that are for the proxy only.
const OURS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    header::HOST,
    header::PROXY_AUTHORIZATION,
];

/// Serves the dashboard of the server behind `socket` on `address` until a signal ends this.
/// `opened` gets its URL, which holds a token; what it returns is dropped at the end.
///
/// # Errors
/// The address is no address of this machine, or in use; `opened` fails.
pub fn run<T>(
    address: SocketAddr,
    socket: PathBuf,
    opened: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let mut signals = Signals::new().context("cannot handle signals")?;
        let proxy = Proxy::bind(address, socket)?;
        let _kept = opened(&proxy.url())?;
        let (stop, stopped) = watch::channel(false);
        let mut passing = tokio::spawn(proxy.run(stopped));
        let ended = tokio::select! {
            _ = signals.recv() => None,
            // without a listener on the address there is nothing to wait for
            ended = &mut passing => Some(ended),
        };
        stop.send_replace(true);
        let ended = match ended {
            Some(ended) => ended,
            None => passing.await,
        };
        ended?.context("cannot listen")
    })
}

/// A bound address, and the socket behind it.
#[derive(Debug)]
struct Proxy {
    listener: std::net::TcpListener,
    address: SocketAddr,
    token: Token,
    socket: Arc<PathBuf>,
}

impl Proxy {
    /// Binds an address for the server at `socket`.
    ///
    /// # Errors
    /// The address is unavailable, or other machines can reach it.
    pub(crate) fn bind(address: SocketAddr, socket: PathBuf) -> anyhow::Result<Self> {
        anyhow::ensure!(
            address.ip().is_loopback(),
            "{address} is reachable from other machines: write 127.0.0.1:{}, or use `[control] tcp` for remote access",
            address.port()
        );
        let listener = std::net::TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Proxy {
            listener,
            address,
            token: Token::random()?,
            socket: Arc::new(socket),
        })
    }

    /// URL of the dashboard, with the token after `#`, which browsers do not send.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token.text())
    }

    /// Forwards requests until `stop` becomes true.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) -> std::io::Result<()> {
        let server = Server {
            socket: self.socket,
            bound: limits::PASSED_ON,
        };
        let answers = Router::new().fallback(pass_on).with_state(server);
        let answers = guard::with_whole_bodies(answers);
        let answers = guard::with_token(answers, self.token);
        server::answer_over_tcp(TcpListener::from_std(self.listener)?, answers, stop).await;
        Ok(())
    }
}

/// The server behind the proxy.
#[derive(Clone)]
struct Server {
    socket: Arc<PathBuf>,
    /// Longest time until the server begins its response.
    bound: Duration,
}

/// Forwards a request, and returns the server's response.
async fn pass_on(State(server): State<Server>, request: Request) -> Response {
    let shown = server.socket.display();
    let stream = match UnixStream::connect(&*server.socket).await {
        Ok(stream) => stream,
        Err(error) => {
            return refused(format!(
                "no answer from the server at {shown}: {error}; is it running?"
            ));
        }
    };
    let may_be_done = "the request may have been carried out; check with `nvmirage ls`";
    match timeout(server.bound, ask(stream, request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => refused(format!(
            "no answer from the server at {shown}, which closed the connection: {error:#}. It may have been stopped; {may_be_done}"
        )),
        Err(_) => refused(format!(
            "no answer from the server at {shown} within {} s: it may still be processing it, and {may_be_done}",
            server.bound.as_secs()
        )),
    }
}

fn refused(detail: String) -> Response {
    Refused::new(StatusCode::BAD_GATEWAY, "no server", detail).into_response()
}

async fn ask(stream: UnixStream, mut request: Request) -> anyhow::Result<Response> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream)).await?;
    // the task ends with the response's body, or when that is dropped
    tokio::spawn(connection);
    let path = request.uri().path_and_query();
    *request.uri_mut() = path.context("it names no path")?.as_str().parse()?;
    // to HTTP/1.0 the server would send responses that end with the connection, and a client could
    // not tell a complete one from one that broke off
    *request.version_mut() = Version::HTTP_11;
    strip(request.headers_mut());
    for name in &OURS {
        request.headers_mut().remove(name);
    }
    let host = header::HeaderValue::from_static("localhost");
    request.headers_mut().insert(header::HOST, host);
    let mut response = sender.send_request(request).await?.map(Body::new);
    strip(response.headers_mut());
    Ok(response)
}

/// Removes hop-by-hop headers.
fn strip(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter();
    let named = named.filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = named
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixListener};

    use super::*;

    #[test]
    fn headers_of_one_connection_go_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("connection", "x-other,\t,"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-type", "text/plain"),
            ("last-event-id", "7"),
            ("www-authenticate", "Bearer"),
        ] {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        strip(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "last-event-id", "www-authenticate"]);
    }

    /// The client's view of a server that reads a request, sends `words`, and closes the
    /// connection, or keeps it open where `holds`.
    async fn through(words: &'static str, holds: bool) -> String {
        asked("HTTP/1.1", words, holds).await
    }

    async fn asked(version: &str, words: &'static str, holds: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let server = UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut head = [0; 4096];
            let len = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..len]).to_lowercase();
            assert!(head.starts_with("get /v1/events http/1.1\r\n"), "{head}");
            assert!(head.contains("\r\nhost: localhost\r\n"), "{head}");
            assert!(!head.contains("authorization"), "{head}");
            stream.write_all(words.as_bytes()).await.unwrap();
            if holds {
                std::future::pending::<()>().await;
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Server {
            socket: Arc::new(socket),
            bound: Duration::from_millis(200),
        };
        let answers = Router::new().fallback(pass_on).with_state(state);
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(server::answer_over_tcp(listener, answers, stopped));
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /v1/events {version}\r\nHost: localhost\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut reply = Vec::new();
        let read = client.read_to_end(&mut reply);
        // a reset connection is as good as one that ends early
        let _ = timeout(Duration::from_secs(20), read).await.unwrap();
        String::from_utf8(reply).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_no_whole_one() {
        let whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n";
        let reply = through(whole, false).await;
        assert!(reply.ends_with("5\r\nwhole\r\n0\r\n\r\n"), "{reply}");

        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n";
        let reply = through(chunks, false).await;
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(!reply.ends_with("0\r\n\r\n"), "{reply}");

        let length = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart";
        let reply = through(length, false).await.to_lowercase();
        assert!(reply.contains("content-length: 10\r\n"), "{reply}");
        let (_, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(body.len() < 10, "{reply}");

        // the proxy always speaks HTTP/1.1 to the server, so the response has a recognizable end
        let reply = asked("HTTP/1.0", whole, false).await;
        assert!(reply.ends_with("\r\n\r\nwhole"), "{reply}");
    }

    #[tokio::test]
    async fn an_answer_that_does_not_begin_is_said_with_its_reason() {
        for (words, holds, reason) in [
            ("", false, "which closed the connection"),
            ("HTTP/1.1 200 O", false, "which closed the connection"),
            ("", true, "it may still be processing it"),
        ] {
            let reply = through(words, holds).await;
            assert!(reply.starts_with("HTTP/1.1 502 "), "{reply}");
            assert!(reply.contains(reason), "{reply}");
            assert!(reply.contains("check with `nvmirage ls`"), "{reply}");
        }
    }
}
