//! Recognises the answer of a dev server that refuses every host but its own machine's: a defence against DNS rebinding,
//! which the gateway's own sign-in already is. Tried with JupyterLab, Django, webpack-dev-server and Vite.
//!
//! A match only says that a second try with `localhost` is worthwhile. Whether the app accepts that decides.

use http::StatusCode;

/// Bytes of a body that are searched: Django's page has its title behind a few hundred.
pub(crate) const LOOKED_AT_MAX: usize = 1024;

/// Phrases, one of which such an answer has near its beginning.
const WORDS: &[&[u8]] = &[
    // Vite, `server.allowedHosts`.
    b"Blocked request. This host",
    // webpack-dev-server, `allowedHosts`.
    b"Invalid Host header",
    // Django with `DEBUG`, `ALLOWED_HOSTS`.
    b"DisallowedHost",
    // Rails, `config.hosts`.
    b"Blocked host",
    // Jupyter says why in its log alone, `ServerApp.allow_remote_access`.
    b"<title>Jupyter Server</title>",
    b"<title>JupyterLab</title>",
];

/// Returns whether an answer with this status can be such a refusal.
pub(crate) fn may_refuse_host(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN)
}

/// Returns whether an answer that [may be one](may_refuse_host) and begins with these bytes is worth a second try.
pub(crate) fn looks_like_refusal(status: StatusCode, beginning: &[u8]) -> bool {
    let beginning = beginning.get(..LOOKED_AT_MAX).unwrap_or(beginning);
    let has = |words: &&[u8]| beginning.windows(words.len()).any(|window| window == *words);
    may_refuse_host(status) && WORDS.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VITE: &[u8] =
        b"Blocked request. This host (\"5173-my-app.ws.test\") is not allowed.\nTo allow this host, add";

    #[test]
    fn refusals_of_dev_servers_are_recognised_by_status_and_words() {
        assert!(looks_like_refusal(StatusCode::FORBIDDEN, VITE));
        assert!(looks_like_refusal(StatusCode::FORBIDDEN, b"Invalid Host header"));
        let django = b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n  <title>DisallowedHost\n          at /</title>";
        assert!(looks_like_refusal(StatusCode::BAD_REQUEST, django));
    }

    #[test]
    fn other_answers_are_left_alone() {
        assert!(!looks_like_refusal(StatusCode::OK, VITE));
        assert!(!looks_like_refusal(StatusCode::FORBIDDEN, b""));
        assert!(!looks_like_refusal(StatusCode::FORBIDDEN, b"You may not see this."));
        let late = [vec![b' '; LOOKED_AT_MAX], VITE.to_vec()].concat();
        assert!(!looks_like_refusal(StatusCode::FORBIDDEN, &late));
    }
}
