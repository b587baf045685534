//! The web console: files that hold no secret and are served to everybody, and the rules that a
//! browser is to keep to.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use weir_console::File;

/// Sources of a page's scripts, styles and data: this server. Scripts make no markup of text but by
/// Svelte's own templates.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// Returns a file of the console, or the way to it from `/`; `None`: the path is another's.
pub fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    if path == "/console" || (path == "/" && accepts(headers, header::ACCEPT, "text/html")) {
        return Some((StatusCode::FOUND, [(header::LOCATION, "/console/")]).into_response());
    }
    let file = weir_console::find(path.strip_prefix("/console/")?);
    Some(match file {
        Some(file) => serve(file, headers),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    })
}

fn serve(file: &File, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH);
    let known = known.is_some_and(|tag| tag.as_bytes() == file.etag.as_bytes());
    let gzip = file
        .gzip
        .filter(|_| accepts(headers, header::ACCEPT_ENCODING, "gzip"));
    let mut reply = match (known, gzip) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, Some(packed)) => packed.into_response(),
        (false, None) => file.plain.into_response(),
    };
    let keep = match file.is_hashed() {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let set = reply.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    set.insert(header::ETAG, HeaderValue::from_static(file.etag));
    set.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip.is_some() && !known {
        set.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    reply
}

pub(crate) fn accepts(headers: &HeaderMap, name: header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name);
    values
        .iter()
        .filter_map(|v| v.to_str().ok())
        .any(|v| v.split(',').any(|one| is(one, wanted)))
}

/// Returns true if an element of a list such as `gzip;q=0.5` is `wanted`, and not refused by `q=0`.
fn is(element: &str, wanted: &str) -> bool {
    let mut parts = element.split(';').map(str::trim);
    let named = parts
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case(wanted));
    let refused = |part: &str| {
        part.strip_prefix("q=")
            .is_some_and(|q| q.trim_matches(['0', '.']).is_empty())
    };
    named && !parts.any(refused)
}

/// Adds to a reply what browsers are to observe: to every one that its type is the one it says, to
/// pages the policy.
pub fn protect(reply: &mut Response) {
    let set = reply.headers_mut();
    set.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    let own = HeaderValue::from_static("same-origin");
    set.insert("cross-origin-resource-policy", own.clone());
    let page = set.get(header::CONTENT_TYPE);
    if page.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/html")) {
        return;
    }
    // A page that is not the server's own has a stricter one.
    set.entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(POLICY));
    set.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    set.insert("cross-origin-opener-policy", own);
}
