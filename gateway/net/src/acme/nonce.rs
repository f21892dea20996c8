//! Retries of requests whose nonce the authority did not accept. It did not process them; they are sent again with a
//! fresh one (RFC 8555, section 6.5). The library does so too, but gives up soon.

use instant_acme::Error;

/// Problem type (RFC 8555, section 6.7).
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Most retries of one order. A working authority refuses a nonce now and then; one that refuses them all is broken.
const AGAIN_MAX: u32 = 10;

/// Retries that are left.
#[derive(Debug)]
pub(super) struct Nonces {
    left: u32,
}

impl Default for Nonces {
    fn default() -> Self {
        Self { left: AGAIN_MAX }
    }
}

impl Nonces {
    /// Returns whether a request that failed with this error is to be sent again, and counts the retry.
    pub(super) fn forgive(&mut self, error: &Error) -> bool {
        if !is_bad_nonce(error) || self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

fn is_bad_nonce(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE))
}

/// Waits for a request's answer, and makes the request anew for as long as its nonce is refused.
macro_rules! again {
    ($nonces:expr, $request:expr) => {
        loop {
            match $request.await {
                Err(error) if $nonces.forgive(&error) => {}
                answer => break answer,
            }
        }
    };
}

pub(super) use again;

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &str) -> Error {
        Error::Api(serde_json::from_value(serde_json::json!({"type": kind, "detail": "no"})).expect("a problem"))
    }

    #[test]
    fn request_is_sent_again_for_its_nonce_and_for_nothing_else() {
        let mut nonces = Nonces::default();
        for other in ["urn:ietf:params:acme:error:rateLimited", "urn:ietf:params:acme:error:malformed", "badNonce", ""]
        {
            assert!(!nonces.forgive(&problem(other)), "{other}");
        }
        assert!(!nonces.forgive(&Error::Str("no connection")));
        assert_eq!(nonces.left, AGAIN_MAX);
        assert!(nonces.forgive(&problem(BAD_NONCE)));
    }

    #[test]
    fn authority_that_takes_no_nonce_at_all_is_given_up() {
        let mut nonces = Nonces::default();
        let mut asked = 0;
        let refused: Result<(), Error> = futures_util::FutureExt::now_or_never(async {
            again!(nonces, async {
                asked += 1;
                Err(problem(BAD_NONCE))
            })
        })
        .expect("an answer");
        assert!(refused.is_err_and(|error| is_bad_nonce(&error)));
        assert_eq!(asked, AGAIN_MAX + 1);
    }
}
