//! The files of the page. They are bundled by `web/build`, committed, and part of the program.

use http::HeaderValue;

/// A file of the page.
pub(crate) struct Asset {
    pub(crate) content_type: HeaderValue,
    pub(crate) body: &'static [u8],
}

/// Returns the file at a path.
pub(crate) fn find(path: &str) -> Option<Asset> {
    let (content_type, body): (_, &[u8]) = match path {
        "/" => ("text/html; charset=utf-8", include_bytes!("../web/dist/index.html")),
        "/app.js" => ("text/javascript; charset=utf-8", include_bytes!("../web/dist/app.js")),
        "/app.css" => ("text/css; charset=utf-8", include_bytes!("../web/dist/app.css")),
        "/icon.svg" => ("image/svg+xml", include_bytes!("../web/dist/icon.svg")),
        "/licenses.txt" => ("text/plain; charset=utf-8", include_bytes!("../web/dist/licenses.txt")),
        _ => return None,
    };
    Some(Asset { content_type: HeaderValue::from_static(content_type), body })
}
