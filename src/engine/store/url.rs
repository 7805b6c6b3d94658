//! Paths that are URLs.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The URL that a path is: a scheme, and `://`.
pub(crate) fn of(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (is_scheme && scheme.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(text)
}

/// Whether a URL names a file on this disk.
pub(crate) fn is_file(url: &str) -> bool {
    url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file://"))
}

/// Refuses a URL as the place of something that is made.
pub(crate) fn refuse_url(path: &Path) -> Result<()> {
    match of(path) {
        None => Ok(()),
        Some(url) if is_file(url) => Err(Error::unsupported(path, "a URL here", "give the path")),
        Some(_) => local(path).map(drop),
    }
}

/// The path on this disk that a path, which may be a file:// URL, means.
///
/// # Errors
/// [`Error::Unsupported`] for other URLs.
pub(crate) fn local(path: &Path) -> Result<PathBuf> {
    match of(path) {
        None => Ok(path.to_path_buf()),
        Some(url) if is_file(url) => from_file(path, url),
        Some(url) => {
            let shown = Path::new(url.split(['?', '#']).next().unwrap_or_default());
            let reason = if cfg!(feature = "remote") {
                "stores in object storage are read only: make one on this disk, and push it"
            } else {
                "the feature `remote` reads stores from object storage"
            };
            Err(Error::unsupported(shown, "a URL here", reason))
        }
    }
}

#[cfg(feature = "remote")]
fn from_file(path: &Path, url: &str) -> Result<PathBuf> {
    let parsed = url::Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
    parsed.ok_or_else(|| Error::unsupported(path, "this file:// URL", "file:///folder/store names one on this machine"))
}

#[cfg(not(feature = "remote"))]
fn from_file(path: &Path, _url: &str) -> Result<PathBuf> {
    Err(Error::unsupported(path, "a URL", "give the path, or build with the feature `remote`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_a_scheme_is_a_url() {
        for url in ["s3://bucket/a", "http://127.0.0.1:80/a", "file:///a", "abfss://c@a/b"] {
            assert_eq!(of(Path::new(url)), Some(url));
        }
        for path in ["store", "/a/b", "a:b", "://a", "1x://a", "C://a", "./s3:/a"] {
            assert_eq!(of(Path::new(path)), None, "{path}");
            assert_eq!(local(Path::new(path)).unwrap(), Path::new(path));
            assert!(refuse_url(Path::new(path)).is_ok());
        }
    }

    #[test]
    fn a_url_is_no_place_to_write_to_and_what_may_be_a_secret_is_not_repeated() {
        let error = local(Path::new("https://host/store?sig=SECRET")).unwrap_err().to_string();
        assert!(error.contains("https://host/store") && !error.contains("SECRET"), "{error}");
        assert!(matches!(refuse_url(Path::new("file:///a")), Err(Error::Unsupported { .. })));
        let file = local(Path::new("file:///a%20b/c"));
        if cfg!(feature = "remote") {
            assert_eq!(file.unwrap(), Path::new("/a b/c"));
        } else {
            assert!(matches!(file, Err(Error::Unsupported { .. })));
        }
    }
}
