//! Checks before a request reaches a route: client, token, `Host`, and size limits.

use std::net::IpAddr;
use std::sync::Arc;

use api::Refusal;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::limits::{BODIES_KIB, BODY};
use super::token::Token;
use super::{MAX_BODY_LEN, Refused, dashboard};

/// Reads each body whole, within its limits, before the route runs.
pub(super) fn with_whole_bodies(router: Router) -> Router {
    let room = Arc::new(Semaphore::new(BODIES_KIB));
    router.layer(middleware::from_fn_with_state(room, whole_body))
}

/// Requires a `Host` that no name server can have provided, and a token. The dashboard's own files
/// need no token: they contain nothing about served objects.
pub(super) fn with_token(router: Router, token: Token) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(token), admitted))
}

/// Whether a user of this machine may control the server: the server's own user, and root. The
/// socket's mode says the same; this check holds even if the mode was changed.
pub(super) fn may_steer(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The response to all other users.
pub(super) fn to_strangers() -> Router {
    Router::new().fallback(|| async {
        let detail =
            "only the user that the server runs as, and root, may control it: send the request as one of them";
        Refused::new(StatusCode::FORBIDDEN, "forbidden", detail)
    })
}

async fn whole_body(State(room): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = match timeout(BODY, read(&room, body)).await {
        Ok(Ok(read)) => read,
        Ok(Err(refused)) => return refused.into_response(),
        Err(_) => {
            let detail = format!(
                "the request body did not arrive within {} s",
                BODY.as_secs()
            );
            return Refused::new(StatusCode::REQUEST_TIMEOUT, "too slow", detail).into_response();
        }
    };
    // the permit is held until the request is answered
    let (bytes, _room) = bytes;
    next.run(Request::from_parts(parts, Body::from(bytes)))
        .await
}

async fn read<'a>(
    room: &'a Semaphore,
    body: Body,
) -> Result<(Bytes, tokio::sync::SemaphorePermit<'a>), Refused> {
    let too_large = || {
        let detail = format!("the request body is larger than {} KiB", MAX_BODY_LEN >> 10);
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too large", detail)
    };
    let most = MAX_BODY_LEN as u64;
    let hint = body.size_hint();
    if hint.lower() > most {
        return Err(too_large());
    }
    let len = hint.upper().unwrap_or(most).min(most);
    let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(u32::MAX);
    let permit = room.acquire_many(kib).await;
    let permit = permit.map_err(|error| Refusal::failed(&error.into()))?;
    let read = Limited::new(body, MAX_BODY_LEN).collect().await;
    let read = read.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            too_large()
        } else {
            Refused::new(
                StatusCode::BAD_REQUEST,
                "broken off",
                format!("the request body is incomplete: {error}"),
            )
        }
    })?;
    Ok((read.to_bytes(), permit))
}

async fn admitted(State(token): State<Arc<Token>>, request: Request, next: Next) -> Response {
    if !is_address(request.headers(), request.uri()) {
        let detail = "the header `Host` is a name, as in a request from a page of another site: use the address itself, as 127.0.0.1, or localhost";
        let status = StatusCode::MISDIRECTED_REQUEST;
        return Refused::new(status, "not asked by address", detail).into_response();
    }
    if dashboard::is_asked(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    if !token.admits(authorization) {
        let detail =
            "send `Authorization: Bearer TOKEN` with the contents of the file in `token_file`";
        let refused = Refused::new(StatusCode::UNAUTHORIZED, "no token", detail);
        return ([(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response();
    }
    next.run(request).await
}

/// Whether a request names this server by IP address or as localhost. A page that makes its own
/// name resolve to this machine (DNS rebinding) sends that name.
fn is_address(headers: &HeaderMap, uri: &Uri) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let is_ours = |host: &str| {
        let host = host.parse::<axum::http::uri::Authority>().ok();
        host.is_some_and(|host| {
            let name = host.host().trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
        })
    };
    let target = uri.authority().map(|authority| authority.as_str());
    host.is_some_and(is_ours) && target.is_none_or(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_user_and_root_may_steer() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_steer(own) && may_steer(0));
        for other in [own + 1, 65534, u32::MAX] {
            assert!(!may_steer(other));
        }
    }

    #[test]
    fn only_addresses_and_this_machine_are_asked() {
        let asked = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_address(&headers, &Uri::from_static("/v1"))
        };
        for host in [
            "127.0.0.1:9600",
            "127.0.0.1",
            "localhost:9600",
            "LOCALHOST",
            "[::1]:9600",
            "192.168.1.7:80",
        ] {
            assert!(asked(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9600",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "a@b@c",
        ] {
            assert!(!asked(host), "{host}");
        }
        assert!(!is_address(&HeaderMap::new(), &Uri::from_static("/v1")));
    }
}
