//! The dashboard: a page that uses the API as any client does. The page contains no secret and is
//! served without a token.
//!
//! `build.rs` builds the embedded files from `web/`, or embeds a page that explains how to build
//! them. File names contain a digest of their content, so that browsers cache the files; browsers
//! revalidate the page itself.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Refused;

/// The built files of the dashboard.
mod built {
    include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));
}

/// The page for a program that was built without the dashboard.
const WITHOUT: &str = include_str!("without.html");
/// URL path of the page's files.
const ASSETS: &str = "/assets/";

/// The page may fetch from this server only, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of the page and its files.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Whether this program contains the dashboard.
pub fn is_built() -> bool {
    !built::FILES.is_empty()
}

/// Whether a request is for the page or one of its files, which contain nothing about served
/// objects.
pub(super) fn is_asked(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && (path == "/" || path.starts_with(ASSETS))
}

/// The page and its files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(page))
        .route("/assets/{file}", get(asset))
}

async fn page() -> Response {
    let page = file("index.html").unwrap_or(WITHOUT.as_bytes());
    answer("text/html; charset=utf-8", "no-store", page)
}

async fn asset(Path(name): Path<String>) -> Response {
    match file(&format!("assets/{name}")) {
        Some(bytes) => answer(kind(&name), "public, max-age=31536000, immutable", bytes),
        None => {
            let detail = format!(
                "the dashboard has no file `{name}`; the page is from another version of this server: reload it"
            );
            Refused::new(StatusCode::NOT_FOUND, "not found", detail).into_response()
        }
    }
}

fn file(name: &str) -> Option<&'static [u8]> {
    let mut files = built::FILES.iter();
    files
        .find(|(there, _)| *there == name)
        .map(|(_, bytes)| *bytes)
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

fn answer(kind: &'static str, keep: &'static str, bytes: &'static [u8]) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    let all = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, keep)];
    for (name, value) in all.into_iter().chain(HEADERS) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_and_its_files_are_answered_without_a_token() {
        for path in ["/", "/assets/index-1.js"] {
            assert!(is_asked(&Method::GET, path) && is_asked(&Method::HEAD, path));
            assert!(!is_asked(&Method::POST, path) && !is_asked(&Method::DELETE, path));
        }
        for path in [
            "",
            "//",
            "/v1",
            "/v1/stats",
            "/metrics",
            "/openapi.json",
            "/assets",
            "/Assets/a",
            "*",
            "/v1/../assets/",
        ] {
            assert!(!is_asked(&Method::GET, path), "{path}");
        }
    }

    #[tokio::test]
    async fn the_page_may_fetch_from_here_alone_and_is_not_kept() {
        let response = page().await;
        let header = |name: HeaderName| response.headers()[&name].to_str().unwrap();
        assert!(header(header::CONTENT_SECURITY_POLICY).starts_with("default-src 'none';"));
        assert_eq!(header(header::CACHE_CONTROL), "no-store");
        assert_eq!(header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        let response = asset(Path("no-such.js".into())).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
}
