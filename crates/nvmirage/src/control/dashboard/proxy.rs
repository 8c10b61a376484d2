//! A way to the dashboard of a server that listens on its control socket alone: an address of this machine, for as long as the command
//! runs, that passes requests on to the socket.
//!
//! Who asks needs a token that is made for the run, and an address in `Host`, as for a server's own address; requests and connections
//! have the server's bounds, and it knows nothing of what it passes on.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, UnixStream},
    sync::watch,
    time::timeout,
};

use super::super::{Refusal, guard, limits, server, token::Token};

/// Headers of one connection (RFC 9110, 7.6.1), and what is for us alone.
const OURS: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A bound address, and the socket behind it.
#[derive(Debug)]
pub(crate) struct Proxy {
    listener: std::net::TcpListener,
    address: SocketAddr,
    token: Token,
    socket: Arc<PathBuf>,
}

impl Proxy {
    /// Binds an address for the server at `socket`.
    ///
    /// # Errors
    /// The address cannot be had, or is one that other machines reach.
    pub(crate) fn bind(address: SocketAddr, socket: PathBuf) -> anyhow::Result<Self> {
        anyhow::ensure!(
            address.ip().is_loopback(),
            "{address} is reached by other machines: write 127.0.0.1:{}; `[control] tcp` is for those",
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

    /// Where the dashboard is, with the token behind `#`, which browsers send nowhere.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token.text())
    }

    /// Passes requests on until `stop` says true.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) -> std::io::Result<()> {
        let answers = Router::new().fallback(pass_on).with_state(self.socket);
        let answers = guard::with_whole_bodies(answers);
        let answers = guard::with_token(answers, self.token);
        server::answer_over_tcp(TcpListener::from_std(self.listener)?, answers, stop).await;
        Ok(())
    }
}

/// Asks the server, and answers what it does.
async fn pass_on(State(socket): State<Arc<PathBuf>>, request: Request) -> Response {
    match timeout(limits::PASSED_ON, ask(&socket, request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => unreachable_server(&socket, &error.to_string()),
        Err(_) => unreachable_server(&socket, "it does not answer"),
    }
}

fn unreachable_server(socket: &std::path::Path, why: &str) -> Response {
    let detail = format!(
        "no answer from the server at {}: {why}; is it running?",
        socket.display()
    );
    Refusal::new(StatusCode::BAD_GATEWAY, "no server", detail).into_response()
}

async fn ask(socket: &std::path::Path, mut request: Request) -> anyhow::Result<Response> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream)).await?;
    // it ends with the answer's body, or where that is dropped
    tokio::spawn(connection);
    let path = request.uri().path_and_query();
    *request.uri_mut() = path.context("it names no path")?.as_str().parse()?;
    strip(request.headers_mut());
    let host = header::HeaderValue::from_static("localhost");
    request.headers_mut().insert(header::HOST, host);
    let response = sender.send_request(request).await?;
    let mut response = response.map(Body::new);
    strip(response.headers_mut());
    Ok(response)
}

fn strip(headers: &mut HeaderMap) {
    for name in &OURS {
        headers.remove(name);
    }
}
